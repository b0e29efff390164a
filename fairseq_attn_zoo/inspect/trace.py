"""Everything that a model attended to while it wrote one sentence, as arrays with names, and as files."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .trace_file import LARGEST_ARRAYS, LARGEST_JSON, kind_of, numbers, read_json, read_npz, require

# What each array is over, after the target token that was predicted: sizes S and T of the sentence, or any number.
AXES: dict[str, tuple[str, ...]] = {
    "source": ("S",),
    "source_coverage": ("S",),
    "source_hops": ("S", "hops"),
    "source_dimensions": ("S", "dimensions"),
    "source_joint": ("S",),
    "source_chart": ("S", "S"),
    "target_hops": ("T", "hops"),
}
SUMS = ("source_coverage",)  # not below 0, but without an upper bound; all else is between 0 and 1
ROUNDING = 1e-3  # how far a weight may stray outside of 0 to 1


@dataclass(frozen=True)
class Trace:
    """One sentence pair; S source tokens and T target tokens, the final ``</s>`` of both included.

    In every array the first dimension is the target token that was predicted and the second what was attended to:

    ``source`` (T x S), ``source_coverage`` (T x S: sums over the words so far, which may exceed 1), ``source_hops``
    (T x S x hops), ``source_dimensions`` (T x S x d), ``source_joint`` (T x S) and ``source_chart`` (T x S x S: first word
    of a span, its length less 1) over source tokens; ``target_hops`` (T x T x hops) over the target words read so far, of
    which number 0 is the beginning of the sentence.
    """

    architecture: str
    source: list[str]
    target: list[str]
    alignment: np.ndarray  # T x S: the one weight a source position that is the model's alignment
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    score: float | None = None  # mean log-probability of the target tokens, base 2
    splits: np.ndarray | None = None  # CKY: S x S, words in the left part of the winning split, by start and length - 1
    tree: str | None = None  # CKY: the winning tree in bracket notation

    def save(self, path: str | Path) -> Path:
        """Write a ``.npz`` (arrays under their names; the rest as JSON under ``about``) or a ``.json`` file.

        Raises:
            ValueError: another ending
        """
        path = Path(path)
        about = {name: getattr(self, name) for name in ("architecture", "source", "target", "score", "tree")}
        if path.suffix == ".npz":
            arrays = {"alignment": self.alignment, **self.weights}
            if self.splits is not None:
                arrays["splits"] = self.splits
            with path.open("wb") as file:
                np.savez_compressed(file, **{"about": np.array(json.dumps(about)), **arrays})  # type: ignore[arg-type]
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
    fields = {"weights": {}, "score": None, "splits": None, "tree": None, **fields}
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
    for name in weights.keys() - AXES.keys():
        raise ValueError(f"weights: {name[:40]!r} is no array of this package; there are {', '.join(AXES)}")
    sizes = {"S": len(source), "T": len(target)}
    arrays = {}
    for name, values in {"alignment": fields["alignment"], **weights}.items():
        shape = tuple(sizes.get(axis, axis) for axis in ("T", *AXES.get(name, ("S",))))
        arrays[name] = numbers(name, values, shape)
        least = arrays[name] > -ROUNDING
        if name in SUMS:
            require(name, arrays[name], least, "a number not below 0")
        else:
            require(name, arrays[name], least & (arrays[name] < 1 + ROUNDING), "a weight between 0 and 1")
    splits = fields["splits"]
    if splits is not None:
        splits = numbers("splits", splits, (len(source), len(source)), whole=True)
        check_splits(splits)
    fields.update(alignment=arrays.pop("alignment"), weights=arrays, splits=splits)
    return Trace(**fields)


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
