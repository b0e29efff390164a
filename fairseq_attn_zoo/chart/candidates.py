"""The candidates for a span's cell, one per split: which of them sums highest, mostly without computing any in full."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from .cells import part_rows

CACHED_VALUES = 2**17  # half a megabyte of float32


class Weights(NamedTuple):
    """The parameters of a deduction unit's four convolutions; those of a 1x2 convolution have a left and a right column."""

    w1: Tensor  # CNN1: d/2 x d
    b1: Tensor  # d/2
    w2_left: Tensor  # CNN2, A: d/2 x d/2
    w2_right: Tensor  # B: d/2 x d/2
    b2: Tensor  # d/2
    w3: Tensor  # CNN3: d x d/2
    b3: Tensor  # d
    w4_left: Tensor  # CNN4, C: d x d
    w4_right: Tensor  # E: d x d
    b4: Tensor  # d


class Candidates:
    """What finished cells contribute to the deduction units of longer spans, as left parts and as right parts.

    Args:
        states: B x S x d, of which the chart will be made; only shape, type and device are read
        weights: of the deduction units
        relu_after_sum: whether a ReLU follows the sum of CNN3 and CNN4
    """

    def __init__(self, states: Tensor, weights: Weights, relu_after_sum: bool) -> None:
        batch, positions, size = states.shape
        self.weights, self.relu_after_sum = weights, relu_after_sum
        # Left parts, A f(CNN1 h) + b2, by start and length - 1; right parts, B f(CNN1 h), by end and S - length. Both are
        # triangles: with one column more they share one square.
        self.halves = states.new_empty(batch, positions, positions + 1, size // 2)
        self.left, self.right = self.halves[:, :, :positions], self.halves[:, :, 1:]  # B x S x S x d/2 each
        self.left_sum = states.new_empty(batch, positions, positions)  # sum(C h)
        self.right_sum = states.new_empty(batch, positions, positions)  # sum(E h)
        self.w3_sum, self.w4_left_sum, self.w4_right_sum = (
            weights.w3.sum(0),
            weights.w4_left.sum(0),
            weights.w4_right.sum(0),
        )

    def add(self, length: int, cells: Tensor, reduced: Tensor) -> None:
        """Take in the finished cells of a length.

        Args:
            length: of their spans
            cells: h, (n B) x d
            reduced: f(CNN1 h), (n B) x d/2
        """
        batch, positions, _, half = self.left.shape
        count = positions - length + 1
        by_start = slice(None), slice(count), length - 1
        by_end = slice(None), slice(length - 1, None), positions - length
        left = linear(reduced, self.weights.w2_left, self.weights.b2)
        self.left[by_start] = left.view(count, batch, half).transpose(0, 1)
        right = linear(reduced, self.weights.w2_right)
        self.right[by_end] = right.view(count, batch, half).transpose(0, 1)
        by_span = cells.view(count, batch, -1)
        self.left_sum[by_start] = by_span.matmul(self.w4_left_sum).t()
        self.right_sum[by_end] = by_span.matmul(self.w4_right_sum).t()

    def best_split(self, length: int, cells: Tensor) -> Tensor:
        """How many words the left part of the winning split has, of every span of a length: B x n.

        Args:
            length: of the spans
            cells: (M B) x d, of which those of shorter spans are finished
        """
        positions = self.left.size(1)
        # One entry per split: B x n x (length - 1), and d/2 values more of the halves of CNN2.
        by_start = slice(None), slice(positions - length + 1), slice(length - 1)
        by_end = slice(None), slice(length - 1, None), slice(positions - length + 1, None)
        left, right = self.left[by_start], self.right[by_end]
        if self.relu_after_sum:
            return best_split_in_full(left, right, cells, length, self.weights)
        scores = relu_of_sums(left, right, self.w3_sum)
        scores += self.left_sum[by_start]
        scores += self.right_sum[by_end]
        return scores.argmax(dim=2).add_(1)  # the first of equal ones

    def hidden_layers(self, split: Tensor, length: int, out: Tensor) -> Tensor:
        """The hidden layers of the winning deduction units, f(CNN2(f(CNN1 l), f(CNN1 r))).

        Args:
            split: B x n, as :meth:`best_split` returns it
            length: of the spans
            out: (n B) x d/2, is filled and returned
        """
        batch, positions, columns, half = self.halves.shape
        start = torch.arange(split.size(1), device=split.device)
        sentence = torch.arange(batch, device=split.device).unsqueeze(1) * (positions * columns)
        left = sentence + start * columns + (split - 1)
        right = sentence + (start + length - 1) * columns + (positions - length + 1 + split)
        halves = self.halves.view(-1, half)
        torch.index_select(halves, 0, left.t().flatten(), out=out)
        out += halves.index_select(0, right.t().flatten())
        return out.relu_()


def relu_of_sums(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """``relu(left + right) @ weight``, B x n x k x h and h: B x n x k.

    The sums are of size O(S^2) for the spans of one length, O(S^3) in all. On the CPU a few sentences at a time are summed,
    so that the sums stay in the cache.
    """
    batch, values = left.size(0), left[0].numel()
    together = batch if left.is_cuda else min(batch, max(1, CACHED_VALUES // values))
    sums = left.new_empty(together, *left.shape[1:])
    scores = left.new_empty(left.shape[:3])
    for begin in range(0, batch, together):
        some = slice(begin, begin + together)
        room = sums[: batch - begin]
        torch.add(left[some], right[some], out=room)
        torch.mv(room.relu_().view(-1, room.size(3)), weight, out=scores[some].view(-1))
    return scores


def best_split_in_full(left: Tensor, right: Tensor, cells: Tensor, length: int, weights: Weights) -> Tensor:
    """As :meth:`Candidates.best_split`, when a ReLU follows the sum: every candidate is computed.

    Args:
        left: the left parts' halves of CNN2, B x n x (length - 1) x d/2
        right: the right parts' halves of CNN2, as many
        cells: (M B) x d
        length: of the spans
        weights: of the deduction units
    """
    batch, count = left.shape[:2]
    bias = weights.b3 + weights.b4
    best = left.new_full((batch, count), -torch.inf)
    split = torch.ones(batch, count, dtype=torch.long, device=left.device)
    for k in range(1, length):
        left_cells, right_cells = (
            cells.index_select(0, rows) for rows in part_rows(torch.full_like(split, k), length, count + length - 1)
        )
        hidden = torch.relu_(left[:, :, k - 1] + right[:, :, k - 1]).transpose(0, 1).flatten(0, 1)  # (n B) x d/2
        units = linear(hidden, weights.w3, bias)
        units.addmm_(left_cells, weights.w4_left.t()).addmm_(right_cells, weights.w4_right.t())
        score = units.relu_().sum(dim=1).view(count, batch).t()
        better = score > best
        best, split = torch.where(better, score, best), torch.where(better, k, split)
    return split
