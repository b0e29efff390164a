"""Attention mechanisms for recurrent translation models, as architectures of fairseq.

``--user-dir fairseq_attn_zoo`` imports this package once, which mends what today's Python and PyTorch need of fairseq
(:mod:`.compat`) and registers the architectures (:mod:`.models`) and a criterion (:mod:`.criterion`); nothing else
happens. Where fairseq is not installed, the parts that need only PyTorch (:mod:`.attention`, :mod:`.cells`,
:mod:`.dropout`, :mod:`.encoders`, :mod:`.decoders`, :mod:`.chart`, :mod:`.loss`) can be imported all the same.

Raises:
    ImportError: if Python or PyTorch is too old, or fairseq is there but cannot be imported; one line says what to do
"""

import sys
from importlib.util import find_spec

import torch

__version__ = "0.1.0"

if sys.version_info < (3, 10):  # noqa: UP036 - a checkout named by --user-dir was not installed by pip
    raise ImportError("fairseq_attn_zoo wants Python 3.10 or later; this is " + sys.version.split()[0])

if torch.__version__ < "2.6":
    raise ImportError(f"fairseq_attn_zoo wants PyTorch 2.6 or later; this is {torch.__version__}")

if find_spec("fairseq") is not None:
    try:
        import fairseq  # noqa: F401
    except Exception as error:
        raise ImportError(
            f"fairseq is installed but cannot be imported ({type(error).__name__}: {str(error).partition(chr(10))[0]}); "
            "fairseq_attn_zoo is tested with fairseq-fixed 0.12.3.1, hydra-core 1.3.2 and omegaconf 2.3.0: "
            "pip install them, then ask 'python -m pip check'"
        ) from None

    from . import compat

    compat.apply()

    from . import criterion, models  # noqa: F401
