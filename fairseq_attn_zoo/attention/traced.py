"""Weights with what they are over."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ..axes import Axes


class Traced(NamedTuple):
    """One kind of weights, of T target words."""

    values: Tensor  # N x T x S, N x T x words, or N x T x S x S; with ``axes.by`` one more
    axes: Axes = Axes()

    def map(self, function: Callable[[Tensor], Tensor]) -> "Traced":
        """Other values over the same."""
        return self._replace(values=function(self.values))
