r"""Additive attention, the alignment model of RNNsearch.

Bahdanau, Cho and Bengio (2015), Neural machine translation by jointly learning to align and translate, Eq. 1 and 2:

.. math::
    e_{ij} = v^\top \tanh(W s_{i-1} + V h_j) \qquad
    \alpha_{ij} = \mathrm{softmax}_j(e_{ij}) \qquad c_i = \sum_j \alpha_{ij} h_j

Once per sentence: :math:`V h_j`. Once per word: the rest.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .base import ScoredAttention
from .shared import Rows


class AdditiveMemory(NamedTuple):
    """What is remembered of the sources, one row per sentence."""

    keys: Tensor  # V h_j, B x S x A
    values: Rows  # h_j, B x S x C
    padding_mask: Tensor  # B x S, True at padding


class AdditiveAttention(ScoredAttention[AdditiveMemory]):
    """Additive attention over source states (Bahdanau 2015, Eq. 1).

    Args:
        query_size: D, width of s_{i-1}
        source_size: C, width of h_j
        attention_size: A, width of the alignment model's hidden layer
    """

    def __init__(self, query_size: int, source_size: int, attention_size: int) -> None:
        super().__init__(context_size=source_size)
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)  # W
        self.source_projection = nn.Linear(source_size, attention_size, bias=False)  # V
        self.energy = nn.Parameter(torch.empty(attention_size))  # v
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The paper's appendix: W and V from N(0, 0.001^2), v at zero."""
        nn.init.normal_(self.query_projection.weight, std=0.001)
        nn.init.normal_(self.source_projection.weight, std=0.001)
        nn.init.zeros_(self.energy)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AdditiveMemory:
        return AdditiveMemory(self.source_projection(source), Rows(source), padding_mask)

    def score(self, query: Tensor, memory: AdditiveMemory) -> Tensor:
        return additive_score(self.query_projection(query), memory.keys, self.energy)


def additive_score(query: Tensor, keys: Tensor, energy: Tensor, pairs: Tensor | None = None) -> Tensor:
    """``energy . tanh(query + key)`` for every pair; with ``pairs``, ``energy . tanh(query + key + pair)``.

    Args:
        query: projected queries, B x R x A
        keys: projected source states, B x S x A
        energy: A
        pairs: what depends on both, B x R x S x A; overwritten

    Returns:
        B x R x S
    """
    query, keys = query.unsqueeze(2), keys.unsqueeze(1)
    hidden = query + keys if pairs is None else pairs.add_(keys).add_(query)  # B x R x S x A
    if hidden.is_cpu and hidden.element_size() >= 4:
        # tanh x = 2 sigmoid(2x) - 1, and PyTorch's sigmoid takes a third of the time of its tanh on a CPU. Half precision
        # has no digits for what is left of a small x after 1 was subtracted.
        return torch.matmul(hidden.mul_(2).sigmoid_(), 2 * energy) - energy.sum()
    return torch.matmul(hidden.tanh_(), energy)
