"""What the recipes written in Python share: fairseq's commands as steps that end whole or not at all, and their output."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fairseq_attn_zoo"


class StepFailed(Exception):
    """A step cannot be finished; the message is the one line that the user sees."""


class Hypotheses(NamedTuple):
    """What fairseq-generate printed, sentence by sentence."""

    sources: list[list[str]]
    texts: list[list[str]]
    alignments: list[str]  # fairseq's A- lines, empty without --print-alignment


def folder_for(parent: Path, name: str, settings: dict) -> Path:
    """A folder that belongs to these settings alone; they are written into it for whoever wonders."""
    text = json.dumps(settings, indent=2, sort_keys=True)
    folder = parent / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(text + "\n", encoding="utf-8")
    return folder


def whole_or_not_at_all(write: Callable[[Path], None], path: Path) -> None:
    """Let ``write`` fill a folder, or write a file, of another name, and rename it: what exists is complete."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    if unfinished.is_dir():
        shutil.rmtree(unfinished)
    write(unfinished)
    unfinished.rename(path)


RUNNING: set[subprocess.Popen] = set()


def stop_all() -> None:
    """Terminate every command that :func:`call` waits for, in whichever thread."""
    for process in list(RUNNING):
        process.terminate()


def call(
    command: str,
    flags: list[str],
    step: str,
    log: Path,
    read: Callable[[str], None] | None = None,
    standard_output=None,
) -> None:
    """Run ``fairseq-COMMAND``, its output into the log and, line by line, to ``read``.

    Raises:
        StepFailed: it failed; the message names the step, the last line that it wrote, and the log.
    """
    line = [sys.executable, "-m", f"fairseq_cli.{command}", *flags, "--user-dir", str(PACKAGE)]
    last = ""
    # Appended to: a training that goes on keeps the record of how it began.
    with log.open("a", encoding="utf-8") as record:
        record.write(f"$ {shlex.join(line)}\n")
        record.flush()
        process = subprocess.Popen(
            line,
            stdout=standard_output or subprocess.PIPE,
            stderr=subprocess.STDOUT if standard_output is None else subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        RUNNING.add(process)
        try:
            for text in (process.stderr if standard_output else process.stdout) or ():
                record.write(text)
                record.flush()
                last = text.strip() or last
                if read is not None:
                    read(text.rstrip("\n"))
            status = process.wait()
        finally:
            RUNNING.discard(process)
            if process.poll() is None:
                process.terminate()
                process.wait()
    if status != 0:
        raise StepFailed(f"{step} failed (exit status {status}: {last}); see {log}")


def read_generated(path: Path, kinds: str, step: str, sentences: int) -> Hypotheses:
    """Put S- lines (sources), D- lines (translations) and A- lines (alignments) into the order of the test set."""
    lines: dict[str, dict[int, str]] = {kind: {} for kind in "SDA"}
    for line in path.read_text(encoding="utf-8").split("\n"):
        match = re.match(r"([SDA])-([0-9]+)\t(.*)", line)
        if match is not None:
            lines[match[1]][int(match[2])] = match[3]
    for kind in kinds:
        found = len(lines[kind])
        if set(lines[kind]) != set(range(sentences)):
            raise StepFailed(f"{step} failed: {sentences} sentences in, {found} {kind}- lines out; see {path}")
    in_order = {kind: [text for _, text in sorted(lines[kind].items())] for kind in lines}
    return Hypotheses(
        sources=[text.split() for text in in_order["S"]],
        texts=[text.split("\t")[-1].split() for text in in_order["D"]],  # after the score
        alignments=in_order["A"],
    )


def read_tokens(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
