"""Looking at what a model attends to: word alignments and figures. Needs neither fairseq nor PyTorch.

The figures (:mod:`.plot`) are not imported here, so that scoring alignments works where Altair is not installed.
"""

from .alignment import AlignmentScore, GoldAlignment, alignment_error_rate, parse_alignment, read_alignments

__all__ = ["AlignmentScore", "GoldAlignment", "alignment_error_rate", "parse_alignment", "read_alignments"]
