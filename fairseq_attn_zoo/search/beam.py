"""The beam of one sentence: which hypotheses go on, and which have ended."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple, Optional


class Path(NamedTuple):
    """The last word of a hypothesis and the way back to what stands before its first."""

    before: Optional["Path"]  # None before the first word
    word: int
    score: float  # log-probability of all words up to this one
    row: int  # where its hypothesis stood in the batch when this word was chosen

    def steps(self) -> list[tuple["Path", "Path"]]:
        """For each of its words, first word first: what is before it, and the word."""
        steps = []
        word = self
        while word.before is not None:
            steps.append((word.before, word))
            word = word.before
        steps.reverse()
        return steps


class Beam:
    """The hypotheses of one sentence.

    The rule is that of fairseq's generator: of the best candidates, those that end are found if they are within the beam,
    and the best of those that do not end go on.

    Args:
        size: hypotheses that are kept, and that are found before the sentence is done
        start: the word that every hypothesis begins with, which is no part of it
        eos: the word that ends a hypothesis
    """

    def __init__(self, size: int, start: int, eos: int) -> None:
        self.size, self.eos = size, eos
        self.paths = [Path(None, start, 0.0, 0)]  # before the first word all hypotheses are one
        self.found: list[Path] = []
        # Places whose hypothesis has ended already and goes on for want of others: a vocabulary smaller than two beams.
        self.ended: frozenset[int] = frozenset()

    def advance(
        self, scores: Sequence[float], words: Sequence[int], beams: Sequence[int], first_row: int, last: bool
    ) -> list[int] | None:
        """Choose among candidates, the best first.

        Args:
            scores, words, beams: of the candidates, as in :class:`~.candidates.Candidates`
            first_row: of this sentence in the batch
            last: whether no word may follow

        Returns:
            for each hypothesis that goes on, which of the beam it continues; None when the sentence is done
        """
        going, ending = [], []  # ranks
        ends_now = False
        for rank, word in enumerate(words):
            ends = word == self.eos and scores[rank] != -inf
            if rank < self.size and rank in self.ended:
                ending.append(rank)
            elif ends:
                ending.append(rank)
                if rank < self.size:  # beyond it, an end is no better than what goes on
                    ends_now = True
                    if len(self.found) < self.size:
                        self.found.append(self.path(rank, scores, words, beams, first_row))
            else:
                going.append(rank)
                if len(going) >= self.size and rank >= self.size - 1:
                    break
        if ends_now and (last or len(self.found) == self.size):
            return None
        assert going, "every hypothesis has ended, but the sentence is not done"
        chosen = going[: self.size]
        if len(chosen) < self.size:
            self.ended = frozenset(range(len(chosen), self.size))
            chosen += ending[: self.size - len(chosen)]
        else:
            self.ended = frozenset()
        self.paths = [self.path(rank, scores, words, beams, first_row) for rank in chosen]
        return [beams[rank] for rank in chosen]

    def path(
        self, rank: int, scores: Sequence[float], words: Sequence[int], beams: Sequence[int], first_row: int
    ) -> Path:
        """The hypothesis that a candidate makes."""
        beam = beams[rank]
        return Path(self.paths[beam], words[rank], scores[rank], first_row + beam)
