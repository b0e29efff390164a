"""Train a model on a small synthetic corpus, translate, score, and draw what it attends to: a few minutes on two cores.

    python examples/quickstart/run.py [--arch gru_rnnsearch] [--folder build/quickstart] [--seed 1]

The corpus comes from a grammar (``fairseq_attn_zoo.grammar``) that turns English-like sentences into Japanese-like ones
and knows the true word alignment, so that not only BLEU but also the alignment error rate (AER) can be measured.
Everything is made with fairseq's own commands, run with this Python; their output is in the log files.

A run that was stopped goes on when it is started again, and finished steps are not repeated. Each set of arguments has
its own folders (named by a digest of the arguments, which lie in ``settings.json`` inside), so nothing made with other
arguments is ever reused. To start afresh, delete the folder.

More flags of ``fairseq-train`` can follow ``--``: ``--arch lstm_luong_attention -- --attention-score concat``.
"""

import argparse
import json
import re
import signal
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from steps import ROOT, Hypotheses, StepFailed, call, folder_for, read_generated, read_tokens, whole_or_not_at_all  # noqa: E402

SOURCE, TARGET = "en", "ja"
BEAM = 5


def main() -> None:
    arguments = parse_arguments()
    # A terminated run must take the command that it waits for along: two trainings in one folder would be a mess.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("quickstart: terminated; the same command goes on from here"))
    try:
        run(arguments)
    except StepFailed as failure:
        sys.exit(f"quickstart: {failure}")
    except KeyboardInterrupt:
        sys.exit("\nquickstart: stopped; the same command goes on from here")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--arch", default="gru_rnnsearch", help="architecture of fairseq_attn_zoo")
    parser.add_argument("--folder", type=Path, default=Path("build/quickstart"), help="where everything is written")
    parser.add_argument("--train", type=positive, default=20000, metavar="N", help="training sentences")
    parser.add_argument("--valid", type=positive, default=500, metavar="N", help="validation sentences")
    parser.add_argument("--test", type=positive, default=500, metavar="N", help="test sentences")
    parser.add_argument("--min-length", type=positive, default=4, metavar="N", help="fewest words of a source sentence")
    parser.add_argument("--max-length", type=positive, default=20, metavar="N", help="most words of a source sentence")
    parser.add_argument(
        "--relative-clauses",
        type=float,
        default=0.2,
        metavar="P",
        help="probability that a noun phrase which may hold a relative clause does",
    )
    parser.add_argument("--size", type=positive, default=128, metavar="N", help="width of embeddings and layers (even)")
    parser.add_argument("--updates", type=positive, default=1200, metavar="N", help="training batches")
    parser.add_argument("--max-tokens", type=positive, default=1000, metavar="N", help="tokens in a batch at most")
    parser.add_argument("--lr", type=float, default=0.006, help="Adam's learning rate at the start; falls to 0")
    parser.add_argument("--dropout", type=float, default=0.0, help="dropout probability")
    parser.add_argument("--seed", type=int, default=1, help="of the corpus and of the training")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU even where there is one")
    parser.add_argument("flags", nargs="*", help="further flags of fairseq-train, after --")
    arguments = parser.parse_args()
    if arguments.size % 2:
        parser.error(f"--size is {arguments.size}; it must be even, as some layers are half as wide")
    if arguments.seed < 0:
        parser.error(f"--seed is {arguments.seed}; it must not be negative")
    return arguments


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def run(arguments: argparse.Namespace) -> None:
    # Here, not at the top: PyTorch and fairseq take seconds to import, and --help should not.
    sys.path.insert(0, str(ROOT))
    try:
        import torch

        import fairseq_attn_zoo.inspect.plot  # noqa: F401  (what is missing shall be said now, not after the training)
        from fairseq_attn_zoo.inspect import alignment_error_rate, parse_alignment, read_alignments
        from fairseq_attn_zoo.machine import busy_warning, threads
        from fairseq_attn_zoo.models import ARCHITECTURES
    except ImportError as error:
        raise StepFailed(f"{error}; install the package and what it needs first: pip install {ROOT}") from error
    if arguments.arch not in ARCHITECTURES:
        raise StepFailed(f"no architecture {arguments.arch!r}; there are {', '.join(sorted(ARCHITECTURES))}")
    device = ["--cpu"] if arguments.cpu or not torch.cuda.is_available() else []
    busy = busy_warning(threads())
    if busy is not None:
        print(f"quickstart: {busy}", file=sys.stderr, flush=True)

    announce(1, f"corpus: {arguments.train} + {arguments.valid} + {arguments.test} sentences from the grammar")
    corpus = write_corpus(arguments)
    announce(2, f"fairseq-preprocess: {SOURCE}-{TARGET}, words as they are")
    data = preprocess(corpus)
    announce(3, f"fairseq-train: {arguments.arch}, {arguments.updates} updates, on the {'CPU' if device else 'GPU'}")
    model = train(arguments, corpus, data, device)
    announce(4, f"fairseq-generate: the test set with beam {BEAM}")
    attends = ARCHITECTURES[arguments.arch].card.has_attention
    output = model / "translation.txt"
    soft = ["--beam", str(BEAM), *(["--print-alignment", "soft"] if attends else [])]
    hypotheses = generate("translation", data, model, soft + device, output, arguments.test)

    announce(5, "scores")
    references = read_tokens(corpus / f"test.{TARGET}")
    bleu = print_bleu(hypotheses.texts, references)
    summary = [f"BLEU     {bleu:.2f}"]  # as sacreBLEU prints it: 99.85 with one digit would be another number
    if attends:
        # The gold links are between the source and the reference, so the model is led through the reference word by
        # word (forced decoding) instead of being asked about its own translation.
        forced = ["--score-reference", "--print-alignment", "hard"]
        output = model / "forced.txt"
        hard = generate("forced decoding", data, model, forced + device, output, arguments.test).alignments
        predicted = [parse_alignment(line).sure for line in hard]
        score = alignment_error_rate(predicted, read_alignments(corpus / "test.align"))
        print(f"  AER {score.aer:.3f}, precision {score.precision:.3f}, recall {score.recall:.3f}")
        print("  each word of the reference is linked to the source word with its largest weight; </s> is left out")
        summary.append(f"AER      {score.aer:.3f}")
    else:
        print(f"  {arguments.arch} has no attention: no AER and no picture")
        summary.append("AER      none: no attention")
    for number in range(min(3, arguments.test)):
        print(f"\n  source       {' '.join(hypotheses.sources[number])}")
        print(f"  translation  {' '.join(hypotheses.texts[number])}")
        print(f"  reference    {' '.join(references[number])}")
    print()

    announce(6, "picture of the attention" if attends else "picture: none, as there is no attention")
    if attends:
        pictures = draw(arguments.arch, hypotheses, references, model)
        summary.append(f"picture  {pictures[0]} (and {pictures[1].name})")

    print(f"\n{arguments.arch}:")
    for line in summary:
        print(f"  {line}")
    print("The same on real text:  bash examples/multi30k/run.sh")


def announce(number: int, what: str) -> None:
    print(f"[{number}/6] {what}", flush=True)


def print_done(path: Path) -> None:
    print(f"  done before: {path}", flush=True)


def write_corpus(arguments: argparse.Namespace) -> Path:
    """Write the corpus; returns the folder of {train,valid,test}.{en,ja,align}."""
    from fairseq_attn_zoo import grammar

    names = ("train", "valid", "test", "seed", "min_length", "max_length", "relative_clauses")
    settings = {name: getattr(arguments, name) for name in names}
    # Another grammar is another corpus.
    corpus = folder_for(arguments.folder, "corpus", {**settings, "grammar": grammar.version()}) / "text"
    if corpus.exists():
        print_done(corpus)
        return corpus

    def write(folder: Path) -> None:
        try:
            grammar.write_corpus(folder, **settings)
        except (ValueError, OSError) as error:
            raise StepFailed(f"the corpus cannot be written: {error}") from error

    whole_or_not_at_all(write, corpus)
    return corpus


def preprocess(corpus: Path) -> Path:
    """Binarise the corpus; returns fairseq's data folder."""
    data = corpus.parent / "data"
    if data.exists():
        print_done(data)
        return data
    prefixes = [flag for split in ("train", "valid", "test") for flag in (f"--{split}pref", str(corpus / split))]
    languages = ["--source-lang", SOURCE, "--target-lang", TARGET]
    log = corpus.parent / "preprocess.log"

    def write(folder: Path) -> None:
        call("preprocess", [*languages, *prefixes, "--destdir", str(folder)], "preprocessing", log)

    whole_or_not_at_all(write, data)
    return data


def train(arguments: argparse.Namespace, corpus: Path, data: Path, device: list[str]) -> Path:
    """Train, or go on training; returns the model's folder."""
    from fairseq_attn_zoo.models.sizes import size_flags

    flags = ["--arch", arguments.arch, *size_flags(arguments.arch, arguments.size)]
    flags += ["--dropout", str(arguments.dropout), "--optimizer", "adam", "--lr", str(arguments.lr)]
    flags += ["--lr-scheduler", "polynomial_decay", "--total-num-update", str(arguments.updates)]
    flags += ["--max-update", str(arguments.updates), "--max-tokens", str(arguments.max_tokens)]
    flags += ["--clip-norm", "1", "--seed", str(arguments.seed), *arguments.flags]
    model = folder_for(arguments.folder, arguments.arch, {"corpus": corpus.parent.name, "flags": flags})
    finished = model / "finished"
    if finished.exists():
        print_done(model)
        return model

    log = model / "train.log"
    print(f"  log: {log}", flush=True)
    flags += ["--save-dir", str(model / "checkpoints"), "--no-epoch-checkpoints", "--num-workers", "0", *device]
    flags += ["--log-format", "json", "--log-interval", "10"]
    with TrainingProgress(arguments.updates) as progress:
        call("train", [str(data), *flags], "training", log, progress.read)
    if not (model / "checkpoints" / "checkpoint_best.pt").exists():
        raise StepFailed(f"training left no model in {model}; see {log}")
    finished.touch()
    return model


class TrainingProgress:
    """A progress bar over all updates, and one line an epoch, from what fairseq-train logs."""

    RECORD = re.compile(r"\| (train_inner|valid) \| (\{.*\})$")

    def __init__(self, updates: int) -> None:
        from tqdm import tqdm

        # In a file or a pipe every state of the bar is a line of its own: fewer of them there.
        interval = 0.2 if sys.stderr.isatty() else 15
        self.bar = tqdm(total=updates, desc="  training", unit="update", mininterval=interval)

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def read(self, line: str) -> None:
        match = self.RECORD.search(line)
        if match is None:
            return
        record = json.loads(match[2])
        if match[1] == "valid":
            self.advance(int(record["valid_num_updates"]))
            self.bar.write(
                f"  epoch {record['epoch']}: validation perplexity {float(record['valid_ppl']):.2f}", file=sys.stdout
            )
            sys.stdout.flush()
        else:
            self.bar.set_postfix_str(f"perplexity {float(record['ppl']):.2f}", refresh=False)
            self.advance(int(record["num_updates"]))

    def advance(self, updates: int) -> None:
        if self.bar.n == 0 and updates > 10:
            # The updates of an earlier, stopped run: they took no time now, so the rate must not count them.
            self.bar.initial = self.bar.n = updates
            self.bar.refresh()
        else:
            self.bar.update(updates - self.bar.n)


def generate(step: str, data: Path, model: Path, flags: list[str], output: Path, sentences: int) -> Hypotheses:
    """Run fairseq-generate on the test set, unless its output is there, and read the output.

    Raises:
        StepFailed: the command failed, or a sentence is missing from its output.
    """
    kinds = "SDA" if "--print-alignment" in flags else "SD"
    if output.exists():
        print_done(output)
        return read_generated(output, kinds, step, sentences)
    checkpoint = ["--path", str(model / "checkpoints" / "checkpoint_best.pt")]
    command = [str(data), *checkpoint, "--gen-subset", "test", "--max-tokens", "4000", *flags]

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            call("generate", command, step, output.with_suffix(".log"), standard_output=file)
        read_generated(path, kinds, step, sentences)

    whole_or_not_at_all(write, output)
    return read_generated(output, kinds, step, sentences)


def print_bleu(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    from sacrebleu.metrics import BLEU

    bleu = BLEU(tokenize="none", force=True)  # the tokens are given; force: do not warn that they look like tokens
    score = bleu.corpus_score([" ".join(words) for words in hypotheses], [[" ".join(words) for words in references]])
    exact = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    print(f"  {score}")
    print(f"  {bleu.get_signature()}")
    print(f"  {exact} of {len(references)} sentences exactly as the reference")
    return score.score


def draw(architecture: str, hypotheses: Hypotheses, references: list[list[str]], model: Path) -> list[Path]:
    """Draw the attention of one sentence; returns the paths of the SVG and the PNG."""
    from fairseq_attn_zoo.inspect.plot import attention_chart, save_chart

    def preference(number: int) -> tuple:
        # A relative clause, whose words move furthest; a right translation, so that the picture shows what attention
        # did and not what it missed; and about as long as the sentences of Bahdanau's figure.
        source = hypotheses.sources[number]
        return "that" not in source, hypotheses.texts[number] != references[number], abs(len(source) - 12), number

    number = min(range(len(references)), key=preference)
    weights = [[float(weight) for weight in row.split(",")] for row in hypotheses.alignments[number].split()]
    chart = attention_chart(
        weights,
        [*hypotheses.sources[number], "</s>"],
        [*hypotheses.texts[number], "</s>"],
        title=f"{architecture}, test sentence {number + 1}",
    )
    pictures = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for ending in (".svg", ".png"):
            pictures.append(save_chart(chart, model / f"attention{ending}"))
            print(f"  {pictures[-1]}")
    for warning in caught:
        print(f"  {warning.message}")
    return pictures


if __name__ == "__main__":
    main()
