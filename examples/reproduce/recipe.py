"""A recipe: the rows of a paper's table as flags of fairseq's commands, read from ``recipe.yaml``."""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from steps import StepFailed

EXAMPLES = Path(__file__).resolve().parents[1]
KEYS = {
    "title",
    "languages",
    "corpus",
    "prepare",
    "width",
    "flags",
    "decoding",
    "no-unk",
    "baseline",
    "systems",
    "claims",
}
VARIANTS = {"small", "conditions"}  # what replaces some of the values above
SYSTEM_KEYS = {"flags", "prepare", "model", "decoding", "against"}
EVERY = "every architecture"  # a system that stands for a row of each
CLAIM_KEYS = {"says", "paper", "better", "worse", "within"}


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


class Claim(NamedTuple):
    """What a paper says of two rows."""

    says: str
    paper: str  # its numbers, as printed
    better: str
    worse: str
    within: float | None = None  # the two are said to be about equal: their BLEU differs by no more than this


class Recipe(NamedTuple):
    name: str
    title: str
    languages: tuple[str, str]  # source, target
    corpus: dict[str, Any]  # where the text comes from without --data; see corpora.py
    no_unk: bool  # also score translations without <unk>, on the sentences that need none
    baseline: str
    systems: list[System]
    claims: list[Claim]

    def system(self, name: str) -> System:
        return next(system for system in self.systems if system.name == name)


def recipe_names() -> list[str]:
    return sorted(file.parent.name for file in EXAMPLES.glob("*/recipe.yaml"))


def find_recipe(name: str) -> Path:
    """``examples/NAME/recipe.yaml``, or the file NAME.

    Raises:
        StepFailed: there is no such recipe
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else EXAMPLES / name / "recipe.yaml"
    if not path.exists():
        raise StepFailed(f"there is no recipe {name}; there are {', '.join(recipe_names())}, or name a .yaml file")
    return path


def conditions_of(name: str) -> list[str]:
    """The conditions of a recipe that makes one table for each of them, such as few training pairs; of most recipes none."""
    path = find_recipe(name)
    try:
        return list(yaml.safe_load(path.read_text(encoding="utf-8")).get("conditions", {}))
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise StepFailed(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def read_recipe(
    name: str, small: bool = False, changes: dict[str, Any] | None = None, condition: str | None = None
) -> Recipe:
    """Read a recipe.

    Args:
        small: with what stands under ``small``, a budget for a small corpus and two cores
        changes: further values in place of the file's
        condition: with what stands under this name in ``conditions``

    Raises:
        StepFailed: there is no such recipe, or something in it cannot be
    """
    path = find_recipe(name)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        check_keys(values, KEYS | VARIANTS, "the recipe")
        smaller, conditions = values.pop("small", {}), values.pop("conditions", {})
        for variant, where in ((smaller, "small"), *((values_of, one) for one, values_of in conditions.items())):
            check_keys(variant, KEYS, where)
        for variant in (smaller if small else {}, conditions[condition] if condition else {}, changes or {}):
            values = merge(values, variant)
        source, _, target = values["languages"].partition("-")
        general = values.get("prepare", {})
        systems = [
            read_system(name, value, values, general)
            for name, value in every_architecture(values["systems"]).items()
            if value is not None
        ]
        systems = [system._replace(against=as_wide(system, systems)) for system in systems]
        recipe = Recipe(
            path.parent.name if path.stem == "recipe" else path.stem,
            values["title"],
            (source, target),
            values.get("corpus", {}),
            bool(values.get("no-unk")),
            values["baseline"],
            systems,
            [read_claim(claim) for claim in values.get("claims") or []],
        )
        if condition:
            recipe = recipe._replace(name=f"{recipe.name}-{condition}")
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StepFailed(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    names = [system.name for system in systems]
    wanted = {recipe.baseline, *(system.model or system.name for system in systems), *(one.against for one in systems)}
    wanted |= {name for claim in recipe.claims for name in (claim.better, claim.worse)}
    if not wanted <= set(names):
        raise StepFailed(f"{path} names systems that it does not have: {', '.join(sorted(wanted - set(names)))}")
    return recipe


def every_architecture(systems: dict[str, Any]) -> dict[str, Any]:
    """The systems with a row for each architecture in the place of :data:`EVERY`, but for those that have a row already."""
    if systems.get(EVERY) is None:
        return systems
    from fairseq_attn_zoo.models.tables import cards

    rows: dict[str, Any] = {}
    for name, value in systems.items():
        if name == EVERY:
            check_keys(value, SYSTEM_KEYS - {"model"}, name)
            every = [card.name for card in cards() if card.name not in systems]
            rows |= {arch: {**value, "flags": f"--arch {arch} {value.get('flags', '')}"} for arch in every}
        else:
            rows[name] = value
    return rows


def as_wide(system: System, systems: list[System]) -> str:
    """The system that this one is compared with; of several, the first whose encoder is as wide.

    Raises:
        ValueError: none is
    """
    if isinstance(system.against, str):
        return system.against
    width = value_of("--encoder-hidden-size", system.flags)
    for other in systems:
        if other.name in system.against and value_of("--encoder-hidden-size", other.flags) == width:
            return other.name
    raise ValueError(f"{system.name} has an --encoder-hidden-size of {width}, as none of {', '.join(system.against)}")


def value_of(flag: str, flags: list[str]) -> str | None:
    """The last value of a flag, which is the one that counts."""
    values = [value for name, value in zip(flags, flags[1:], strict=False) if name == flag]
    return values[-1] if values else None


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
    if "width" in recipe and "model" not in value:
        from fairseq_attn_zoo.models.sizes import size_flags

        # First, so that the flags of the recipe and of the row may say otherwise.
        flags = size_flags(flags[flags.index("--arch") + 1], recipe["width"]) + flags
    decoding = shlex.split(recipe.get("decoding", "")) + shlex.split(value.get("decoding", ""))
    against = value.get("against", recipe["baseline"])
    return System(name, flags, Preparation(**prepare), decoding, against, value.get("model"))


def read_claim(value: dict[str, Any]) -> Claim:
    check_keys(value, CLAIM_KEYS, "a claim")
    return Claim(**value)


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
