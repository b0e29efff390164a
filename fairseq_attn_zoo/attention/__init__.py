"""The zoo: attention mechanisms of recurrent translation models, in PyTorch alone.

One mechanism, one file: the citation, the equations, what is computed once per sentence, and what once per word. What a decoder
asks of a mechanism stands in :class:`~.base.AttentionMechanism`. The letters of the shapes are the same everywhere:

    B sentences   S source positions   T target positions   N hypotheses: B x hypotheses of each sentence
    R queries of one sentence, which are answered in one product: hypotheses x words
    C width of a source state   D width of a query   A width of the alignment model's hidden layer
    E width of an embedded word   H units of a decoder layer   L layers
    K width of Mino's merged states   M cells of a CKY chart: S (S + 1) / 2

A small letter is a paper's own, and its file says what it is.
"""

from ..axes import Axes
from .additive import AdditiveAttention
from .base import AttentionMechanism, AttentionMemory, ScoredAttention, SourceMemory, masked_softmax
from .cky import CKYAttention
from .coverage import CoverageAttention
from .fine_grained import FineGrainedAttention, WordAwareAttention
from .key_value import HalfScoredAttention, KeyValueAttention, MergedSourceAttention, SharedMemoryAttention
from .luong import ConcatAttention, DotAttention, GeneralAttention
from .memory_network import MemoryNetworkAttention
from .shared import Rows, share
from .traced import Traced

__all__ = [
    "AdditiveAttention",
    "AttentionMechanism",
    "AttentionMemory",
    "Axes",
    "CKYAttention",
    "ConcatAttention",
    "CoverageAttention",
    "DotAttention",
    "FineGrainedAttention",
    "GeneralAttention",
    "HalfScoredAttention",
    "KeyValueAttention",
    "MemoryNetworkAttention",
    "MergedSourceAttention",
    "Rows",
    "ScoredAttention",
    "SharedMemoryAttention",
    "SourceMemory",
    "Traced",
    "WordAwareAttention",
    "masked_softmax",
    "share",
]
