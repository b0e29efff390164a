"""The best continuations of every sentence's hypotheses, without a sort of the vocabulary.

Of its hypotheses' log-probabilities, beam x V, a sentence needs the best ``count``. They stand in the ``count`` blocks with
the highest maxima, whatever the blocks are: one pass over the vocabulary finds the maxima, and what is left to sort are
V / :data:`BLOCK` values of each hypothesis and a few hundred of each sentence.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 16  # words of a block, V / BLOCK words apart, so that the pass over the vocabulary reads whole rows


class Candidates(NamedTuple):
    """Continuations of each sentence, the best first: arrays of B x count."""

    scores: np.ndarray  # of the hypothesis with the word
    words: np.ndarray
    beams: np.ndarray  # which of the sentence's hypotheses goes on

    @classmethod
    def of(cls, scores: Tensor, places: Tensor, vocabulary: int) -> "Candidates":
        """From scores and places among a sentence's beam x V continuations."""
        beams, words = np.divmod(places.cpu().numpy(), vocabulary)
        return cls(scores.cpu().numpy(), words, beams)


def enough_blocks(vocabulary: int, beam: int, count: int) -> bool:
    """Whether :func:`best_candidates` can find ``count`` candidates of ``beam`` hypotheses."""
    return beam * (vocabulary // BLOCK) >= count


def best_candidates(log_probs: Tensor, scores: Tensor, sentences: int, count: int) -> Candidates:
    """The best continuations of each sentence. Of equal scores any may come first.

    Args:
        log_probs: of the next word, N x V, contiguous; the hypotheses of one sentence stand side by side
        scores: of the hypotheses, N
        sentences: B
        count: how many; :func:`enough_blocks` says whether there are enough
    """
    rows, vocabulary = log_probs.shape
    beam, columns = rows // sentences, vocabulary // BLOCK
    in_blocks = BLOCK * columns
    maxima = log_probs[:, :in_blocks].view(rows, BLOCK, columns).amax(dim=1)
    maxima += scores.unsqueeze(1)
    blocks = maxima.view(sentences, -1).topk(count, sorted=False).indices  # B x count
    owners = blocks // columns
    first = torch.add(blocks, owners, alpha=vocabulary - columns)  # its first word's place among beam x V
    places = first.unsqueeze(2) + torch.arange(0, in_blocks, columns, device=log_probs.device)  # B x count x BLOCK
    values = log_probs.view(sentences, -1).gather(1, places.view(sentences, -1)).view_as(places)
    values += scores.view(sentences, beam).gather(1, owners).unsqueeze(2)
    places, values = places.view(sentences, -1), values.view(sentences, -1)
    if in_blocks < vocabulary:  # what is left over is in no block
        hypotheses = torch.arange(0, beam * vocabulary, vocabulary, device=log_probs.device)
        rest = hypotheses.unsqueeze(1) + torch.arange(in_blocks, vocabulary, device=log_probs.device)
        places = torch.cat([places, rest.view(1, -1).expand(sentences, -1)], dim=1)
        rest_values = log_probs[:, in_blocks:] + scores.unsqueeze(1)
        values = torch.cat([values, rest_values.view(sentences, -1)], dim=1)
    best, chosen = values.topk(count)
    return Candidates.of(best, places.gather(1, chosen), vocabulary)
