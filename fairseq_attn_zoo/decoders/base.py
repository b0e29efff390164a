"""What the decoders share: words in, features out, and the state between two calls."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..attention import AttentionMechanism, Rows, Traced
from ..cells import CellState
from ..dropout import Dropout
from ..encoders import EncoderOutput

Layers = tuple[CellState, ...]  # a state for each layer, bottom layer first


class TargetWords(NamedTuple):
    """T target words that a decoder reads."""

    ids: Tensor  # N x T; a memory of target words reads them
    embedded: Tensor  # N x T x E; None for a decoder that reads the ids only


class DecoderState(NamedTuple):
    """What a decoder carries from word to word; every tensor has one row per hypothesis."""

    layers: Layers  # of each the hidden state, then the cell of an LSTM: N x H
    attentional: Tensor | None = None  # a_{i-1}, N x H, where it is fed back
    attention: Any = None  # the mechanism's own state; None for one that remembers nothing


class DecoderOutput(NamedTuple):
    """What a decoder makes of T words."""

    features: Tensor  # N x T x F: what the output layer reads
    state: DecoderState  # after the last word
    weights: Tensor | None  # N x T x S; None when not asked for, or without attention
    trace: dict[str, Traced] | None  # every weight of the mechanism; None when not asked for


class Attended(NamedTuple):
    """What is left of attention when all words of a call have attended."""

    state: Any  # after the last word
    weights: Tensor | None  # N x T x S; None when not asked for
    trace: dict[str, Traced] | None  # every weight; None when not asked for


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


def tensors_of(value: Any) -> list[Tensor]:
    """Every tensor that :func:`map_tensors` meets."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


class RecurrentDecoder(nn.Module):
    """What the decoders share.

    Args:
        output_size: F, the width of the features
        dropout: what it falls on is each decoder's own
    """

    has_attention = False

    def __init__(self, output_size: int, dropout: float) -> None:
        super().__init__()
        self.output_size = output_size
        self.dropout = Dropout(dropout)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        """The memory of the sources and the state before the first word, both with one row per sentence.

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
            need_weights: whether to return the alignment, one weight per source position
            need_trace: whether to return every weight of the mechanism, as
                :meth:`fairseq_attn_zoo.attention.AttentionMechanism.trace` names them
        """
        raise NotImplementedError

    def output(self, features: Tensor, state: DecoderState, attended: Attended) -> DecoderOutput:
        """What all words of a call have made, with every parameter that was used for them in the features' graph.

        In a batch whose targets are all empty there is one word, and nobody reads the state after it. RNNsearch predicts that
        word from the state before: its cells would get no gradient, nor would coverage's fertility, and PyTorch's distributed
        training does not forgive that. So the features of a single word have the state in their graph, times zero.

        Args:
            features: N x T x F
            state: the decoder's own, after the last word
            attended: what is left of attention
        """
        if attended.state is not None:
            state = state._replace(attention=attended.state)
        if self.training and torch.is_grad_enabled() and features.size(1) == 1:
            unread = [tensor.sum() for tensor in tensors_of(state) if tensor.is_floating_point()]
            features = features + 0 * sum(unread)
        return DecoderOutput(features, state, attended.weights, attended.trace)


class AttentiveDecoder(RecurrentDecoder):
    """What the decoders with attention share: the mechanism, its memory and its state. They ask it through :mod:`.loop`.

    Args:
        attention: the mechanism
        output_size, dropout: as for :class:`RecurrentDecoder`
    """

    has_attention = True

    def __init__(self, attention: AttentionMechanism[Any, Any], output_size: int, dropout: float) -> None:
        super().__init__(output_size, dropout)
        self.attention = attention

    def first_state(self, encoded: EncoderOutput, padding_mask: Tensor) -> DecoderState:
        """The decoder's own state before the first word, B rows; arguments as for :meth:`begin`."""
        raise NotImplementedError

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        memory = self.attention.memorize(encoded.states, padding_mask)
        state = self.first_state(encoded, padding_mask)
        return memory, state._replace(attention=self.attention.start(memory))
