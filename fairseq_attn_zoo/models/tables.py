"""The tables of architectures and of their own flags, made from the architectures' cards.

python -m fairseq_attn_zoo.models.tables README.md             writes them between their markers
python -m fairseq_attn_zoo.models.tables README.md --check     says whether they are what they should be
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import Field, fields
from enum import Enum
from pathlib import Path

from .config import RecurrentConfig, flag
from .registry import ARCHITECTURES, Card, Paper

COMMAND = "python -m fairseq_attn_zoo.models.tables"


def cards() -> list[Card]:
    """All of them, the oldest paper first."""
    found = [model.card for model in ARCHITECTURES.values()]
    return sorted(found, key=lambda card: (card.paper.year, card.paper.authors))  # a paper's own stay in their order


def architectures() -> list[str]:
    """A table of every architecture, what it is, and its paper."""
    rows = [(f"`{card.name}`", card.summary, source(card.paper)) for card in cards()]
    return table(("`--arch`", "system", "source"), rows)


def own_flags() -> list[str]:
    """A table of the flags that only some architectures have; those that differ in nothing share a row."""
    shared = {item.name for item in fields(RecurrentConfig)}
    owners: dict[tuple[str, str], list[str]] = {}
    for card in cards():
        for item in fields(card.config):
            if item.name not in shared:
                owners.setdefault(described(item), []).append(f"`{card.name}`")
    return table(("`--arch`", "flag", "default"), [(", ".join(names), *row) for row, names in owners.items()])


TABLES = {"architectures": architectures, "own flags": own_flags}


def source(paper: Paper) -> str:
    text = f"{paper.authors} {paper.year}"
    return f"[{text}]({paper.link})" if paper.link else text


def described(item: Field) -> tuple[str, str]:
    """A flag with its choices and its help, and its default."""
    name, text, default = f"`{flag(item.name)}`", with_code(item.metadata["help"]), item.default
    if isinstance(item.type, type) and issubclass(item.type, Enum):
        *others, last = (f"`{choice.value}`" for choice in item.type)
        name += f" {', '.join(others)} or {last}"
        return f"{name}: {text}", f"`{default}`"
    depends = re.fullmatch(r"(?P<text>.*) \(default: (?P<default>.*)\)", text)
    if default is None and depends:
        return f"{name}: {depends['text']}", depends["default"]
    return f"{name}: {text}", "off" if default is False else str(default)


def with_code(text: str) -> str:
    """A help text with its flags in backquotes."""
    return re.sub(r"--[a-z-]+[a-z]", r"`\g<0>`", text)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows)]


def with_tables(text: str) -> str:
    """A text with the tables that belong between its markers.

    Raises:
        ValueError: a marker is missing
    """
    for name, rows in TABLES.items():
        begin, end = f"<!-- {name}: made by {COMMAND} -->", f"<!-- end of {name} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found_begin and found_end):
            raise ValueError(f"there is no {begin} with a {end} after it")
        text = "\n".join([before + begin, "", *rows(), "", end + after])
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="with the tables' markers")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not up to date")
    arguments = parser.parse_args()
    before = arguments.file.read_text(encoding="utf-8")
    try:
        after = with_tables(before)
    except ValueError as error:
        sys.exit(f"tables: {arguments.file}: {error}")
    if arguments.check and before != after:
        sys.exit(f"tables: {arguments.file} says something else than the architectures; run {COMMAND} {arguments.file}")
    if before != after:
        arguments.file.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
