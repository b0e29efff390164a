"""Attention mechanisms for recurrent translation models, as architectures of fairseq.

``--user-dir fairseq_attn_zoo`` imports this package, and with it :mod:`.models`, which mends what today's Python and PyTorch
need of fairseq (:mod:`.compat`) and registers the architectures and a criterion (:mod:`.criterion`). ``import
fairseq_attn_zoo`` does the same as soon as fairseq is imported, before it or after it. What needs neither fairseq nor
PyTorch (the command line, the grammar) imports neither; :mod:`.attention`, :mod:`.cells`, :mod:`.dropout`,
:mod:`.encoders`, :mod:`.decoders`, :mod:`.chart` and :mod:`.loss` need PyTorch only.

Raises:
    ImportError: if Python is too old
"""

import sys
from importlib import import_module

from . import importing

__version__ = "0.1.0"

if sys.version_info < (3, 10):  # noqa: UP036 - a checkout named by --user-dir was not installed by pip
    raise ImportError("fairseq_attn_zoo wants Python 3.10 or later; this is " + sys.version.split()[0])


class RegisterAfterFairseq:
    """A finder for ``sys.meta_path``: fairseq is found as without it, and once it is imported :mod:`.models` is too.

    It is imported without what only its other tasks call (:mod:`.importing`).

    Importing fairseq takes seconds, so that the package does not do it by itself. But whoever has both shall have the
    architectures and the patches, in whichever order they were imported.
    """

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "fairseq":
            return None
        others = (finder for finder in sys.meta_path if finder is not cls)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                with importing.deferred(importing.MEASURES):
                    execute(module)
                sys.meta_path.remove(cls)
                import_module(".models", __name__)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def __getattr__(name: str):
    """``fairseq_attn_zoo.models`` and its like without an import of their own."""
    if name in ("compat", "criterion", "models"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "fairseq" in sys.modules:
    from . import models  # noqa: F401
else:
    sys.meta_path.insert(0, RegisterAfterFairseq)
