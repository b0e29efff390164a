"""fairseq's commands again and again without importing PyTorch and fairseq each time, which takes most of a short run.

Reads a job a line, forks, and lets the fork be the command: the package is imported there, by ``--user-dir``. Prints the
fork's process number, and its exit status when it has ended (negative: the signal). A job is a JSON object:

    command, arguments     of fairseq-<command>; "attn-zoo" is the package's own
    folder                 to run in
    input, output          files; the output, standard error included, is appended
    harm                   {"save": N} or {"copy": N}: half of the Nth checkpoint that is written, or copied, and then SIGKILL
                           {"file_size": N}: no file may become larger than N bytes, as on a full disk
"""

import importlib
import io
import json
import logging
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import sacrebleu  # noqa: F401
import tensorboardX  # noqa: F401
import torch
import torch._dynamo  # noqa: F401
from fairseq import options, tasks, trainer, utils  # noqa: F401
from hydra.core.override_parser import overrides_parser  # noqa: F401


def die_half_way(path: str, whole: bytes) -> None:
    Path(path).write_bytes(whole[: len(whole) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def do_harm(save: int = 0, copy: int = 0, file_size: int = 0) -> None:
    saves, copies = [], []
    torch_save, copyfile = torch.save, shutil.copyfile

    def save_or_die(state, file):
        torch_save(state, file)
        saves.append(file.name)
        if len(saves) == save:
            file.flush()
            die_half_way(file.name, Path(file.name).read_bytes())

    def copy_or_die(source, target):
        copies.append(target)
        if len(copies) == copy:
            die_half_way(target, Path(source).read_bytes())
        return copyfile(source, target)

    if save or copy:
        torch.save, shutil.copyfile = save_or_die, copy_or_die
    if file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))


def become(job: dict) -> None:
    """Run the command in this process."""
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(job["input"], os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")  # what the server has read ahead is not the command's
    os.chdir(job["folder"])
    do_harm(**job["harm"])
    logging.getLogger().handlers.clear()  # of what was imported before: the command sets up its own
    sys.argv = [f"fairseq-{job['command']}", *job["arguments"]]
    if job["command"] == "attn-zoo":
        sys.exit(importlib.import_module("fairseq_attn_zoo.cli").main())
    importlib.import_module(f"fairseq_cli.{job['command']}").cli_main()


def serve() -> dict:
    """In the server: answer until the input ends. In a fork: return its job."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            return json.loads(line)
        print(process, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers, flush=True)
    sys.exit()


if __name__ == "__main__":
    torch.set_num_threads(1)
    become(serve())
