"""Peak memory of a piece of work: of the process on a CPU (Linux), of what PyTorch allocated on a GPU."""

from collections.abc import Callable
from pathlib import Path

import torch

MEBIBYTE = 2**20


def peak_mib(work: Callable[[], object], device: str) -> float:
    """What the peak of memory rises by while ``work`` runs. On a CPU, call it in a process of its own."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / MEBIBYTE
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
    before = resident_kib("VmRSS")
    work()
    return (resident_kib("VmHWM") - before) / 1024


def resident_kib(kind: str) -> int:
    """``VmRSS``, what the process holds now, or ``VmHWM``, the most that it has held."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1])
