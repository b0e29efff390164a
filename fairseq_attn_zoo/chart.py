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

from .dropout import random_mask


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
        keep, scale = None, 1.0
        if self.training and self.dropout:
            computed = (number_of_cells(words.size(1)) - words.size(1)) * words.size(0)
            keep, scale = random_mask((computed, words.size(2)), self.dropout, words.device)
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
                scale,
                self.relu_after_sum,
                torch.is_grad_enabled(),  # asked here: inside of an autograd function it is always off
            )
        return Chart(cells, splits, outside)


# Tensors of the chart's size (B x M x d) that stand in memory together at the worst moment, with a little room. Translating:
# the cells in both orders and the square of CNN2's halves. Training: the cells, two halves of that size kept of the forward
# pass, attention's gradient, and two of the backward pass's own.
PEAK_CHARTS = {"translating": 4, "training": 7}
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
    """The chart with a backward pass of its own, which keeps what it reads of each cell once: O(S^2 d) values.

    Autograd would keep every intermediate of every length, and would copy the chart for each row written into it.
    """

    @staticmethod
    def forward(
        ctx,
        words,
        outside,
        w1,
        b1,
        w2_left,
        b2,
        w2_right,
        w3,
        b3,
        w4_left,
        b4,
        w4_right,
        keep,
        scale,
        relu_after_sum,
        keeps,
    ):
        batch, width, size = words.shape
        half = size // 2
        # Cell after cell, each of all sentences: the cells of one length are one matrix, and nothing of it is copied.
        cells = words.new_empty(number_of_cells(width) * batch, size)  # (M B) x d
        splits = torch.zeros(batch, number_of_cells(width), dtype=torch.long, device=words.device)
        # Left parts, A f(CNN1 h) + b2, by start and length - 1; right parts, B f(CNN1 h), by end and S - length. Both are
        # triangles: with one column more they share one square.
        halves = words.new_empty(batch, width, width + 1, half)
        left, right = halves[:, :, :width], halves[:, :, 1:]
        left_sum = words.new_empty(batch, width, width)  # sum(C h)
        right_sum = words.new_empty(batch, width, width)  # sum(E h)
        w3_sum, w4_left_sum, w4_right_sum = w3.sum(0), w4_left.sum(0), w4_right.sum(0)
        bias = b3 + b4
        # f(CNN1 h) of every cell and the winning units' hidden layers are kept for the backward pass, if there is one.
        words_end = width * batch
        reduced = words.new_empty(len(cells) if keeps else words_end, half)
        hidden = words.new_empty(len(cells) - words_end if keeps else words_end, half)

        for length in range(1, width + 1):
            count, first = width - length + 1, first_cell(length, width)
            begin, end = first * batch, (first + count) * batch
            row = cells[begin:end]  # (count B) x d
            by_cell = row.view(count, batch, size)
            reduced_row = reduced[begin:end] if keeps else reduced[: end - begin]
            hidden_row = hidden[begin - words_end : end - words_end] if keeps else hidden[: end - begin]
            if length == 1:
                by_cell.copy_(words.transpose(0, 1))
            else:
                of_left = left[:, :count, : length - 1]  # B x count x (length - 1) x d/2: one entry a split
                of_right = right[:, length - 1 :, width - length + 1 :]
                if relu_after_sum:
                    split = best_split_in_full(of_left, of_right, cells, length, (w3, w4_left, w4_right, bias))
                else:
                    scores = relu_of_sums(of_left, of_right, w3_sum)  # B x count x (length - 1)
                    scores += left_sum[:, :count, : length - 1]
                    scores += right_sum[:, length - 1 :, width - length + 1 :]
                    split = scores.argmax(dim=2)  # B x count; the first of equal ones
                start = torch.arange(count, device=words.device)
                of_left = start * (width + 1) + split
                of_right = (start + length - 1) * (width + 1) + width - length + 2 + split
                square = torch.arange(batch, device=words.device).unsqueeze(1) * (width * (width + 1))
                of_left, of_right = ((square + part).t().flatten() for part in (of_left, of_right))
                torch.index_select(halves.view(-1, half), 0, of_left, out=hidden_row)
                hidden_row += halves.view(-1, half).index_select(0, of_right)
                torch.addmm(bias, hidden_row.relu_(), w3.t(), out=row)
                for index, w4 in zip(parts_of(split + 1, length, width), (w4_left, w4_right), strict=True):
                    row.addmm_(cells.index_select(0, index), w4.t())
                if relu_after_sum:
                    row.relu_()
                if keep is not None:
                    row *= keep[begin - words_end : end - words_end].to(row.dtype).mul_(scale)
                # A cell that reaches into the padding is read by nobody; zero, it cannot grow beyond all bounds either.
                row.masked_fill_(outside[:, first : first + count].t().reshape(-1, 1), 0)
                splits[:, first : first + count] = split + 1
            if length < width:
                torch.addmm(b1, row, w1.t(), out=reduced_row).relu_()
                left[:, :count, length - 1] = linear(reduced_row, w2_left, b2).view(count, batch, half).transpose(0, 1)
                right[:, length - 1 :, width - length] = (
                    linear(reduced_row, w2_right).view(count, batch, half).transpose(0, 1)
                )
                left_sum[:, :count, length - 1] = by_cell.matmul(w4_left_sum).t()
                right_sum[:, length - 1 :, width - length] = by_cell.matmul(w4_right_sum).t()

        if keeps:
            ctx.save_for_backward(
                cells, reduced, hidden, splits, w1, w2_left, w2_right, w3, w4_left, w4_right, keep, outside
            )
        ctx.width, ctx.scale, ctx.relu_after_sum = width, scale, relu_after_sum
        ctx.mark_non_differentiable(splits)
        return cells.view(-1, batch, size).transpose(0, 1), splits

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_cells, _):
        cells, reduced, hidden, splits, w1, w2_left, w2_right, w3, w4_left, w4_right, keep, outside = ctx.saved_tensors
        batch, width, size, half = grad_cells.size(0), ctx.width, w1.size(1), w1.size(0)
        # of each cell, (M B) x d; complete when all longer cells are done
        grad = grad_cells.transpose(0, 1).clone(memory_format=torch.contiguous_format).view(-1, size)
        w2 = torch.cat([w2_left, w2_right])
        grad_halves = torch.zeros_like(cells).view(-1, half)  # of a cell's part in CNN2: left, right, left, ...
        grad_w1, grad_w2, grad_w3, grad_w4_left, grad_w4_right = map(torch.zeros_like, (w1, w2, w3, w4_left, w4_right))
        grad_b1 = w1.new_zeros(half)
        words_end = width * batch

        for length in range(width, 0, -1):
            first, count = first_cell(length, width), width - length + 1
            row = slice(first * batch, (first + count) * batch)
            of_unit = grad[row]
            if length < width:  # what the longer cells read of this row through CNN1 and CNN2
                of_halves = grad_halves.view(-1, size)[row]
                of_reduced = through_relu(of_halves @ w2, reduced[row])
                of_unit.addmm_(of_reduced, w1)
                grad_w2.addmm_(of_halves.t(), reduced[row])
                grad_w1.addmm_(of_reduced.t(), cells[row])
                grad_b1 += of_reduced.sum(0)
            if length == 1:
                break
            unit = slice(row.start - words_end, row.stop - words_end)
            of_unit.masked_fill_(outside[:, first : first + count].t().reshape(-1, 1), 0)
            if keep is not None:
                of_unit *= keep[unit].to(grad.dtype).mul_(ctx.scale)
            if ctx.relu_after_sum:
                of_unit.copy_(through_relu(of_unit, cells[row]))
            left, right = parts_of(splits[:, first : first + count], length, width)
            of_hidden = through_relu(of_unit @ w3, hidden[unit])
            grad_halves.index_add_(0, 2 * left, of_hidden)
            grad_halves.index_add_(0, 2 * right + 1, of_hidden)
            grad.index_add_(0, left, of_unit @ w4_left)
            grad.index_add_(0, right, of_unit @ w4_right)
            grad_w3.addmm_(of_unit.t(), hidden[unit])
            grad_w4_left.addmm_(of_unit.t(), cells.index_select(0, left))
            grad_w4_right.addmm_(of_unit.t(), cells.index_select(0, right))

        of_bias = grad[words_end:].sum(0)  # what stands there now is the gradient of each winning unit's sum
        return (
            grad[:words_end].view(width, batch, size).transpose(0, 1),
            None,
            grad_w1,
            grad_b1,
            grad_w2[:half],
            grad_halves[::2].sum(0),
            grad_w2[half:],
            grad_w3,
            of_bias,
            grad_w4_left,
            of_bias,
            grad_w4_right,
            None,
            None,
            None,
            None,
        )


def relu_of_sums(of_left: Tensor, of_right: Tensor, weight: Tensor) -> Tensor:
    """``relu(of_left + of_right) @ weight``, B x n x k x h and h: B x n x k.

    The sums are of size O(S^2) for each cell's length, O(S^3) in all. On the CPU a few sentences at a time are summed, so
    that the sums stay in the cache.
    """
    batch, values = of_left.size(0), of_left[0].numel()
    together = batch if of_left.is_cuda else min(batch, max(1, CACHED_VALUES // values))
    sums = of_left.new_empty(together, *of_left.shape[1:])
    scores = of_left.new_empty(of_left.shape[:3])
    for begin in range(0, batch, together):
        some = slice(begin, begin + together)
        room = sums[: batch - begin]
        torch.add(of_left[some], of_right[some], out=room)
        torch.mv(room.relu_().view(-1, room.size(3)), weight, out=scores[some].view(-1))
    return scores


CACHED_VALUES = 2**17  # half a megabyte of float32


def through_relu(grad: Tensor, output: Tensor) -> Tensor:
    """The gradient in front of a ReLU, from that behind it and its output (or its argument)."""
    return torch.ops.aten.threshold_backward(grad, output, 0)


def parts_of(split: Tensor, length: int, width: int) -> tuple[Tensor, Tensor]:
    """The rows of both parts of the spans of one length, split after B x count words: count B each."""
    start = torch.arange(split.size(1), device=split.device)
    sentence = torch.arange(split.size(0), device=split.device)
    left, right = (
        (index.t() * len(split) + sentence).flatten()
        for index in (cell_index(split, start, width), cell_index(length - split, start + split, width))
    )
    return left, right


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
            cells.index_select(0, rows) for rows in parts_of(torch.full_like(split, k + 1), length, width)
        )
        hidden = torch.relu_(of_left[:, :, k] + of_right[:, :, k]).transpose(0, 1).flatten(0, 1)  # (count B) x d/2
        unit = linear(hidden, w3, bias).addmm_(left_cell, w4_left.t()).addmm_(right_cell, w4_right.t())
        score = unit.relu_().sum(dim=1).view(split.t().shape).t()
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
