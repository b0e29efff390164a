"""What every mechanism shares: the two verbs, the shape of a memory, and the one masked softmax."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .shared import Rows


class SourceMemory(Protocol):
    """What a mechanism remembers of the sources: a named tuple, one row per sentence, never one per hypothesis.

    What is read by dot products or by weighted means is :class:`~.shared.Rows`, and its gradient is made once however many
    words read it; what is read in another way is a tensor.
    """

    @property
    def padding_mask(self) -> Tensor:
        """B x S, True at padding."""


class AttentionMemory(NamedTuple):
    """The :class:`SourceMemory` of a score that is a dot product."""

    keys: Rows  # B x S x C, or x D: what the score reads
    values: Rows  # B x S x C: what the context averages
    padding_mask: Tensor  # B x S, True at padding


class AttentionMechanism(nn.Module):
    """A score over source positions, a softmax, and the weighted mean of the source's states.

    A mechanism writes :meth:`memorize` (once a sentence) and :meth:`score` (once a word); the rest is here. Those that
    read target words themselves beside the query, or whose weights are more than one a source position, override what
    stands under :meth:`forward`. ``context_size`` is the width of the contexts that it returns.
    """

    def __init__(self, context_size: int) -> None:
        super().__init__()
        self.context_size = context_size

    def memorize(self, source: Tensor, padding_mask: Tensor) -> Any:
        """Compute what does not depend on the query, once a sentence.

        Args:
            source: states of the encoder, B x S x C
            padding_mask: B x S, True at padding

        Returns:
            a :class:`SourceMemory`; :meth:`forward` below averages its ``values``
        """
        raise NotImplementedError

    def score(self, query: Tensor, memory: Any) -> Tensor:
        """Score every source position for queries B x R x D of the same sentence; returns B x R x S."""
        raise NotImplementedError

    def forward(self, query: Tensor, memory: Any, word: Any = None) -> tuple[Tensor, Any]:
        """Attend.

        Args:
            query: N x D (one word) or N x T x D (all words at once). N is a multiple of the memory's B, and the
                hypotheses of one sentence stand side by side: they attend in one product, to one memory.
            memory: what :meth:`memorize` returned
            word: the item of :meth:`read_words` for this word

        Returns:
            contexts, N x C or N x T x C, and weights, N x S or N x T x S: non-negative, of sum 1, 0 at padding. (A
            mechanism with more weights returns all of them; :meth:`alignment` makes these of them.)
        """
        rows = rows_of_sentences(query, memory)
        weights = masked_softmax(self.score(rows, memory), memory.padding_mask.unsqueeze(1))  # B x R x S
        context = memory.values.mean(weights)  # B x R x C
        leading = query.shape[:-1]
        return context.view(*leading, -1), weights.view(*leading, -1)

    # --- what is read of the target words -----------------------------------------------------------------------------

    def empty_history(self, padding_mask: Tensor) -> Tensor | None:
        """The ids of the target words before the first, B x 0; None where attention does not read past words."""
        return None

    def extend_history(self, history: Tensor | None, words: Tensor) -> Tensor | None:
        """The ids of all target words so far, after N x T more."""
        return None if history is None else torch.cat([history, words], dim=1)

    def read_words(self, embedded: Tensor, history: Tensor | None, memory: Any) -> Sequence[Any]:
        """What attention reads of the target words beside the query, computed for all T words before the loop.

        Args:
            embedded: N x T x E
            history: ids of all words so far, these T included, or None
            memory: what :meth:`memorize` returned

        Returns:
            one item a word, for :meth:`forward`
        """
        return [None] * embedded.size(1)

    # --- what is remembered of the source positions attended to -------------------------------------------------------

    def nothing_attended(self, memory: Any) -> Tensor | None:
        """What is remembered before the first word, B rows; None for a mechanism that forgets where it has looked."""
        return None

    def attend(
        self, query: Tensor, memory: Any, word: Any, attended: Tensor | None
    ) -> tuple[Tensor, Any, Tensor | None]:
        """:meth:`forward` for one word of a decoder that goes word by word.

        Args:
            query: N x D
            memory: what :meth:`memorize` returned
            word: the item of :meth:`read_words` for this word
            attended: what is remembered of the words before, N rows

        Returns:
            context and weights of :meth:`forward`, and what is remembered after this word
        """
        context, weights = self(query, memory, word)
        return context, weights, attended

    # --- what is shown of the weights ---------------------------------------------------------------------------------

    def alignment(self, weights: Any) -> Tensor:
        """One weight a source position, ... x S, of the weights that :meth:`forward` returned."""
        return weights

    def join_words(self, weights: list[Any]) -> Any:
        """The weights of T single words as those of T words at once."""
        return torch.stack(weights, dim=1)

    def trace(self, weights: Any) -> dict[str, Tensor]:
        """Every weight, by name, from the weights of T words at once.

        In every tensor the third dimension is the position that is attended to: N x T x S, or N x T x S x more. Names
        that begin with ``source`` are of source positions, those that begin with ``target`` of target words.
        """
        return {"source": weights}


def rows_of_sentences(per_hypothesis: Tensor, memory: SourceMemory) -> Tensor:
    """N x D or N x T x D as B x R x D: what asks the same sentence stands in one block, R = hypotheses x words."""
    return per_hypothesis.reshape(memory.padding_mask.size(0), -1, per_hypothesis.size(-1))


def masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Softmax that gives masked positions a weight of exactly zero, computed in float32 or wider.

    Where everything is masked the weights are uniform, so that a dummy sentence stays finite.

    Args:
        scores: of any shape
        mask: True where there is nothing to attend to; broadcast to the scores
        dim: the dimension of the positions

    Returns:
        the shape and the precision of the scores
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # The lowest finite number, not minus infinity: it underflows to an exact zero beside any real score, and a row
    # that has no real score does not become NaN.
    wide = wide.masked_fill(mask, torch.finfo(wide.dtype).min)
    return torch.softmax(wide, dim=dim).to(scores.dtype)
