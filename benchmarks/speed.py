"""Training and decoding speed of our architectures as ratios to fairseq's own ``lstm``, measured in turns in one run.

    python benchmarks/speed.py DATA [--archs gru_rnnsearch lstm_luong_attention] [--size 256] [--json FILE]

DATA is a folder of fairseq-preprocess (examples/multi30k/run.sh makes one). Every round gives each architecture the
same batches, one architecture after the other, so that whatever else the machine does falls on all of them; a round's
ratio compares neighbours in time, and the table shows the median ratio and its range over the rounds. Do not run
anything beside it.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BASELINE = "lstm"


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(1)
    rows = {}
    for contender in contenders_of(arguments):
        baseline = Contender(arguments.baseline) if arguments.baseline else baseline_of(contender, arguments.size)
        ours, theirs = build(contender, arguments), build(baseline, arguments)
        rows[contender.name] = {
            "baseline": baseline.name,
            "parameters": ours["parameters"],
            "baseline_parameters": theirs["parameters"],
            "training": ratios(ours["train"], theirs["train"], arguments.rounds),
            "decoding": ratios(ours["decode"], theirs["decode"], arguments.rounds),
        }
        print_row(contender.name, rows[contender.name])
    if arguments.json:
        settings = {key: str(value) for key, value in vars(arguments).items()}
        document = {"settings": settings, "torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of fairseq-preprocess")
    parser.add_argument("--archs", nargs="*", default=["all"], help="architectures of the package")
    parser.add_argument(
        "--flags",
        action="append",
        default=[],
        metavar="ARCH:FLAGS",
        help="measure ARCH with these flags too, e.g. 'lstm_memnet_hops:--no-decoder-lstm'; may be repeated",
    )
    parser.add_argument("--baseline", help="compare with this architecture instead of the lstm of the same encoder")
    parser.add_argument(
        "--source-words",
        type=int,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="join neighbouring sentences to sources of so many words (and drop what fits nowhere)",
    )
    parser.add_argument("--criterion", default="cross_entropy", help="of ours; the lstm always has cross_entropy")
    parser.add_argument("--size", type=int, default=256, help="width of embeddings and layers")
    parser.add_argument("--max-tokens", type=int, default=4000, help="tokens in a training batch")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses a sentence")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences in a decoding batch")
    parser.add_argument("--updates", type=int, default=4, help="training batches a round")
    parser.add_argument("--batches", type=int, default=2, help="decoding batches a round")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each architecture")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


class Contender(NamedTuple):
    """A model to measure."""

    architecture: str
    flags: str = ""

    @property
    def name(self) -> str:
        return f"{self.architecture} {self.flags}".strip()


def contenders_of(arguments: argparse.Namespace) -> list[Contender]:
    from fairseq_attn_zoo.models import ARCHITECTURES

    names = sorted(ARCHITECTURES) if arguments.archs == ["all"] else arguments.archs
    more = [Contender(*entry.split(":", 1)) for entry in arguments.flags]
    for name in [*names, *(contender.architecture for contender in more)]:
        if name not in ARCHITECTURES:
            sys.exit(f"speed: no architecture {name!r}; there are {', '.join(sorted(ARCHITECTURES))}")
    return [*map(Contender, names), *more]


def baseline_of(contender: Contender, size: int) -> Contender:
    """The ``lstm`` whose bidirectional encoder has as many units a direction, and which has as many layers."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    from fairseq_attn_zoo.models import ARCHITECTURES

    direction = size // 2 if ARCHITECTURES[contender.architecture].joins_directions else size
    layers = MODEL_DATACLASS_REGISTRY[contender.architecture].encoder_layers
    return Contender(BASELINE, f"--encoder-hidden-size {direction} --encoder-layers {layers} --decoder-layers {layers}")


def build(contender: Contender, arguments: argparse.Namespace) -> dict:
    """A model with one function that trains for a round and one that decodes for a round; each returns its work."""
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.sequence_generator import SequenceGenerator

    from fairseq_attn_zoo.models.sizes import size_flags

    parser = options.get_training_parser()
    command = [str(arguments.data), "--user-dir", str(ROOT / "fairseq_attn_zoo"), "--arch", contender.architecture]
    command += [*size_flags(contender.architecture, arguments.size), *contender.flags.split(), "--dropout", "0.3"]
    criterion_name = arguments.criterion if contender.architecture != BASELINE else "cross_entropy"
    command += ["--criterion", criterion_name, "--max-tokens", str(arguments.max_tokens)]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))
    task = tasks.setup_task(config.task)
    model, criterion = task.build_model(config.model), task.build_criterion(config.criterion)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for split in ("train", "test"):
        task.load_dataset(split)
        if arguments.source_words:
            task.datasets[split] = joined(task.dataset(split), *arguments.source_words)
    batches = training_batches(task, arguments, device)
    decoding = decoding_batches(task, arguments, device)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=arguments.beam)

    def train() -> float:
        model.train()
        words = 0
        for sample in batches:
            optimizer.zero_grad()
            loss, sample_size, _ = criterion(model, sample)
            (loss / sample_size).backward()
            optimizer.step()
            words += sample["ntokens"]
        return words

    @torch.no_grad()
    def decode() -> float:
        model.eval()
        need_attn(model, False)
        sentences = 0
        for sample in decoding:
            # An untrained model ends its sentences at random: a fixed length gives every model the same work.
            generator.min_len = generator.max_len_b = int(sample["net_input"]["src_lengths"].float().mean())
            generator.generate([model], sample)
            sentences += sample["nsentences"]
        return sentences

    return {"train": train, "decode": decode, "parameters": sum(p.numel() for p in model.parameters())}


def need_attn(model, needed: bool) -> None:
    """What fairseq-generate says to a model before it translates."""
    for module in model.modules():
        if hasattr(module, "need_attn"):
            module.need_attn = needed


def joined(dataset, low: int, high: int):
    """Neighbouring sentences of a data set as one, so that every source has from ``low`` to ``high`` words."""
    from fairseq.data import LanguagePairDataset

    pairs, source, target = [], [], []
    for number in range(len(dataset)):
        item = dataset[number]
        source, target = [*source, *item["source"][:-1].tolist()], [*target, *item["target"][:-1].tolist()]
        if low <= len(source) <= high:
            pairs.append((source, target))
        if len(source) >= low:
            source, target = [], []
    ends = dataset.src_dict.eos(), dataset.tgt_dict.eos()
    sources, targets = (
        [torch.tensor([*sentence, end]) for sentence in side]
        for side, end in zip(zip(*pairs, strict=True), ends, strict=True)
    )
    sizes = [numpy.array([len(sentence) for sentence in side]) for side in (sources, targets)]
    return LanguagePairDataset(sources, sizes[0], dataset.src_dict, targets, sizes[1], dataset.tgt_dict, shuffle=True)


def training_batches(task, arguments: argparse.Namespace, device: str) -> list:
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=arguments.max_tokens, required_batch_size_multiple=8, seed=1
    ).next_epoch_itr(shuffle=True)
    return [move(sample, device) for _, sample in zip(range(arguments.updates), iterator, strict=False)]


def decoding_batches(task, arguments: argparse.Namespace, device: str) -> list:
    iterator = task.get_batch_iterator(task.dataset("test"), max_sentences=arguments.batch_size).next_epoch_itr(
        shuffle=False
    )
    samples = [move(sample, device) for sample in iterator]
    step = max(1, len(samples) // arguments.batches)  # spread over the lengths
    return samples[::step][: arguments.batches]


def move(sample, device: str):
    from fairseq import utils

    return utils.move_to_cuda(sample) if device == "cuda" else sample


def ratios(ours, theirs, rounds: int) -> dict:
    """Work a second of ``ours`` over ``theirs``, in turns; the first round warms up and is not counted."""
    measured = []
    for number in range(rounds + 1):
        speeds = []
        for work in (ours, theirs):
            begin = time.perf_counter()
            done = work()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            speeds.append(done / (time.perf_counter() - begin))
        if number:
            measured.append((speeds[0] / speeds[1], *speeds))
    ratio, ours_a_second, theirs_a_second = (list(column) for column in zip(*measured, strict=True))
    return {
        "ratio": statistics.median(ratio),
        "lowest": min(ratio),
        "highest": max(ratio),
        "a_second": statistics.median(ours_a_second),
        "baseline_a_second": statistics.median(theirs_a_second),
    }


def print_row(name: str, row: dict) -> None:
    for kind, unit in (("training", "words/s"), ("decoding", "sentences/s")):
        measured = row[kind]
        print(
            f"| {name} / {row['baseline']} | {kind} | {measured['ratio']:.2f} "
            f"({measured['lowest']:.2f} to {measured['highest']:.2f}) | {measured['a_second']:.0f} / "
            f"{measured['baseline_a_second']:.0f} {unit} | {row['parameters'] / 1e6:.2f} M / "
            f"{row['baseline_parameters'] / 1e6:.2f} M |",
            flush=True,
        )


if __name__ == "__main__":
    main()
