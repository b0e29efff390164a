r"""Linguistic coverage: additive attention that sees how much of each source word is translated already.

Tu, Lu, Liu, Liu and Li (2016), Modeling coverage for neural machine translation, Sections 3.1.1 and 3.2:

.. math::
    C_{0,j} &= 0 \qquad \Phi_j = N \cdot \sigma(U_f h_j) \\
    e_{i,j} &= v^\top \tanh(W s_{i-1} + V h_j + V_a C_{i-1,j}) \\
    \alpha_{i,j} &= \mathrm{softmax}_j(e_{i,j}) \qquad c_i = \sum_j \alpha_{i,j} h_j \qquad
    C_{i,j} = C_{i-1,j} + \alpha_{i,j} / \Phi_j

Once per sentence: :math:`V h_j`, and the fertility :math:`\Phi_j`, which is how many target words the source word makes.
Once per word: the rest.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..axes import Axes
from .additive import additive_score
from .base import AttentionMechanism, masked_softmax, rows_of_sentences
from .shared import Rows
from .traced import Traced


class CoverageMemory(NamedTuple):
    """What is remembered of the sources, one row per sentence."""

    keys: Tensor  # V h_j, B x S x A
    values: Rows  # h_j, B x S x C
    padding_mask: Tensor  # B x S, True at padding
    fertility: Tensor  # Phi_j, B x S, in float32 or wider


class CoverageWeights(NamedTuple):
    """The weights of one word (... = N) or of T words at once (... = N x T)."""

    source: Tensor  # alpha_i, ... x S
    coverage: Tensor  # C_i, after the word, ... x S


class CoverageAttention(AttentionMechanism[CoverageMemory, CoverageWeights]):
    """Additive attention that also reads each source position's coverage, one number.

    The paper gives no initial values. W, V and v start as RNNsearch's do. V_a starts like W and V. U_f starts at zero: every
    fertility is N / 2 then, which for the paper's N is 1.

    Args:
        query_size: D, width of s_{i-1}
        source_size: C, width of h_j
        attention_size: A, width of the alignment model's hidden layer
        max_fertility: N, the bound of every fertility
    """

    def __init__(self, query_size: int, source_size: int, attention_size: int, max_fertility: int = 2) -> None:
        super().__init__(context_size=source_size)
        self.max_fertility = max_fertility
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)  # W
        self.source_projection = nn.Linear(source_size, attention_size, bias=False)  # V
        self.energy = nn.Parameter(torch.zeros(attention_size))  # v
        nn.init.normal_(self.query_projection.weight, std=0.001)
        nn.init.normal_(self.source_projection.weight, std=0.001)
        self.coverage_projection = nn.Linear(1, attention_size, bias=False)  # V_a
        self.fertility_projection = nn.Linear(source_size, 1, bias=False)  # U_f
        nn.init.normal_(self.coverage_projection.weight, std=0.001)
        nn.init.zeros_(self.fertility_projection.weight)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> CoverageMemory:
        logits = self.fertility_projection(source).squeeze(2)  # B x S
        # Wide: coverage is a sum over all words, and what it is divided by must not become zero.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        fertility = self.max_fertility * torch.sigmoid(logits)
        return CoverageMemory(self.source_projection(source), Rows(source), padding_mask, fertility)

    def start(self, memory: CoverageMemory) -> Tensor:
        """C_0, B x S."""
        return torch.zeros_like(memory.fertility)

    def attend(
        self, query: Tensor, memory: CoverageMemory, cue: Any, state: Tensor
    ) -> tuple[Tensor, CoverageWeights, Tensor]:
        """Attend for one word.

        Args:
            query: s_{i-1}, N x D
            memory: what :meth:`memorize` returned
            cue: not read
            state: C_{i-1}, N x S

        Returns:
            contexts, N x C; alpha_i and C_i; and C_i
        """
        rows = rows_of_sentences(self.query_projection(query), memory)  # B x R x A
        coverage = state.view(*rows.shape[:2], -1)  # B x R x S
        covered = self.coverage_projection(coverage.unsqueeze(3).to(self.energy.dtype))  # B x R x S x A
        scores = additive_score(rows, memory.keys, self.energy, covered)
        weights = masked_softmax(scores, memory.padding_mask.unsqueeze(1))  # B x R x S
        coverage = (coverage + weights / memory.fertility.unsqueeze(1)).flatten(0, 1)
        context = memory.values.mean(weights)  # B x R x C
        return context.flatten(0, 1), CoverageWeights(weights.flatten(0, 1), coverage), coverage

    def alignment(self, weights: CoverageWeights) -> Tensor:
        """alpha, ... x S."""
        return weights.source

    def trace(self, weights: CoverageWeights) -> dict[str, Traced]:
        """``source`` (alpha) and ``source_coverage`` (C after each word)."""
        return {
            "source": Traced(weights.source),
            "source_coverage": Traced(weights.coverage, Axes(total="any", title="coverage after the word")),
        }
