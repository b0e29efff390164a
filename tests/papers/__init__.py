"""What a paper says of its architectures: one file per paper, with the tests of what only that paper promises.

Every ``test_PAPER.py`` here has ``FACTS``, architecture -> :class:`Facts`. The registry-wide tests take them from here.
"""

import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import Any

from twins import Twin


@dataclass(frozen=True)
class Facts:
    twin: Twin  # the naive twin, on the parameters of a model by the paper's letters
    sizes: dict[str, Any]  # the paper's, which are the defaults
    layers: int = 1  # of encoder and decoder
    own_flags: frozenset[str] = frozenset()  # those that not all architectures have
    # Flags that do not fit -> what the one line says, as a pattern.
    refused: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    # Flags with which training attends for all target words in one call.
    without_loop: list[dict[str, Any]] = field(default_factory=list)
    # What a tiny model needs beside the tests' sizes and flags of fairseq-train, to learn in a few epochs.
    to_learn_sizes: dict[str, int] = field(default_factory=dict)
    to_learn_flags: list[str] = field(default_factory=list)


FACTS: dict[str, Facts] = {}
for _paper in pkgutil.iter_modules(__path__):
    FACTS |= importlib.import_module(f"{__name__}.{_paper.name}").FACTS
