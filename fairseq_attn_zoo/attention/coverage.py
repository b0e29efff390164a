r"""Linguistic coverage: additive attention that sees how much of each source word is translated already.

Tu, Lu, Liu, Liu and Li (2016), Modeling coverage for neural machine translation, Sections 3.1.1 and 3.2:

.. math::
    C_{0,j} &= 0 \qquad \Phi_j = N \cdot \sigma(U_f h_j) \\
    e_{i,j} &= v^\top \tanh(W s_{i-1} + V h_j + V_a C_{i-1,j}) \\
    \alpha_{i,j} &= \mathrm{softmax}_j(e_{i,j}) \qquad c_i = \sum_j \alpha_{i,j} h_j \qquad
    C_{i,j} = C_{i-1,j} + \alpha_{i,j} / \Phi_j

Once a sentence: :math:`V h_j` and the fertility :math:`\Phi_j`, how many target words the source word makes. Once a word:
the rest.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .additive import AdditiveAttention, additive_score
from .base import masked_softmax, rows_of_sentences
from .shared import Rows


class CoverageMemory(NamedTuple):
    """What is remembered of the sources, one row a sentence."""

    keys: Tensor  # V h_j, B x S x A
    values: Rows  # h_j, B x S x C
    padding_mask: Tensor  # B x S, True at padding
    fertility: Tensor  # Phi_j, B x S, in float32 or wider


class CoverageWeights(NamedTuple):
    """The weights of one word (... = N) or of T words at once (... = N x T)."""

    source: Tensor  # alpha_i, ... x S
    coverage: Tensor  # C_i, after the word, ... x S


class CoverageAttention(AdditiveAttention):
    """Additive attention that also reads each source position's coverage, one number.

    The paper gives no initial values. V_a starts like RNNsearch's W and V, U_f at zero: every fertility is N / 2 then, which
    for the paper's N is 1.

    Args:
        query_size: D, width of s_{i-1}
        source_size: C, width of h_j
        attention_size: A, width of the alignment model's hidden layer
        max_fertility: N, the bound of every fertility
    """

    def __init__(self, query_size: int, source_size: int, attention_size: int, max_fertility: int = 2) -> None:
        super().__init__(query_size, source_size, attention_size)
        self.max_fertility = max_fertility
        self.coverage_projection = nn.Linear(1, attention_size, bias=False)  # V_a
        self.fertility_projection = nn.Linear(source_size, 1, bias=False)  # U_f
        nn.init.normal_(self.coverage_projection.weight, std=0.001)
        nn.init.zeros_(self.fertility_projection.weight)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> CoverageMemory:  # type: ignore[override]
        logits = self.fertility_projection(source).squeeze(2)  # B x S
        # Wide: coverage is a sum over all words, and what it is divided by must not become zero.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        fertility = self.max_fertility * torch.sigmoid(logits)
        return CoverageMemory(self.source_projection(source), Rows(source), padding_mask, fertility)

    def nothing_attended(self, memory: CoverageMemory) -> Tensor:
        """C_0, B x S."""
        # Not plain zeros: where all targets are empty nothing else reads the fertility, and U_f would get no gradient.
        return 0 * memory.fertility

    def forward(
        self, query: Tensor, memory: CoverageMemory, word: Any = None, attended: Tensor | None = None
    ) -> tuple[Tensor, CoverageWeights]:
        """Attend for one word; there is no attending for all words at once, as each reads the coverage of the one before.

        Args:
            query: s_{i-1}, N x D
            memory: what :meth:`memorize` returned
            word: not read
            attended: C_{i-1}, N x S; before the first word it may be left out

        Returns:
            contexts, N x C, and alpha_i and C_i
        """
        rows = rows_of_sentences(self.query_projection(query), memory)  # B x R x A
        if attended is None:
            attended = self.nothing_attended(memory).repeat_interleave(rows.size(1), dim=0)
        coverage = attended.view(*rows.shape[:2], -1)  # B x R x S
        read = self.coverage_projection(coverage.unsqueeze(3).to(self.energy.dtype))  # B x R x S x A
        scores = additive_score(rows, memory.keys, self.energy, read)
        weights = masked_softmax(scores, memory.padding_mask.unsqueeze(1))  # B x R x S
        coverage = coverage + weights / memory.fertility.unsqueeze(1)
        context = memory.values.mean(weights)  # B x R x C
        return context.flatten(0, 1), CoverageWeights(weights.flatten(0, 1), coverage.flatten(0, 1))

    def attend(
        self, query: Tensor, memory: CoverageMemory, word: Any, attended: Tensor | None
    ) -> tuple[Tensor, CoverageWeights, Tensor]:
        """:meth:`forward`, and C_i."""
        context, weights = self(query, memory, word, attended)
        return context, weights, weights.coverage

    def alignment(self, weights: CoverageWeights) -> Tensor:
        """alpha, ... x S."""
        return weights.source

    def join_words(self, weights: list[CoverageWeights]) -> CoverageWeights:
        return CoverageWeights(*(torch.stack(part, dim=1) for part in zip(*weights, strict=True)))

    def trace(self, weights: CoverageWeights) -> dict[str, Tensor]:
        """``source`` (alpha) and ``source_coverage`` (C after each word), N x T x S."""
        return {"source": weights.source, "source_coverage": weights.coverage}
