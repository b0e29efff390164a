r"""Fine-grained attention: a weight for each dimension of a source state; and its two ancestors, with one per state.

Choi, Cho and Bengio (2018), Fine-grained attention mechanism for neural machine translation:

.. math::
    e_{t't} &= v^\top \tanh(W z_{t'-1} + U h_t + b) & \text{Att, Eq. 3} \\
    e_{t't} &= v^\top \tanh(W z_{t'-1} + U h_t + Y y_{t'-1} + b) & \text{AttY, Eq. 6} \\
    e^d_{t't} &= V_d \tanh(W z_{t'-1} + U h_t + Y y_{t'-1} + b) & \text{AttY2D, Eq. 7} \\
    \alpha^d_{t't} &= \mathrm{softmax}_t(e^d_{t't}) \qquad c_{t'} = \sum_t \alpha_{t't} \circ h_t

Once per sentence: :math:`U h_t + b`. Once for all words of a call: :math:`Y y_{t'-1}`. Once per word: the rest.

The hidden layer has A values for every pair of target word and source position, and AttY2D has as many weights as a source
state has values. Kept for the backward pass, for all words, they are the largest tensors of the model. Where they would take
more than ``keep_mib``, they are computed again in the backward pass instead.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..axes import Axes
from .additive import additive_score
from .base import AttentionMechanism, masked_softmax, rows_of_sentences
from .traced import Traced

MEBIBYTE = 2**20


class FineGrainedMemory(NamedTuple):
    """What is remembered of the sources, one row per sentence; read element by element, or again in the backward pass."""

    keys: Tensor  # U h_t + b, B x S x A
    values: Tensor  # h_t, B x S x d
    padding_mask: Tensor  # B x S, True at padding


class PreviousWord(NamedTuple):
    """The cue: what attention reads of y_{t'-1}."""

    projected: Tensor | None  # Y y_{t'-1}, N x A, or of all words, N x T x A; None in Att
    recompute: bool  # keep nothing large for the backward pass


class WordAwareAttention(AttentionMechanism[FineGrainedMemory, Tensor]):
    """Att and AttY: one score per source position.

    Args:
        query_size: width of z_{t'-1}
        source_size: d, width of h_t
        embed_size: width of y_{t'-1}; 0 for Att, the one that is not aware of it
        attention_size: A, width of the hidden layer
        keep_mib: MiB that the hidden layers and the weights of a batch may keep for the backward pass; if they need more,
            they are computed again there
    """

    def __init__(
        self, query_size: int, source_size: int, embed_size: int, attention_size: int, keep_mib: int = 1024
    ) -> None:
        super().__init__(context_size=source_size)
        self.attention_size = attention_size
        self.keep_mib = keep_mib
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)  # W
        self.source_projection = nn.Linear(source_size, attention_size)  # U and b
        self.word_projection = nn.Linear(embed_size, attention_size, bias=False) if embed_size else None  # Y
        self.energy = self.build_energy(attention_size, source_size)  # v or V
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def build_energy(self, attention_size: int, source_size: int) -> nn.Parameter:
        """v, A."""
        return nn.Parameter(torch.empty(attention_size))

    def memorize(self, source: Tensor, padding_mask: Tensor) -> FineGrainedMemory:
        return FineGrainedMemory(self.source_projection(source), source, padding_mask)

    def read(self, ids: Tensor, embedded: Tensor, memory: FineGrainedMemory, state: Any) -> tuple[PreviousWord, Any]:
        recompute = False
        if torch.is_grad_enabled():
            pairs = ids.numel() * memory.keys.size(1)
            recompute = pairs * self.bytes_per_pair(memory.keys) > self.keep_mib * MEBIBYTE
        projected = None if self.word_projection is None else self.word_projection(embedded)
        return PreviousWord(projected, recompute), state

    def split_cue(self, cue: PreviousWord, words: int) -> Sequence[PreviousWord]:
        if cue.projected is None:
            return [cue] * words
        return [PreviousWord(projected, cue.recompute) for projected in cue.projected.unbind(dim=1)]

    def bytes_per_pair(self, keys: Tensor) -> int:
        """What the backward pass reads for a pair of target word and source position: hidden layer and weights."""
        size = keys.element_size()
        weight_bytes = size if size >= 4 else size + 4  # the softmax keeps its own in float32
        return self.attention_size * size + self.energy.numel() // self.attention_size * weight_bytes

    def forward(self, query: Tensor, memory: FineGrainedMemory, cue: PreviousWord) -> tuple[Tensor, Tensor]:
        """Attend with z_{t'-1}, N x D or N x T x D, and with what :meth:`read` made of y_{t'-1}.

        Returns:
            contexts, ... x d, and weights, ... x S (AttY2D: ... x S x d)
        """
        leading = query.shape[:-1]
        query = self.query_projection(query)
        if cue.projected is not None:
            query = query + cue.projected
        rows = rows_of_sentences(query, memory)  # B x R x A
        arguments = (rows, self.energy, *memory)
        if cue.recompute:
            context, weights = checkpoint(self.weigh, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            context, weights = self.weigh(*arguments)
        return context.view(*leading, -1), weights.view(*leading, *weights.shape[2:])

    def alignment(self, weights: Tensor) -> Tensor:
        return weights

    def trace(self, weights: Tensor) -> dict[str, Traced]:
        """``source``: the alignment."""
        return {"source": Traced(weights)}

    @staticmethod
    def weigh(query: Tensor, energy: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts B x R x d and weights B x R x S of the hidden layer's inputs: B x R x A and B x S x A."""
        weights = masked_softmax(additive_score(query, keys, energy), mask.unsqueeze(1))
        return torch.bmm(weights, values), weights


class FineGrainedAttention(WordAwareAttention):
    """AttY2D: d scores per source position, a softmax over positions for each, and a context element by element."""

    def build_energy(self, attention_size: int, source_size: int) -> nn.Parameter:
        """V, d x A."""
        return nn.Parameter(torch.empty(source_size, attention_size))

    @staticmethod
    def weigh(query: Tensor, energy: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts B x R x d and weights B x R x S x d."""
        hidden = (query.unsqueeze(2) + keys.unsqueeze(1)).tanh_()  # B x R x S x A
        scores = nn.functional.linear(hidden, energy)  # B x R x S x d
        weights = masked_softmax(scores, mask[:, None, :, None], dim=2)
        return (weights * values.unsqueeze(1)).sum(dim=2), weights

    def alignment(self, weights: Tensor) -> Tensor:
        """The mean over the dimensions of the source states, ... x S."""
        return weights.mean(dim=-1)

    def trace(self, weights: Tensor) -> dict[str, Traced]:
        """``source_dimensions``, by dimension of the source state."""
        return {"source_dimensions": Traced(weights, Axes(by="dimension", title="source"))}
