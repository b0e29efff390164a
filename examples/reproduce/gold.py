"""Hand-aligned sentence pairs, and the alignments that they judge."""

from pathlib import Path
from typing import NamedTuple

from corpora import read_lines
from steps import StepFailed


class Gold(NamedTuple):
    text: Path  # source ||| target, a pair on each line
    links: Path  # Pharaoh lines
    from_1: bool = False  # the links count words from 1


def read_gold(gold: Gold) -> list[list[str]]:
    """The hand-aligned pairs.

    Raises:
        StepFailed: a line is no pair, or there are not as many pairs as lines of links
    """
    for path in (gold.text, gold.links):
        if not path.is_file():
            raise StepFailed(f"there is no file {path}")
    pairs = [line.split(" ||| ") for line in read_lines(gold.text)]
    for number, pair in enumerate(pairs, start=1):
        if len(pair) != 2:
            raise StepFailed(f"{gold.text}, line {number}: expected 'source ||| target'")
    if len(pairs) != len(read_lines(gold.links)):
        raise StepFailed(f"{gold.text} has {len(pairs)} lines, {gold.links} {len(read_lines(gold.links))}")
    return pairs
