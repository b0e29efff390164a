"""How a command ends: with a status, and what went wrong in one line."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator


def run_command(name: str, run: Callable[[], int | None]) -> int:
    """Run a command and return its exit status.

    What is wrong with what the user gave (:class:`ValueError`), with a file (:class:`OSError`) or with what is installed
    (:class:`ImportError`) becomes one line on standard error, and 2. A reader of the output that has seen enough, as
    ``head`` has, ends the command without a word, with the status of other tools.

    Args:
        name: of the command, which begins the line
        run: the command
    """
    open_closed_streams()
    try:
        with stopped_by_signals():
            try:
                return run() or 0
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()  # here, where an error can still be told
    except BrokenPipeError:
        discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        discard_output()
        print(f"{name}: {described(error)}", file=sys.stderr)
        return 2
    except (ValueError, ImportError) as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def described(error: OSError) -> str:
    """An error of the system in words, without its number."""
    if error.errno is None or error.strerror is None:  # not the system's own
        return " ".join(str(error).split())
    if error.filename is None:
        return f"standard output cannot be written: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return f"there is no file or folder {error.filename}"
    return f"{error.filename}: {error.strerror}"


def open_closed_streams() -> None:
    """Give the null device the numbers of standard streams that the caller has closed.

    Otherwise the next file that is opened gets such a number, and is taken for the stream.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process; print would turn to standard output


def discard_output() -> None:
    """Let what waits to be written to standard output go nowhere: it could not be written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let a request to end, or a closed terminal, unwind the command, so that no unfinished file stays."""

    def stop(number, _):
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL
    ]  # not under nohup
    for number in changed:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
