"""Attend with the previous state, then let the context into the cell: a loop over the target words."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..attention import AttentionMechanism
from ..cells import CellStack, ConditionalGRUCell, ConditionalLSTMCell
from ..encoders import EncoderOutput
from .base import AttentiveDecoder, DecoderOutput, DecoderState, Layers, TargetWords
from .loop import WordByWord, over_words
from .readout import MaxoutReadout


class AttendThenUpdateDecoder(AttentiveDecoder):
    """The query is s_{i-1}; the bottom layer reads y_{i-1} and c_i.

    RNNsearch (Bahdanau 2015, Appendix A.2.2) has gated units and predicts from s_{i-1}, y_{i-1} and c_i through a maxout
    layer. Fine-grained attention (Choi 2018, Section 2) and memory-network attention (Simon and Schwenk 2017, Section 2)
    have an LSTM and predict from the new state. None of the papers has further layers: here they read the new state of the
    layer below, and query and prediction take the top layer's.

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
        attention: AttentionMechanism[Any, Any],
        cell: type[ConditionalGRUCell] | type[ConditionalLSTMCell],
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        readout: MaxoutReadout | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(attention, readout.output_size if readout else hidden_size, dropout)
        self.initial_state = initial_state
        self.cells = CellStack(cell, embed_size, attention.context_size, hidden_size, num_layers)
        self.readout = readout

    def first_state(self, encoded: EncoderOutput, padding_mask: Tensor) -> DecoderState:
        return self.initial_state(encoded)

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        attend = WordByWord(self.attention, words, memory, state.attention, need_weights, need_trace)

        def step(projected: Tensor, layers: Layers) -> tuple[tuple[Tensor, ...], Layers]:
            query = layers[-1][0]  # s_{i-1}
            context = attend(query)
            layers = self.cells(projected, context, layers, self.dropout)
            return (layers[-1][:1] if self.readout is None else (query, context)), layers

        kept, layers = over_words(step, self.cells.project_input(words.embedded), state.layers)
        if self.readout is None:
            (features,) = kept  # s_1 .. s_T, N x T x H
        else:
            queries, contexts = kept
            projected = self.readout.context_projection(contexts)  # N x T x 2l
            features = self.readout(self.dropout(queries), words.embedded, projected)
        return self.output(self.dropout(features), DecoderState(layers), attend.attended)
