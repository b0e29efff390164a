"""Whether the charts of a batch fit into the memory that is free."""

from pathlib import Path

import torch
from torch import Tensor

from .cells import number_of_cells

# Tensors of the chart's size (B x M x d) that stand in memory together at the worst moment, with a little room. Translating:
# the cells in both orders and the square of CNN2's halves. Training: the cells, two halves of that size kept of the forward
# pass, attention's gradient, and two of the backward pass's own.
PEAK_CHARTS = {"translating": 4, "training": 7}
GIBIBYTE = 2**30


def check_memory(states: Tensor) -> None:
    """Refuse sentences whose charts would not fit into the free memory, before anything is allocated.

    Args:
        states: of the words, B x S x d

    Raises:
        ValueError: with the cost, and the flags that lower it
    """
    batch, positions, size = states.shape
    at_once = PEAK_CHARTS["training" if torch.is_grad_enabled() else "translating"]
    needed = at_once * batch * number_of_cells(positions) * size * states.element_size()
    if needed < GIBIBYTE // 16:
        return
    free = free_memory(states.device)
    if free is not None and needed > free:
        raise ValueError(
            f"the charts of {batch} sentences of up to {positions} words need about {needed / GIBIBYTE:.1f} GiB, "
            f"which grows with the square of the length, but {free / GIBIBYTE:.1f} GiB are free; lower "
            "--max-source-positions, or the sentences in a batch (--max-tokens, --batch-size)"
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated; None where the system does not say.

    On Linux, of the machine and of the container (cgroup v2) together; other processes may be about to take them too.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    system = Path("/proc/meminfo")  # Linux
    if not system.exists():
        return None
    (line,) = (line for line in system.read_text().splitlines() if line.startswith("MemAvailable:"))
    free = int(line.split()[1]) * 1024
    limit, used = (Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current"))
    if limit.exists() and used.exists() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int(used.read_text()))
    return free
