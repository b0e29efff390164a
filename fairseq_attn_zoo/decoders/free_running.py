"""The context enters the readout only, so that a reference needs no loop: all its words attend at once.

A mechanism that remembers where it has looked goes word by word here too, after the LSTM has read all words.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import AttentionMechanism, MergedSourceAttention
from ..encoders import EncoderOutput, lengths
from .base import AttentiveDecoder, DecoderOutput, DecoderState, TargetWords
from .initial_state import LastStateMap
from .loop import attend_to_all
from .readout import AttentionalLayer


def run_lstm(rnn: nn.LSTM, embedded: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
    """All words through all layers in one call: the top layer's states, N x T x H, and the state after the last."""
    hidden, cell = (torch.stack(part) for part in zip(*state.layers, strict=True))  # L x N x H
    states, (hidden, cell) = rnn(embedded, (hidden, cell))
    return states, DecoderState(tuple(zip(hidden, cell, strict=True)))


class FreeRunningDecoder(AttentiveDecoder):
    """Global attention (Luong 2015) without input feeding: the context enters only a_t.

    One LSTM call, and one batched attention where the mechanism remembers nothing. Arguments as in
    :class:`~fairseq_attn_zoo.decoders.InputFeedingDecoder`.
    """

    def __init__(
        self,
        attention: AttentionMechanism[Any, Any],
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        initial_state: Callable[[EncoderOutput], DecoderState],
        dropout: float = 0.0,
    ) -> None:
        super().__init__(attention, hidden_size, dropout)
        self.initial_state = initial_state
        self.rnn = nn.LSTM(
            embed_size, hidden_size, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0
        )
        for parameter in self.rnn.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        self.attentional = AttentionalLayer(attention.context_size, hidden_size)

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
        states, after = run_lstm(self.rnn, words.embedded, state)
        context, attended = attend_to_all(
            self.attention, states, words, memory, state.attention, need_weights, need_trace
        )
        return self.output(self.dropout(self.attentional(context, states)), after, attended)


class KeyValueDecoder(AttentiveDecoder):
    r"""The decoder of key-value attention and of its two siblings (Mino et al. 2017, Eq. 4 to 6).

    .. math::
        d_j = \mathrm{dec}(d_{j-1}, y_{j-1}) \qquad e_j = \tanh(W_d [d_j ; c_j])

    The paper attends with d_{j-1} (Eq. 8 and 12): the state before the word it has just read. The dropout falls on the
    top layer's output d_j, which serves query and readout alike; the recurrence and d_0 are never dropped.

    Args:
        attention: one of Mino's mechanisms
        embed_size: E
        hidden_size: K
        attend_with_current: attend with d_j instead of d_{j-1}
        dropout: on d_j
    """

    attention: MergedSourceAttention

    def __init__(
        self,
        attention: MergedSourceAttention,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        attend_with_current: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(attention, hidden_size, dropout)
        self.attend_with_current = attend_with_current
        self.initial_state = LastStateMap(attention.merged_size, hidden_size, num_layers)
        self.rnn = nn.LSTM(embed_size, hidden_size, num_layers, batch_first=True)
        self.readout = nn.Linear(hidden_size + attention.context_size, hidden_size, bias=False)  # W_d

    def first_state(self, encoded: EncoderOutput, padding_mask: Tensor) -> DecoderState:
        last_word = lengths(padding_mask) - 1  # B
        sentences = torch.arange(last_word.size(0), device=last_word.device)
        last = self.attention.merge(encoded.states_before_dropout[sentences, last_word])  # h_M, B x K
        return self.initial_state(last)

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        states, after = run_lstm(self.rnn, words.embedded, state)
        states = self.dropout(states)  # d_1 .. d_T
        queries = states
        if not self.attend_with_current:
            before = state.layers[-1][0].unsqueeze(1)  # d_0, N x 1 x K
            queries = torch.cat([before, states[:, :-1]], dim=1)
        context, attended = attend_to_all(
            self.attention, queries, words, memory, state.attention, need_weights, need_trace
        )
        features = torch.tanh(self.readout(torch.cat([states, context], dim=-1)))  # e_j
        return self.output(features, after, attended)


class MemoryNetworkDecoder(AttentiveDecoder):
    r"""A memory network that writes the translation alone, without an LSTM (Simon and Schwenk 2017, Section 3).

    The query is one learned vector, the same at every position. What tells positions apart is the memory of the words before
    them. The features are u, the last hop's output.

    Args:
        attention: hops on the target memory (at least one), then on the source
        dropout: on u
    """

    def __init__(self, attention: AttentionMechanism[Any, Any], dropout: float = 0.0) -> None:
        super().__init__(attention, attention.context_size, dropout)
        self.query = nn.Parameter(torch.full((attention.context_size,), 0.1))

    def first_state(self, encoded: EncoderOutput, padding_mask: Tensor) -> DecoderState:
        return DecoderState(layers=())

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        queries = self.query.expand(*words.ids.shape, -1)  # N x T x H
        context, attended = attend_to_all(
            self.attention, queries, words, memory, state.attention, need_weights, need_trace
        )
        return self.output(self.dropout(context), state, attended)
