"""fairseq-train again and again without importing it each time: reads a job a line, forks, and reports how it ended.

Its own arguments are those of a first training, which loads what fairseq loads late, and leaves nothing behind. A job is a
JSON object: ``arguments`` of fairseq-train, ``log``, the file that gets its output, and optionally ``harm``:

    {"save": N} or {"copy": N}   half of the Nth checkpoint that is written, or copied, and then SIGKILL
    {"file_size": N}             no file may become larger than N bytes, as on a full disk

It prints the process's number, and its exit status when it has ended (negative: the signal).
"""

import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import torch
from fairseq_cli.train import cli_main

import fairseq_attn_zoo  # noqa: F401


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

    torch.save, shutil.copyfile = save_or_die, copy_or_die
    if file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))


def train(job: dict) -> None:
    """In the forked process; does not return."""
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    do_harm(**job.get("harm", {}))
    sys.argv = ["fairseq-train", *job["arguments"]]
    status = 1
    try:
        cli_main()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv += ["--max-update", "1", "--no-save", "--disable-validation"]
    cli_main()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            train(json.loads(line))
        print(process, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers, flush=True)
