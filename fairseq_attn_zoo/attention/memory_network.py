r"""Memory-network attention: hops on the target words written so far, then on the source.

Simon and Schwenk (2017), Neural machine translation with memory network based attention, Eq. 4 to 6 and Section 3:

.. math::
    p = \mathrm{softmax}_j(q \cdot k_j) \qquad o = \sum_j p_j v_j \qquad
    u = \begin{cases} o & \text{one hop in all} \\ o + \mathrm{ReLU}(q) & \text{otherwise} \end{cases}

u is the next hop's q, and after the last hop the context. The hops on one memory share their parameters: there are none
on the source, and two embeddings and two time tables on the target, so that a trained model can be run with any number.

Once per sentence: nothing, as the memory is the source's states. Once per word: two embeddings, and the hops.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..axes import Axes
from ..dropout import Dropout
from .base import AttentionMechanism, AttentionMemory, masked_softmax, rows_of_sentences
from .shared import Rows
from .traced import Traced


class TargetMemory(NamedTuple):
    """The cue: the target words y_0 .. y_{i-1} as keys and values, and the time tables for their distances from i."""

    keys: Tensor  # EmbK(y_j), N x i x H
    values: Tensor  # EmbV(y_j), N x i x H
    key_times: Tensor  # TimeK, i x H; the first row is distance 1
    value_times: Tensor  # TimeV, i x H

    def hop(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """One hop for queries of the last R positions, N x R x H: outputs N x R x H and weights N x R x i.

        The query of position i reads EmbK(y_j) + TimeK(i - j) for j < i.
        """
        entries, positions = self.keys.size(1), query.size(1)
        index = torch.arange(entries, device=query.device)
        distance = index[entries - positions :].unsqueeze(1) + 1 - index  # R x i; below 1: not yet written
        by_entry = (distance - 1).clamp(min=0).expand(query.size(0), -1, -1)  # N x R x i: row of the time tables
        scores = torch.bmm(query, self.keys.transpose(1, 2)) + (query @ self.key_times.t()).gather(2, by_entry)
        weights = masked_softmax(scores, distance < 1)
        # The weight of distance d is that of entry i - d: the same skew, read the other way round.
        weights_by_time = weights.gather(2, by_entry).masked_fill(distance < 1, 0)
        return torch.bmm(weights, self.values) + weights_by_time @ self.value_times, weights


class HopWeights(NamedTuple):
    """The weights of every hop, a tensor for each, of one word (... = N) or of T words at once (... = N x T)."""

    source: tuple[Tensor, ...]  # ... x S
    target: tuple[Tensor, ...]  # ... x words, 0 where nothing was written yet


class MemoryNetworkAttention(AttentionMechanism[AttentionMemory, HopWeights]):
    """Hops on the target memory, then on the source memory.

    Args:
        size: H, width of queries, source states and memories
        source_hops: hops on the source, at least 1
        target_hops: hops on the target; with 0 the target memory is not built
        vocabulary: number of target words
        max_words: longest target in words: rows of the time tables
        dropout: on the embeddings of the target memory
    """

    def __init__(
        self, size: int, source_hops: int, target_hops: int, vocabulary: int, max_words: int, dropout: float = 0.0
    ) -> None:
        super().__init__(context_size=size)
        self.source_hops = source_hops
        self.target_hops = target_hops
        self.max_words = max_words
        if target_hops:
            self.key_words = nn.Embedding(vocabulary, size)  # EmbK
            self.value_words = nn.Embedding(vocabulary, size)  # EmbV
            self.key_times = nn.Parameter(torch.empty(max_words, size))  # TimeK; row d - 1 is distance d
            self.value_times = nn.Parameter(torch.empty(max_words, size))  # TimeV
            self.dropout = Dropout(dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        rows = Rows(source)
        return AttentionMemory(rows, rows, padding_mask)

    def start(self, memory: AttentionMemory) -> Tensor | None:
        """The ids of the target words before the first, B x 0; None without hops on the target."""
        if not self.target_hops:
            return None
        mask = memory.padding_mask
        return torch.empty(mask.size(0), 0, dtype=torch.long, device=mask.device)

    def read(
        self, ids: Tensor, embedded: Tensor, memory: AttentionMemory, state: Tensor | None
    ) -> tuple[TargetMemory | None, Tensor | None]:
        """All target words so far as a memory, and their ids, N x words.

        Raises:
            ValueError: if they are more than the time tables have rows
        """
        if state is None:
            return None, None
        written = torch.cat([state, ids], dim=1)
        words = written.size(1)
        if words > self.max_words:
            raise ValueError(
                f"a target of {words} words is longer than the {self.max_words} distances that the model was built "
                "for; train with a larger --max-target-positions, or lower --max-len-b"
            )
        target = TargetMemory(
            self.dropout(self.key_words(written)),
            self.dropout(self.value_words(written)),
            self.key_times[:words],
            self.value_times[:words],
        )
        return target, written

    def split_cue(self, cue: TargetMemory | None, words: int) -> Sequence[TargetMemory | None]:
        """For each of the last words, what was written when it attends."""
        if cue is None:
            return [None] * words
        keys, values, key_times, value_times = cue
        written = [keys.size(1) - later for later in reversed(range(words))]
        return [TargetMemory(keys[:, :i], values[:, :i], key_times[:i], value_times[:i]) for i in written]

    def forward(self, query: Tensor, memory: AttentionMemory, cue: TargetMemory | None) -> tuple[Tensor, HopWeights]:
        """Hop.

        Args:
            query: N x H (one word) or N x T x H (all words at once)
            memory: what :meth:`memorize` returned
            cue: the target memory of this word, or of all words at once; None without hops on the target

        Returns:
            contexts, N x H or N x T x H, and every hop's weights
        """
        leading = query.shape[:-1]
        target_weights, source_weights = [], []
        query = query.reshape(leading[0], -1, query.size(-1))  # N x R x H
        if cue is not None:
            for _ in range(self.target_hops):
                output, weights = cue.hop(query)
                query = self.connect(output, query)
                target_weights.append(weights)
        query = rows_of_sentences(query, memory)
        for _ in range(self.source_hops):
            scores = memory.keys.scores(query)
            weights = masked_softmax(scores, memory.padding_mask.unsqueeze(1))  # B x R x S
            query = self.connect(memory.values.mean(weights), query)
            source_weights.append(weights)
        return query.view(*leading, -1), HopWeights(
            tuple(weights.view(*leading, -1) for weights in source_weights),
            tuple(weights.view(*leading, -1) for weights in target_weights),
        )

    def connect(self, output: Tensor, query: Tensor) -> Tensor:
        """u of one hop, from o and q."""
        if self.source_hops + self.target_hops == 1:
            return output
        return output + torch.relu(query)

    def alignment(self, weights: HopWeights) -> Tensor:
        """The last hop's weights on the source, ... x S: the ones that make the context."""
        return weights.source[-1]

    def join_words(self, weights: list[HopWeights]) -> HopWeights:
        source = zip(*(word.source for word in weights), strict=True)
        target = zip(*(word.target for word in weights), strict=True)
        return HopWeights(
            tuple(torch.stack(hop, dim=1) for hop in source),
            tuple(pad_sequence([word.t() for word in hop], batch_first=True).permute(2, 0, 1) for hop in target),
        )

    def trace(self, weights: HopWeights) -> dict[str, Traced]:
        """``source_hops``, and ``target_hops`` where there are any: entry j of the target memory is y_j."""
        traced = {"source_hops": Traced(torch.stack(weights.source, dim=-1), Axes(by="hop", title="source"))}
        if weights.target:
            on_target = torch.stack(weights.target, dim=-1)
            traced["target_hops"] = Traced(on_target, Axes("target words", by="hop", title="target"))
        return traced
