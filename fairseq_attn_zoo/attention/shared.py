"""Products with a memory that is read once a word, and whose gradient is made once a sentence.

A loop over T words reads the same memory T times. Autograd would make a gradient of the memory's size for each of them and
add them up: T times B x S x C values written and read again, the largest part of a training step where S is large. But
every one of these gradients is a product, and their sum is one product as well:

    scores  = query memory^T      gradient of the memory: scores'^T query
    context = weights memory      gradient of the memory: weights^T context'
    both, for all words           [scores'_1 ; weights_1 ; ...]^T [query_1 ; context'_1 ; ...]

So each word writes its two factors, which are small, into a ledger, and the ledger is multiplied out at the end. An entry
belongs to one backward pass: what a pass that never asked for the memory's gradient left behind is dropped.

Under autocast the memory is cast once for all words.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Ledger:
    """Factors of the gradient of a memory of S rows: pairs of B x R x S' (of the first S' <= S rows) and B x R x C."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.entries: list[tuple[Tensor, Tensor]] = []
        self.backward_pass = -1

    def write(self, left: Tensor, right: Tensor) -> None:
        self.turn_the_page()
        self.entries.append((left, right))

    def multiply_out(self) -> Tensor | None:
        """The gradient; None if there is no entry. The ledger is empty afterwards."""
        self.turn_the_page()
        if not self.entries:
            return None
        gradient = None
        for rows in sorted({left.size(2) for left, _ in self.entries}, reverse=True):
            entries = [entry for entry in self.entries if entry[0].size(2) == rows]
            left, right = (torch.cat(factors, dim=1) for factors in zip(*entries, strict=True))
            product = torch.bmm(left.transpose(1, 2), right)
            if gradient is None:
                gradient = nn.functional.pad(product, (0, 0, 0, self.rows - rows)) if rows < self.rows else product
            else:
                gradient[:, :rows] += product
        self.entries.clear()
        return gradient

    def turn_the_page(self) -> None:
        """Drop what an earlier backward pass wrote."""
        now = torch._C._current_graph_task_id()  # as torch.utils.checkpoint tells backward passes apart
        if now != self.backward_pass:
            self.entries.clear()
            self.backward_pass = now


def share(memory: Tensor) -> Tensor:
    """``memory``, B x S x C, for a loop of :func:`scores_of` and :func:`mean_of`.

    The result is the same tensor to everything else too; a gradient that it gets in another way is added. Where no
    gradient is wanted it is ``memory`` itself.
    """
    if not (torch.is_grad_enabled() and memory.requires_grad):
        return memory
    device = memory.device.type
    if torch.is_autocast_enabled(device):
        memory = memory.to(torch.get_autocast_dtype(device))
    ledger = Ledger(memory.size(1))
    shared = MultiplyOut.apply(memory, ledger)
    shared.ledger = ledger
    return shared


def scores_of(query: Tensor, memory: Tensor) -> Tensor:
    """Dot products of queries B x R x C with a memory B x S x C: B x R x S."""
    ledger = getattr(memory, "ledger", None)
    if ledger is None:
        return dot_products(query, memory)
    return Scores.apply(query, memory, ledger)


def mean_of(weights: Tensor, memory: Tensor) -> Tensor:
    """Weighted sums of the first S' rows of a memory B x S x C by weights B x R x S': B x R x C."""
    ledger = getattr(memory, "ledger", None)
    if ledger is None:
        return torch.bmm(weights, memory[:, : weights.size(2)])
    return Mean.apply(weights, memory, ledger)


def dot_products(rows: Tensor, memory: Tensor) -> Tensor:
    """B x R x C and B x S x C: B x R x S."""
    if memory.is_contiguous() and memory.size(1) >= 64 * rows.size(1):
        # Few rows and a long memory, sentence after sentence: BLAS is up to twice as fast the other way round.
        return torch.bmm(memory, rows.transpose(1, 2)).transpose(1, 2).contiguous()
    return torch.bmm(rows, memory.transpose(1, 2))


class MultiplyOut(torch.autograd.Function):
    """The memory itself; its backward pass, which comes after those of all its readers, multiplies the ledger out."""

    @staticmethod
    def forward(ctx, memory, ledger):
        ctx.set_materialize_grads(False)
        ctx.ledger = ledger
        return memory.view_as(memory)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        product = ctx.ledger.multiply_out()
        if product is None:
            return grad, None
        return product if grad is None else grad + product, None


class Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, memory, ledger):
        query = query.to(memory.dtype)
        ctx.save_for_backward(query, memory)
        ctx.ledger = ledger
        return dot_products(query, memory)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        query, memory = ctx.saved_tensors
        grad = grad.to(memory.dtype)
        ctx.ledger.write(grad, query)
        return torch.bmm(grad, memory), None, None


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, memory, ledger):
        weights = weights.to(memory.dtype)
        memory = memory[:, : weights.size(2)]
        ctx.save_for_backward(weights, memory)
        ctx.ledger = ledger
        return torch.bmm(weights, memory)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        weights, memory = ctx.saved_tensors
        grad = grad.to(memory.dtype)
        ctx.ledger.write(weights, grad)
        return dot_products(grad, memory), None, None
