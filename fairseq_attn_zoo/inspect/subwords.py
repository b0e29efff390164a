"""From subwords back to words: their texts, and what the attention to subwords says of words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .alignment import Link

SCHEMES = ("subword_nmt", "sentencepiece")


class Words(NamedTuple):
    """The words of a sentence and which of them each subword belongs to."""

    texts: list[str]
    of_subword: list[int]


def join_subwords(tokens: Sequence[str], scheme: str | None = None) -> Words:
    """Put subwords together.

    Args:
        tokens: of one sentence, without ``</s>``
        scheme: ``subword_nmt`` (``lo@@ wer``), ``sentencepiece`` (``▁lo wer``), or None: every token is a word

    Raises:
        ValueError: another scheme
    """
    if scheme is not None and scheme not in SCHEMES:
        raise ValueError(f"no subwords are known as {scheme!r}; there are {', '.join(SCHEMES)}")
    texts: list[str] = []
    of_subword: list[int] = []
    joins = False  # whether the next subword belongs to the word before it
    for token in tokens:
        text = token
        if scheme == "subword_nmt":
            text = token.removesuffix("@@")
        elif scheme == "sentencepiece":
            # A lone sign begins the word of the piece after it; what no piece stands for is a word.
            begins = token.startswith("▁") or token == "<unk>"
            joins = bool(texts) and (texts[-1] == "" or not begins)
            text = token.removeprefix("▁")
        if joins:
            texts[-1] += text
        else:
            texts.append(text)
        of_subword.append(len(texts) - 1)
        joins = scheme == "subword_nmt" and token.endswith("@@")
    return Words(texts, of_subword)


def word_weights(weights: np.ndarray, source: Words, target: Words) -> np.ndarray:
    """Attention of words to words, from that of subwords to subwords.

    A word attends like the mean of its subwords, and to a word as much as to all of its subwords together: a row that
    summed to 1 still does.

    Args:
        weights: target subwords x source subwords; columns beyond the source's subwords, such as ``</s>``, are kept
        source, target: of :func:`join_subwords`

    Returns:
        target words x (source words + kept columns)
    """
    known = len(source.of_subword)
    by_source = np.zeros((len(weights), len(source.texts) + weights.shape[1] - known))
    for subword, word in enumerate(source.of_subword):
        by_source[:, word] += weights[:, subword]
    by_source[:, len(source.texts) :] = weights[:, known:]
    joined = np.zeros((len(target.texts), by_source.shape[1]))
    for subword, word in enumerate(target.of_subword):
        joined[word] += by_source[subword]
    sizes = np.bincount(target.of_subword, minlength=len(target.texts)) if target.of_subword else np.ones(0)
    return joined / sizes[:, None]


def links_of(weights: np.ndarray, source_words: int, null: bool = False) -> list[Link]:
    """The link of every target word to the source word with its largest weight.

    Args:
        weights: target words x at least ``source_words``; the columns after them are those of ``</s>``
        null: a word whose largest weight stands on ``</s>`` gets no link; otherwise ``</s>`` is left out of the choice

    Returns:
        (source word, target word), counted from 0, in the order of the target
    """
    candidates = weights if null else weights[:, :source_words]
    if source_words == 0:
        return []
    best = candidates.argmax(axis=1)
    return [(int(source), target) for target, source in enumerate(best) if source < source_words]
