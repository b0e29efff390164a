"""The context enters the readout only, so that a reference needs no loop: all its words attend at once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import AttentionMechanism, MemoryNetworkAttention, MergedSourceAttention
from ..encoders import EncoderOutput, lengths
from .base import DecoderOutput, DecoderState, RecurrentDecoder, TargetWords, report_weights
from .initial_state import LastStateMap
from .readout import AttentionalLayer


def run_lstm(rnn: nn.LSTM, embedded: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
    """All words through all layers in one call: the top layer's states, N x T x H, and the state after the last."""
    hidden, cell = (torch.stack(part) for part in zip(*state.layers, strict=True))  # L x N x H
    states, (hidden, cell) = rnn(embedded, (hidden, cell))
    return states, DecoderState(tuple(zip(hidden, cell, strict=True)))


class FreeRunningDecoder(RecurrentDecoder):
    """Global attention (Luong 2015) without input feeding: the context enters only a_t.

    One LSTM call and one batched attention, whatever the number of words. Arguments as in
    :class:`~fairseq_attn_zoo.decoders.InputFeedingDecoder`.
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

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        return self.attention.memorize(encoded.states, padding_mask), self.initial_state(encoded)

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        states, after = run_lstm(self.rnn, words.embedded, state)
        context, weights = self.attention(states, memory)
        features = self.dropout(self.attentional(context, states))
        return DecoderOutput(features, after, *report_weights(self.attention, weights, need_weights, need_trace))


class KeyValueDecoder(RecurrentDecoder):
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

    def __init__(
        self,
        attention: MergedSourceAttention,
        embed_size: int,
        hidden_size: int,
        num_layers: int,
        attend_with_current: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(output_size=hidden_size, dropout=dropout)
        self.attention = attention
        self.attend_with_current = attend_with_current
        self.initial_state = LastStateMap(attention.merged_size, hidden_size, num_layers)
        self.rnn = nn.LSTM(embed_size, hidden_size, num_layers, batch_first=True)
        self.readout = nn.Linear(hidden_size + attention.context_size, hidden_size, bias=False)  # W_d

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        last_word = lengths(padding_mask) - 1  # B
        sentences = torch.arange(last_word.size(0), device=last_word.device)
        last = self.attention.merge(encoded.states_before_dropout[sentences, last_word])  # h_M, B x K
        return self.attention.memorize(encoded.states, padding_mask), self.initial_state(last)

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
        context, weights = self.attention(queries, memory)
        features = torch.tanh(self.readout(torch.cat([states, context], dim=-1)))  # e_j
        return DecoderOutput(features, after, *report_weights(self.attention, weights, need_weights, need_trace))


class MemoryNetworkDecoder(RecurrentDecoder):
    r"""A memory network that writes the translation alone, without an LSTM (Simon and Schwenk 2017, Section 3).

    The query is one learned vector, the same at every position; what tells positions apart is the memory of the words
    before them. The features are u, the last hop's output.

    Args:
        attention: hops on the target memory (at least one), then on the source
        dropout: on u
    """

    def __init__(self, attention: MemoryNetworkAttention, dropout: float = 0.0) -> None:
        super().__init__(output_size=attention.context_size, dropout=dropout)
        self.attention = attention
        self.query = nn.Parameter(torch.full((attention.context_size,), 0.1))

    def begin(self, encoded: EncoderOutput, padding_mask: Tensor) -> tuple[Any, DecoderState]:
        return (
            self.attention.memorize(encoded.states, padding_mask),
            DecoderState((), history=self.attention.empty_history(padding_mask)),
        )

    def forward(
        self,
        words: TargetWords,
        memory: Any,
        state: DecoderState,
        need_weights: bool = False,
        need_trace: bool = False,
    ) -> DecoderOutput:
        history = self.attention.extend_history(state.history, words.ids)
        queries = self.query.expand(*words.ids.shape, -1)  # N x T x H
        context, weights = self.attention(queries, memory, self.attention.remember_words(history))
        return DecoderOutput(
            self.dropout(context),
            state._replace(history=history),
            *report_weights(self.attention, weights, need_weights, need_trace),
        )
