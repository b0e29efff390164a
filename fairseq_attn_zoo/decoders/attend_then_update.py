"""Attend with the previous state, then let the context into the cell: a loop over the target words."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..attention import AttentionMechanism, share
from ..cells import CellStack, CellState, ConditionalGRUCell, ConditionalLSTMCell
from ..encoders import EncoderOutput
from .base import DecoderOutput, DecoderState, RecurrentDecoder, TargetWords, WeightLog
from .readout import MaxoutReadout


class AttendThenUpdateDecoder(RecurrentDecoder):
    """The query is s_{i-1}; the bottom layer reads y_{i-1} and c_i.

    RNNsearch (Bahdanau 2015, Appendix A.2.2) has gated units and predicts from s_{i-1}, y_{i-1} and c_i through a maxout
    layer; fine-grained attention (Choi 2018, Section 2) and memory-network attention (Simon and Schwenk 2017, Section 2)
    have an LSTM and predict from the new state. Further layers, which none of the papers has, read the new state of the
    layer below; query and prediction take the top layer's.

    Args:
        cell: class of the cells
        embed_size: E
        hidden_size: H
        initial_state: makes the state before the first word from the encoder's output
        readout: makes the features from (s_{i-1}, y_{i-1}, c_i); without one they are the top layer's s_i
        dropout: on what a layer passes up, to the next one or to the readout, and on the features
    """

    def __init__(
        self,
        attention: AttentionMechanism,
        cell: type[ConditionalGRUCell] | type[ConditionalLSTMCell],
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        readout: MaxoutReadout | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=readout.output_size if readout else hidden_size, dropout=dropout)
        self.attention = attention
        self.initial_state = initial_state
        self.cells = CellStack(cell, embed_size, attention.context_size, hidden_size, num_layers)
        self.readout = readout

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        memory = self.attention.memorize(encoded.states, padding_mask)
        return memory, self.initial_state(encoded)._replace(
            history=self.attention.empty_history(padding_mask), attended=self.attention.nothing_attended(memory)
        )

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        layers, attended = state.layers, state.attended
        history = self.attention.extend_history(state.history, words.ids)
        memory = share(memory)
        log = WeightLog(self.attention, need_weights, need_trace)
        read = self.attention.read_words(words.embedded, history, memory)
        queries, contexts, states = [], [], []
        for word, projected in zip(read, self.cells.project_input(words.embedded).unbind(dim=1), strict=True):
            query = layers[-1][0]  # s_{i-1}
            context, weights, attended = self.attention.attend(query, memory, word, attended)
            layers = self.cells(projected, context, layers, self.dropout)
            log.add(weights)
            queries.append(query)
            contexts.append(context)
            states.append(layers[-1][0])
        if self.readout is None:
            features = torch.stack(states, dim=1)  # N x T x H
        else:
            projected = self.readout.context_projection(torch.stack(contexts, dim=1))  # N x T x 2l
            features = self.readout(self.dropout(torch.stack(queries, dim=1)), words.embedded, projected)
            if self.training and words.embedded.size(1) == 1:
                features = join_unread_state(features, layers)
        return DecoderOutput(
            self.dropout(features), DecoderState(layers, None, history, attended), log.weights, log.trace
        )


def join_unread_state(features: Tensor, layers: tuple[CellState, ...]) -> Tensor:
    """The features unchanged, but with the cells in their graph.

    RNNsearch predicts word i from s_{i-1}: in a batch whose targets are all empty no s_i is ever read, and the cells
    would get no gradient, which PyTorch's distributed training does not forgive.
    """
    return features + 0 * torch.stack([state[0].sum() for state in layers]).sum()
