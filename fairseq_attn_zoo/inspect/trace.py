"""Everything that a model attended to while it wrote one sentence, as arrays with names, and as files."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np


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
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: the file is no trace
        """
        path = Path(path)
        try:
            if path.suffix == ".npz":
                with np.load(path, allow_pickle=False) as arrays:
                    weights = {name: arrays[name] for name in arrays.files}
                about = json.loads(str(weights.pop("about")))
                return cls(
                    **about, alignment=weights.pop("alignment"), splits=weights.pop("splits", None), weights=weights
                )
            text = json.loads(path.read_text(encoding="utf-8"))
            text["weights"] = {name: np.array(values) for name, values in text["weights"].items()}
            text["splits"] = None if text["splits"] is None else np.array(text["splits"])
            return cls(**{**text, "alignment": np.array(text["alignment"])})
        except (KeyError, TypeError, ValueError, AttributeError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} is not a trace of this package ({error})") from None

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
