"""Word alignments in the Pharaoh format, and the alignment error rate.

A line holds one sentence pair: ``0-0 1-2 2?1`` links source word 0 with target word 0 and so on, the source's number
first, counted from 0. ``i-j`` is a sure link, ``i?j`` a possible one. An empty line is a sentence without links.

Franz Josef Och and Hermann Ney (2003), A Systematic Comparison of Various Statistical Alignment Models,
Computational Linguistics 29(1). For predicted links A, sure links S and possible links P, where S is a subset of P:

    precision = |A & P| / |A|      recall = |A & S| / |S|      AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)

All counts are summed over the corpus before they are divided.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

Link = tuple[int, int]  # (source word, target word), counted from 0

_LINK = re.compile(r"([0-9]+)([-?])([0-9]+)")


@dataclass(frozen=True)
class GoldAlignment:
    """The links of one sentence pair. ``possible`` always holds the sure links too, whether they were named or not."""

    sure: frozenset[Link] = frozenset()
    possible: frozenset[Link] = frozenset()

    def __post_init__(self) -> None:
        # A frozen dataclass can set its own fields only this way. Both are made sets, since any iterable is welcome.
        sure = frozenset(self.sure)
        object.__setattr__(self, "sure", sure)
        object.__setattr__(self, "possible", sure.union(self.possible))


@dataclass(frozen=True)
class AlignmentScore:
    """Scores of a corpus, as fractions of 1. A ratio without a denominator (nothing predicted, or no sure link in the
    gold alignment) is ``nan``."""

    aer: float
    precision: float
    recall: float


def parse_alignment(line: str, *, one_based: bool = False) -> GoldAlignment:
    """Read one Pharaoh line.

    Args:
        line: links separated by blanks, ``i-j`` sure and ``i?j`` possible.
        one_based: the line counts words from 1, as GIZA++ and several published gold alignments do; the result
            counts from 0 all the same.

    Raises:
        ValueError: a link is neither ``i-j`` nor ``i?j``, or has a word 0 although ``one_based``.
    """
    first = 1 if one_based else 0
    links: dict[str, set[Link]] = {"-": set(), "?": set()}
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise ValueError(f"malformed link {text!r}: expected i-j (sure) or i?j (possible)")
        source, target = int(match[1]) - first, int(match[3]) - first
        if source < 0 or target < 0:
            raise ValueError(f"malformed link {text!r}: the first word is number 1 when words are counted from 1")
        links[match[2]].add((source, target))
    return GoldAlignment(sure=frozenset(links["-"]), possible=frozenset(links["?"]))


def read_alignments(path: str | Path, *, one_based: bool = False) -> list[GoldAlignment]:
    """Read a file of Pharaoh lines, one sentence pair a line.

    Raises:
        ValueError: a link is malformed (see :func:`parse_alignment`); the message names the file and the line.
    """
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")  # what is no UTF-8 is no link either
    alignments = []
    # Only a line feed ends a line, as in the text files beside this one.
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], start=1):
        try:
            alignments.append(parse_alignment(line, one_based=one_based))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return alignments


def alignment_error_rate(predicted: Sequence[Iterable[Link]], gold: Sequence[GoldAlignment]) -> AlignmentScore:
    """Score predicted links against gold alignments over a corpus (Och and Ney 2003).

    Args:
        predicted: the links of every sentence, as (source, target) pairs counted from 0. For predictions read with
            :func:`read_alignments`, pass ``[sentence.possible for sentence in ...]``.
        gold: the gold alignments of the same sentences in the same order.

    Raises:
        ValueError: the numbers of sentences differ, or neither side has a link to score.
    """
    if len(predicted) != len(gold):
        raise ValueError(f"{len(predicted)} predicted alignments, but {len(gold)} gold alignments")
    links = sure = matching_sure = matching_possible = 0
    for sentence, truth in zip(predicted, gold, strict=True):
        answer = set(sentence)
        links += len(answer)
        sure += len(truth.sure)
        matching_sure += len(answer & truth.sure)
        matching_possible += len(answer & truth.possible)
    if links + sure == 0:
        raise ValueError("nothing to score: no predicted link and no sure gold link in the whole corpus")
    return AlignmentScore(
        aer=1 - (matching_sure + matching_possible) / (links + sure),
        precision=matching_possible / links if links else float("nan"),
        recall=matching_sure / sure if sure else float("nan"),
    )
