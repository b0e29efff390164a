"""The ways to install the package, and the ways to name it to fairseq."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import PACKAGE

ROOT = PACKAGE.parent
FORMS = [
    "bare name",
    "relative",
    "absolute",
    "trailing slash",
    "link to it",
    "link to its parent",
    "link of another name",
]


def run(*arguments: str | Path, **settings) -> str:
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, encoding="utf-8", check=False, **settings
    )
    assert finished.returncode == 0, (finished.stdout + finished.stderr)[-3000:]
    return finished.stdout


@pytest.fixture(scope="module")
def registered_by(tmp_path_factory) -> dict[tuple[str, bool], str]:
    """(form of --user-dir, whether the package was imported before) -> the module that registered an architecture."""
    folder = tmp_path_factory.mktemp("links")
    for name, target in {PACKAGE.name: PACKAGE, "parent": ROOT, "another": PACKAGE}.items():
        (folder / name).symlink_to(target)
    forms = {
        "bare name": (ROOT, PACKAGE.name),
        "relative": (folder, os.path.relpath(PACKAGE, folder)),
        "absolute": (folder, PACKAGE),
        "trailing slash": (ROOT, f"./{PACKAGE.name}/"),
        "link to it": (folder, folder / PACKAGE.name),
        "link to its parent": (folder, Path("parent") / PACKAGE.name),
        "link of another name": (folder, folder / "another"),
    }
    assert list(forms) == FORMS
    cases = {(name, imported): (*form, imported) for name, form in forms.items() for imported in (False, True)}
    job = json.dumps([[str(folder), str(user_dir), imported] for folder, user_dir, imported in cases.values()])
    printed = run(
        Path(__file__).with_name("programs") / "user_dir_forms.py",
        input=job,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return dict(zip(cases, printed.splitlines(), strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("imported", [False, True], ids=["first", "imported before"])
def test_every_path_to_the_package_is_a_user_dir(registered_by, form, imported):
    name = "another" if form == "link of another name" and not imported else PACKAGE.name
    assert registered_by[form, imported] == f"{name}.models.rnnsearch"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that nothing is written into the checkout."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, source)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert any(name.endswith("LICENSE") for name in archive.namelist())
    assert sorted(names) == sorted(str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py"))


def test_an_installed_package_finds_itself(wheel, tmp_path):
    """From a folder that is not the checkout, and with nothing of the checkout on the path."""
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel)
    settings = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(tmp_path / "site")}}
    folder = run("-c", "import fairseq_attn_zoo as zoo; print(*zoo.__path__)", **settings).strip()
    assert Path(folder) == tmp_path / "site" / PACKAGE.name
    assert f"--user-dir {folder}" in run("-m", "fairseq_attn_zoo", "doctor", "--user-dir", folder, **settings)


def test_a_fairseq_that_cannot_be_imported_gets_one_line(tmp_path):
    """As the original fairseq on Python 3.11."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq/__init__.py").write_text(
        "raise ValueError('mutable default CommonConfig is not allowed\\nuse')"
    )
    finished = subprocess.run(
        [sys.executable, "-m", "fairseq_attn_zoo", "translate", "--path", __file__],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        encoding="utf-8",
    )
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert (
        "fairseq is installed but cannot be imported (ValueError: mutable default CommonConfig is not allowed)" in line
    )
    assert "fairseq-fixed 0.12.3.1" in line


def test_a_pytorch_that_is_too_old_gets_one_line():
    code = "import torch; torch.__version__ = type(torch.__version__)('2.5.1'); import fairseq_attn_zoo.models"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert finished.returncode == 1
    assert finished.stderr.strip().split("\n")[-1].endswith("wants PyTorch 2.6 or later; this is 2.5.1")


def test_architectures_are_registered_also_when_the_package_is_imported_before_fairseq(tmp_path):
    code = "import fairseq_attn_zoo, argparse; from fairseq import utils, models; from fairseq.data import data_utils as data"
    code += f"; utils.import_user_module(argparse.Namespace(user_dir={str(PACKAGE)!r}))"
    code += "; print(models.MODEL_REGISTRY['gru_rnnsearch'].__module__, bool(data.batch_by_size.patched_by))"
    assert run("-c", code, cwd=ROOT).splitlines()[-1] == f"{PACKAGE.name}.models.rnnsearch True"


@pytest.mark.parametrize(
    "command", [["fairseq_attn_zoo"], ["fairseq_attn_zoo.cli", "translate"], ["fairseq_attn_zoo.grammar"]]
)
def test_help_waits_for_nothing_that_takes_seconds_to_import(command):
    name, *words = command
    module = f"{name}.__main__" if name == PACKAGE.name else name
    code = f"import sys, {module} as program\ntry: program.main({[*words, '--help']})\nexcept SystemExit: pass\n"
    code += "slow = {'torch', 'fairseq', 'numpy', 'altair', 'sacrebleu'}\nprint(sorted(slow & set(sys.modules)))"
    assert run("-c", code, cwd=ROOT).splitlines()[-1] == "[]"
