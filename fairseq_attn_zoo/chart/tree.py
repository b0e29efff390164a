"""The winning tree of a sentence."""

from torch import Tensor

from .cells import first_cell


def bracketed(splits: Tensor, words: list[str]) -> str:
    """The winning tree of a whole sentence in bracket notation: ``((the dog) (saw (a cat)))``.

    Args:
        splits: of one sentence, M: a row of :attr:`Chart.splits`
        words: of the sentence, without padding; at most as many as the chart has positions

    Raises:
        ValueError: if there are no words, or more than the chart has positions
    """
    positions = int(((8 * splits.numel() + 1) ** 0.5 - 1) / 2)
    if not 0 < len(words) <= positions:
        raise ValueError(f"{len(words)} words, but the chart is of 1 to {positions}")

    # Innermost first, without recursion: a tree may be as deep as the sentence is long.
    waiting, spans = [(len(words), 0)], []
    while waiting:
        length, start = waiting.pop()
        spans.append((length, start))
        if length > 1:
            left = int(splits[first_cell(length, positions) + start])
            waiting += [(left, start), (length - left, start + left)]
    written = {}
    for length, start in reversed(spans):
        if length == 1:
            written[length, start] = words[start]
        else:
            left = int(splits[first_cell(length, positions) + start])
            written[length, start] = f"({written.pop((left, start))} {written.pop((length - left, start + left))})"
    return written[len(words), 0]
