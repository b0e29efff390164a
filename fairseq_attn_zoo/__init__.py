"""Attention mechanisms for recurrent translation models, as architectures of fairseq.

``--user-dir fairseq_attn_zoo`` imports this package once, which mends what today's Python and PyTorch need of fairseq
(:mod:`.compat`) and registers the architectures (:mod:`.models`) and a criterion (:mod:`.criterion`); nothing else
happens. Where fairseq is not installed, the parts that need only PyTorch (:mod:`.attention`, :mod:`.cells`,
:mod:`.encoders`, :mod:`.decoders`, :mod:`.chart`, :mod:`.loss`) can be imported all the same.
"""

from importlib.util import find_spec

__version__ = "0.1.0"

if find_spec("fairseq") is not None:
    from . import compat

    compat.apply()

    from . import criterion, models  # noqa: F401
