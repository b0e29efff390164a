"""One run: a system trained with one seed, decoded and scored. What is finished is never done again."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from corpora import Prepared, read_lines
from recipe import System
from steps import ROOT, Hypotheses, StepFailed, call, folder_for, read_generated, whole_or_not_at_all

RECORD = re.compile(r"\| (train_inner|train|valid) \| (\{.*\})$")
WITHOUT_UNKNOWN = 1e6  # --unkpen, subtracted from the log-probability of <unk>


class Gold(NamedTuple):
    """Hand-aligned sentence pairs."""

    text: Path  # source ||| target, a pair a line
    links: Path  # Pharaoh lines
    from_1: bool


def read_gold(gold: Gold) -> list[list[str]]:
    """The hand-aligned pairs.

    Raises:
        StepFailed: a line is no pair, or there are not as many pairs as lines of links
    """
    for path in (gold.text, gold.links):
        if not path.is_file():
            raise StepFailed(f"there is no file {path}")
    pairs = [line.split(" ||| ") for line in read_lines(gold.text)]
    for number, pair in enumerate(pairs, start=1):
        if len(pair) != 2:
            raise StepFailed(f"{gold.text}, line {number}: expected 'source ||| target'")
    if len(pairs) != len(read_lines(gold.links)):
        raise StepFailed(f"{gold.text} has {len(pairs)} lines, {gold.links} {len(read_lines(gold.links))}")
    return pairs


class Run(NamedTuple):
    system: System  # the row
    trained: System  # whose checkpoint is decoded: as a rule the same
    seed: int
    prepared: Prepared
    folder: Path  # of the checkpoints and the log
    outputs: Path  # of this system's own decoding

    @property
    def name(self) -> str:
        return f"{self.system.name}, seed {self.seed}"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "checkpoint_best.pt"

    @property
    def log(self) -> Path:
        return self.folder / "train.log"


def plan(system: System, trained: System, seed: int, prepared: Prepared, parent: Path) -> Run:
    """A run and its folders, each named by all that makes what is in it."""
    settings = {"data": prepared.folder.name, "flags": trained.flags, "seed": seed}
    folder = folder_for(parent, f"{slug(trained.name)}-seed{seed}", settings)
    outputs = folder_for(folder, "decoded", {"flags": system.decoding})
    return Run(system, trained, seed, prepared, folder, outputs)


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()


def train(run: Run, device: list[str], report: Callable[[str], None]) -> None:
    """Train, or go on where the last epoch ended; the checkpoint with the best greedy development BLEU is kept.

    Raises:
        StepFailed: fairseq-train failed
    """
    finished = run.folder / "finished"
    if finished.exists():
        return
    source, target = run.prepared.languages
    flags = [str(run.prepared.data), "--source-lang", source, "--target-lang", target, "--seed", str(run.seed), *device]
    flags += ["--eval-bleu", "--eval-bleu-args", '{"beam": 1}', "--eval-tokenized-bleu"]
    flags += ["--eval-bleu-remove-bpe"] if run.prepared.bpe_codes else []
    flags += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
    flags += ["--log-format", "json", "--log-interval", "50", "--num-workers", "0"]
    flags += [*run.trained.flags, "--save-dir", str(run.checkpoint.parent)]

    def read(line: str) -> None:
        match = RECORD.search(line)
        if match is not None and match[1] == "valid":
            record = json.loads(match[2])
            report(
                f"{run.name}: update {record['valid_num_updates']}, development perplexity "
                f"{float(record['valid_ppl']):.2f}, BLEU {float(record['valid_bleu']):.1f}"
            )

    report(f"{run.name}: training, log in {run.log}")
    call("train", flags, f"training of {run.name}", run.log, read)
    if not run.checkpoint.exists():
        raise StepFailed(f"training of {run.name} left no model in {run.checkpoint.parent}; see {run.log}")
    finished.touch()


def decode(run: Run, device: list[str], *flags: str, name: str = "test") -> list[str]:
    """Translate the test set; the lines in order, in words."""
    source, target = run.prepared.languages
    path = run.outputs / f"{name}.generated"
    sentences = len(run.prepared.words("test", 0))
    command = [str(run.prepared.data), "--source-lang", source, "--target-lang", target, "--path", str(run.checkpoint)]
    command += ["--batch-size", "64", *(["--remove-bpe"] if run.prepared.bpe_codes else []), *device]
    command += [*run.system.decoding, *flags]

    def write(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8") as file:
            call("generate", command, f"decoding of {run.name}", path.with_suffix(".log"), standard_output=file)
        hypotheses(unfinished)

    def hypotheses(file: Path) -> Hypotheses:
        return read_generated(file, "SD", f"decoding of {run.name}", sentences)

    if not path.exists():
        whole_or_not_at_all(write, path)
    return [" ".join(words) for words in hypotheses(path).texts]


def align(run: Run, gold: Gold, lowercase: bool, device: list[str]) -> dict[str, float]:
    """AER, precision and recall of forced alignments of hand-aligned sentences."""
    from fairseq_attn_zoo.inspect import alignment_error_rate, read_alignments

    pairs = read_gold(gold)
    folder = folder_for(run.outputs, "gold", {"pairs": pairs})
    files = [folder / f"text.{language}" for language in run.prepared.languages]
    for file, side in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_text("".join(f"{line.lower() if lowercase else line}\n" for line in side), encoding="utf-8")
    links = folder / "align"

    def write(unfinished: Path) -> None:
        command = [sys.executable, "-m", "fairseq_attn_zoo", "align", "--path", str(run.checkpoint)]
        command += ["--data", str(run.prepared.data), "--input", str(files[0]), "--target", str(files[1]), *device]
        if run.prepared.bpe_codes:
            command += ["--bpe", "subword_nmt", "--bpe-codes", str(run.prepared.bpe_codes)]
        if "--model-overrides" in run.system.decoding:
            place = run.system.decoding.index("--model-overrides")
            command += run.system.decoding[place : place + 2]
        finished = subprocess.run(
            [*command, "--output", str(unfinished)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        if finished.returncode:
            last = (finished.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise StepFailed(f"alignment of {run.name} failed: {last}")

    if not links.exists():
        whole_or_not_at_all(write, links)
    predicted = [sentence.possible for sentence in read_alignments(links)]
    score = alignment_error_rate(predicted, read_alignments(gold.links, one_based=gold.from_1))
    return {"aer": score.aer, "precision": score.precision, "recall": score.recall}


def learning_curve(log: Path) -> list[dict[str, float]]:
    """Development perplexity and BLEU by updates, of a log that may hold several starts of one training."""
    curve: dict[int, dict[str, float]] = {}
    for kind, record in records(log):
        if kind == "valid":
            update = int(record["valid_num_updates"])
            curve[update] = {"update": update, "ppl": float(record["valid_ppl"]), "bleu": float(record["valid_bleu"])}
    return [curve[update] for update in sorted(curve)]


def words_per_second(log: Path) -> float | None:
    """The median of training's target words a second, over the log's intervals."""
    rates = sorted(float(record["wps"]) for kind, record in records(log) if kind == "train_inner")
    return rates[len(rates) // 2] if rates else None


def records(log: Path) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for line in log.read_text(encoding="utf-8", errors="replace").split("\n"):
        match = RECORD.search(line)
        if match is not None:
            found.append((match[1], json.loads(match[2])))
    return found


def parameters(log: Path) -> int | None:
    numbers = re.findall(r"num\. shared model params: ([0-9,]+)", log.read_text(encoding="utf-8", errors="replace"))
    return int(numbers[-1].replace(",", "")) if numbers else None


def without_unknown(prepared: Prepared) -> list[int]:
    """The test sentences all of whose words, on both sides, the dictionaries have."""
    known = []
    for language in prepared.languages:
        entries = read_lines(prepared.data / f"dict.{language}.txt")
        known.append({entry.rsplit(" ", 1)[0] for entry in entries})
    sides = [read_lines(prepared.text / f"test.{language}") for language in prepared.languages]
    return [
        number
        for number, pair in enumerate(zip(*sides, strict=True))
        if all(set(side.split()) <= words for side, words in zip(pair, known, strict=True))
    ]


def finish(
    run: Run, no_unk: bool, gold: Gold | None, device: list[str], report: Callable[[str], None]
) -> dict[str, Any]:
    """Decode and score a trained run; what the table needs to know of it."""
    from scores import corpus_scores

    from fairseq_attn_zoo.models import ARCHITECTURES

    begin = time.time()
    curve = learning_curve(run.log)
    best = max(curve, key=lambda point: point["bleu"])
    result: dict[str, Any] = {
        "system": run.system.name,
        "seed": run.seed,
        "parameters": parameters(run.log),
        "words_per_second": words_per_second(run.log),
        "updates": curve[-1]["update"],
        "best_update": best["update"],
        "dev_perplexity": best["ppl"],
        "dev_bleu": best["bleu"],
        "curve": curve,
        "hypotheses": decode(run, device),
    }
    result.update(corpus_scores(result["hypotheses"], run.prepared.words("test", 1)))
    if no_unk:
        kept = without_unknown(run.prepared)
        hypotheses = decode(run, device, "--unkpen", str(WITHOUT_UNKNOWN), name="test.no-unk")
        references = run.prepared.words("test", 1)
        result["no_unk_sentences"] = len(kept)
        if kept:
            scores = corpus_scores([hypotheses[n] for n in kept], [references[n] for n in kept])
            result["no_unk_bleu"] = scores["bleu"]
    ours = ARCHITECTURES.get(run.trained.architecture)
    if gold is not None and ours is not None and ours.has_attention:
        result.update(align(run, gold, run.trained.prepare.lowercase, device))
    if time.time() - begin > 5:  # not when everything was there
        report(f"{run.name}: test BLEU {result['bleu']:.1f}")
    return result
