"""Speed and memory of our architectures as ratios to fairseq's own ``lstm``, measured in turns in one run.

    python benchmarks/speed.py DATA [--archs gru_rnnsearch lstm_luong_attention] [--size 256] [--json FILE]

DATA is a folder of fairseq-preprocess (examples/multi30k/run.sh makes one). Every round gives each architecture the
same batches, one architecture after the other, so that whatever else the machine does falls on all of them; a round's
ratio compares neighbours in time, and the table shows the median ratio and its range over the rounds. Do not run
anything beside it.

Measured are training, with fairseq's cross_entropy and with chunked_cross_entropy (the ``lstm`` always has the former), and
beam search, in batches and one sentence at a time; of sources as they are and of sources of 40 to 50 words. ``search`` and
``search-single`` compare our beam search with fairseq's own, both with the same model of ours. Beside each
ratio stands the ratio that matrix work alone would give (its operations, counted), and how much of the machine's rate of
matrix work each model reaches. Peak memory is of two updates from before the model is built: parameters, gradients, the
optimizer's moments and activations together; the median of a process a round.
"""

import argparse
import json
import logging
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from arithmetic import matrix_rate, matrix_work
from memory import peak_mib
from workloads import DEVICE, Contender, Workload, baseline_of, contenders_of

MEASURES = {
    "training": "words/s, cross_entropy",
    "chunked": "words/s, chunked_cross_entropy",
    "decoding": "sentences/s, beam search in batches",
    "single": "sentences/s, beam search, one at a time",
    "search": "sentences/s, beam search in batches, ours / fairseq's search with the same model",
    "search-single": "sentences/s, beam search, one at a time, ours / fairseq's search with the same model",
    "ceiling": "sentences/s, beam search in batches, a decoder that costs nothing",
    "memory": "peak MiB of training",
}


def main() -> None:
    arguments = parse_arguments()
    be_quiet()
    rows = []
    print(
        "| architecture | beside | sources | measured | ratio (range) | matrix work allows | ours / theirs | "
        "share of the matrix rate, ours / theirs |\n|---|---|---|---|---|---|---|---|"
    )
    for contender in contenders_of(arguments):
        baseline = Contender(arguments.baseline) if arguments.baseline else baseline_of(contender, arguments.size)
        for sources in arguments.sources:
            for row in compare(contender, baseline, sources, arguments):
                rows.append({"architecture": contender.name, "baseline": baseline.name, "sources": sources, **row})
                print_row(rows[-1])
    if arguments.json:
        settings = {key: str(value) for key, value in vars(arguments).items()}
        environment = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": DEVICE}
        arguments.json.write_text(json.dumps({"settings": settings, **environment, "rows": rows}, indent=2))


def be_quiet() -> None:
    """Without fairseq's log and the warnings of the libraries under it: the table is the output."""
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of fairseq-preprocess")
    parser.add_argument("--archs", nargs="*", default=["all"], help="architectures of the package")
    parser.add_argument(
        "--flags",
        action="append",
        default=[],
        metavar="ARCH:FLAGS",
        help="measure ARCH with these flags too, e.g. 'lstm_memnet_hops:--no-decoder-lstm'; may be repeated",
    )
    parser.add_argument("--baseline", help="compare with this architecture instead of the lstm of the same encoder")
    parser.add_argument(
        "--measure",
        nargs="+",
        choices=MEASURES,
        default=[measure for measure in MEASURES if measure != "ceiling" and not measure.startswith("search")],
        help="what is measured",
    )
    parser.add_argument(
        "--sources",
        nargs="+",
        default=["all", "40-50"],
        help="'all' as they are, or LOW-HIGH: neighbouring sentences joined to sources of so many words",
    )
    parser.add_argument("--vocabulary", type=int, help="add words that never occur until the target has so many types")
    parser.add_argument("--size", type=int, default=256, help="width of embeddings and layers")
    parser.add_argument("--max-tokens", type=int, default=4000, help="tokens in a training batch")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses a sentence")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences in a decoding batch")
    parser.add_argument("--updates", type=int, default=2, help="training batches a round")
    parser.add_argument("--batches", type=int, default=2, help="decoding batches a round")
    parser.add_argument("--singles", type=int, default=8, help="sentences a round when decoded one at a time")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each architecture")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    for sources in arguments.sources:
        try:
            source_words(sources)
        except ValueError:
            sys.exit(f"speed: --sources {sources} is neither 'all' nor a range like 40-50")
    return arguments


def source_words(sources: str) -> tuple[int, int] | None:
    if sources == "all":
        return None
    low, high = sources.split("-")
    return int(low), int(high)


def compare(contender: Contender, baseline: Contender, sources: str, arguments: argparse.Namespace):
    """One row for each measure."""
    # In this order: the ceiling takes the decoder away.
    timed = [measure for measure in MEASURES if measure in arguments.measure and measure != "memory"]
    if timed:
        models = [Workload(each, arguments, source_words(sources)) for each in (contender, baseline)]
        size = {"parameters": models[0].parameters, "baseline_parameters": models[1].parameters}
        for measure in timed:
            beside = {"baseline": "fairseq's search"} if measure.startswith("search") else {}
            turns = in_turns(*works(measure, *models, arguments), arguments.rounds)
            yield {"measure": measure, **size, **turns, **beside}
    if "memory" in arguments.measure:
        criteria = {"training": "cross_entropy", "chunked": "chunked_cross_entropy"}
        peaks = {measure: peak_of(contender, criterion, sources, arguments) for measure, criterion in criteria.items()}
        theirs = peak_of(baseline, "cross_entropy", sources, arguments)
        for measure, ours in peaks.items():
            yield {"measure": f"memory, {measure}", "ratio": ours / theirs, "ours": ours, "theirs": theirs}


def works(measure: str, ours: Workload, theirs: Workload, arguments: argparse.Namespace) -> list[Callable[[], float]]:
    """The work of both for one measure."""
    if measure == "training":
        return [model.training("cross_entropy") for model in (ours, theirs)]
    if measure == "chunked":
        return [ours.training("chunked_cross_entropy"), theirs.training("cross_entropy")]
    if measure == "single":
        return [model.decoding(1, arguments.singles) for model in (ours, theirs)]
    if measure.startswith("search"):
        shape = (1, arguments.singles) if measure == "search-single" else (arguments.batch_size, arguments.batches)
        return [ours.decoding(*shape), ours.decoding(*shape, fairseqs_search=True)]
    shape = arguments.batch_size, arguments.batches
    return [ours.decoding(*shape, features_for_free=measure == "ceiling"), theirs.decoding(*shape)]


def in_turns(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> dict:
    """Work a second of ``ours`` over ``theirs``, in turns; the first round warms up and is not counted."""
    counted = [matrix_work(work) for work in (ours, theirs)]
    measured, rates = [], []
    for number in range(rounds + 1):
        speeds = []
        for work in (ours, theirs):
            begin = time.perf_counter()
            done = work()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            speeds.append(done / (time.perf_counter() - begin))
        if number:
            measured.append((speeds[0] / speeds[1], *speeds))
            rates.append(matrix_rate(DEVICE))
    ratio, ours_a_second, theirs_a_second = (list(column) for column in zip(*measured, strict=True))
    rate, of_ours, of_theirs = map(statistics.median, (rates, ours_a_second, theirs_a_second))
    return {
        "ratio": statistics.median(ratio),
        "lowest": min(ratio),
        "highest": max(ratio),
        "ours": of_ours,
        "theirs": of_theirs,
        "operations": counted[0],
        "baseline_operations": counted[1],
        "matrix_rate": rate,
    }


def peak_of(contender: Contender, criterion: str, sources: str, arguments: argparse.Namespace) -> float:
    """MiB, the median of ``arguments.rounds`` processes: what the allocator keeps differs by a tenth from run to run."""
    peaks = []
    for _ in range(arguments.rounds):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peaks.append(pool.apply(peak_of_training, (contender, criterion, sources, arguments)))
    return statistics.median(peaks)


def peak_of_training(contender: Contender, criterion: str, sources: str, arguments: argparse.Namespace) -> float:
    be_quiet()
    import fairseq.criterions  # noqa: F401 - loaded before memory is counted

    import fairseq_attn_zoo  # noqa: F401

    def work() -> None:
        train = Workload(contender, arguments, source_words(sources)).training(criterion)
        train()
        train()

    return peak_mib(work, DEVICE)


def print_row(row: dict) -> None:
    cells = [f"`{row['architecture']}`", f"`{row['baseline']}`", row["sources"]]
    if row["measure"].startswith("memory"):
        cells += [row["measure"], f"{row['ratio']:.2f}", "", f"{row['ours']:.0f} / {row['theirs']:.0f} MiB", ""]
    else:
        allowed = row["baseline_operations"] / row["operations"]
        reached = [
            100 * row[whose] * row[operations] / row["matrix_rate"]
            for whose, operations in (("ours", "operations"), ("theirs", "baseline_operations"))
        ]
        cells += [
            MEASURES[row["measure"]],
            f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})",
            f"{allowed:.2f}",
            f"{row['ours']:,.1f} / {row['theirs']:,.1f}",
            f"{reached[0]:.0f}% / {reached[1]:.0f}% of {row['matrix_rate'] / 1e9:.0f} GFLOP/s",
        ]
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
