"""How busy this machine is, before something is started that wants all of it."""

import os
import time
from pathlib import Path

SAMPLE_SECONDS = 0.5
SLACK = 0.5  # cores: what a desktop does beside


def cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return sorted(affinity(0)) if affinity is not None else list(range(os.cpu_count() or 1))


def threads() -> int:
    """How many threads PyTorch will use in a process that is started now."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) else len(cores())


def busy_warning(threads: int, processes: int = 1) -> str | None:
    """One line when so many threads of each of so many processes will not have a core each beside what runs already.

    It takes half a second.

    Threads that work together wait for the slowest of them in each operation, and the waiting ones spin: one that has to
    share its core slows all of them down, and many times more than by its share.
    """
    return warning(threads, processes, len(cores()), busy_cores())


def warning(threads: int, processes: int, available: int, busy: float) -> str | None:
    """:func:`busy_warning` for ``available`` cores of which other work keeps ``busy`` busy."""
    free = available - busy + SLACK
    if threads * processes <= free:
        return None
    line = f"this machine is busy: other work takes {busy:.1f} of {available} cores"
    if threads == 1:
        return f"{line}; everything will be slower"
    fewer = max(1, int(free) // processes)
    return (
        f"{line}, and {threads} threads that wait for each other can be many times slower; set OMP_NUM_THREADS={fewer}"
    )


def busy_cores() -> float:
    """How many of :func:`cores` were busy in the last half second; where that cannot be told, in the last minute."""
    before = busy_and_all()
    if before is None:
        return min(os.getloadavg()[0], len(cores()))
    time.sleep(SAMPLE_SECONDS)
    after = busy_and_all()
    assert after is not None  # it was there before
    return sum((after[core][0] - before[core][0]) / max(1, after[core][1] - before[core][1]) for core in after)


def busy_and_all() -> dict[int, tuple[int, int]] | None:
    """Of each core: time that it worked, and all time, since the start. None where there is no ``/proc/stat``."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = {}
    for number in cores():
        times = next((line.split()[1:] for line in lines if line.startswith(f"cpu{number} ")), None)
        if times is None:
            return None
        user, nice, system, idle, waiting, *others = map(int, times[:8])
        whole = user + nice + system + idle + waiting + sum(others)
        found[number] = (whole - idle - waiting, whole)
    return found
