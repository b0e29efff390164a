"""The command line of the grammar; see :mod:`fairseq_attn_zoo.grammar`."""

import argparse

from ..console import run_command
from .corpus import LONGEST, write_corpus


def main(arguments: list[str] | None = None) -> int:
    """The command line; ``arguments`` default to those of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_attn_zoo.grammar",
        description="Write an English-like to Japanese-like parallel corpus with gold word alignments: "
        "{train,valid,test}.en, .ja and .align (i-j is a sure link, i?j a possible one, positions from 0). "
        "Each sentence has exactly one correct translation and occurs once in the whole corpus.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", metavar="OUT_FOLDER", help="where the nine files go; made if it does not exist")
    parser.add_argument("--train", type=int, default=20000, metavar="N", help="number of training sentences")
    parser.add_argument("--valid", type=int, default=500, metavar="N", help="number of validation sentences")
    parser.add_argument("--test", type=int, default=500, metavar="N", help="number of test sentences")
    parser.add_argument("--min-length", type=int, default=4, metavar="N", help="fewest words of an English sentence")
    parser.add_argument(
        "--max-length", type=int, default=20, metavar="N", help=f"most words of an English sentence, up to {LONGEST}"
    )
    parser.add_argument(
        "--relative-clauses",
        type=float,
        default=0.2,
        metavar="P",
        help="probability that a noun phrase which may hold a relative clause does; 0 for none at all. "
        "Long sentences hold more of them",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed writes the same corpus on every machine"
    )
    options = vars(parser.parse_args(arguments))

    def run() -> None:
        for split, pairs in write_corpus(**options).items():
            words, tokens = (sum(len(getattr(pair, side)) for pair in pairs) for side in ("source", "target"))
            mean = (
                f", {words / len(pairs):.1f} English words and {tokens / len(pairs):.1f} tokens each" if pairs else ""
            )
            print(f"{split}: {len(pairs)} sentences{mean}")

    return run_command(parser.prog, run)
