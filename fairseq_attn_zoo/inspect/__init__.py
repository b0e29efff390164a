"""Looking at what a model attends to: traces, word alignments, figures.

What is imported here needs neither fairseq nor PyTorch. :mod:`.translator`, which asks a trained model, needs both;
:mod:`.plot` needs Altair.
"""

from .alignment import AlignmentScore, GoldAlignment, alignment_error_rate, parse_alignment, read_alignments
from .trace import Trace

__all__ = ["AlignmentScore", "GoldAlignment", "Trace", "alignment_error_rate", "parse_alignment", "read_alignments"]
