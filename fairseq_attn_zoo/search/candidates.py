"""The best continuations of every sentence's hypotheses, without a sort of the vocabulary. PyTorch alone.

Of N hypotheses' log-probabilities, N x V, a sentence needs the best ``count`` among ``beam * V``. They stand in the
``count`` blocks with the highest maxima, whatever the blocks are: one pass over the vocabulary finds the maxima, and
what is left to sort are V / :data:`BLOCK` values of each hypothesis and a few hundred of each sentence.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 16  # words of a block, V / BLOCK words apart, so that the pass over the vocabulary reads whole rows


class Candidates(NamedTuple):
    """Continuations of each sentence, the best first: B x count."""

    scores: Tensor  # of the hypothesis with the word
    words: Tensor
    beams: Tensor  # which of the sentence's hypotheses goes on


def enough_blocks(vocabulary: int, beam: int, count: int) -> bool:
    """Whether :func:`best_candidates` can find ``count`` candidates of ``beam`` hypotheses."""
    return beam * (vocabulary // BLOCK) > count


def best_candidates(log_probs: Tensor, scores: Tensor, sentences: int, count: int) -> tuple[Candidates, Tensor]:
    """The best continuations of each sentence.

    Args:
        log_probs: of the next word, N x V, contiguous; the hypotheses of one sentence stand side by side
        scores: of the hypotheses, N
        sentences: B
        count: how many; :func:`enough_blocks` says whether there are enough

    Returns:
        the candidates, and whether they are beyond doubt, B: no two of them, nor the last and the next best one, have
        one score, and none is NaN
    """
    rows, vocabulary = log_probs.shape
    beam, columns = rows // sentences, vocabulary // BLOCK
    in_blocks = BLOCK * columns
    maxima = log_probs[:, :in_blocks].unflatten(1, (BLOCK, columns)).amax(dim=1)  # N x columns
    maxima += scores.unsqueeze(1)
    blocks = maxima.view(sentences, -1).topk(count + 1, sorted=False).indices  # B x (count + 1)
    owners = blocks.div(columns, rounding_mode="floor")
    first = torch.add(blocks, owners, alpha=vocabulary - columns)  # of each block, among beam * V
    steps = torch.arange(0, in_blocks, columns, device=log_probs.device)
    members = (first.unsqueeze(2) + steps).view(sentences, -1)
    if in_blocks < vocabulary:  # what is left over is in no block
        hypotheses = torch.arange(0, beam * vocabulary, vocabulary, device=log_probs.device)
        rest = hypotheses.unsqueeze(1) + torch.arange(in_blocks, vocabulary, device=log_probs.device)
        members = torch.cat([members, rest.view(1, -1).expand(sentences, -1)], dim=1)
    values = log_probs.view(sentences, -1).gather(1, members)
    values += scores.view(sentences, beam).gather(1, members.div(vocabulary, rounding_mode="floor"))
    best, places = values.topk(count + 1)
    chosen = members.gather(1, places[:, :count])
    beams = chosen.div(vocabulary, rounding_mode="floor")
    beyond_doubt = (best[:, 1:] < best[:, :-1]).all(dim=1)
    return Candidates(best[:, :count], chosen - beams * vocabulary, beams), beyond_doubt
