"""Everything that a model attended to while it wrote one sentence, as arrays with names, and as files."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ..axes import Axes, By, Over, Total
from .trace_file import LARGEST_ARRAYS, LARGEST_JSON, kind_of, numbers, read_json, read_npz, require

# Of the arrays in files from before a trace said it itself. What a mechanism traces today says its axes, in its ``trace``.
EARLIER: dict[str, Axes] = {
    "source": Axes(),
    "source_coverage": Axes(total="any", title="coverage after the word"),
    "source_hops": Axes(by="hop", title="source"),
    "source_dimensions": Axes(by="dimension", title="source"),
    "source_joint": Axes(total="at most one", title="words, in the joint softmax"),
    "source_chart": Axes("spans", total="at most one", title="spans, in the joint softmax"),
    "target_hops": Axes("target words", by="hop", title="target"),
}
ALIGNMENT = Axes(total="at most one")
ROUNDING = 1e-3  # how far a weight may stray outside of 0 to 1


@dataclass(frozen=True)
class Trace:
    """One sentence pair; S source tokens and T target tokens, the final ``</s>`` of both included.

    In every array the first dimension is the target token that was predicted and the second what was attended to; ``axes`` says
    what that is (:class:`fairseq_attn_zoo.axes.Axes`).
    """

    architecture: str
    source: list[str]
    target: list[str]
    alignment: np.ndarray  # T x S: the one weight per source position that is the model's alignment
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    score: float | None = None  # mean log-probability of the target tokens, base 2
    splits: np.ndarray | None = None  # CKY: S x S, words in the left part of the winning split, by start and length - 1
    tree: str | None = None  # CKY: the winning tree in bracket notation
    axes: dict[str, Axes] = field(default_factory=dict)  # of each array of ``weights``

    def __post_init__(self) -> None:
        self.axes.update((name, EARLIER[name]) for name in self.weights if name in EARLIER and name not in self.axes)

    def arrays(self, over: Over | None = None, by: By | None = None) -> dict[str, np.ndarray]:
        """The weights that are over these positions and by this; None is for any."""
        return {
            name: array
            for name, array in self.weights.items()
            if over in (None, self.axes[name].over) and by in (None, self.axes[name].by)
        }

    def save(self, path: str | Path) -> Path:
        """Write a ``.npz`` (arrays under their names; the rest as JSON under ``about``) or a ``.json`` file.

        Raises:
            ValueError: another ending
        """
        path = Path(path)
        about = {name: getattr(self, name) for name in ("architecture", "source", "target", "score", "tree")}
        about["axes"] = {name: axes._asdict() for name, axes in self.axes.items()}
        if path.suffix == ".npz":
            arrays: dict[str, Any] = {"about": np.array(json.dumps(about)), "alignment": self.alignment, **self.weights}
            if self.splits is not None:
                arrays["splits"] = self.splits
            with path.open("wb") as file:
                np.savez_compressed(file, **arrays)
        elif path.suffix == ".json":
            weights = {name: rounded(array) for name, array in self.weights.items()}
            splits = None if self.splits is None else self.splits.tolist()
            text = {**about, "alignment": rounded(self.alignment), "weights": weights, "splits": splits}
            path.write_text(json.dumps(text, ensure_ascii=False) + "\n", encoding="utf-8")
        else:
            raise ValueError(f"cannot save a trace as {path.name!r}: the name must end in .npz or .json")
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read what :meth:`save` wrote, or what somebody else made: all is checked, so that whoever uses the trace need not.

        Raises:
            ValueError: the file is no trace, or a field does not fit the others; one line that names both
            OSError: there is no such file, or it cannot be read
        """
        path = Path(path)
        read, most = (read_npz, LARGEST_ARRAYS) if path.suffix == ".npz" else (read_json, LARGEST_JSON)
        with path.open("rb") as file:
            data = file.read(most + 1)
        try:
            if len(data) > most:
                raise ValueError(f"it has more than {most // 2**20} MiB")
            return checked(read(data))
        # Beside ValueError a damaged file has many ways to fail in zipfile, zlib, NumPy and json, the exceptions of which no
        # manual lists: NotImplementedError (a compression), RuntimeError (a password), RecursionError, zlib.error, ...
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            if isinstance(error, RecursionError):
                reason = "it is nested too deeply"
            elif not isinstance(error, ValueError):
                reason = f"it is damaged; {type(error).__name__}: {reason}"
            raise ValueError(f"{path} is not a trace of this package: {reason}") from None

    def nematus(self, number: int) -> str:
        """The block of this sentence in the soft-alignment format of Nematus, which alignment viewers read.

        A header ``number ||| target ||| score ||| source ||| S T``, then a line of S weights for each of the T target
        tokens. The header's sentences are without ``</s>``; the counts and weights are with it.
        """
        score = 0 if self.score is None else self.score
        sentences = " ".join(self.target[:-1]), score, " ".join(self.source[:-1])
        header = " ||| ".join(map(str, (number, *sentences, f"{len(self.source)} {len(self.target)}")))
        return "\n".join([header, *(" ".join(f"{weight:.6g}" for weight in row) for row in self.alignment)]) + "\n"


def rounded(array: np.ndarray) -> Any:
    """Nested lists of numbers with six significant digits, which is what float32 weights hold."""
    return json.loads(json.dumps(array.tolist()), parse_float=lambda number: float(f"{float(number):.6g}"))


# --- checking ---------------------------------------------------------------------------------------------------------


def checked(fields: dict[str, Any]) -> Trace:
    """The trace of these fields, whose arrays may still be nested lists, if each has its type and shape and all fit.

    Raises:
        ValueError: one does not; the message begins with its name
    """
    fields = {"weights": {}, "score": None, "splits": None, "tree": None, "axes": {}, **fields}
    for name in Trace.__dataclass_fields__.keys() - fields.keys():
        raise ValueError(f"{name}: missing")
    for name in fields.keys() - Trace.__dataclass_fields__.keys():
        raise ValueError(f"{name[:40]!r}: there is no such field")
    source, target, weights = fields["source"], fields["target"], fields["weights"]
    for name, words in (("source", source), ("target", target)):
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{name}: expected a list of words, found {kind_of(words)}")
        if not words:
            raise ValueError(f"{name}: there is no word")
    for name in ("architecture", "tree"):
        text = fields[name]
        if not isinstance(text, str) and not (name == "tree" and text is None):
            raise ValueError(f"{name}: expected a text, found {kind_of(text)}")
    score = fields["score"]
    if score is not None and (type(score) not in (int, float) or not abs(score) < 1e300):
        raise ValueError(f"score: expected a finite number or null, found {kind_of(score)}")
    if not isinstance(weights, dict):
        raise ValueError(f"weights: expected an object of arrays, found {kind_of(weights)}")
    axes = {**EARLIER, **checked_axes(fields["axes"])}
    for name in weights.keys() - axes.keys():
        raise ValueError(f"weights: {name[:40]!r} is no array of this package, and axes does not say what it is over")
    arrays = {}
    for name, values in {"alignment": fields["alignment"], **weights}.items():
        of_name = axes.get(name, ALIGNMENT)
        arrays[name] = numbers(name, values, (len(target), *shape_of(of_name, len(source), len(target))))
        least = arrays[name] > -ROUNDING
        if of_name.total == "any":
            require(name, arrays[name], least, "a number not below 0")
        else:
            require(name, arrays[name], least & (arrays[name] < 1 + ROUNDING), "a weight between 0 and 1")
    splits = fields["splits"]
    if splits is not None:
        splits = numbers("splits", splits, (len(source), len(source)), whole=True)
        check_splits(splits)
    fields.update(alignment=arrays.pop("alignment"), weights=arrays, splits=splits)
    fields["axes"] = {name: axes[name] for name in weights}
    return Trace(**fields)


def shape_of(axes: Axes, source: int, target: int) -> tuple[int | str, ...]:
    """The dimensions of an array after the target tokens that were predicted: sizes, or what to call one of any size."""
    positions = {"source words": (source,), "target words": (target,), "spans": (source, source)}[axes.over]
    return (*positions, *([] if axes.by is None else [f"{axes.by}s"]))


def checked_axes(found: Any) -> dict[str, Axes]:
    """What a file says of its arrays.

    Raises:
        ValueError: it is not what :meth:`Trace.save` writes
    """
    if not isinstance(found, dict):
        raise ValueError(f"axes: expected an object, found {kind_of(found)}")
    checked = {}
    allowed = {"over": get_args(Over), "by": (None, *get_args(By)), "total": get_args(Total)}
    for name, axes in found.items():
        # Names and titles come to stand in a page: nothing that another language would read as more than a name.
        if not re.fullmatch("[a-z][a-z_]{0,40}", name) or name in ("alignment", "splits", "about"):
            raise ValueError(f"axes: {name[:40]!r} is no name of an array")
        if not isinstance(axes, dict) or axes.keys() != set(Axes._fields):
            raise ValueError(f"axes: {name}: expected an object with {', '.join(Axes._fields)}, found {kind_of(axes)}")
        for field_name, values in allowed.items():
            if axes[field_name] not in values:
                among = ", ".join(str(value) for value in values)
                raise ValueError(f"axes: {name}: {field_name} is none of {among}")
        if not isinstance(axes["title"], str) or not re.fullmatch("([A-Za-z][A-Za-z ,-]{0,60})?", axes["title"]):
            raise ValueError(f"axes: {name}: title is no short text of letters")
        if axes["by"] is not None and not axes["title"]:
            raise ValueError(f"axes: {name}: weights by {axes['by']} need a title")
        if axes["by"] is not None and axes["over"] == "spans":
            raise ValueError(f"axes: {name}: weights over spans cannot be by {axes['by']}")
        checked[name] = Axes(**axes)
    titles = [(axes.title, axes.by) for axes in checked.values() if axes.title]
    if len(set(titles)) < len(titles):
        raise ValueError("axes: two arrays have one title")
    return checked


def check_splits(splits: np.ndarray) -> None:
    """That each span of a sentence can be taken apart where ``splits`` says.

    Args:
        splits: S x S whole numbers, as in :class:`Trace`. Those of single words and beyond the sentence may be anything.

    Raises:
        ValueError: the left part of a span has no word, or all of them
    """
    starts, lengths = np.indices(splits.shape)
    lengths += 1
    is_span = (lengths > 1) & (starts + lengths <= len(splits))
    require(
        "splits", splits, ~is_span | ((splits >= 1) & (splits < lengths)), "at least 1 and less than the span's words"
    )
