# Two commands: `make quickstart` and `make test`. Each does its own set-up, in .venv or in the virtual environment that
# is active.

PYTHON ?= python3
ARCH ?= gru_rnnsearch
TORCH ?= torch==2.13.0

VENV := $(or $(VIRTUAL_ENV),$(CURDIR)/.venv)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.fairseq_attn_zoo-installed

.PHONY: quickstart test lint install clean

quickstart: install
	$(BIN)/python examples/quickstart/run.py --arch $(ARCH)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: install
	$(BIN)/python -m fairseq_attn_zoo.models.tables README.md --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy fairseq_attn_zoo

install: $(INSTALLED)

# fairseq compiles against torch: with torch already here, and without a build environment of its own, its build neither
# downloads a second torch nor compiles for another one.
$(INSTALLED): setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" setuptools wheel cython numpy ninja
	@echo "installing fairseq; where there is no ready wheel it compiles for some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation fairseq-fixed==0.12.3.1
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	touch $@

clean:
	rm -rf build .pytest_cache .hypothesis .ruff_cache .mypy_cache
