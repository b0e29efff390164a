"""fairseq's commands as a user types them, each in a process of its own, and what they print, taken apart."""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

# Found, not imported: importing fairseq takes seconds, and pytest reads this file even when only other tests are run.
PACKAGE = Path(find_spec("fairseq_attn_zoo").origin).resolve().parent
USER_DIR = ("--user-dir", PACKAGE)
EPOCHS = 4
LONGEST = 40  # tokens that the tiny models read or write


class Server:
    """The process of ``programs/command_server.py``."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("programs") / "command_server.py"],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def start(
        self,
        command: str,
        arguments: Sequence[str | Path | int],
        output: Path,
        folder: Path = Path("."),
        input: Path = Path(os.devnull),
        **harm: int,
    ) -> int:
        """Start fairseq-<command>; returns the number of its process."""
        files = {"folder": str(folder.resolve()), "input": str(input), "output": str(output)}
        job = {"command": command, "arguments": list(map(str, arguments)), **files, "harm": harm}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        """The exit status of the command that was started last."""
        return int(self.process.stdout.readline())


@functools.cache
def server() -> Server:
    """One for each process of pytest; it ends with that."""
    return Server()


def run(
    command: str,
    *arguments: str | Path | int,
    cwd: Path,
    stdin: str | None = None,
    fails: bool = False,
    fresh: bool = False,
) -> str:
    """What ``fairseq-<command>`` with these arguments writes to standard output and standard error.

    Args:
        fails: whether the command has to fail. One that does the opposite fails the test and shows what it wrote.
        fresh: in a Python of its own, as ``python -m``, and not in a fork of one that has imported fairseq already
    """
    with tempfile.TemporaryDirectory() as temporary:
        given, printed = Path(temporary, "input"), Path(temporary, "output")
        given.write_text(stdin or "", encoding="utf-8")
        if fresh:
            call = [sys.executable, "-m", f"fairseq_cli.{command}", *map(str, arguments)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            with given.open() as source, printed.open("w") as sink:
                streams = {"stdin": source, "stdout": sink, "stderr": subprocess.STDOUT}
                status = subprocess.run(call, cwd=cwd, env=environment, check=False, **streams).returncode
        else:
            server().start(command, arguments, printed, cwd, given)
            status = server().wait()
        output = printed.read_text(encoding="utf-8")
    if fails != (status != 0):
        end = "\n".join(line[:500] for line in output.splitlines()[-25:])
        raise AssertionError(f"fairseq-{command} ended with {status}:\n{end}")
    return output


def error_message(output: str) -> str:
    """What a user reads last: the line of the exception, without its traceback."""
    return [line for line in output.splitlines() if re.match(r"[\w.]+: ", line)][-1]


class Training(NamedTuple):
    folder: Path  # of the checkpoints
    output: str

    @property
    def best(self) -> Path:
        return self.folder / "checkpoint_best.pt"

    def statistic(self, subset: str, name: str) -> list[float]:
        """A number that the log has for every epoch: ``loss`` or another, on ``train`` or ``valid``."""
        lines = re.findall(rf"\| {subset} \| (\{{.*\}})$", self.output, flags=re.MULTILINE)
        return [float(json.loads(line)[f"{subset}_{name}"]) for line in lines]


def train(folder: Path, data: Path, *flags: str | Path | int) -> Training:
    """fairseq-train with settings that suit the tiny corpus; ``flags`` may name them again with other values."""
    settings = {
        "--save-dir": folder,
        "--optimizer": "adam",
        "--lr": 0.02,
        "--max-tokens": 500,
        "--max-epoch": EPOCHS,
        "--seed": 1,
        "--log-format": "json",
    }
    parts = [part for setting in settings.items() for part in setting]
    return Training(folder, run("train", data, *USER_DIR, *parts, *flags, cwd=folder))


def tiny_sizes(architecture: str, **changes: int) -> dict[str, int]:
    """Sizes of a tiny model; one that the architecture does not have is left out."""
    from fairseq_attn_zoo.models import ARCHITECTURES

    card = ARCHITECTURES[architecture].card
    sizes = {
        "encoder_embed_dim": 16,
        "encoder_hidden_size": 16,
        "decoder_embed_dim": 16,
        "decoder_hidden_size": 16 * (card.widths.directions or 2),
        "decoder_maxout_size": 16,
        "attention_dim": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_source_positions": LONGEST,
        "max_target_positions": LONGEST,
        **changes,
    }
    return {name: size for name, size in sizes.items() if name in card.config.__dataclass_fields__}


def quick_learner(architecture: str) -> list[str]:
    """The flags of a tiny model that learns in :data:`EPOCHS`."""
    from papers import FACTS

    facts = FACTS[architecture]
    return [*tiny_model(architecture, **facts.to_learn_sizes), *facts.to_learn_flags]


def tiny_model(architecture: str, **changes: int) -> list[str]:
    """The flags of :func:`tiny_sizes`, ``--arch`` included."""
    sizes = tiny_sizes(architecture, **changes).items()
    return ["--arch", architecture, *(part for name, size in sizes for part in (flag(name), str(size)))]


def flag(name: str) -> str:
    """``encoder_layers`` as ``--encoder-layers``."""
    return "--" + name.replace("_", "-")


class Hypothesis(NamedTuple):
    words: list[str]  # H-, </s> not among them
    score: float  # H-, base 2, divided by the number of words and </s>
    word_scores: list[float] = []  # P-, </s> last
    detokenized: str = ""  # D-
    alignment: str = ""  # A-

    def links(self) -> list[tuple[int, ...]]:
        """Of ``--print-alignment hard``: (source word, target word), counted from 0."""
        return [tuple(map(int, link.split("-"))) for link in self.alignment.split()]

    def weights(self) -> list[list[float]]:
        """Of ``--print-alignment soft``: rows are target words and </s>, columns are source words and </s>."""
        return [[float(weight) for weight in row.split(",")] for row in self.alignment.split()]


class Sentence(NamedTuple):
    source: list[str]  # S-
    reference: list[str] | None  # T-
    hypotheses: list[Hypothesis]  # in printed order

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


def translations(output: str) -> dict[int, Sentence]:
    """What fairseq-generate or fairseq-interactive printed: number of the sentence -> its lines, in printed order."""
    sentences: dict[int, Sentence] = {}
    for kind, digits, text in re.findall(r"^([STHDPA])-(\d+)\t(.*)$", output, flags=re.MULTILINE):
        number = int(digits)
        if kind == "S":
            assert number not in sentences, f"sentence {number} was translated twice"
            sentences[number] = Sentence(text.split(), None, [])
            continue
        sentence = sentences[number]
        if kind == "T":
            sentences[number] = sentence._replace(reference=text.split())
        elif kind == "H":
            score, words = text.split("\t")
            sentence.hypotheses.append(Hypothesis(words.split(), float(score)))
        elif kind == "D":
            replace_last(sentence.hypotheses, detokenized=text.partition("\t")[2])
        elif kind == "P":
            replace_last(sentence.hypotheses, word_scores=[float(score) for score in text.split()])
        else:
            replace_last(sentence.hypotheses, alignment=text)
    return sentences


def replace_last(hypotheses: list[Hypothesis], **values) -> None:
    hypotheses[-1] = hypotheses[-1]._replace(**values)


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
