"""What every mechanism shares: the two verbs, the shape of a memory, and the one masked softmax."""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class AttentionMemory(NamedTuple):
    """What a mechanism remembers of the sources: one row a sentence, never one a hypothesis."""

    keys: Tensor  # B x S x (A or C): what the score reads
    values: Tensor  # B x S x C: what the context averages
    padding_mask: Tensor  # B x S, True at padding


class AttentionMechanism(nn.Module):
    """A score over source positions, a softmax, and the weighted mean of the source's states.

    A mechanism writes :meth:`memorize` (once a sentence) and :meth:`score` (once a word); the rest is here.
    ``context_size`` is the width of the contexts that it returns.
    """

    def __init__(self, context_size: int) -> None:
        super().__init__()
        self.context_size = context_size

    def memorize(self, source: Tensor, padding_mask: Tensor) -> AttentionMemory:
        """Compute what does not depend on the query, once a sentence.

        Args:
            source: states of the encoder, B x S x C
            padding_mask: B x S, True at padding
        """
        raise NotImplementedError

    def score(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        """Score every source position for queries B x R x D of the same sentence; returns B x R x S."""
        raise NotImplementedError

    def forward(self, query: Tensor, memory: AttentionMemory) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: N x D (one word) or N x T x D (all words at once). N is a multiple of the memory's B, and the
                hypotheses of one sentence stand side by side: they attend in one product, to one memory.
            memory: what :meth:`memorize` returned

        Returns:
            contexts, N x C or N x T x C, and weights, N x S or N x T x S: non-negative, of sum 1, 0 at padding
        """
        sentences = memory.padding_mask.size(0)
        rows = query.reshape(sentences, -1, query.size(-1))  # B x R x D, R = hypotheses x words
        weights = masked_softmax(self.score(rows, memory), memory.padding_mask)  # B x R x S
        context = torch.bmm(weights, memory.values)  # B x R x C
        leading = query.shape[:-1]
        return context.view(*leading, -1), weights.view(*leading, -1)


def masked_softmax(scores: Tensor, padding_mask: Tensor) -> Tensor:
    """Softmax over source positions that gives padding a weight of exactly zero, computed in float32 or wider.

    A row of nothing but padding gets uniform weights, so that a dummy sentence stays finite.

    Args:
        scores: B x R x S
        padding_mask: B x S, True at padding

    Returns:
        B x R x S, in the precision of the scores
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # The lowest finite number, not minus infinity: it underflows to an exact zero beside any real score, and a row
    # that has no real score does not become NaN.
    wide = wide.masked_fill(padding_mask.unsqueeze(1), torch.finfo(wide.dtype).min)
    return torch.softmax(wide, dim=-1).to(scores.dtype)
