"""fairseq's side of the zoo: one short registration an architecture, all imported here."""

from . import luong, rnnsearch  # noqa: F401
from .base import ARCHITECTURES

__all__ = ["ARCHITECTURES"]
