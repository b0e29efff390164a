"""fairseq's side of the zoo: one short registration per architecture, all imported here.

Importing this also applies the patches (:mod:`..compat`) and registers the criterion (:mod:`..criterion`).
"""

from .. import compat, criterion  # noqa: F401
from . import cky, fine_grained, key_value, luong, memory_network, rnnsearch  # noqa: F401
from .registry import ARCHITECTURES

__all__ = ["ARCHITECTURES"]
