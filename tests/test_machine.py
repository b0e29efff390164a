"""A busy machine is noticed before something long begins."""

import os
import re
import subprocess
import sys

import pytest

from fairseq_attn_zoo import machine


@pytest.mark.parametrize(
    "threads, processes, cores, busy, words",
    [
        (2, 1, 2, 0.1, None),
        (1, 1, 2, 1.0, None),
        (2, 1, 2, 1.0, "other work takes 1.0 of 2 cores, and 2 threads .* set OMP_NUM_THREADS=1"),
        (1, 2, 2, 1.0, "other work takes 1.0 of 2 cores; everything will be slower"),
        (8, 2, 64, 40.2, None),
        (16, 2, 64, 40.2, "set OMP_NUM_THREADS=12"),
        (64, 1, 64, 64.0, "set OMP_NUM_THREADS=1"),
    ],
)
def test_threads_that_would_share_cores_are_told_of(threads, processes, cores, busy, words):
    line = machine.warning(threads, processes, cores, busy)
    if words is None:
        assert line is None
        return
    assert "\n" not in line
    assert re.search(words, line)


def test_a_process_that_works_is_seen():
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as worker:
        worker.stdout.readline()  # it has begun
        busy = machine.busy_cores()
        worker.kill()
    assert 0.25 < busy <= len(machine.cores())


def test_threads_are_those_that_pytorch_is_told(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine.threads() == 3
    for nothing in ("", "0", "all"):
        monkeypatch.setenv("OMP_NUM_THREADS", nothing)
        assert machine.threads() == len(os.sched_getaffinity(0))


def test_without_proc_the_load_of_the_last_minute_counts(monkeypatch):
    monkeypatch.setattr(machine, "busy_and_all", lambda: None)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 9, 9))
    assert machine.busy_cores() == 0.5
