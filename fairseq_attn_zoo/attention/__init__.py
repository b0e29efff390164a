"""The zoo: attention mechanisms of recurrent translation models, in PyTorch alone.

One mechanism, one file: the citation, the equations, and what is computed once a sentence (:meth:`memorize`) and what
once a word (:meth:`forward`). The letters of the shapes are the same everywhere:

    B sentences   S source positions   T target positions   N hypotheses (N = B x hypotheses a sentence)
    C width of a source state   D width of a query   A width of the alignment model's hidden layer
"""

from .additive import AdditiveAttention
from .base import AttentionMechanism, AttentionMemory, SourceMemory, masked_softmax
from .cky import CKYAttention
from .coverage import CoverageAttention
from .fine_grained import FineGrainedAttention, WordAwareAttention
from .key_value import HalfScoredAttention, KeyValueAttention, MergedSourceAttention, SharedMemoryAttention
from .luong import ConcatAttention, DotAttention, GeneralAttention
from .memory_network import MemoryNetworkAttention
from .shared import Rows, share

__all__ = [
    "AdditiveAttention",
    "AttentionMechanism",
    "AttentionMemory",
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
    "SharedMemoryAttention",
    "SourceMemory",
    "WordAwareAttention",
    "masked_softmax",
    "share",
]
