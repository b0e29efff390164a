"""Products with a memory that is read once a word, and whose gradient is made once a sentence.

A loop over T words reads the same memory T times. Autograd would make a gradient of the memory's size for each of them and
add them up: T times B x S x C values written and read again, the largest part of a training step where S is large. But
every one of these gradients is a product, and their sum is one product as well:

    scores  = query memory^T      gradient of the memory: scores'^T query
    context = weights memory      gradient of the memory: weights^T context'
    both, for all words           [scores'_1 ; weights_1 ; ...]^T [query_1 ; context'_1 ; ...]

So each word writes its two factors, which are small, into a ledger, and the ledger is multiplied out at the end.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Ledger = list[tuple[Tensor, Tensor]]  # pairs of B x R x S and B x R x C


def share(memory: Tensor) -> Tensor:
    """``memory``, B x S x C, for a loop of :func:`scores_of` and :func:`mean_of`.

    The result is the same tensor to everything else too; a gradient that it gets in another way is added. Where no
    gradient is wanted it is ``memory`` itself.
    """
    if not (torch.is_grad_enabled() and memory.requires_grad):
        return memory
    ledger: Ledger = []
    shared = MultiplyOut.apply(memory, ledger)
    shared.ledger = ledger
    return shared


def scores_of(query: Tensor, memory: Tensor) -> Tensor:
    """Dot products of queries B x R x C with a memory B x S x C: B x R x S."""
    ledger = getattr(memory, "ledger", None)
    if ledger is None:
        return torch.bmm(query, memory.transpose(1, 2))
    return Scores.apply(query, memory, ledger)


def mean_of(weights: Tensor, memory: Tensor) -> Tensor:
    """Weighted sums of a memory B x S x C by weights B x R x S: B x R x C."""
    ledger = getattr(memory, "ledger", None)
    if ledger is None:
        return torch.bmm(weights, memory)
    return Mean.apply(weights, memory, ledger)


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
        if ctx.ledger:
            left, right = (torch.cat(factors, dim=1) for factors in zip(*ctx.ledger, strict=True))
            ctx.ledger.clear()
            product = torch.bmm(left.transpose(1, 2), right)
            grad = product if grad is None else grad + product
        return grad, None


class Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, memory, ledger):
        ctx.save_for_backward(query, memory)
        ctx.ledger = ledger
        return torch.bmm(query, memory.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        query, memory = ctx.saved_tensors
        grad = grad.to(query.dtype)
        ctx.ledger.append((grad, query))
        return torch.bmm(grad, memory), None, None


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, memory, ledger):
        ctx.save_for_backward(weights, memory)
        ctx.ledger = ledger
        return torch.bmm(weights, memory)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        weights, memory = ctx.saved_tensors
        grad = grad.to(weights.dtype)
        ctx.ledger.append((weights, grad))
        return torch.bmm(grad, memory.transpose(1, 2)), None, None
