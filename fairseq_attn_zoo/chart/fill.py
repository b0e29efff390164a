"""Filling a chart, length after length, with a backward pass of its own."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..gradients import first_derivative_only
from .candidates import Candidates, Weights
from .cells import cells_of_length, number_of_cells, part_rows


class FillOptions(NamedTuple):
    """How a chart is filled; nothing here has a gradient."""

    padding_mask: Tensor  # B x M, True at cells that reach into the padding
    dropout_mask: Tensor | None  # ((M - S) B) x d, True where a value of a computed cell is kept
    dropout_scale: float  # by which kept values are multiplied
    relu_after_sum: bool
    for_backward: bool  # whether a backward pass may follow


class FillChart(torch.autograd.Function):
    """The cells, B x M x d, and the splits, B x M, of states, B x S x d.

    The backward pass keeps what it reads of each cell once: O(S^2 d) values. Autograd would keep every intermediate of every
    length, and would copy the chart for each row written into it.
    """

    @staticmethod
    def forward(ctx: Any, options: FillOptions, states: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        weights = Weights(*parameters)
        batch, positions, size = states.shape
        word_rows = positions * batch
        # Cell after cell, each of all sentences: the cells of one length are one matrix, and nothing of it is copied.
        cells = states.new_empty(number_of_cells(positions) * batch, size)  # (M B) x d
        splits = torch.zeros(batch, number_of_cells(positions), dtype=torch.long, device=states.device)
        candidates = Candidates(states, weights, options.relu_after_sum)
        # f(CNN1 h) of every cell and the winning units' hidden layers are kept for the backward pass, if there is one;
        # otherwise every length writes over those of the length before.
        reduced = states.new_empty(len(cells) if options.for_backward else word_rows, size // 2)
        hidden = states.new_empty(len(cells) - word_rows if options.for_backward else word_rows, size // 2)
        bias = weights.b3 + weights.b4

        for length in range(1, positions + 1):
            spans = cells_of_length(length, positions)
            rows = slice(spans.start * batch, spans.stop * batch)
            computed = slice(rows.start - word_rows, rows.stop - word_rows)  # among all but the words' rows
            made = cells[rows]  # (n B) x d
            if length == 1:
                made.view(positions, batch, size).copy_(states.transpose(0, 1))
            else:
                split = candidates.best_split(length, cells)
                splits[:, spans] = split
                out = hidden[computed if options.for_backward else slice(len(made))]
                torch.addmm(bias, candidates.hidden_layers(split, length, out), weights.w3.t(), out=made)
                left, right = part_rows(split, length, positions)
                made.addmm_(cells.index_select(0, left), weights.w4_left.t())
                made.addmm_(cells.index_select(0, right), weights.w4_right.t())
                if options.relu_after_sum:
                    made.relu_()
                if options.dropout_mask is not None:
                    made *= options.dropout_mask[computed].to(made.dtype).mul_(options.dropout_scale)
                # A cell that reaches into the padding is read by nobody; zero, it cannot grow beyond all bounds either.
                made.masked_fill_(by_row(options.padding_mask[:, spans]), 0)
            if length < positions:
                out = reduced[rows if options.for_backward else slice(len(made))]
                candidates.add(length, made, torch.addmm(weights.b1, made, weights.w1.t(), out=out).relu_())

        if options.for_backward:
            ctx.save_for_backward(
                cells, reduced, hidden, splits, options.padding_mask, options.dropout_mask, *parameters
            )
        ctx.positions, ctx.dropout_scale, ctx.relu_after_sum = positions, options.dropout_scale, options.relu_after_sum
        ctx.mark_non_differentiable(splits)
        return cells.view(-1, batch, size).transpose(0, 1), splits

    @staticmethod
    @first_derivative_only("the CKY chart")
    def backward(ctx: Any, grad_cells: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        cells, reduced, hidden, splits, padding_mask, dropout_mask, *parameters = ctx.saved_tensors
        weights = Weights(*parameters)
        batch, positions, size, half = grad_cells.size(0), ctx.positions, weights.w1.size(1), weights.w1.size(0)
        word_rows = positions * batch
        # of each cell, (M B) x d; complete when all longer cells are done
        grad = grad_cells.transpose(0, 1).clone(memory_format=torch.contiguous_format).view(-1, size)
        w2 = torch.cat([weights.w2_left, weights.w2_right])
        grad_halves = torch.zeros_like(cells).view(-1, half)  # of a cell's halves of CNN2: left, right, left, ...
        grad_w1, grad_w2, grad_w3 = map(torch.zeros_like, (weights.w1, w2, weights.w3))
        grad_w4_left, grad_w4_right = map(torch.zeros_like, (weights.w4_left, weights.w4_right))
        grad_b1 = weights.w1.new_zeros(half)

        for length in range(positions, 0, -1):
            spans = cells_of_length(length, positions)
            rows = slice(spans.start * batch, spans.stop * batch)
            computed = slice(rows.start - word_rows, rows.stop - word_rows)
            grad_made = grad[rows]  # (n B) x d
            if length < positions:  # what the longer cells read of these through CNN1 and CNN2
                grad_both = grad_halves.view(-1, size)[rows]
                grad_reduced = through_relu(grad_both @ w2, reduced[rows])
                grad_made.addmm_(grad_reduced, weights.w1)
                grad_w2.addmm_(grad_both.t(), reduced[rows])
                grad_w1.addmm_(grad_reduced.t(), cells[rows])
                grad_b1 += grad_reduced.sum(0)
            if length == 1:
                break
            grad_made.masked_fill_(by_row(padding_mask[:, spans]), 0)
            if dropout_mask is not None:
                grad_made *= dropout_mask[computed].to(grad.dtype).mul_(ctx.dropout_scale)
            if ctx.relu_after_sum:
                grad_made.copy_(through_relu(grad_made, cells[rows]))
            left, right = part_rows(splits[:, spans], length, positions)
            grad_hidden = through_relu(grad_made @ weights.w3, hidden[computed])
            grad_halves.index_add_(0, 2 * left, grad_hidden)
            grad_halves.index_add_(0, 2 * right + 1, grad_hidden)
            grad.index_add_(0, left, grad_made @ weights.w4_left)
            grad.index_add_(0, right, grad_made @ weights.w4_right)
            grad_w3.addmm_(grad_made.t(), hidden[computed])
            grad_w4_left.addmm_(grad_made.t(), cells.index_select(0, left))
            grad_w4_right.addmm_(grad_made.t(), cells.index_select(0, right))

        grad_bias = grad[word_rows:].sum(0)  # what stands there now is the gradient of each winning unit's sum
        grad_weights = Weights(
            w1=grad_w1,
            b1=grad_b1,
            w2_left=grad_w2[:half],
            w2_right=grad_w2[half:],
            b2=grad_halves[::2].sum(0),
            w3=grad_w3,
            b3=grad_bias,
            w4_left=grad_w4_left,
            w4_right=grad_w4_right,
            b4=grad_bias,
        )
        return None, grad[:word_rows].view(positions, batch, size).transpose(0, 1), *grad_weights


def by_row(padding_mask: Tensor) -> Tensor:
    """The mask of the cells of one length, B x n, as a column for their rows, (n B) x 1."""
    return padding_mask.t().reshape(-1, 1)


def through_relu(grad: Tensor, output: Tensor) -> Tensor:
    """The gradient in front of a ReLU, from that behind it and its output (or its argument)."""
    return torch.ops.aten.threshold_backward(grad, output, 0)
