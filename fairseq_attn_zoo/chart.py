r"""The CKY chart of a sentence: a vector for every span of words, made of its best split. PyTorch alone.

Watanabe, Tamura and Ninomiya (2017), CKY-based convolutional attention for neural machine translation, Section 3:

.. math::
    \mathrm{DU}(l, r) = \mathrm{CNN3}(f(\mathrm{CNN2}(f(\mathrm{CNN1}\,l), f(\mathrm{CNN1}\,r)))) + \mathrm{CNN4}(l, r)
    \qquad f = \mathrm{ReLU} \\
    h_{1,j} = h_j \qquad h_{i,j} = \text{the } \mathrm{DU}(h_{k,j}, h_{i-k,j+k}),\ 1 \le k < i,
    \text{ whose elements sum highest} \qquad \text{Eq. 12}

Read plainly these are O(S^3) deduction units whose results all wait for the backward pass. The same function, exactly,
needs O(S^2) matrix products and O(S^2 d) memory:

- A 1x2 convolution over (l, r) is A l + B r: both halves of CNN2 are computed once a *cell*, not once a pair.
- Behind the last ReLU everything is linear, so the sum of a candidate's elements is
  ``sum(W3) . f(A f(CNN1 l) + B f(CNN1 r)) + sum(C l) + sum(E r)`` and a constant: d/2 multiply-adds, no matrix product.
- Only the winner's vector is needed and only the winner receives a gradient: CNN3 and CNN4 run once a cell.
- Left parts are stored by (start, length) and right parts by (end, S - length), so that the two parts of all splits of all
  cells of one length are two slices.

The cells of a sentence stand in one row, by length and then by start: :func:`cell_index`.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


class Chart(NamedTuple):
    """All spans of B right-padded sentences of S positions; M = S (S + 1) / 2 cells."""

    cells: Tensor  # B x M x d
    splits: Tensor  # B x M: words in the left part of the winning split; 0 for single words
    padding_mask: Tensor  # B x M: True where the span does not end inside its sentence


def number_of_cells(words: int) -> int:
    return words * (words + 1) // 2


def first_cell(length: int, words: int) -> int:
    """The index of the first cell of a length, in sentences of so many words."""
    return (length - 1) * words - (length - 1) * (length - 2) // 2


def cell_index(length: Tensor, start: Tensor, words: int) -> Tensor:
    """The index of the cell of ``length`` words from ``start`` on (counted from 0)."""
    return (length - 1) * words - (length - 1) * (length - 2) // 2 + start


def chart_padding(padding_mask: Tensor) -> Tensor:
    """True at cells that reach into the padding: B x S (True at padding) as B x M."""
    words = padding_mask.size(1)
    return torch.cat([padding_mask[:, length - 1 :] for length in range(1, words + 1)], dim=1)


class DeductionUnits(nn.Module):
    """The deduction units' four convolutions, and the chart that they fill.

    Args:
        size: d
        dropout: on each computed cell, once: every later use sees the same mask
        relu_after_sum: apply a ReLU to the sum of CNN3 and CNN4 too. A candidate's score is then no longer linear behind
            CNN3: every candidate is computed in full, which takes O(S^3) matrix products (the memory stays O(S^2 d)).

    Raises:
        ValueError: if d is odd
    """

    def __init__(self, size: int, dropout: float = 0.0, relu_after_sum: bool = False) -> None:
        if size % 2:
            raise ValueError(f"the deduction unit halves its states, but their size, {size}, is odd; make it even")
        super().__init__()
        self.dropout = dropout
        self.relu_after_sum = relu_after_sum
        half = size // 2
        self.cnn1 = nn.Linear(size, half)  # 1x1
        self.cnn2_left = nn.Linear(half, half)  # 1x2: its two columns, and its bias
        self.cnn2_right = nn.Linear(half, half, bias=False)
        self.cnn3 = nn.Linear(half, size)  # 1x1
        self.cnn4_left = nn.Linear(size, size)  # 1x2
        self.cnn4_right = nn.Linear(size, size, bias=False)

    def forward(self, words: Tensor, padding_mask: Tensor) -> Chart:
        """Fill the chart.

        Args:
            words: B x S x d, right-padded
            padding_mask: B x S, True at padding

        Raises:
            ValueError: if the chart would not fit into the memory that is free; nothing was allocated then
        """
        check_memory(words)
        keep = None
        if self.training and self.dropout:
            computed = number_of_cells(words.size(1)) - words.size(1)
            keep = nn.functional.dropout(words.new_ones(words.size(0), computed, words.size(2)), self.dropout)
        outside = chart_padding(padding_mask)
        # Under autocast too the chart is filled in the precision of its weights.
        with torch.autocast(words.device.type, enabled=False):
            cells, splits = FillChart.apply(
                words.to(self.cnn1.weight.dtype),
                outside,
                self.cnn1.weight,
                self.cnn1.bias,
                self.cnn2_left.weight,
                self.cnn2_left.bias,
                self.cnn2_right.weight,
                self.cnn3.weight,
                self.cnn3.bias,
                self.cnn4_left.weight,
                self.cnn4_left.bias,
                self.cnn4_right.weight,
                keep,
                self.relu_after_sum,
            )
        return Chart(cells, splits, outside)


# Tensors of the chart's size (B x M x d) that stand in memory together at the worst moment: cells, both halves of CNN2
# and the candidates of one length; in training also the dropout mask, the gradients of all of these and the backward pass's
# workspace, attention's gradient included.
PEAK_CHARTS = {"translating": 5, "training": 12}
GIBIBYTE = 2**30


def check_memory(words: Tensor) -> None:
    """Refuse sentences whose charts would not fit into the free memory, before anything is allocated.

    Raises:
        ValueError: with the cost, and the flags that lower it
    """
    sentences, positions, size = words.shape
    charts = PEAK_CHARTS["training" if torch.is_grad_enabled() else "translating"]
    needed = charts * sentences * number_of_cells(positions) * size * words.element_size()
    if needed < GIBIBYTE // 16:
        return
    free = free_memory(words.device)
    if free is not None and needed > free:
        raise ValueError(
            f"the charts of {sentences} sentences of up to {positions} words need about {needed / GIBIBYTE:.1f} GiB, "
            f"which grows with the square of the length, but {free / GIBIBYTE:.1f} GiB are free; lower "
            "--max-source-positions, or the sentences in a batch (--max-tokens, --batch-size)"
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated; None where the system does not say.

    On Linux, of the machine and of the container (cgroup v2) together; other processes may be about to take them too.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    system = Path("/proc/meminfo")  # Linux
    if not system.exists():
        return None
    (line,) = (line for line in system.read_text().splitlines() if line.startswith("MemAvailable:"))
    free = int(line.split()[1]) * 1024
    limit, used = (Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current"))
    if limit.exists() and used.exists() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int(used.read_text()))
    return free


class FillChart(torch.autograd.Function):
    """The chart with a backward pass of its own, which keeps the cells and the winners and nothing else.

    Autograd would keep every intermediate of every length, and would copy the chart for each row written into it.
    """

    @staticmethod
    def forward(
        ctx, words, outside, w1, b1, w2_left, b2, w2_right, w3, b3, w4_left, b4, w4_right, keep, relu_after_sum
    ):
        batch, width, size = words.shape
        cells = words.new_empty(batch, number_of_cells(width), size)
        splits = torch.zeros(batch, cells.size(1), dtype=torch.long, device=words.device)
        left = words.new_empty(batch, width, width, size // 2)  # A f(CNN1 h) + b2, by start and length - 1
        right = words.new_empty(batch, width, width, size // 2)  # B f(CNN1 h), by end and S - length
        left_sum = words.new_empty(batch, width, width)  # sum(C h)
        right_sum = words.new_empty(batch, width, width)  # sum(E h)
        w3_sum, w4_left_sum, w4_right_sum = w3.sum(0), w4_left.sum(0), w4_right.sum(0)
        bias = b3 + b4

        for length in range(1, width + 1):
            count, first = width - length + 1, first_cell(length, width)
            if length == 1:
                row = words
            else:
                of_left = left[:, :count, : length - 1]  # B x count x (length - 1) x d/2: one entry a split
                of_right = right[:, length - 1 :, width - length + 1 :]
                if relu_after_sum:
                    split = best_split_in_full(of_left, of_right, cells, length, (w3, w4_left, w4_right, bias))
                else:
                    scores = torch.relu_(of_left + of_right).matmul(w3_sum)  # B x count x (length - 1)
                    scores += left_sum[:, :count, : length - 1]
                    scores += right_sum[:, length - 1 :, width - length + 1 :]
                    split = scores.argmax(dim=2)  # B x count; the first of equal ones
                start = torch.arange(count, device=words.device)
                hidden = rows_at(left.flatten(1, 2), start * width + split)
                hidden += rows_at(right.flatten(1, 2), (start + length - 1) * width + width - length + 1 + split)
                hidden = torch.relu_(hidden)
                left_cell, right_cell = (rows_at(cells, index) for index in parts_of(split + 1, length, width))
                row = linear(hidden, w3, bias) + linear(left_cell, w4_left) + linear(right_cell, w4_right)
                if relu_after_sum:
                    row = row.relu_()
                if keep is not None:
                    row *= keep[:, first - width : first - width + count]
                # A cell that reaches into the padding is read by nobody; zero, it cannot grow beyond all bounds either.
                row.masked_fill_(outside[:, first : first + count].unsqueeze(2), 0)
                splits[:, first : first + count] = split + 1
            cells[:, first : first + count] = row
            if length < width:
                reduced = torch.relu_(linear(row, w1, b1))
                left[:, :count, length - 1] = linear(reduced, w2_left, b2)
                right[:, length - 1 :, width - length] = linear(reduced, w2_right)
                left_sum[:, :count, length - 1] = row.matmul(w4_left_sum)
                right_sum[:, length - 1 :, width - length] = row.matmul(w4_right_sum)

        ctx.save_for_backward(cells, splits, w1, b1, w2_left, b2, w2_right, w3, w4_left, w4_right, keep, outside)
        ctx.relu_after_sum = relu_after_sum
        ctx.width = width
        ctx.mark_non_differentiable(splits)
        return cells, splits

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_cells, _):
        cells, splits, w1, b1, w2_left, b2, w2_right, w3, w4_left, w4_right, keep, outside = ctx.saved_tensors
        width, size = ctx.width, cells.size(2)
        reduced = torch.relu_(linear(cells, w1, b1))  # f(CNN1 h) of every cell, B x M x d/2
        left, right = linear(reduced, w2_left, b2), linear(reduced, w2_right)
        # of each cell; complete when all longer cells are done
        grad = grad_cells.clone(memory_format=torch.contiguous_format)
        grad_left, grad_right = torch.zeros_like(left), torch.zeros_like(right)
        computed = cells.size(1) - width
        grad_units = cells.new_empty(cells.size(0), computed, size)  # of each winning DU's output
        grad_hidden = left.new_empty(cells.size(0), computed, size // 2)  # of the argument of its last ReLU
        hidden = torch.empty_like(grad_hidden)
        parts = torch.empty(2, cells.size(0), computed, dtype=torch.long, device=cells.device)

        for length in range(width, 0, -1):
            first, count = first_cell(length, width), width - length + 1
            row = slice(first, first + count)
            # what the longer cells read of this row through CNN1 and CNN2
            through = grad_left[:, row] @ w2_left + grad_right[:, row] @ w2_right
            grad[:, row] += (through * (reduced[:, row] > 0)) @ w1
            if length == 1:
                break
            unit = slice(first - width, first - width + count)
            of_unit = grad[:, row].masked_fill(outside[:, row].unsqueeze(2), 0)
            if keep is not None:
                of_unit = of_unit * keep[:, unit]
            if ctx.relu_after_sum:
                of_unit = of_unit * (cells[:, row] > 0)
            index = torch.stack(parts_of(splits[:, row], length, width))  # 2 x B x count
            argument = rows_at(left, index[0]) + rows_at(right, index[1])
            of_hidden = (of_unit @ w3) * (argument > 0)
            add_to_rows(grad_left, index[0], of_hidden)
            add_to_rows(grad_right, index[1], of_hidden)
            add_to_rows(grad, index[0], of_unit @ w4_left)
            add_to_rows(grad, index[1], of_unit @ w4_right)
            grad_units[:, unit], grad_hidden[:, unit], hidden[:, unit] = of_unit, of_hidden, argument.relu_()
            parts[:, :, unit] = index

        def product(of_output: Tensor, of_input: Tensor) -> Tensor:
            """A matrix's gradient, from the gradients of its outputs and from its inputs."""
            return of_output.flatten(0, 1).t() @ of_input.flatten(0, 1)

        of_reduced = (grad_left @ w2_left + grad_right @ w2_right) * (reduced > 0)
        of_bias = grad_units.sum((0, 1))
        left_cells, right_cells = (rows_at(cells, part) for part in parts)
        return (
            grad[:, :width],
            None,
            product(of_reduced, cells),
            of_reduced.sum((0, 1)),
            product(grad_left, reduced),
            grad_left.sum((0, 1)),
            product(grad_right, reduced),
            product(grad_units, hidden),
            of_bias,
            product(grad_units, left_cells),
            of_bias,
            product(grad_units, right_cells),
            None,
            None,
        )


def rows_at(table: Tensor, index: Tensor) -> Tensor:
    """Row ``index[b, i]`` of sentence b, for a table B x M x d and an index B x n: B x n x d. Whole rows are copied at once."""
    return table.flatten(0, 1).index_select(0, flat_index(index, table.size(1))).view(*index.shape, table.size(2))


def add_to_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add B x n x d to the rows ``index`` of a contiguous table B x M x d, in place."""
    table.view(-1, table.size(2)).index_add_(0, flat_index(index, table.size(1)), rows.flatten(0, 1))


def flat_index(index: Tensor, rows: int) -> Tensor:
    """An index into each sentence's rows as one into all sentences' rows."""
    first = torch.arange(index.size(0), device=index.device).unsqueeze(1) * rows
    return (index + first).flatten()


def parts_of(split: Tensor, length: int, width: int) -> tuple[Tensor, Tensor]:
    """The cells of both parts of the spans of one length, split after so many words: B x count each."""
    start = torch.arange(split.size(1), device=split.device)
    return cell_index(split, start, width), cell_index(length - split, start + split, width)


def best_split_in_full(
    of_left: Tensor, of_right: Tensor, cells: Tensor, length: int, weights: tuple[Tensor, Tensor, Tensor, Tensor]
) -> Tensor:
    """The best split of every span of a length when a ReLU follows the sum, by its index from 0: B x count."""
    w3, w4_left, w4_right, bias = weights
    width = of_left.size(1) + length - 1
    best = of_left.new_full(of_left.shape[:2], -torch.inf)
    split = torch.zeros(of_left.shape[:2], dtype=torch.long, device=of_left.device)
    for k in range(length - 1):
        left_cell, right_cell = (
            rows_at(cells, index) for index in parts_of(torch.full_like(split, k + 1), length, width)
        )
        unit = linear(torch.relu_(of_left[:, :, k] + of_right[:, :, k]), w3, bias)
        unit += linear(left_cell, w4_left)
        unit += linear(right_cell, w4_right)
        score = unit.relu_().sum(dim=2)
        better = score > best
        best, split = torch.where(better, score, best), torch.where(better, k, split)
    return split


def bracketed(splits: Tensor, words: list[str]) -> str:
    """The winning tree of a whole sentence in bracket notation: ``((the dog) (saw (a cat)))``.

    Args:
        splits: of one sentence, M: a row of :attr:`Chart.splits`
        words: of the sentence, without padding; at most as many as the chart has positions

    Raises:
        ValueError: if there are no words, or more than the chart has positions
    """
    width = int(((8 * splits.numel() + 1) ** 0.5 - 1) / 2)
    if not 0 < len(words) <= width:
        raise ValueError(f"{len(words)} words, but the chart is of 1 to {width}")

    # Innermost first, without recursion: a tree may be as deep as the sentence is long.
    waiting, spans = [(len(words), 0)], []
    while waiting:
        length, start = waiting.pop()
        spans.append((length, start))
        if length > 1:
            left = int(splits[first_cell(length, width) + start])
            waiting += [(left, start), (length - left, start + left)]
    written = {}
    for length, start in reversed(spans):
        if length == 1:
            written[length, start] = words[start]
        else:
            left = int(splits[first_cell(length, width) + start])
            written[length, start] = f"({written.pop((left, start))} {written.pop((length - left, start + left))})"
    return written[len(words), 0]
