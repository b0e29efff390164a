"""Rows that queries read, and whose gradient a loop over words makes once per sentence.

A loop over T words reads the same rows T times. Autograd would make a gradient of their size for each word and add them up.
That is T times B x S x C values written and read again: the largest part of a training step where S is large. But every one
of these gradients is a product, and their sum is one product as well:

    scores  = query rows^T        gradient of the rows: scores'^T query
    context = weights rows        gradient of the rows: weights^T context'
    both, for all words           [scores'_1 ; weights_1 ; ...]^T [query_1 ; context'_1 ; ...]

So each word writes its two factors, which are small, into a ledger, and the ledger is multiplied out at the end. Every
backward pass has a page of its own, which lives as long as the pass. So passes inside one another, or beside one another in
threads, do not meet; and nothing is left of a pass that ended in an error or never asked for the rows' gradient.

Under autocast the rows are cast once for all words.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from ..gradients import first_derivative_only

Memory = TypeVar("Memory", bound=tuple)


class Rows:
    """B x S x C that is read by dot products and by weighted means; one row of the batch per sentence.

    A view, a cast or a selection is made of ``tensor``, whose gradient is autograd's whoever reads it.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def scores(self, query: Tensor) -> Tensor:
        """Dot products with queries B x R x C: B x R x S."""
        return dot_products(query, self.tensor)

    def mean(self, weights: Tensor) -> Tensor:
        """Weighted sums of the first S' rows by weights B x R x S': B x R x C."""
        return torch.bmm(weights, self.tensor[:, : weights.size(2)])

    def map(self, function: Callable[[Tensor], Tensor]) -> "Rows":
        """Rows of ``function(tensor)``, not yet shared."""
        return Rows(function(self.tensor))

    def share(self) -> "Rows":
        """The same rows for a loop that reads them many times; where no gradient is wanted, these."""
        return SharedRows(self.tensor) if torch.is_grad_enabled() and self.tensor.requires_grad else self


class SharedRows(Rows):
    """:class:`Rows` whose readers write their part of the gradient into a ledger."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)
        device = tensor.device.type
        if torch.is_autocast_enabled(device):
            tensor = tensor.to(torch.get_autocast_dtype(device))
        self.ledger = Ledger(tensor.size(1))
        self.read = tensor.detach()  # the readers' gradient takes the other way:
        self.link = MultiplyOut.apply(tensor, self.ledger)

    def scores(self, query: Tensor) -> Tensor:
        return Scores.apply(query, self.read, self.link, self.ledger)

    def mean(self, weights: Tensor) -> Tensor:
        return Mean.apply(weights, self.read, self.link, self.ledger)


def share(memory: Memory) -> Memory:
    """A memory, a named tuple, as a loop over many words reads it: :meth:`Rows.share` of all its :class:`Rows`."""
    if not torch.is_grad_enabled():
        return memory
    shared: dict[int, Rows] = {}
    for part in memory:
        if isinstance(part, Rows) and id(part) not in shared:  # keys and values may be the same rows
            shared[id(part)] = part.share()
    return type(memory)(*(shared.get(id(part), part) for part in memory))


class Page:
    """What one backward pass wrote: pairs of B x R x S' (of the first S' <= S rows) and B x R x C."""

    def __init__(self) -> None:
        self.entries: list[tuple[Tensor, Tensor]] = []

    def close(self) -> None:
        self.entries.clear()


class Ledger:
    """Factors of the gradient of S rows, a page per backward pass."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.pages: WeakValueDictionary[int, Page] = WeakValueDictionary()

    def write(self, left: Tensor, right: Tensor) -> None:
        # Detached: with their graph, the factors of a loop would hold the graph, and the graph the ledger.
        self.page().entries.append((left.detach(), right.detach()))

    def page(self) -> Page:
        """That of the backward pass which runs now, in this thread."""
        backward_pass = torch._C._current_graph_task_id()  # as torch.utils.checkpoint tells backward passes apart
        page = self.pages.get(backward_pass)
        if page is None:
            page = self.pages[backward_pass] = Page()
            # A pass holds what it is to call at its end until it ends, in an error too: nobody else holds the page.
            torch.autograd.Variable._execution_engine.queue_callback(page.close)
        return page

    def multiply_out(self) -> Tensor | None:
        """The gradient; None if nothing was written. The page is empty afterwards."""
        written = self.page().entries
        gradient = None
        for rows in sorted({left.size(2) for left, _ in written}, reverse=True):
            entries = [entry for entry in written if entry[0].size(2) == rows]
            left, right = (torch.cat(factors, dim=1) for factors in zip(*entries, strict=True))
            product = torch.bmm(left.transpose(1, 2), right)
            if gradient is None:
                gradient = nn.functional.pad(product, (0, 0, 0, self.rows - rows)) if rows < self.rows else product
            else:
                gradient[:, :rows] += product
        written.clear()
        return gradient


def dot_products(query: Tensor, rows: Tensor) -> Tensor:
    """B x R x C and B x S x C: B x R x S."""
    if rows.is_contiguous() and rows.size(1) >= 64 * query.size(1):
        # Few queries and many rows, sentence after sentence: BLAS is up to twice as fast the other way round.
        return torch.bmm(rows, query.transpose(1, 2)).transpose(1, 2).contiguous()
    return torch.bmm(query, rows.transpose(1, 2))


in_a_loop = first_derivative_only("attention in a loop over words")


class MultiplyOut(torch.autograd.Function):
    """An empty tensor that ties all readers to the rows: its backward pass comes after theirs."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ledger: Ledger) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.ledger = ledger
        return rows.new_empty(0)

    @staticmethod
    @in_a_loop
    def backward(ctx: Any, _: None) -> tuple[Tensor | None, None]:
        return ctx.ledger.multiply_out(), None


class Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, rows: Tensor, link: Tensor, ledger: Ledger) -> Tensor:
        query = query.to(rows.dtype)
        ctx.save_for_backward(query, rows)
        ctx.ledger = ledger
        return dot_products(query, rows)

    @staticmethod
    @in_a_loop
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        query, rows = ctx.saved_tensors
        grad = grad.to(rows.dtype)
        ctx.ledger.write(grad, query)
        return torch.bmm(grad, rows), None, None, None


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, rows: Tensor, link: Tensor, ledger: Ledger) -> Tensor:
        weights = weights.to(rows.dtype)
        rows = rows[:, : weights.size(2)]
        ctx.save_for_backward(weights, rows)
        ctx.ledger = ledger
        return torch.bmm(weights, rows)

    @staticmethod
    @in_a_loop
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        weights, rows = ctx.saved_tensors
        grad = grad.to(rows.dtype)
        ctx.ledger.write(weights, grad)
        return dot_products(grad, rows), None, None, None
