"""Trees of English sentences: drawn from the grammar by length, or parsed from a sentence."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from .source import Grammar, Parts, source_grammar


class Tree(NamedTuple):
    """A symbol of the grammar with what it became; a tree without children is a word."""

    symbol: str
    start: int
    """0-based position of the first word in the source sentence."""
    children: tuple[Tree, ...] = ()

    @property
    def category(self) -> str:
        """The symbol without its features: ``noun_phrase`` of ``noun_phrase.singular``."""
        return self.symbol.partition(".")[0]

    def words(self) -> Iterator[Tree]:
        """The words from left to right."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.words()


class LengthTable:
    r"""The weight of all sentences of each length, and draws of sentences of a given length.

    The weight of all ways in which parts :math:`X_1 \dots X_m` become :math:`n` words is an inside recursion, over lengths
    instead of spans:

    .. math:: w(X, n) = \sum_{X \to \alpha} p(\alpha) \, w(\alpha, n), \qquad
              w(X_1 \dots X_m, n) = \sum_k w(X_1, k) \, w(X_2 \dots X_m, n - k)

    A sentence drawn with these weights has exactly the wanted length. Among the sentences of that length it has the
    probability that the grammar gives it, and nothing is drawn in vain. With every :math:`p = 1` the weights count trees.
    That is the number of sentences, as no sentence has two trees.
    """

    def __init__(self, grammar: Grammar, max_length: int) -> None:
        self.grammar = grammar
        self._weights: dict[tuple[Parts, int], float] = {}
        self._choices: dict[tuple[Parts, int], tuple[tuple, list[float]]] = {}
        # Upwards, the recursion stays shallow: nearly all that a length needs is known from the one before it.
        self.sentences = {length: self.weight(("sentence",), length) for length in range(1, max_length + 1)}
        """Length to the weight of all sentences of that length."""

    def weight(self, parts: Parts, length: int) -> float:
        """Weight of all ways in which ``parts`` become exactly ``length`` words."""
        if len(parts) == 1 and parts[0] not in self.grammar:
            return int(length == 1)
        key = parts, length
        if key not in self._weights:
            # A loop and not `sum`, whose rounding differs between Python versions.
            total: float = 0
            for _, weight in self._steps(parts, length):
                total += weight
            self._weights[key] = total
        return self._weights[key]

    def _steps(self, parts: Parts, length: int) -> Iterator[tuple[Any, float]]:
        """Expansions of a single part, or lengths of the first of several; each with its weight, if it has any."""
        if len(parts) == 1:
            for expansion, probability in self.grammar[parts[0]].items():
                if weight := probability * self.weight(expansion, length):
                    yield expansion, weight
        else:
            for first in range(1, length - len(parts) + 2):
                if weight := self.weight(parts[:1], first) * self.weight(parts[1:], length - first):
                    yield first, weight

    def draw(self, generator: random.Random, length: int) -> Tree:
        """A sentence of ``length`` words."""
        (sentence,) = self._draw(generator, ("sentence",), length, start=0)
        return sentence

    def _draw(self, generator: random.Random, parts: Parts, length: int, start: int) -> tuple[Tree, ...]:
        if len(parts) == 1 and parts[0] not in self.grammar:
            return (Tree(parts[0], start),)
        key = parts, length
        if key not in self._choices:
            steps, weights = zip(*self._steps(parts, length), strict=True)
            self._choices[key] = steps, list(accumulate(weights))
        step = pick(generator, *self._choices[key])
        if len(parts) == 1:
            return (Tree(parts[0], start, self._draw(generator, step, length, start)),)
        first = self._draw(generator, parts[:1], step, start)
        return first + self._draw(generator, parts[1:], length - step, start + step)


def pick(generator: random.Random, options: Sequence[Any], cumulative: list[float]) -> Any:
    """One of the options, drawn by their weights, of which the running sums are given.

    Only ``random()`` is promised to give the same numbers in every version of Python, so everything is drawn with it.
    """
    return options[min(bisect(cumulative, generator.random() * cumulative[-1]), len(options) - 1)]


def parses(sentence: str) -> list[Tree]:
    """All trees of an English sentence: one for a sentence of the grammar, none for anything else."""
    grammar, words = source_grammar(), sentence.split()

    @cache
    def readings(parts: Parts, start: int) -> list[tuple[tuple[Tree, ...], int]]:
        """What ``parts`` may be from position ``start`` on, and where each of these readings ends."""
        if not parts:
            return [((), start)]
        if len(parts) > 1:
            return [
                (first + rest, end)
                for first, middle in readings(parts[:1], start)
                for rest, end in readings(parts[1:], middle)
            ]
        if parts[0] not in grammar:
            return [((Tree(parts[0], start),), start + 1)] if words[start : start + 1] == [parts[0]] else []
        return [
            ((Tree(parts[0], start, children),), end)
            for expansion in grammar[parts[0]]
            for children, end in readings(expansion, start)
        ]

    return [tree for (tree,), end in readings(("sentence",), 0) if end == len(words)]
