"""Packaging. Every dependency is pinned to what was tested and has its reason beside it."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "fairseq_attn_zoo/__init__.py").read_text("utf-8")).group(1)

setup(
    name="fairseq_attn_zoo",
    version=VERSION,
    description="Every classic attention of recurrent translation models, as architectures of fairseq",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_attn_zoo", "fairseq_attn_zoo.*"]),
    python_requires=">=3.10,<3.14",
    install_requires=[
        "torch>=2.6,<2.14",  # tensors; the README has a table of what was tried with which Python
        "fairseq-fixed==0.12.3.1",  # fairseq (module `fairseq`) that imports on Python 3.11 and later
        "hydra-core==1.3.2",  # what this fairseq was tested with
        "omegaconf==2.3.0",  # what this fairseq was tested with
        "numpy>=2.2,<2.6",  # fairseq's data, and arrays for the figures
        "sacrebleu==2.6.0",  # BLEU with a signature; --eval-bleu
        "sacremoses==0.2.0",  # --tokenizer moses, and the recipes' tokenisation
        "subword-nmt==0.3.8",  # --bpe subword_nmt, and the recipes' subwords
        "tensorboardX==2.6.5",  # --tensorboard-logdir
        "altair==6.3.0; python_version >= '3.11'",  # figures: one description gives static pictures and interactive pages
        "altair==6.2.2; python_version < '3.11'",  # the last one for Python 3.10
        "packaging>=24",  # reads these pins for `fairseq-attn-zoo doctor`
        "vl-convert-python==1.9.0.post1",  # renders altair's figures as SVG and PNG without a browser
    ],
    entry_points={"console_scripts": ["fairseq-attn-zoo = fairseq_attn_zoo.cli:main"]},
    extras_require={
        "test": [
            "pytest==9.2.0",  # the tests
            "pytest-xdist==3.8.0",  # the tests on both cores
            "hypothesis==6.170.15; python_version >= '3.11'",  # draws sizes, flags and texts
            "hypothesis==6.168.5; python_version < '3.11'",  # the last one for Python 3.10
            "playwright==1.65.2",  # opens the page in an installed Chromium; 53 MB, as it brings its own Node.js
            "ruff==0.17.5",  # lint and format
            "mypy==2.4.1",  # types of the torch-only part
        ]
    },
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
