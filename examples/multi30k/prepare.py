"""Turn the raw Multi30k captions into subword text that fairseq-preprocess reads.

    python prepare.py RAW_FOLDER TEXT_FOLDER --source de --target en

Each file is lower-cased unless ``--keep-case`` is given, normalised and tokenised with sacremoses under the options of
fairseq's own ``--tokenizer moses`` (aggressive dash splits, XML escapes), so that ``fairseq-interactive`` splits a
user's raw text as training did, and split into subwords with a joint BPE of subword-nmt.
"""

import argparse
import gzip
import sys
from pathlib import Path

from sacremoses import MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

# fairseq's name of a subset -> the corpus's name of it
SUBSETS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, help="folder of the corpus's task1/raw files (.gz or plain)")
    parser.add_argument("text", type=Path, help="folder for the raw, tokenised and subword files")
    parser.add_argument("--source", default="de", help="source language (default: de)")
    parser.add_argument("--target", default="en", help="target language (default: en)")
    parser.add_argument("--operations", type=int, default=10000, help="joint BPE operations (default: 10000)")
    parser.add_argument("--keep-case", action="store_true", help="do not lower-case")
    arguments = parser.parse_args()
    languages = (arguments.source, arguments.target)
    arguments.text.mkdir(parents=True, exist_ok=True)

    for subset, stem in SUBSETS.items():
        sizes = {}
        for language in languages:
            lines = read_lines(arguments.raw, f"{stem}.{language}")
            sizes[language] = len(lines)
            write_lines(arguments.text / f"{subset}.raw.{language}", lines)
            tokens = tokenize(lines, language, arguments.keep_case)
            write_lines(arguments.text / f"{subset}.tok.{language}", tokens)
        if len(set(sizes.values())) > 1:
            sys.exit(f"prepare: the two sides of {stem} differ in length ({sizes}); fetch the corpus again")

    codes = arguments.text / "codes"
    learn_joint_bpe([arguments.text / f"train.tok.{language}" for language in languages], arguments.operations, codes)
    with codes.open(encoding="utf-8") as file:
        bpe = BPE(file)
    for subset in SUBSETS:
        for language in languages:
            lines = (arguments.text / f"{subset}.tok.{language}").read_text(encoding="utf-8").split("\n")[:-1]
            write_lines(arguments.text / f"{subset}.bpe.{language}", [bpe.process_line(line) for line in lines])


def read_lines(folder: Path, name: str) -> list[str]:
    """Lines of ``name`` or ``name.gz``, split at line feeds only: other line separators belong to the text."""
    packed, plain = folder / f"{name}.gz", folder / name
    if packed.exists():
        text = gzip.decompress(packed.read_bytes()).decode("utf-8")
    elif plain.exists():
        text = plain.read_text(encoding="utf-8")
    else:
        sys.exit(f"prepare: neither {packed} nor {plain} exists; set DATA to the folder that holds the raw files")
    return text.removesuffix("\n").split("\n")


def tokenize(lines: list[str], language: str, keep_case: bool) -> list[str]:
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    if not keep_case:
        lines = [line.lower() for line in lines]
    return [
        tokenizer.tokenize(normalizer.normalize(line), aggressive_dash_splits=True, return_str=True, escape=True)
        for line in lines
    ]


def learn_joint_bpe(paths: list[Path], operations: int, codes: Path) -> None:
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").split("\n")]
    with codes.open("w", encoding="utf-8") as output:
        learn_bpe(lines, output, operations)


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
