"""Corpora of different sentences, and what no corpus can be."""

import hashlib
import random
from contextlib import ExitStack
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from ..files import written_lines
from .source import Grammar, source_grammar
from .transfer import SentencePair, transfer
from .trees import LengthTable, pick

LONGEST = 100
"""The greatest ``max_length``, in source words: the table of lengths grows with its square."""

PATIENCE = 2000
"""So many known sentences drawn in a row end the search for new ones."""


def generate(
    size: int, *, min_length: int = 4, max_length: int = 20, relative_clauses: float = 0.2, seed: int = 1
) -> list[SentencePair]:
    """Draw ``size`` different sentences with their translations; the first ones do not depend on ``size``.

    Args:
        size: number of sentence pairs.
        min_length: fewest words of a source sentence.
        max_length: most words of a source sentence, at most :data:`LONGEST`.
        relative_clauses: probability that a noun phrase holds a relative clause, if it may hold one. Long sentences have
            more of them than that, as they are hardly made otherwise.
        seed: of the random generator; the same seed gives the same sentences on every machine.

    Raises:
        ValueError: if no sentence, or not enough different ones, can have such lengths.
    """
    if size < 0:
        raise ValueError(f"the number of sentences must not be negative: {size}")
    if seed < 0:
        raise ValueError(f"the seed must not be negative: {seed}")
    if not 0 <= relative_clauses <= 1:
        raise ValueError(f"the probability of relative clauses must be between 0 and 1: {relative_clauses}")
    if min_length < 1:
        raise ValueError(f"the minimum length must be at least 1 word: {min_length}")
    if max_length > LONGEST:
        raise ValueError(f"the maximum length must not exceed {LONGEST} words: {max_length}")
    if min_length > max_length:
        raise ValueError(f"the minimum length must not exceed the maximum length: {min_length} > {max_length}")
    grammar = source_grammar(relative_clauses)
    _refuse_too_few(grammar, min_length, max_length, size)

    table = LengthTable(grammar, max_length)
    lengths = [length for length in range(min_length, max_length + 1) if table.sentences[length]]
    if not lengths:  # they exist, but their probability is below the smallest float
        raise ValueError(f"relative clauses are too rare for sentences of {min_length} to {max_length} words")
    cumulative = list(accumulate(table.sentences[length] for length in lengths))
    generator = random.Random(seed)
    pairs: dict[tuple[str, ...], SentencePair] = {}
    repeated = 0
    while len(pairs) < size:
        tree = table.draw(generator, pick(generator, lengths, cumulative))
        source = tuple(word.symbol for word in tree.words())
        if source not in pairs:
            pairs[source] = transfer(tree)
            repeated = 0
        elif (repeated := repeated + 1) == PATIENCE:
            raise ValueError(
                f"found only {len(pairs)} of {size} different sentences of {min_length} to {max_length} words; "
                "ask for fewer or for a wider range of lengths"
            )
    return list(pairs.values())


def _refuse_too_few(grammar: Grammar, min_length: int, max_length: int, size: int) -> None:
    """Raise ValueError, with what would be possible, unless ``size`` different sentences have such lengths."""
    every_tree_once: Grammar = {symbol: dict.fromkeys(expansions, 1) for symbol, expansions in grammar.items()}
    counts = LengthTable(every_tree_once, max_length).sentences
    existing = sum(counts[length] for length in range(min_length, max_length + 1))
    if not existing:
        counts = LengthTable(every_tree_once, LONGEST).sentences
        lengths = [length for length, count in counts.items() if count]
        limit = f"shortest has {lengths[0]}" if max_length < lengths[0] else f"longest has {lengths[-1]}"
        raise ValueError(f"no sentence has {min_length} to {max_length} words: with these relative clauses the {limit}")
    if existing < size:
        raise ValueError(
            f"{size} different sentences asked for, but only {existing} have {min_length} to {max_length} words"
        )


def write_corpus(
    folder: str | Path, *, train: int = 20000, valid: int = 500, test: int = 500, **options: Any
) -> dict[str, list[SentencePair]]:
    """Write ``{train,valid,test}.{en,ja,align}`` into ``folder`` and return the pairs of each split.

    No source sentence occurs twice in the corpus. Test and validation sentences are drawn first, so that they stay the
    same when ``train`` alone is changed, and a smaller training set is the beginning of a larger one.

    Args:
        folder: is made if it does not exist
        train: number of training sentences
        valid: number of validation sentences
        test: number of test sentences
        options: those of :func:`generate`

    Raises:
        ValueError: as :func:`generate` does, before anything is written
        OSError: if a file cannot be written
    """
    sizes = {"test": test, "valid": valid, "train": train}
    for split, size in sizes.items():
        if size < 0:
            raise ValueError(f"the number of {split} sentences must not be negative: {size}")
    pairs = iter(generate(sum(sizes.values()), **options))
    splits = {split: list(islice(pairs, size)) for split, size in sizes.items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:  # none appears before all are written
        for split, split_pairs in splits.items():
            for suffix, attribute in ("en", "english"), ("ja", "japanese"), ("align", "pharaoh"):
                file = files.enter_context(written_lines(folder / f"{split}.{suffix}"))
                file.writelines(getattr(pair, attribute) + "\n" for pair in split_pairs)
    return splits


def version() -> str:
    """A digest of the grammar's own files: the same arguments give the same corpus as long as it stays the same."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()
