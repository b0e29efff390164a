"""fairseq's side of the zoo: one short registration an architecture, all imported here."""

from . import cky, fine_grained, key_value, luong, memory_network, rnnsearch  # noqa: F401
from .base import ARCHITECTURES

__all__ = ["ARCHITECTURES"]
