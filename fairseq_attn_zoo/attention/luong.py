r"""The three scores of global attention.

Luong, Pham and Manning (2015), Effective approaches to attention-based neural machine translation:

.. math::
    \mathrm{score}(h_t, \bar h_s) = \begin{cases}
        h_t^\top \bar h_s & \text{dot} \\
        h_t^\top W_a \bar h_s & \text{general} \\
        v_a^\top \tanh(W_a [h_t ; \bar h_s]) & \text{concat}
    \end{cases}

Once per sentence: :math:`W_a \bar h_s` (general), and the product with the source's columns of :math:`W_a` (concat). Once
per word: the product with the query.
"""

from torch import Tensor, nn

from .additive import AdditiveAttention
from .base import AttentionMemory, ScoredAttention
from .shared import Rows

INITIAL_RANGE = 0.1  # Luong 2015, Section 4.1: all parameters uniform in [-0.1, 0.1]


class DotAttention(ScoredAttention[AttentionMemory]):
    """The dot product of query and source state, which must be equally wide.

    Args:
        query_size: D, width of h_t
        source_size: C, width of h_s; equal to D

    Raises:
        ValueError: if the widths differ
    """

    def __init__(self, query_size: int, source_size: int) -> None:
        if query_size != source_size:
            raise ValueError(
                f"dot product attention needs queries and source states of one width, but the query has {query_size} "
                f"values and the source state {source_size}; make the sizes equal or take another score"
            )
        super().__init__(context_size=source_size)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        rows = Rows(source)
        return AttentionMemory(rows, rows, padding_mask)

    def score(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        return memory.keys.scores(query)  # B x R x S


class GeneralAttention(ScoredAttention[AttentionMemory]):
    """A bilinear score; query (D) and source state (C) may differ in width."""

    def __init__(self, query_size: int, source_size: int) -> None:
        super().__init__(context_size=source_size)
        self.source_projection = nn.Linear(source_size, query_size, bias=False)  # W_a
        nn.init.uniform_(self.source_projection.weight, -INITIAL_RANGE, INITIAL_RANGE)

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        return AttentionMemory(Rows(self.source_projection(source)), Rows(source), padding_mask)  # keys: B x S x D

    def score(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        return memory.keys.scores(query)  # B x R x S


class ConcatAttention(AdditiveAttention):
    """A hidden layer of ``attention_size`` units over [h_t ; h_s].

    W_a [h_t ; h_s] is W_a's first columns times h_t plus its last columns times h_s. So it is additive attention with a
    matrix for each of the two, and the source's product is computed once per sentence.
    """

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -INITIAL_RANGE, INITIAL_RANGE)
