"""The cells of a chart: one per span of words. Those of a sentence stand in one row, by length and then by start."""

from typing import NamedTuple

import torch
from torch import Tensor


class Chart(NamedTuple):
    """All spans of B right-padded sentences of S positions; M = S (S + 1) / 2 cells."""

    cells: Tensor  # B x M x d
    splits: Tensor  # B x M: words in the left part of the winning split; 0 for single words
    padding_mask: Tensor  # B x M: True where the span does not end inside its sentence


def number_of_cells(positions: int) -> int:
    """M, of sentences of S positions."""
    return positions * (positions + 1) // 2


def first_cell(length: int, positions: int) -> int:
    """The index of the first cell of a length, in sentences of S positions."""
    return (length - 1) * positions - (length - 1) * (length - 2) // 2


def cells_of_length(length: int, positions: int) -> slice:
    """Where the cells of all spans of a length stand in the row of a sentence."""
    first = first_cell(length, positions)
    return slice(first, first + positions - length + 1)


def cell_index(length: Tensor, start: Tensor, positions: int) -> Tensor:
    """The index of the cell of ``length`` words from ``start`` on (counted from 0), elementwise."""
    return (length - 1) * positions - (length - 1) * (length - 2) // 2 + start


def part_rows(left_lengths: Tensor, length: int, positions: int) -> tuple[Tensor, Tensor]:
    """Where the left and the right parts of all spans of a length stand in the cells of a batch, (M B) x d.

    Args:
        left_lengths: B x n: how many words the left part of each span has
        length: of the spans
        positions: S

    Returns:
        the rows of the left and of the right parts, n B each: span after span, each of all sentences
    """
    start = torch.arange(left_lengths.size(1), device=left_lengths.device)
    sentence = torch.arange(left_lengths.size(0), device=left_lengths.device)
    left = cell_index(left_lengths, start, positions)
    right = cell_index(length - left_lengths, start + left_lengths, positions)
    left, right = ((index.t() * len(left_lengths) + sentence).flatten() for index in (left, right))
    return left, right


def chart_padding(padding_mask: Tensor) -> Tensor:
    """True at cells that reach into the padding: B x M, of B x S that is True at padding."""
    positions = padding_mask.size(1)
    return torch.cat([padding_mask[:, length - 1 :] for length in range(1, positions + 1)], dim=1)
