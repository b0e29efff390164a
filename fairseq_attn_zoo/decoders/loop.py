"""The one loop over target words, and the two ways in which a decoder asks attention: word by word, or for all at once.

A decoder asks a mechanism only through :class:`WordByWord`, in its loop, or :func:`attend_to_all`, where nothing of attention
enters its recurrence. Both let the mechanism read the target words first and keep what it carries from word to word. So a
mechanism that remembers works in every family.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..attention import AttentionMechanism, share
from .base import Attended, TargetWords

Carried = TypeVar("Carried")


def over_words(
    step: Callable[[Tensor, Carried], tuple[tuple[Tensor, ...], Carried]], inputs: Tensor, carried: Carried
) -> tuple[tuple[Tensor, ...], Carried]:
    """Take one step per target word.

    Args:
        step: one word. It takes the word's input, N x ..., and what the word before carried over, and returns what is kept of
            the word, a tuple of N x ..., and what it carries over.
        inputs: N x T x ...
        carried: over to the first word

    Returns:
        what was kept of all words, a tuple of N x T x ..., and what the last word carries over
    """
    kept = []
    for word in inputs.unbind(dim=1):
        of_word, carried = step(word, carried)
        kept.append(of_word)
    return tuple(torch.stack(words, dim=1) for words in zip(*kept, strict=True)), carried


class WordByWord:
    """A mechanism in the loop: called with the query of each word in turn, it returns the context.

    Args:
        attention: the mechanism
        words: that the loop goes over
        memory, state: of the mechanism, the state before the first of these words
        need_weights, need_trace: as for :meth:`.base.RecurrentDecoder.forward`; nothing else is kept of the weights
    """

    def __init__(
        self,
        attention: AttentionMechanism[Any, Any],
        words: TargetWords,
        memory: Any,
        state: Any,
        need_weights: bool,
        need_trace: bool,
    ) -> None:
        self.attention = attention
        self.memory = share(memory)
        cue, self.state = attention.read(words.ids, words.embedded, self.memory, state)
        self.cues = iter(attention.split_cue(cue, words.ids.size(1)))
        self.alignments: list[Tensor] | None = [] if need_weights else None
        self.all_weights: list[Any] | None = [] if need_trace else None

    def __call__(self, query: Tensor) -> Tensor:
        """The context of the next word, N x C, for its query, N x D."""
        context, weights, self.state = self.attention.attend(query, self.memory, next(self.cues), self.state)
        if self.alignments is not None:
            self.alignments.append(self.attention.alignment(weights))
        if self.all_weights is not None:
            self.all_weights.append(weights)
        return context

    @property
    def attended(self) -> Attended:
        """After the last word."""
        weights = None if self.alignments is None else torch.stack(self.alignments, dim=1)
        trace = None
        if self.all_weights is not None:
            trace = self.attention.trace(self.attention.join_words(self.all_weights))
        return Attended(self.state, weights, trace)


def attend_to_all(
    attention: AttentionMechanism[Any, Any],
    queries: Tensor,
    words: TargetWords,
    memory: Any,
    state: Any,
    need_weights: bool,
    need_trace: bool,
) -> tuple[Tensor, Attended]:
    """Contexts, N x T x C, for queries that are known beforehand, N x T x D: in one call, or word by word where it must be.

    Other arguments as for :class:`WordByWord`.
    """
    if attention.word_by_word:
        attend = WordByWord(attention, words, memory, state, need_weights, need_trace)
        (contexts,), _ = over_words(lambda query, nothing: ((attend(query),), nothing), queries, None)
        return contexts, attend.attended
    cue, state = attention.read(words.ids, words.embedded, memory, state)
    contexts, weights = attention(queries, memory, cue)
    return contexts, Attended(
        state,
        attention.alignment(weights) if need_weights else None,
        attention.trace(weights) if need_trace else None,
    )
