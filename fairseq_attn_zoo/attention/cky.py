r"""CKY attention: over the words of the source and over every span of them at once.

Watanabe, Tamura and Ninomiya (2017), CKY-based convolutional attention for neural machine translation:

.. math::
    \alpha_j(i) &= \mathrm{softmax}_i(h_i \cdot s_j) & c_j &= \sum_i \alpha_j(i)\, h_i & \text{Eq. 8 and 9} \\
    \alpha'(i, j), \alpha''(k, l, j) &= \text{one softmax over } h_i \cdot s_j \text{ and } h_{k,l} \cdot s_j
    & c'_j &= \sum_i \alpha'(i, j)\, h_i + \sum_{k,l} \alpha''(k, l, j)\, h_{k,l} & \text{Eq. 13 to 15}

The words stand twice in the joint softmax, as h_i and as the chart's first row h_{1,i}, with equal scores: their merged
weight is the first row's with log 2 added to its scores, and alpha' and alpha'' are half of it each. Nothing is copied.

Once per sentence: the chart (:mod:`fairseq_attn_zoo.chart`). Once per word: one dot product per cell.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..axes import Axes
from ..chart import DeductionUnits, first_cell
from .base import AttentionMechanism, masked_softmax, rows_of_sentences
from .shared import Rows
from .traced import Traced


class CKYMemory(NamedTuple):
    """The charts of the sources, one row per sentence; M = S (S + 1) / 2 cells, the words first."""

    cells: Rows  # B x M x d
    splits: Tensor  # B x M: words in the left part of the winning split
    cell_mask: Tensor  # B x M, True where a span reaches into the padding
    padding_mask: Tensor  # B x S, True at padding


class CKYWeights(NamedTuple):
    """The weights of one word (... = N) or of T words at once (... = N x T)."""

    words: Tensor  # alpha, ... x S
    cells: Tensor  # alpha' and alpha'' merged, ... x M: of the words both, of the longer spans alpha''


class CKYAttention(AttentionMechanism[CKYMemory, CKYWeights]):
    """Dot-product attention to words, and to words and spans together; the context is [c ; c'], of 2d values.

    Args:
        units: fill the chart
        size: d, width of queries and source states
    """

    def __init__(self, units: DeductionUnits, size: int) -> None:
        super().__init__(context_size=2 * size)
        self.units = units

    def memorize(self, source: Tensor, padding_mask: Tensor) -> CKYMemory:
        chart = self.units(source, padding_mask)
        # The chart is filled cell after cell, and a single query reads it best so. The many queries of a beam read it best
        # sentence after sentence.
        cells = chart.cells if torch.is_grad_enabled() else chart.cells.contiguous()
        return CKYMemory(Rows(cells), chart.splits, chart.padding_mask, padding_mask)

    def forward(self, query: Tensor, memory: CKYMemory, cue: Any = None) -> tuple[Tensor, CKYWeights]:
        """Attend with s_j, N x d or N x T x d. The cue is not read.

        Returns:
            [c_j ; c'_j], ... x 2d, and both softmaxes' weights
        """
        words = memory.padding_mask.size(1)
        rows = rows_of_sentences(query, memory)  # B x R x d
        scores = memory.cells.scores(rows)  # B x R x M
        over_words = masked_softmax(scores[..., :words], memory.padding_mask.unsqueeze(1))
        twice = scores.new_zeros(scores.size(-1))
        twice[:words] = math.log(2)
        over_cells = masked_softmax(scores + twice, memory.cell_mask.unsqueeze(1))
        context = torch.cat([memory.cells.mean(over_words), memory.cells.mean(over_cells)], dim=2)  # B x R x 2d
        leading = query.shape[:-1]
        return context.view(*leading, -1), CKYWeights(over_words.view(*leading, -1), over_cells.view(*leading, -1))

    def alignment(self, weights: CKYWeights) -> Tensor:
        """Eq. 8's weights, ... x S."""
        return weights.words

    def trace(self, weights: CKYWeights) -> dict[str, Traced]:
        """``source`` (alpha), ``source_joint`` (alpha'), and ``source_chart`` (alpha'', over spans)."""
        positions = weights.words.size(-1)
        chart = weights.cells.new_zeros(*weights.words.shape, positions)
        for length in range(1, positions + 1):
            first, count = first_cell(length, positions), positions - length + 1
            chart[..., :count, length - 1] = weights.cells[..., first : first + count]
        chart[..., 0] /= 2
        return {
            "source": Traced(weights.words),
            "source_joint": Traced(
                chart[..., 0].clone(), Axes(total="at most one", title="words, in the joint softmax")
            ),
            "source_chart": Traced(chart, Axes("spans", total="at most one", title="spans, in the joint softmax")),
        }
