"""A tiny parallel corpus, and models trained on it for a few seconds, each made once a session when first asked for.

The tests of fairseq's commands stand in one file, so that ``pytest -n 2 --dist loadfile`` makes next to nothing twice. What
needs fairseq is imported where it is used: pytest reads this file also when it runs only tests that need PyTorch
alone.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import USER_DIR, Sentence, Training, quick_learner, read_lines, run, train, translations, write_lines

# Name of a binarised subset -> number of its sentences. None is a multiple of 8, fairseq's default for the size of a
# batch. The one sentence of test1 is the first of test; the one of test2 is longer than the tiny models read.
SUBSETS = {"train": 500, "valid": 53, "test": 50, "test1": 1, "test2": 1}
LANGUAGES = ("en", "ja")


class Corpus(NamedTuple):
    raw: Path  # {train,valid,test}.{en,ja} in words, and .align, the sure links of the gold alignments
    codes: Path  # of the joint BPE
    data: Path  # binarised subwords, a dictionary a language


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Corpus:
    """500 sentence pairs to train on, from the grammar."""
    from fairseq_attn_zoo.grammar import write_corpus

    folder = tmp_path_factory.mktemp("corpus")
    raw, pieces, codes = folder / "raw", folder / "pieces", folder / "codes"
    write_corpus(raw, train=SUBSETS["train"], valid=SUBSETS["valid"], test=SUBSETS["test"], max_length=10)
    for split in ("train", "valid", "test"):
        links = [line.split() for line in read_lines(raw / f"{split}.align")]
        write_lines(raw / f"{split}.align", [" ".join(link for link in line if "-" in link) for line in links])
    write_subwords(raw, pieces, codes)

    tests = ",".join(str(pieces / subset) for subset in ("test", "test1", "test2"))
    return Corpus(raw, codes, binarise(pieces, "--testpref", tests))


@pytest.fixture(scope="session")
def aligned_data(corpus) -> Path:
    """The corpus binarised in words, with one dictionary for both languages and the gold alignments."""
    return binarise(corpus.raw, "--joined-dictionary", "--align-suffix", "align")


def binarise(source: Path, *flags: str) -> Path:
    """fairseq-preprocess; returns the folder of what it wrote."""
    folder = source.with_name(f"{source.name}-data")
    sides = ("--source-lang", LANGUAGES[0], "--target-lang", LANGUAGES[1])
    subsets = ("--trainpref", source / "train", "--validpref", source / "valid")
    run("preprocess", *sides, *subsets, "--destdir", folder, *flags, cwd=source)
    return folder


def write_subwords(raw: Path, pieces: Path, codes: Path) -> None:
    """Learn a small joint BPE, and write all subsets in subwords."""
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    with codes.open("w", encoding="utf-8") as output:
        learn_bpe([line for language in LANGUAGES for line in read_lines(raw / f"train.{language}")], output, 150)
    with codes.open(encoding="utf-8") as file:
        bpe = BPE(file)
    pieces.mkdir()
    for language in LANGUAGES:
        lines = {split: read_lines(raw / f"{split}.{language}") for split in ("train", "valid", "test")}
        lines["test1"], lines["test2"] = lines["test"][:1], [" ".join(lines["test"])]
        for subset, sentences in lines.items():
            write_lines(pieces / f"{subset}.{language}", [bpe.process_line(sentence) for sentence in sentences])


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory) -> Callable[[str], Training]:
    """Name of an architecture -> a model of it: with dropout, the best epoch by BLEU, records for tensorboard."""

    @functools.cache
    def get(architecture: str) -> Training:
        folder = tmp_path_factory.mktemp(architecture)
        by_bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}')
        by_bleu += ("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric")
        records = ("--tensorboard-logdir", folder / "tensorboard")
        return train(folder, corpus.data, *quick_learner(architecture), "--dropout", "0.1", *by_bleu, *records)

    return get


@pytest.fixture(scope="session")
def generated(corpus, trained) -> Callable[..., dict[int, Sentence]]:
    """What fairseq-generate prints for an architecture, or for an ensemble whose names are joined by colons."""

    @functools.cache
    def get(architectures: str, *flags: str) -> dict[int, Sentence]:
        path = ":".join(str(trained(name).best) for name in architectures.split(":"))
        return translations(run("generate", corpus.data, *USER_DIR, "--path", path, *flags, cwd=corpus.data))

    return get
