"""One context for all words: the decoder that attention was invented to replace."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ..cells import CellStack, ConditionalGRUCell
from ..encoders import EncoderOutput
from .base import Attended, DecoderOutput, DecoderState, Layers, RecurrentDecoder, TargetWords
from .loop import over_words
from .readout import MaxoutReadout


class FixedContextMemory(NamedTuple):
    """What a fixed context adds to the gates and to the readout, computed once per sentence."""

    gates: Tensor  # [C_r ; C_z ; C] c, B x 3n
    readout: Tensor  # C_o c, B x 2l


class FixedContextDecoder(RecurrentDecoder):
    """RNNencdec: the decoder of RNNsearch whose every c_i is the forward encoder's last state c; no attention.

    Cho et al. (2014); the baseline of Bahdanau (2015). Arguments as in
    :class:`~fairseq_attn_zoo.decoders.AttendThenUpdateDecoder`.
    """

    def __init__(
        self,
        context_size: int,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        readout: MaxoutReadout,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=readout.output_size, dropout=dropout)
        self.initial_state = initial_state
        self.cells = CellStack(ConditionalGRUCell, embed_size, context_size, hidden_size, num_layers)
        self.readout = readout

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[FixedContextMemory, DecoderState]:
        context = encoded.final_hidden[-1, -1]  # the top layer's last state, B x C
        memory = FixedContextMemory(self.cells.project_context(context), self.readout.context_projection(context))
        return memory, self.initial_state(encoded)

    def forward(
        self,
        words: TargetWords,
        memory: FixedContextMemory,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        hypotheses = words.embedded.size(0) // memory.gates.size(0)  # of each sentence
        gates, readout = (part.repeat_interleave(hypotheses, dim=0).unsqueeze(1) for part in memory)  # N x 1 x ...

        def step(projected: Tensor, layers: Layers) -> tuple[tuple[Tensor, ...], Layers]:
            return layers[-1][:1], self.cells(projected, None, layers, self.dropout)

        (states,), layers = over_words(step, self.cells.project_input(words.embedded) + gates, state.layers)
        features = self.readout(self.dropout(states), words.embedded, readout)  # of s_0 .. s_{T-1}
        nothing = Attended(state=None, weights=None, trace={} if need_trace else None)
        return self.output(self.dropout(features), DecoderState(layers), nothing)
