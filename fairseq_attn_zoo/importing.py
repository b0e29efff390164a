"""fairseq, imported without the libraries that only tasks other than translation call."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# fairseq's criterion of sentence classification and its task of audio classification import functions of these to measure
# themselves. They take longer to import than the rest of fairseq.
MEASURES = ("sklearn", "sklearn.metrics", "scipy.stats")


class Deferred(ModuleType):
    """A module whose functions import it when they are called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__} is not imported yet; it has no {name}")
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner

        def function(*arguments: Any, **keywords: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*arguments, **keywords)

        return function


@contextmanager
def deferred(names: tuple[str, ...]) -> Iterator[None]:
    """What is imported in here of these modules is imported when it is first called; afterwards they are themselves again."""
    stand_ins = {name: Deferred(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
