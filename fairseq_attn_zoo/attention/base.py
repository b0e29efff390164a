"""What every mechanism shares: its contract with the decoders, the rows of a sentence, and the one masked softmax."""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from .shared import Rows
from .traced import Traced


class SourceMemory(Protocol):
    """What a mechanism remembers of the sources: a named tuple, one row per sentence, never one per hypothesis.

    What is read by dot products or by weighted means is :class:`~.shared.Rows`, and its gradient is made once however many
    words read it. What is read in another way is a tensor.
    """

    @property
    def padding_mask(self) -> Tensor:
        """B x S, True at padding."""


class AveragedMemory(SourceMemory, Protocol):
    """The memory of a mechanism whose context is a weighted mean."""

    @property
    def values(self) -> Rows:
        """B x S x C: what the context averages."""


class AttentionMemory(NamedTuple):
    """The :class:`SourceMemory` of a score that is a dot product."""

    keys: Rows  # B x S x C, or x D: what the score reads
    values: Rows  # B x S x C: what the context averages
    padding_mask: Tensor  # B x S, True at padding


Memory = TypeVar("Memory", bound=SourceMemory)
Averaged = TypeVar("Averaged", bound=AveragedMemory)
Weights = TypeVar("Weights")


class AttentionMechanism(nn.Module, Generic[Memory, Weights]):
    """What a decoder asks of a mechanism, whose memory is a ``Memory`` and whose weights are ``Weights``.

    A decoder calls :meth:`memorize` and :meth:`start` once per sentence, and :meth:`read` once for all the words of a call.
    Then it calls :meth:`attend` once per word, or :meth:`forward` for all words at once.

    A mechanism writes :meth:`memorize`, :meth:`alignment`, :meth:`trace`, and one of two: :meth:`forward` if a word's weights
    do not depend on those of the words before, :meth:`attend` if they do. :class:`ScoredAttention` is for those that are a
    score and a softmax.

    What is carried from word to word is one value, the *state*: tensors of one row per hypothesis, nested as one likes. What
    is read of the target words beside the query is the *cue*. Both are None for most.

    Args:
        context_size: width of the contexts
    """

    def __init__(self, context_size: int) -> None:
        super().__init__()
        self.context_size = context_size

    def memorize(self, source: Tensor, padding_mask: Tensor) -> Memory:
        """Compute what does not depend on the query, once per sentence.

        Args:
            source: states of the encoder, B x S x C
            padding_mask: B x S, True at padding
        """
        raise NotImplementedError

    def start(self, memory: Memory) -> Any:
        """The state before the first target word, B rows."""
        return None

    def read(self, ids: Tensor, embedded: Tensor, memory: Memory, state: Any) -> tuple[Any, Any]:
        """What attention reads of the target words beside the query, computed for all T words of a call at once.

        Args:
            ids: N x T
            embedded: N x T x E; None in a decoder that does not embed its words
            memory: what :meth:`memorize` returned
            state: before the first of these words

        Returns:
            the cue of all T words, as :meth:`forward` takes it with T queries, and the state after they were read
        """
        return None, state

    def split_cue(self, cue: Any, words: int) -> Sequence[Any]:
        """The cue of T words as one for each, as :meth:`attend` takes them."""
        return [cue] * words

    def attend(self, query: Tensor, memory: Memory, cue: Any, state: Any) -> tuple[Tensor, Weights, Any]:
        """Attend for one word of a decoder that goes word by word.

        Args:
            query: N x D. N is a multiple of the memory's B, and the hypotheses of one sentence stand side by side: they
                attend in one product, to one memory.
            memory: what :meth:`memorize` returned
            cue: of this word
            state: after the word before

        Returns:
            context and weights as those of :meth:`forward`, and the state after this word
        """
        context, weights = self(query, memory, cue)
        return context, weights, state

    @property
    def word_by_word(self) -> bool:
        """Whether a word's weights depend on those of the words before, so that a decoder must loop over its words."""
        return type(self).attend is not AttentionMechanism.attend

    def forward(self, query: Tensor, memory: Memory, cue: Any) -> tuple[Tensor, Weights]:
        """Attend for one word, or for all words at once.

        Args:
            query: N x D (one word) or N x T x D (all words at once), N as for :meth:`attend`
            memory: what :meth:`memorize` returned
            cue: of this word, or of all T

        Returns:
            contexts, N x C or N x T x C, and weights. One weight per source position is N x S or N x T x S: not below 0, of
            sum 1, 0 at padding. More of them are a named tuple, or have more dimensions.
        """
        raise NotImplementedError(f"{type(self).__name__} attends word by word; a decoder asks its attend")

    # --- what is shown of the weights ---------------------------------------------------------------------------------

    def alignment(self, weights: Weights) -> Tensor:
        """One weight per source position, ... x S, of the weights that :meth:`forward` returned."""
        raise NotImplementedError

    def join_words(self, weights: list[Weights]) -> Weights:
        """The weights of T single words as those of T words at once, of a tensor or a named tuple of tensors."""
        words: list[Any] = weights
        joined: Any
        if isinstance(words[0], Tensor):
            joined = torch.stack(words, dim=1)
        else:
            joined = type(words[0])(*(torch.stack(part, dim=1) for part in zip(*words, strict=True)))
        return joined

    def trace(self, weights: Weights) -> dict[str, Traced]:
        """Every kind of weights by its name, each with what it is over, from the weights of T words at once."""
        raise NotImplementedError


class ScoredAttention(AttentionMechanism[Averaged, Tensor]):
    """A score for every source position, a softmax, and the weighted mean of the memory's ``values``.

    A mechanism writes :meth:`memorize` (once per sentence) and :meth:`score` (once per word).
    """

    def score(self, query: Tensor, memory: Averaged) -> Tensor:
        """Score every source position for queries B x R x D of the same sentence; returns B x R x S."""
        raise NotImplementedError

    def forward(self, query: Tensor, memory: Averaged, cue: Any = None) -> tuple[Tensor, Tensor]:
        """Attend; arguments as in :meth:`AttentionMechanism.forward`. The cue is not read."""
        rows = rows_of_sentences(query, memory)
        weights = masked_softmax(self.score(rows, memory), memory.padding_mask.unsqueeze(1))  # B x R x S
        context = memory.values.mean(weights)  # B x R x C
        leading = query.shape[:-1]
        return context.view(*leading, -1), weights.view(*leading, -1)

    def alignment(self, weights: Tensor) -> Tensor:
        return weights

    def trace(self, weights: Tensor) -> dict[str, Traced]:
        """``source``: the alignment."""
        return {"source": Traced(weights)}


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
