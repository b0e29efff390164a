"""One run: a system trained with one seed, decoded and scored. What is finished is never done again.

What a finished run gave is written beside the table, in ``runs/``: scores, learning curve, translations, settings, and what
trained it. A run whose file is there needs no checkpoint any more, on any machine.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from corpora import Prepared, read_lines
from gold import Gold, read_gold
from recipe import System
from steps import ROOT, Hypotheses, StepFailed, call, folder_for, read_generated, whole_or_not_at_all

RECORD = re.compile(r"\| (train_inner|train|valid) \| (\{.*\})$")
WITHOUT_UNKNOWN = 1e6  # --unkpen, subtracted from the log-probability of <unk>


class Run(NamedTuple):
    system: System  # the row
    trained: System  # whose checkpoint is decoded: as a rule the same
    seed: int
    prepared: Prepared
    folder: Path  # of the checkpoints and the log
    outputs: Path  # of this system's own decoding
    gold: Gold | None
    record: Path  # what it gave

    @property
    def name(self) -> str:
        return f"{self.system.name}, seed {self.seed}"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "checkpoint_best.pt"

    @property
    def log(self) -> Path:
        return self.folder / "train.log"


def plan(
    system: System, trained: System, seed: int, prepared: Prepared, gold: Gold | None, parent: Path, report: Path
) -> Run:
    """A run and its folders, each named by all that makes what is in it."""
    settings = {"data": prepared.folder.name, "flags": trained.flags, "seed": seed}
    folder = folder_for(parent, f"{slug(trained.name)}-seed{seed}", settings)
    outputs = folder_for(folder, "decoded", {"flags": system.decoding})
    pairs = gold and [read_gold(gold), gold.links.read_text(encoding="utf-8"), gold.from_1]
    everything = json.dumps([settings, system.decoding, pairs], sort_keys=True)
    digest = hashlib.sha256(everything.encode()).hexdigest()[:8]
    record = report / "runs" / f"{slug(system.name)}-seed{seed}-{digest}.json"
    return Run(system, trained, seed, prepared, folder, outputs, gold, record)


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
    note = run.folder / "made-with.json"
    now = made_with(device)
    if note.exists():  # a training that goes on, maybe with other code or elsewhere: the table shall tell all of it
        before = json.loads(note.read_text(encoding="utf-8"))
        now = {key: ", then ".join(dict.fromkeys([*before[key].split(", then "), value])) for key, value in now.items()}
    note.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
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


def made_with(device: list[str]) -> dict[str, str]:
    """The version of the code and the machine, for the table."""
    import torch

    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        commit = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {
        "commit": commit,
        "torch": torch.__version__,
        "processor": processor() if device else torch.cuda.get_device_name(),
    }


def processor() -> str:
    try:
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        model = None
    return model[1].strip() if model else platform.processor() or platform.machine()


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


def align(run: Run, device: list[str]) -> dict[str, float]:
    """AER, precision and recall of forced alignments of hand-aligned sentences."""
    from fairseq_attn_zoo.inspect import alignment_error_rate, read_alignments

    gold, lowercase = run.gold, run.trained.prepare.lowercase
    assert gold is not None
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


def how_it_ended(curve: list[dict[str, float]], flags: list[str]) -> str:
    """How a training ended.

    Returns:
        ``plateau``: development BLEU had not risen for as long as ``--patience`` says; ``cut off``: before that;
        ``schedule``: the learning rate had its own end; ``never began``: BLEU stayed below 1
    """
    if max(point["bleu"] for point in curve) < 1:
        return "never began"
    if "--patience" not in flags:
        return "schedule"
    patience = int(flags[len(flags) - flags[::-1].index("--patience")])
    best = max(range(len(curve)), key=lambda number: curve[number]["bleu"])
    return "plateau" if len(curve) - 1 - best >= patience else "cut off"


def update_of_half(curve: list[dict[str, float]]) -> float | None:
    """At which update development BLEU had reached half of its best, on a line between two validations."""
    half = max(point["bleu"] for point in curve) / 2
    before = {"update": 0.0, "bleu": 0.0}
    for point in curve:
        if point["bleu"] >= half > 0:
            share = (half - before["bleu"]) / (point["bleu"] - before["bleu"])
            return before["update"] + share * (point["update"] - before["update"])
        before = point
    return None


def training_hours(log: Path) -> float:
    """Hours of training alone; an epoch that was done twice counts once."""
    seconds = {record["epoch"]: float(record["train_train_wall"]) for kind, record in records(log) if kind == "train"}
    return sum(seconds.values()) / 3600


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


def recorded(run: Run) -> dict[str, Any] | None:
    """What a run of these very settings gave before."""
    return json.loads(run.record.read_text(encoding="utf-8")) if run.record.exists() else None


def finish(run: Run, no_unk: bool, device: list[str], report: Callable[[str], None]) -> dict[str, Any]:
    """Decode and score a trained run; what the table needs to know of it."""
    from scores import corpus_scores

    from fairseq_attn_zoo.models import ARCHITECTURES

    curve = learning_curve(run.log)
    best = max(curve, key=lambda point: point["bleu"])
    references = run.prepared.words("test", 1)
    hypotheses = decode(run, device)
    result: dict[str, Any] = {
        "system": run.system.name,
        "seed": run.seed,
        "parameters": parameters(run.log),
        "words_per_second": words_per_second(run.log),
        "hours": training_hours(run.log),
        "updates": curve[-1]["update"],
        "best_update": best["update"],
        "half_update": update_of_half(curve),
        "ended": how_it_ended(curve, run.trained.flags),
        "dev_perplexity": best["ppl"],
        "dev_bleu": best["bleu"],
        **corpus_scores(hypotheses, references),
        "exact": sum(map(str.__eq__, hypotheses, references)) / len(references),
    }
    if no_unk:
        kept = without_unknown(run.prepared)
        without = decode(run, device, "--unkpen", str(WITHOUT_UNKNOWN), name="test.no-unk")
        result["no_unk_sentences"] = len(kept)
        if kept:
            scores = corpus_scores([without[n] for n in kept], [references[n] for n in kept])
            result["no_unk_bleu"] = scores["bleu"]
    ours = ARCHITECTURES.get(run.trained.architecture)
    if run.gold is not None and ours is not None and ours.card.has_attention:
        result.update(align(run, device))
    result["flags"] = run.trained.flags
    result["decoding"] = run.system.decoding
    result.update(json.loads((run.folder / "made-with.json").read_text(encoding="utf-8")))
    result["curve"] = curve
    result["hypotheses"] = hypotheses
    run.record.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, ensure_ascii=False, indent=1) + "\n"
    whole_or_not_at_all(lambda path: path.write_text(text, encoding="utf-8"), run.record)
    report(f"{run.name}: test BLEU {result['bleu']:.1f}")
    return result
