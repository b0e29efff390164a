"""What a command writes: whole or not at all, and never over what it reads."""

import contextlib
import functools
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MACHINE = os.uname().nodename


class Files:
    """The files of one command. None that it reads is written over, and no two outputs are the same file.

    Files are compared, not names: links of both kinds and a redirected standard input are seen through. What is no regular
    file, such as ``/dev/null``, a terminal or a pipe, is nothing to lose.
    """

    def __init__(self) -> None:
        self.read: dict[object, str] = {}
        self.written: dict[object, str] = {}

    def reads(self, what: str, file: str | Path | int) -> None:
        """Protect a file, or the file behind a descriptor; ``what`` names it to the user.

        Raises:
            ValueError: if it is an output
        """
        identity = identity_of(file)
        if identity in self.written:
            raise ValueError(f"{self.written[identity]} would write over {what}; name another file")
        if identity is not None:
            self.read[identity] = what

    def writes(self, what: str, file: str | Path | int) -> None:
        """Announce an output.

        Raises:
            ValueError: if it is read, or another output, or nothing that can be a file
        """
        identity = identity_of(file)
        if identity in self.read:
            raise ValueError(f"{what} would write over {self.read[identity]}; name another file")
        if identity in self.written:
            raise ValueError(f"{what} and {self.written[identity]} are the same file; name another one")
        if not isinstance(file, int):
            if os.path.isdir(file):
                raise ValueError(f"{what} is a folder; name a file")
            folder = Path(os.path.realpath(file)).parent
            if not folder.is_dir():
                raise ValueError(f"{what} cannot be written: there is no folder {folder}")
        if identity is not None:
            self.written[identity] = what


def identity_of(file: str | Path | int) -> object:
    """What is the same for two names of one regular file, existing or not; None for everything else."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return os.path.realpath(str(file))
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


@contextlib.contextmanager
def written_aside(path: str | Path, ending: str = "") -> Iterator[Path]:
    """The name of a file beside ``path`` that takes its place once it is whole.

    The name says which machine and process writes it: two that write one file do not take it from each other. What killed
    processes of this machine have left in the folder is removed.

    Args:
        path: what stands there stays until the end, and when anything is raised
        ending: of the name, for a writer that goes by it
    """
    path = Path(path)
    remove_leftovers(path.parent)
    aside = path.with_name(f".{path.name}.{MACHINE}-{os.getpid()}.unfinished{ending}")
    try:
        yield aside
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(aside)
        raise


@functools.cache  # a folder may hold a file for each sentence
def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files of processes of this machine that have ended."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            writer = re.fullmatch(rf"\..+\.{re.escape(MACHINE)}-(\d+)\.unfinished(\.\w+)?", name)
            if writer is not None and not is_running(int(writer[1])):
                os.remove(folder / name)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


@contextlib.contextmanager
def written_lines(path: str | Path) -> Iterator[IO[str]]:
    """A file to write lines to, which appears when all are there. A link is written through, as other tools do.

    Raises:
        OSError: with the file's name, if it could not be written
    """
    path = Path(path)
    with name_in_errors(path):
        if path.exists() and not path.is_file() or path.absolute().parts[1] in ("dev", "proc"):
            with path.open("w", encoding="utf-8", newline="\n") as file:  # a pipe, a device: nothing is lost or renamed
                yield file
            return
        path = Path(os.path.realpath(path))
        with written_aside(path) as aside:
            with aside.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            if path.exists():
                shutil.copymode(path, aside)


@contextlib.contextmanager
def name_in_errors(name: str | Path) -> Iterator[None]:
    """Give an error of the system a file's name where it has none: those of writing do not tell."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or ".unfinished" in str(error.filename)):
            error.filename = str(name)
        raise
