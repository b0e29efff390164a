"""Time and peak memory of the CKY chart, forward and backward, beside a plain loop over its cells.

    python benchmarks/chart.py [--lengths 10 25 50 100] [--plain-up-to 50] [--size 256] [--batch 8] [--json FILE]

The plain version computes every deduction unit of a cell in full and lets autograd keep what it wants; it loops over the
cells, and takes all splits of a cell in all sentences at once. Both run in turns, each measurement of memory in a process
of its own (the peak of the resident set over what stood there before; Linux). It needs PyTorch alone: no fairseq.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

import torch
from memory import peak_mib
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fairseq_attn_zoo.chart import DeductionUnits


def plain_cells(units: DeductionUnits, words: Tensor) -> Tensor:
    """All cells, B x M x d: O(S^3) deduction units, each in full."""
    batch, width, _ = words.shape
    rows = {1: list(words.unbind(dim=1))}  # length -> a vector a start
    for length in range(2, width + 1):
        rows[length] = []
        for start in range(width - length + 1):
            left = torch.stack([rows[k][start] for k in range(1, length)], dim=1)  # B x splits x d
            right = torch.stack([rows[length - k][start + k] for k in range(1, length)], dim=1)
            reduced_left, reduced_right = torch.relu(units.cnn1(left)), torch.relu(units.cnn1(right))
            hidden = torch.relu(units.cnn2_left(reduced_left) + units.cnn2_right(reduced_right))
            candidates = units.cnn3(hidden) + units.cnn4_left(left) + units.cnn4_right(right)
            best = candidates.sum(dim=2).argmax(dim=1)
            rows[length].append(candidates[torch.arange(batch), best])
    return torch.stack([cell for length in range(1, width + 1) for cell in rows[length]], dim=1)


def our_cells(units: DeductionUnits, words: Tensor) -> Tensor:
    return units(words, torch.zeros(words.shape[:2], dtype=torch.bool, device=words.device)).cells


VERSIONS = {"ours": our_cells, "plain": plain_cells}


def forward_and_backward(version: str, units: DeductionUnits, words: Tensor) -> float:
    """Seconds."""
    begin = time.perf_counter()
    VERSIONS[version](units, words).sum().backward()
    if words.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def inputs(length: int, batch: int, size: int, device: str) -> tuple[DeductionUnits, Tensor]:
    torch.manual_seed(1)
    return (
        DeductionUnits(size).to(device),
        torch.randn(batch, length, size, device=device).mul_(0.5).requires_grad_(),
    )


def peak_of(version: str, length: int, batch: int, size: int, device: str) -> float:
    """What the peak of memory rises by, in MiB."""
    units, words = inputs(length, batch, size, device)
    forward_and_backward(version, *inputs(3, batch, size, device))  # libraries are loaded and threads are started
    return peak_mib(lambda: forward_and_backward(version, units, words), device)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 25, 50, 100], help="words in a sentence")
    parser.add_argument("--plain-up-to", type=int, default=50, help="longest sentence of the plain version")
    parser.add_argument("--size", type=int, default=256, help="d")
    parser.add_argument("--batch", type=int, default=8, help="sentences")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each version; the median is printed")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    rows = []
    print(
        "| words | seconds, ours / plain | plain / ours | peak MiB, ours / plain | plain / ours |\n|---|---|---|---|---|"
    )
    for length in arguments.lengths:
        versions = ["ours", "plain"] if length <= arguments.plain_up_to else ["ours"]
        shape = (length, arguments.batch, arguments.size, device)
        seconds = {version: [] for version in versions}
        for _ in range(arguments.rounds):
            for version in versions:
                seconds[version].append(forward_and_backward(version, *inputs(*shape)))
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            peak = {version: pool.apply(peak_of, (version, *shape)) for version in versions}
        median = {version: statistics.median(seconds[version]) for version in versions}
        rows.append({"words": length, "seconds": median, "peak_mib": peak})
        cells = [str(length)]
        for measured, digits in ((median, 3), (peak, 0)):
            both = " / ".join(f"{measured[version]:.{digits}f}" for version in versions)
            ratio = f"{measured['plain'] / measured['ours']:.1f}" if "plain" in measured else ""
            cells += [both, ratio]
        print("| " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        settings = {key: str(value) for key, value in vars(arguments).items()}
        environment = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": device}
        arguments.json.write_text(json.dumps({"settings": settings, **environment, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
