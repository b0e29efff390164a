"""What weights are over, said once where they are made, so that whoever shows them needs no list of names.

In Python alone: what reads traces from files needs no PyTorch.
"""

from typing import Literal, NamedTuple

Over = Literal["source words", "target words", "spans"]
By = Literal["hop", "head", "dimension"]
Total = Literal["one", "at most one", "any"]


class Axes(NamedTuple):
    """What weights are over, and what they sum to.

    Their dimensions are sentences (in a batch), the target words that were predicted, and what was attended to. That is the
    source words, S; or the target words read so far, of which number 0 is the beginning of the sentence; or the spans of
    source words, S x S, by first word and length less 1, with 0 where there is no such span. With ``by`` there is one
    dimension more, the last.
    """

    over: Over = "source words"
    by: By | None = None  # what the last dimension counts; nothing for spans
    total: Total = "one"  # what the weights of one target word sum to, for each hop, head or dimension
    title: str = ""  # what a reader should call them; empty for those that are the alignment
