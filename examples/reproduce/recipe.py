"""A recipe: the rows of a paper's table as flags of fairseq's commands, read from ``recipe.yaml``."""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from steps import StepFailed

EXAMPLES = Path(__file__).resolve().parents[1]
KEYS = {"title", "languages", "prepare", "flags", "decoding", "no-unk", "baseline", "systems", "small"}
SYSTEM_KEYS = {"flags", "prepare", "model", "decoding", "against"}


class Preparation(NamedTuple):
    """What becomes of the tokens before they are binarised."""

    lowercase: bool = False
    max_length: int | None = None  # words; longer training pairs are dropped
    bpe: int | None = None  # operations of a joint BPE; None: words
    threshold: int | None = None  # words seen less often than this are <unk>
    vocabulary: int | None = None  # so many of the most frequent words a side are kept


class System(NamedTuple):
    """A row of the table."""

    name: str
    flags: list[str]  # of fairseq-train, --arch among them
    prepare: Preparation
    decoding: list[str]  # of fairseq-generate
    against: str  # the system that it is compared with
    model: str | None = None  # another system, whose checkpoint is decoded

    @property
    def architecture(self) -> str:
        return self.flags[self.flags.index("--arch") + 1]


class Recipe(NamedTuple):
    name: str
    title: str
    languages: tuple[str, str]  # source, target
    no_unk: bool  # also score translations without <unk>, on the sentences that need none
    baseline: str
    systems: list[System]

    def system(self, name: str) -> System:
        return next(system for system in self.systems if system.name == name)


def read_recipe(name: str, small: bool = False, changes: dict[str, Any] | None = None) -> Recipe:
    """Read ``examples/NAME/recipe.yaml``, or the file NAME.

    Args:
        small: with what stands under ``small``, a budget for a small corpus and two cores
        changes: further values in place of the file's

    Raises:
        StepFailed: there is no such recipe, or something in it cannot be
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else EXAMPLES / name / "recipe.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.parent.name for file in EXAMPLES.glob("*/recipe.yaml")))
        raise StepFailed(f"there is no recipe {name}; there are {known}, or name a .yaml file")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        check_keys(values, KEYS, "the recipe")
        smaller = values.pop("small", {})
        if small:
            check_keys(smaller, KEYS - {"small"}, "small")
            values = merge(values, smaller)
        values = merge(values, changes or {})
        source, _, target = values["languages"].partition("-")
        general = values.get("prepare", {})
        systems = [
            read_system(name, value, values, general) for name, value in values["systems"].items() if value is not None
        ]
        recipe = Recipe(
            path.parent.name if path.stem == "recipe" else path.stem,
            values["title"],
            (source, target),
            bool(values.get("no-unk")),
            values["baseline"],
            systems,
        )
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StepFailed(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    names = [system.name for system in systems]
    wanted = {recipe.baseline, *(system.model or system.name for system in systems), *(one.against for one in systems)}
    if not wanted <= set(names):
        raise StepFailed(f"{path} names systems that it does not have: {', '.join(sorted(wanted - set(names)))}")
    return recipe


def read_system(name: str, value: Any, recipe: dict[str, Any], general: dict[str, Any]) -> System:
    if isinstance(value, str):
        value = {"flags": value}
    check_keys(value, SYSTEM_KEYS, name)
    if ("flags" in value) == ("model" in value):
        raise ValueError(f"the system {name} needs either flags or model")
    prepare = {key.replace("-", "_"): one for key, one in merge(general, value.get("prepare", {})).items()}
    flags = shlex.split(recipe["flags"]) + shlex.split(value.get("flags", ""))
    if "model" not in value and "--arch" not in flags[:-1]:
        raise ValueError(f"the flags of {name} name no --arch")
    decoding = shlex.split(recipe.get("decoding", "")) + shlex.split(value.get("decoding", ""))
    against = value.get("against", recipe["baseline"])
    return System(name, flags, Preparation(**prepare), decoding, against, value.get("model"))


def check_keys(values: dict[str, Any], known: set[str], where: str) -> None:
    unknown = set(values) - known
    if unknown:
        raise ValueError(f"{where} has {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")


def merge(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``values`` with ``changes``; of mappings each key on its own."""
    merged = dict(values)
    for key, change in changes.items():
        before = merged.get(key)
        merged[key] = merge(before, change) if isinstance(before, dict) and isinstance(change, dict) else change
    return merged
