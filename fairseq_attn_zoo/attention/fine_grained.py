r"""Fine-grained attention: one weight for each dimension of a source state, and its two ancestors with one a state.

Choi, Cho and Bengio (2018), Fine-grained attention mechanism for neural machine translation:

.. math::
    e_{t't} &= v^\top \tanh(W z_{t'-1} + U h_t + b) & \text{Att, Eq. 3} \\
    e_{t't} &= v^\top \tanh(W z_{t'-1} + U h_t + Y y_{t'-1} + b) & \text{AttY, Eq. 6} \\
    e^d_{t't} &= V_d \tanh(W z_{t'-1} + U h_t + Y y_{t'-1} + b) & \text{AttY2D, Eq. 7} \\
    \alpha^d_{t't} &= \mathrm{softmax}_t(e^d_{t't}) \qquad c_{t'} = \sum_t \alpha_{t't} \circ h_t

Once a sentence: :math:`U h_t + b`. Once for all words of a reference: :math:`Y y_{t'-1}`. Once a word: the rest.

The hidden layer has A values a pair of target word and source position, and the weights of AttY2D have as many as a
source state: kept for the backward pass, for all words, they are the largest tensors of the model. Where they would take
more than ``keep_mib`` they are computed again in the backward pass instead.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .additive import additive_score
from .base import AttentionMechanism, masked_softmax, rows_of_sentences

MEBIBYTE = 2**20


class FineGrainedMemory(NamedTuple):
    """What is remembered of the sources, one row per sentence; read element by element, or again in the backward pass."""

    keys: Tensor  # U h_t + b, B x S x A
    values: Tensor  # h_t, B x S x d
    padding_mask: Tensor  # B x S, True at padding


class PreviousWord(NamedTuple):
    """What attention reads of y_{t'-1}."""

    projected: Tensor | None  # Y y_{t'-1}, N x A; None in Att
    recompute: bool  # keep nothing large of this word for the backward pass


class WordAwareAttention(AttentionMechanism):
    """Att and AttY: one score a source position.

    Args:
        query_size: width of z_{t'-1}
        source_size: d, width of h_t
        embed_size: width of y_{t'-1}; 0 for Att, the one that is not aware of it
        attention_size: A, width of the hidden layer
        keep_mib: MiB that the hidden layers and the weights of a batch may take in wait for the backward pass; if they
            need more they are computed again there
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

    def read_words(self, embedded: Tensor, history: Tensor | None, memory: FineGrainedMemory) -> Sequence[PreviousWord]:
        words = embedded.size(1)
        recompute = False
        if torch.is_grad_enabled():
            pairs = embedded.size(0) * words * memory.keys.size(1)
            recompute = pairs * self.bytes_a_pair(memory.keys) > self.keep_mib * MEBIBYTE
        if self.word_projection is None:
            return [PreviousWord(None, recompute)] * words
        return [PreviousWord(projected, recompute) for projected in self.word_projection(embedded).unbind(dim=1)]

    def bytes_a_pair(self, keys: Tensor) -> int:
        """What the backward pass reads for a pair of target word and source position: hidden layer and weights."""
        size = keys.element_size()
        weight_bytes = size if size >= 4 else size + 4  # the softmax keeps its own in float32
        return self.attention_size * size + self.energy.numel() // self.attention_size * weight_bytes

    def forward(
        self, query: Tensor, memory: FineGrainedMemory, word: PreviousWord | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend with z_{t'-1}, N x D, and with the word that :meth:`read_words` prepared.

        Returns:
            contexts, N x d, and weights, N x S (AttY2D: N x S x d)
        """
        assert word is not None
        query = self.query_projection(query)
        if word.projected is not None:
            query = query + word.projected
        rows = rows_of_sentences(query, memory)  # B x R x A
        arguments = (rows, self.energy, *memory)
        if word.recompute:
            context, weights = checkpoint(self.weigh, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            context, weights = self.weigh(*arguments)
        return context.flatten(0, 1), weights.flatten(0, 1)

    @staticmethod
    def weigh(query: Tensor, energy: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts B x R x d and weights B x R x S of the hidden layer's inputs: B x R x A and B x S x A."""
        weights = masked_softmax(additive_score(query, keys, energy), mask.unsqueeze(1))
        return torch.bmm(weights, values), weights


class FineGrainedAttention(WordAwareAttention):
    """AttY2D: d scores a source position, a softmax over positions for each, and a context element by element."""

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

    def trace(self, weights: Any) -> dict[str, Tensor]:
        """``source_dimensions``, N x T x S x d."""
        return {"source_dimensions": weights}
