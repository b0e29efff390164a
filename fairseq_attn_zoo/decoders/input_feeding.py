"""Update, then attend with the new state; what attention made is fed to the next step: a loop over the target words."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import AttentionMechanism
from ..cells import CellStack, ConditionalLSTMCell
from ..encoders import EncoderOutput
from .base import AttentiveDecoder, DecoderOutput, DecoderState, Layers, TargetWords
from .loop import WordByWord, over_words
from .readout import AttentionalLayer

Carried = tuple[Layers, Tensor | None]  # the layers' states and the attentional vector


class InputFeedingDecoder(AttentiveDecoder):
    """Global attention with input feeding (Luong 2015; Watanabe 2017, Eq. 6 to 10 and 16).

    The bottom LSTM layer reads [y_{t-1} ; a_{t-1}], a_0 = 0; the query is the top layer's h_t.

    Args:
        embed_size: E
        hidden_size: H
        initial_state: makes the layers' states before the first word from the encoder's output
        dropout: on what a layer passes up, and on a_t: the same dropped vector is fed back and predicts the word
        state_first: a_t = tanh(W_c [h_t ; c_t]) instead of tanh(W_c [c_t ; h_t])
    """

    def __init__(
        self,
        attention: AttentionMechanism[Any, Any],
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        dropout: float = 0.0,
        state_first: bool = False,
    ) -> None:
        super().__init__(attention, hidden_size, dropout)
        self.initial_state = initial_state
        self.cells = CellStack(ConditionalLSTMCell, embed_size, hidden_size, hidden_size, num_layers)
        for parameter in self.cells.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        self.attentional = AttentionalLayer(attention.context_size, hidden_size, state_first)

    def first_state(self, encoded: EncoderOutput, padding_mask: Tensor) -> DecoderState:
        state = self.initial_state(encoded)
        return state._replace(attentional=torch.zeros_like(state.layers[-1][0]))

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        attend = WordByWord(self.attention, words, memory, state.attention, need_weights, need_trace)

        def step(projected: Tensor, carried: Carried) -> tuple[tuple[Tensor], Carried]:
            layers, attentional = carried
            layers = self.cells(projected, attentional, layers, self.dropout)
            hidden = layers[-1][0]  # h_t
            attentional = self.dropout(self.attentional(attend(hidden), hidden))
            return (attentional,), (layers, attentional)

        projected = self.cells.project_input(words.embedded)
        (features,), carried = over_words(step, projected, (state.layers, state.attentional))
        return self.output(features, DecoderState(*carried), attend.attended)
