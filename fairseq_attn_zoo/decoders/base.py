"""What the decoders share: words in, features out, and the state between two calls."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..attention import AttentionMechanism, Rows
from ..cells import CellState
from ..dropout import Dropout
from ..encoders import EncoderOutput


class TargetWords(NamedTuple):
    """T target words that a decoder reads."""

    ids: Tensor  # N x T; a memory of target words reads them
    embedded: Tensor  # N x T x E; None for a decoder that reads the ids only


class DecoderState(NamedTuple):
    """What a decoder carries from word to word; every tensor has one row a hypothesis."""

    layers: tuple[CellState, ...]  # bottom layer first; the hidden state, then the cell of an LSTM: N x H
    attentional: Tensor | None = None  # a_{i-1}, N x H, where it is fed back
    history: Tensor | None = None  # ids of the words read so far, N x words, where attention reads them
    attended: Tensor | None = None  # where attention has looked, N x S x ..., where it remembers that


class DecoderOutput(NamedTuple):
    """What a decoder makes of T words."""

    features: Tensor  # N x T x F: what the output layer reads
    state: DecoderState  # after the last word
    weights: Tensor | None  # N x T x S; None when not asked for, or without attention
    trace: dict[str, Tensor] | None  # every weight of the mechanism; None when not asked for


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply ``function`` to every tensor of nested (named) tuples, lists, dictionaries and rows; the rest stays."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Rows):
        return value.map(function)
    if isinstance(value, dict):
        return {key: map_tensors(function, part) for key, part in value.items()}
    if isinstance(value, list):
        return [map_tensors(function, part) for part in value]
    if isinstance(value, tuple):
        parts = [map_tensors(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


class RecurrentDecoder(nn.Module):
    """What the decoders share. ``output_size`` is F, the width of the features."""

    has_attention = True

    def __init__(self, output_size: int, dropout: float) -> None:
        super().__init__()
        self.output_size = output_size
        self.dropout = Dropout(dropout)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        """The memory of the sources and the state before the first word, both with one row a sentence.

        Args:
            encoded: what the encoder returned
            padding_mask: B x S, True at padding
        """
        raise NotImplementedError

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        """Read T target words and return the features that predict the words after them.

        Args:
            words: N rows; N is a multiple of the memory's B, and the hypotheses of one sentence stand side by side
            memory: of :meth:`begin`
            state: before the first of these words, N rows
            need_weights: whether to return the alignment, one weight a source position
            need_trace: whether to return every weight of the mechanism, as
                :meth:`fairseq_attn_zoo.attention.AttentionMechanism.trace` names them
        """
        raise NotImplementedError


class WeightLog:
    """Keeps of every word's weights what the caller asked for, and nothing else."""

    def __init__(self, attention: AttentionMechanism, need_weights: bool, need_trace: bool) -> None:
        self.attention = attention
        self.alignments: list[Tensor] | None = [] if need_weights else None
        self.all_weights: list[Any] | None = [] if need_trace else None

    def add(self, weights: Any) -> None:
        """Take the weights of one word."""
        if self.alignments is not None:
            self.alignments.append(self.attention.alignment(weights))
        if self.all_weights is not None:
            self.all_weights.append(weights)

    @property
    def weights(self) -> Tensor | None:
        """Of all words, N x T x S."""
        return None if self.alignments is None else torch.stack(self.alignments, dim=1)

    @property
    def trace(self) -> dict[str, Tensor] | None:
        if self.all_weights is None:
            return None
        return self.attention.trace(self.attention.join_words(self.all_weights))


def report_weights(
    attention: AttentionMechanism, weights: Any, need_weights: bool, need_trace: bool
) -> tuple[Tensor | None, dict[str, Tensor] | None]:
    """The last two fields of a :class:`DecoderOutput`, from weights of all words at once."""
    return attention.alignment(weights) if need_weights else None, attention.trace(weights) if need_trace else None
