"""A parallel corpus of tokenised text: where it comes from, which files are what, and what becomes of them before
fairseq-preprocess.

What a recipe says under ``corpus`` is used without ``--data``: either ``grammar``, the arguments of
:func:`fairseq_attn_zoo.grammar.write_corpus`, and ``test``, in what the test set differs from them; or ``address`` and
``checksums``, a folder on the web and the list of its files beside the recipes.
"""

import hashlib
import io
import json
import shutil
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

from recipe import EXAMPLES, Preparation
from steps import StepFailed, call, folder_for, whole_or_not_at_all

# Names of the training, development and test files, as different corpora have them; the first that are all there count.
SPLITS = [
    ("train", "tune", "dev"),  # KFTT, whose test set stays untouched
    ("train", "dev", "test"),
    ("train", "valid", "test"),
    ("train", "val", "test_2016_flickr"),  # Multi30k
]


class Corpus(NamedTuple):
    """Files without their endings, which are the languages."""

    train: Path
    valid: Path
    test: Path
    languages: tuple[str, str]


class Prepared(NamedTuple):
    folder: Path
    data: Path  # binarised
    text: Path  # {train,valid,test}.LANGUAGE as fairseq-preprocess read them; the valid and test words in *.words.LANGUAGE
    languages: tuple[str, str]
    bpe_codes: Path | None

    def words(self, split: str, side: int) -> list[str]:
        """The lines of the development or test set before subwords, lower-cased where the preparation says so."""
        return read_lines(self.text / f"{split}.words.{self.languages[side]}")


def find_corpus(folder: Path, languages: tuple[str, str]) -> Corpus:
    """The files of a corpus in ``folder`` or in ``folder/tok``.

    Raises:
        StepFailed: they are not there
    """
    for parent in (folder, folder / "tok"):
        for splits in SPLITS:
            paths = [parent / split for split in splits]
            if all(path.with_name(f"{path.name}.{language}").is_file() for path in paths for language in languages):
                return Corpus(*paths, languages)
    wanted = "; or ".join(", ".join(splits) for splits in SPLITS)
    raise StepFailed(
        f"{folder} has no corpus: expected tokenised files named {wanted}, each with .{languages[0]} and .{languages[1]}; "
        "another direction is --languages"
    )


def get_corpus(settings: dict[str, Any], languages: tuple[str, str], parent: Path) -> Corpus:
    """The corpus that a recipe names, made or downloaded unless it is there.

    Raises:
        StepFailed: the recipe names none, or it cannot be had
    """
    if "grammar" in settings:
        return find_corpus(write_grammar(settings["grammar"], settings.get("test", {}), parent), languages)
    if "address" in settings:
        folder = parent / "corpus"
        command = [sys.executable, str(EXAMPLES / "download.py"), settings["address"]]
        finished = subprocess.run(
            [*command, str(EXAMPLES / settings["checksums"]), str(folder)], stderr=subprocess.PIPE
        )
        if finished.returncode:
            raise StepFailed(finished.stderr.decode("utf-8", errors="replace").strip().splitlines()[-1])
        return find_corpus(folder, languages)
    raise StepFailed("--data is missing: the folder of a tokenised parallel corpus")


def write_grammar(settings: dict[str, Any], test: dict[str, Any], parent: Path) -> Path:
    """Draw sentences from the grammar; returns the folder of {train,valid,test}.{en,ja,align}."""
    from fairseq_attn_zoo import grammar

    known = {"seed", "min_length", "max_length", "relative_clauses"}
    options = {key.replace("-", "_"): value for key, value in settings.items()}
    of_test = {**options, **{key.replace("-", "_"): value for key, value in test.items()}}
    sizes = {split: options.pop(split) for split in ("train", "valid", "test")}
    of_test = {key: value for key, value in of_test.items() if key in known}
    version = grammar.version()  # another grammar is another corpus
    digest = {**sizes, **options, "of test": of_test, "grammar": version}
    folder = folder_for(parent, "corpus", digest) / "text"

    def write(unfinished: Path) -> None:
        try:
            grammar.write_corpus(unfinished, **sizes, **options)
            if of_test != options:
                other = unfinished / "other"
                grammar.write_corpus(other, train=0, valid=0, test=sizes["test"], **of_test)
                for path in other.glob("test.*"):
                    path.replace(unfinished / path.name)
                shutil.rmtree(other)
        except (TypeError, ValueError, OSError) as error:
            raise StepFailed(f"the grammar cannot write this corpus: {error}") from error
        sides = zip(read_lines(unfinished / "test.en"), read_lines(unfinished / "test.ja"), strict=True)
        write_lines(unfinished / "test.pairs", [f"{source} ||| {target}" for source, target in sides])

    if not folder.exists():
        whole_or_not_at_all(write, folder)
    return folder


def prepare(corpus: Corpus, settings: Preparation, parent: Path) -> Prepared:
    """Lower-case, drop long pairs, split into subwords and binarise, unless all of that is there.

    Raises:
        StepFailed: two sides differ in length, or a command failed
    """
    digest: dict[str, Any] = {**settings._asdict(), "languages": corpus.languages}
    for split in ("train", "valid", "test"):  # another text is another corpus, wherever it lies
        path = getattr(corpus, split)
        sides = (path.with_name(f"{path.name}.{language}").read_bytes() for language in corpus.languages)
        digest[split] = [hashlib.sha256(side).hexdigest() for side in sides]
    folder = folder_for(parent, "data", digest)
    text, data = folder / "text", folder / "binary"
    codes = text / "codes" if settings.bpe else None
    prepared = Prepared(folder, data, text, corpus.languages, codes)
    if not text.exists():
        whole_or_not_at_all(lambda unfinished: write_text(corpus, settings, unfinished), text)
    if not data.exists():
        flags = ["--source-lang", corpus.languages[0], "--target-lang", corpus.languages[1], "--workers", "1"]
        for split in ("train", "valid", "test"):
            flags += [f"--{split}pref", str(text / split)]
        if settings.threshold is not None:
            flags += ["--thresholdsrc", str(settings.threshold), "--thresholdtgt", str(settings.threshold)]
        if settings.vocabulary is not None:  # fairseq counts its four special symbols as well
            flags += ["--nwordssrc", str(settings.vocabulary + 4), "--nwordstgt", str(settings.vocabulary + 4)]
        log = folder / "preprocess.log"
        whole_or_not_at_all(
            lambda unfinished: call("preprocess", [*flags, "--destdir", str(unfinished)], "fairseq-preprocess", log),
            data,
        )
    return prepared


def write_text(corpus: Corpus, settings: Preparation, folder: Path) -> None:
    folder.mkdir(parents=True)
    pairs = {split: read_pairs(corpus, getattr(corpus, split), settings) for split in ("train", "valid", "test")}
    longest = settings.max_length
    read = len(pairs["train"])
    if longest is not None:
        pairs["train"] = [pair for pair in pairs["train"] if max(len(side.split()) for side in pair) <= longest]
    if not pairs["train"]:
        raise StepFailed(f"no training pair of {corpus.train} has at most {longest} words; make max-length larger")
    (folder / "sizes.json").write_text(
        json.dumps({"read": read, **{split: len(lines) for split, lines in pairs.items()}}) + "\n", encoding="utf-8"
    )
    for split in ("valid", "test"):
        for side, language in enumerate(corpus.languages):
            write_lines(folder / f"{split}.words.{language}", [pair[side] for pair in pairs[split]])
    split_line = str
    if settings.bpe is not None:
        split_line = learn_subwords(pairs["train"], settings.bpe, folder / "codes").process_line
    for split, lines in pairs.items():
        for side, language in enumerate(corpus.languages):
            write_lines(folder / f"{split}.{language}", [split_line(pair[side]) for pair in lines])


def learn_subwords(pairs: list[tuple[str, str]], operations: int, codes: Path):
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    print(f"learning {operations} joint subwords", flush=True)
    # Its progress bar would fill a log with thousands of states.
    with codes.open("w", encoding="utf-8") as file, redirect_stderr(io.StringIO()):
        learn_bpe([side for pair in pairs for side in pair], file, operations)
    with codes.open(encoding="utf-8") as file:
        return BPE(file)


def read_pairs(corpus: Corpus, path: Path, settings: Preparation) -> list[tuple[str, str]]:
    sides = [read_lines(path.with_name(f"{path.name}.{language}")) for language in corpus.languages]
    if len(sides[0]) != len(sides[1]):
        raise StepFailed(f"the two sides of {path} differ in length ({len(sides[0])} and {len(sides[1])} lines)")
    if settings.lowercase:
        sides = [[line.lower() for line in side] for side in sides]
    return list(zip(*sides, strict=True))


def read_lines(path: Path) -> list[str]:
    """Split at line feeds only, as fairseq does: other line separators belong to the text."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
