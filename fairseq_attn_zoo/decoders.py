"""Recurrent decoders, in PyTorch alone: the step, the loop over target words, and the path that needs no loop.

They differ in when they attend and in where the context goes:

    attend, then update   query s_{i-1}, context into the cell            :class:`AttendThenUpdateDecoder`
    update, then attend   query s_i, context into a_i, fed to step i + 1  :class:`InputFeedingDecoder`
    free running          context into the readout only: no loop          :class:`FreeRunningDecoder`
    no attention          one context for all words                       :class:`FixedContextDecoder`

Every decoder is used in two verbs. :meth:`begin`, once a sentence: the memory of the source and the state before the
first word. :meth:`forward`, for any number of words from any state on: all of a reference in training, one word a call
in beam search. A state is a value: passed in, returned, never kept on the module.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .attention import AttentionMechanism, AttentionMemory
from .cells import CellStack, CellState, ConditionalGRUCell, ConditionalLSTMCell
from .encoders import EncoderOutput, join_directions


class DecoderState(NamedTuple):
    """What a decoder carries from word to word; every tensor has one row a hypothesis."""

    layers: tuple[CellState, ...]  # bottom layer first; the hidden state, then the cell of an LSTM: N x H
    attentional: Tensor | None = None  # a_{i-1}, N x H, where it is fed back


class DecoderOutput(NamedTuple):
    """What a decoder makes of T words."""

    features: Tensor  # N x T x F: what the output layer reads
    state: DecoderState  # after the last word
    weights: Tensor | None  # N x T x S; None when not asked for, or without attention


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply ``function`` to every tensor of nested (named) tuples; None stays None."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple):
        parts = [map_tensors(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def maxout(pairs: Tensor) -> Tensor:
    """The larger of neighbours 2j - 1 and 2j (Goodfellow et al. 2013): ... x 2l as ... x l.

    Raises:
        ValueError: if the last dimension is odd
    """
    if pairs.size(-1) % 2:
        raise ValueError(f"maxout takes neighbours in pairs, but {pairs.size(-1)} is odd; make the size even")
    return pairs.unflatten(-1, (-1, 2)).amax(dim=-1)


class TanhInitialState(nn.Module):
    """s_0 = tanh(W_s b), b the state that the encoder's last direction ended in: one map a layer.

    For a bidirectional encoder b is the backward state at the first source word (Bahdanau 2015, Appendix A.2.2); for a
    forward encoder it is the last state.
    """

    def __init__(self, source_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(source_size, hidden_size, bias=False) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.01)

    def forward(self, encoded: EncoderOutput) -> DecoderState:
        last_direction = encoded.final_hidden[:, -1]  # L x B x units
        return DecoderState(
            tuple((torch.tanh(project(last)),) for project, last in zip(self.projections, last_direction, strict=True))
        )


def joined_initial_state(encoded: EncoderOutput) -> DecoderState:
    """Each layer starts from [forward_S ; backward_1] of the encoder's same layer, hidden state and cell."""
    assert encoded.final_cell is not None
    hidden, cell = join_directions(encoded.final_hidden), join_directions(encoded.final_cell)  # L x B x H
    return DecoderState(tuple(zip(hidden, cell, strict=True)))


class MaxoutReadout(nn.Module):
    """t_i = maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i) (Bahdanau 2015, Appendix A.2.2), for all words at once.

    Args:
        output_size: l, the width of t_i
    """

    def __init__(self, hidden_size: int, embed_size: int, context_size: int, output_size: int) -> None:
        super().__init__()
        self.hidden_projection = nn.Linear(hidden_size, 2 * output_size, bias=False)  # U_o
        self.embed_projection = nn.Linear(embed_size, 2 * output_size, bias=False)  # V_o
        self.context_projection = nn.Linear(context_size, 2 * output_size, bias=False)  # C_o
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.01)

    def forward(self, previous: Tensor, embedded: Tensor, projected_context: Tensor) -> Tensor:
        """Read out.

        Args:
            previous: s_{i-1}, N x T x n
            embedded: E y_{i-1}, N x T x E
            projected_context: C_o c_i, N x T x 2l, or N x 1 x 2l when all words have one context

        Returns:
            N x T x l
        """
        return maxout(self.hidden_projection(previous) + self.embed_projection(embedded) + projected_context)


class RecurrentDecoder(nn.Module):
    """What the decoders share. ``output_size`` is F, the width of the features."""

    has_attention = True

    def __init__(self, output_size: int, dropout: float) -> None:
        super().__init__()
        self.output_size = output_size
        self.dropout = nn.Dropout(dropout)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        """The memory of the sources and the state before the first word, both with one row a sentence.

        Args:
            encoded: what the encoder returned
            padding_mask: B x S, True at padding
        """
        raise NotImplementedError

    def forward(self, embedded: Tensor, memory: Any, state: DecoderState, need_weights: bool = False) -> DecoderOutput:
        """Read T target words and return the features that predict the words after them.

        Args:
            embedded: target embeddings, N x T x E; N is a multiple of the memory's B, and the hypotheses of one
                sentence stand side by side
            memory: of :meth:`begin`
            state: before the first of these words, N rows
            need_weights: whether to return the attention weights
        """
        raise NotImplementedError


class AttendThenUpdateDecoder(RecurrentDecoder):
    """RNNsearch: attend with s_{i-1}, then let the context into the cell (Bahdanau 2015, Appendix A.2.2).

    The bottom layer reads E y_{i-1} and c_i. Further layers, which the paper does not have, read the new state of the
    layer below; the query and the readout take the top layer's s_{i-1}.

    Args:
        embed_size: E
        hidden_size: n
        initial_state: makes the state before the first word from the encoder's output
        readout_size: l, the width of t_i
        dropout: on what a layer passes up and on t_i
    """

    def __init__(
        self,
        attention: AttentionMechanism,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        readout_size: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=readout_size, dropout=dropout)
        self.attention = attention
        self.initial_state = initial_state
        self.cells = CellStack(ConditionalGRUCell, embed_size, attention.context_size, hidden_size, num_layers)
        self.readout = MaxoutReadout(hidden_size, embed_size, attention.context_size, readout_size)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[AttentionMemory, DecoderState]:
        return self.attention.memorize(encoded.states, padding_mask), self.initial_state(encoded)

    def forward(
        self, embedded: Tensor, memory: AttentionMemory, state: DecoderState, need_weights: bool = False
    ) -> DecoderOutput:
        layers = state.layers
        queries, contexts, all_weights = [], [], []
        for projected in self.cells.project_input(embedded).unbind(dim=1):
            query = layers[-1][0]  # s_{i-1}
            context, weights = self.attention(query, memory)
            layers = self.cells(projected, context, layers, self.dropout)
            queries.append(query)
            contexts.append(context)
            if need_weights:
                all_weights.append(weights)
        context = self.readout.context_projection(torch.stack(contexts, dim=1))  # N x T x 2l
        features = self.dropout(self.readout(torch.stack(queries, dim=1), embedded, context))
        if self.training and embedded.size(1) == 1:
            features = join_unread_state(features, layers)
        return DecoderOutput(features, DecoderState(layers), torch.stack(all_weights, dim=1) if need_weights else None)


class FixedContextMemory(NamedTuple):
    """What a fixed context adds to the gates and to the readout, computed once a sentence."""

    gates: Tensor  # [C_r ; C_z ; C] c, B x 3n
    readout: Tensor  # C_o c, B x 2l


class FixedContextDecoder(RecurrentDecoder):
    """RNNencdec: the decoder of RNNsearch whose every c_i is the forward encoder's last state c; no attention.

    Cho et al. (2014); the baseline of Bahdanau (2015). Arguments as in :class:`AttendThenUpdateDecoder`.
    """

    has_attention = False

    def __init__(
        self,
        context_size: int,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        readout_size: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=readout_size, dropout=dropout)
        self.initial_state = initial_state
        self.cells = CellStack(ConditionalGRUCell, embed_size, context_size, hidden_size, num_layers)
        self.readout = MaxoutReadout(hidden_size, embed_size, context_size, readout_size)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[FixedContextMemory, DecoderState]:
        context = encoded.final_hidden[-1, -1]  # the top layer's last state, B x C
        memory = FixedContextMemory(self.cells.project_context(context), self.readout.context_projection(context))
        return memory, self.initial_state(encoded)

    def forward(
        self, embedded: Tensor, memory: FixedContextMemory, state: DecoderState, need_weights: bool = False
    ) -> DecoderOutput:
        hypotheses = embedded.size(0) // memory.gates.size(0)  # a sentence
        gates, readout = (part.repeat_interleave(hypotheses, dim=0).unsqueeze(1) for part in memory)  # N x 1 x ...
        layers = state.layers
        previous = []
        for projected in (self.cells.project_input(embedded) + gates).unbind(dim=1):
            previous.append(layers[-1][0])
            layers = self.cells(projected, None, layers, self.dropout)
        features = self.dropout(self.readout(torch.stack(previous, dim=1), embedded, readout))
        if self.training and embedded.size(1) == 1:
            features = join_unread_state(features, layers)
        return DecoderOutput(features, DecoderState(layers), None)


class AttentionalLayer(nn.Module):
    """a_t = tanh(W_c [c_t ; h_t]) (Luong 2015)."""

    def __init__(self, context_size: int, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(context_size + hidden_size, hidden_size, bias=False)
        nn.init.uniform_(self.projection.weight, -0.1, 0.1)

    def forward(self, context: Tensor, hidden: Tensor) -> Tensor:
        """... x C and ... x H as ... x H."""
        return torch.tanh(self.projection(torch.cat([context, hidden], dim=-1)))


class InputFeedingDecoder(RecurrentDecoder):
    """Update, then attend with the new state; the attentional vector is fed to the next step (Luong 2015).

    The bottom LSTM layer reads [y_{t-1} ; a_{t-1}], a_0 = 0; the query is the top layer's h_t.

    Args:
        embed_size: E
        hidden_size: H
        initial_state: makes the layers' states before the first word from the encoder's output
        dropout: on what a layer passes up and on a_t (one dropped vector is fed back and predicts the word)
    """

    def __init__(
        self,
        attention: AttentionMechanism,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=hidden_size, dropout=dropout)
        self.attention = attention
        self.initial_state = initial_state
        self.cells = CellStack(ConditionalLSTMCell, embed_size, hidden_size, hidden_size, num_layers)
        for parameter in self.cells.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        self.attentional = AttentionalLayer(attention.context_size, hidden_size)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[AttentionMemory, DecoderState]:
        state = self.initial_state(encoded)
        return (
            self.attention.memorize(encoded.states, padding_mask),
            state._replace(attentional=torch.zeros_like(state.layers[-1][0])),
        )

    def forward(
        self, embedded: Tensor, memory: AttentionMemory, state: DecoderState, need_weights: bool = False
    ) -> DecoderOutput:
        layers, attentional = state
        features, all_weights = [], []
        for projected in self.cells.project_input(embedded).unbind(dim=1):
            layers = self.cells(projected, attentional, layers, self.dropout)
            hidden = layers[-1][0]
            context, weights = self.attention(hidden, memory)
            attentional = self.dropout(self.attentional(context, hidden))
            features.append(attentional)
            if need_weights:
                all_weights.append(weights)
        return DecoderOutput(
            torch.stack(features, dim=1),
            DecoderState(layers, attentional),
            torch.stack(all_weights, dim=1) if need_weights else None,
        )


class FreeRunningDecoder(RecurrentDecoder):
    """Global attention without input feeding: the context enters only a_t, so that all words are attended at once.

    One LSTM call and one batched attention, whatever the number of words. Arguments as in :class:`InputFeedingDecoder`.
    """

    def __init__(
        self,
        attention: AttentionMechanism,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=hidden_size, dropout=dropout)
        self.attention = attention
        self.initial_state = initial_state
        self.rnn = nn.LSTM(
            embed_size, hidden_size, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0
        )
        for parameter in self.rnn.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        self.attentional = AttentionalLayer(attention.context_size, hidden_size)

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[AttentionMemory, DecoderState]:
        return self.attention.memorize(encoded.states, padding_mask), self.initial_state(encoded)

    def forward(
        self, embedded: Tensor, memory: AttentionMemory, state: DecoderState, need_weights: bool = False
    ) -> DecoderOutput:
        hidden, cell = (torch.stack(part) for part in zip(*state.layers, strict=True))  # L x N x H
        states, (hidden, cell) = self.rnn(embedded, (hidden, cell))  # N x T x H
        context, weights = self.attention(states, memory)
        features = self.dropout(self.attentional(context, states))
        layers = tuple(zip(hidden, cell, strict=True))
        return DecoderOutput(features, DecoderState(layers), weights if need_weights else None)


def join_unread_state(features: Tensor, layers: tuple[CellState, ...]) -> Tensor:
    """The features unchanged, but with the cells in their graph.

    RNNsearch predicts word i from s_{i-1}: in a batch whose targets are all empty no s_i is ever read, and the cells
    would get no gradient, which PyTorch's distributed training does not forgive.
    """
    return features + 0 * torch.stack([state[0].sum() for state in layers]).sum()
