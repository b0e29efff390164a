r"""Key-value attention and its two siblings: what the score reads apart from what the context averages.

Mino et al. (2017), Key-value attention mechanism for neural machine translation:

.. math::
    h_i &= W_e [\overrightarrow h_i ; \overleftarrow h_i] & \text{baseline, Eq. 3} \\
    h_i &= [k_i ; v_i] = [W_f [\overrightarrow k_i ; \overleftarrow k_i] ; W_g [\overrightarrow v_i ; \overleftarrow v_i]]
        & \text{key-value, Eq. 9 and 10} \\
    \alpha_{ij} &= \mathrm{softmax}_i(d \cdot h_i),\ (d \cdot k_i),\ (d \cdot (h_i \circ u))
        & \text{Eq. 8, 12 and 13} \\
    c_j &= \sum_i \alpha_{ij} h_i,\ \sum_i \alpha_{ij} v_i,\ \sum_i \alpha_{ij} h_i & \text{Eq. 7, 11 and 7}

Once per sentence: the merging of the encoder's two directions. Once per word: one dot product per position.
"""

import torch
from torch import Tensor, nn

from .base import AttentionMemory, ScoredAttention
from .shared import Rows


class MergedSourceAttention(ScoredAttention[AttentionMemory]):
    """What the three share: the encoder's two directions are merged into h_i.

    The last h_i is also where the decoder starts from. ``merged_size`` is the width of h_i.
    """

    def __init__(self, merged_size: int, context_size: int) -> None:
        super().__init__(context_size)
        self.merged_size = merged_size

    def merge(self, source: Tensor) -> Tensor:
        """[forward ; backward], ... x 2U, as h_i, ... x K."""
        raise NotImplementedError


class SharedMemoryAttention(MergedSourceAttention):
    """The baseline, *attn*: one memory, both key and value (Eq. 3, 7 and 8).

    Args:
        query_size: K, width of d
        source_size: 2U, width of [forward ; backward]
    """

    def __init__(self, query_size: int, source_size: int) -> None:
        super().__init__(merged_size=query_size, context_size=query_size)
        self.merging = nn.Linear(source_size, query_size, bias=False)  # W_e

    def merge(self, source: Tensor) -> Tensor:
        return self.merging(source)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        merged = Rows(self.merge(source))
        return AttentionMemory(merged, merged, padding_mask)

    def score(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        return memory.keys.scores(query)  # B x R x S


class HalfScoredAttention(SharedMemoryAttention):
    """*modifying-IW*: the score reads the upper half of h_i only, d . (h_i * u); the context averages all of it (Eq. 13).

    Raises:
        ValueError: if K is odd
    """

    def __init__(self, query_size: int, source_size: int) -> None:
        require_halves("decoder state", query_size)
        super().__init__(query_size, source_size)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        merged = self.merge(source)
        return AttentionMemory(Rows(merged[..., : self.merged_size // 2]), Rows(merged), padding_mask)

    def score(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        return memory.keys.scores(query[..., : self.merged_size // 2])


class KeyValueAttention(MergedSourceAttention):
    """Keys and values apart (Eq. 9 to 12): half of each direction's units make k_i, the other half v_i.

    Args:
        query_size: K, width of d
        source_size: 2U, width of [forward ; backward]
        project_query: score with a learned map of d, K/2 x K, instead of with the upper half of d

    Raises:
        ValueError: if K or U is odd
    """

    def __init__(self, query_size: int, source_size: int, project_query: bool = False) -> None:
        require_halves("decoder state", query_size)
        require_halves("state of each encoder direction", source_size // 2)
        half = query_size // 2
        super().__init__(merged_size=query_size, context_size=half)
        self.key_merging = nn.Linear(source_size // 2, half, bias=False)  # W_f
        self.value_merging = nn.Linear(source_size // 2, half, bias=False)  # W_g
        self.query_projection = nn.Linear(query_size, half, bias=False) if project_query else None

    def merge(self, source: Tensor) -> Tensor:
        """[forward ; backward], ... x 2U, as [k_i ; v_i], ... x K."""
        return torch.cat(self.keys_and_values(source), dim=-1)

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """k_i and v_i, ... x K/2 each."""
        forward_key, forward_value, backward_key, backward_value = source.chunk(4, dim=-1)
        return (
            self.key_merging(torch.cat([forward_key, backward_key], dim=-1)),
            self.value_merging(torch.cat([forward_value, backward_value], dim=-1)),
        )

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        keys, values = self.keys_and_values(source)
        return AttentionMemory(Rows(keys), Rows(values), padding_mask)

    def score(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        project = self.query_projection
        query = query[..., : self.context_size] if project is None else project(query)
        return memory.keys.scores(query)


def require_halves(what: str, size: int) -> None:
    if size % 2:
        raise ValueError(f"the {what} is cut into two halves, but its size, {size}, is odd; make it even")
