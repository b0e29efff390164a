"""The decoders alone, without fairseq: words a second in training and word by word, beside an LSTM of the same matrix work.

    python benchmarks/decoders.py [--decoders rnnsearch cky] [--precision float32 bfloat16] [--compile reduce-overhead]

At the papers' sizes, on random states of the encoder. *training*: the sources' memory, all words of a target, and all
gradients. *one word*: what beam search asks for, a word a call for all hypotheses. Beside each stands PyTorch's own ``nn.LSTM``
that reads as many words in the same way and has as many units as its matrix work equals the decoder's; and the number of
operations that are started for a word: launches of kernels on a GPU, calls of PyTorch's operators on a CPU. It needs PyTorch
alone, and takes the GPU where there is one.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # PyTorch's profiler is silent; read when PyTorch is imported

import torch
from arithmetic import matrix_work
from torch import nn
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fairseq_attn_zoo import attention, decoders
from fairseq_attn_zoo.cells import ConditionalGRUCell, ConditionalLSTMCell
from fairseq_attn_zoo.chart import DeductionUnits
from fairseq_attn_zoo.encoders import EncoderOutput

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = 30_000


class Family(NamedTuple):
    """A decoder, and what it wants of an encoder."""

    build: Callable[[], decoders.RecurrentDecoder]
    embed_size: int
    units: int  # of one direction of the encoder
    layers: int = 1
    cells: bool = True  # the encoder is an LSTM
    summed: bool = False  # its directions are summed, not side by side


def rnnsearch() -> decoders.RecurrentDecoder:
    return decoders.AttendThenUpdateDecoder(
        attention.AdditiveAttention(1000, 2000, 1000),
        ConditionalGRUCell,
        620,
        1000,
        1,
        decoders.TanhInitialState(1000, 1000, 1),
        decoders.MaxoutReadout(1000, 620, 2000, 500),
    )


def luong() -> decoders.RecurrentDecoder:
    return decoders.InputFeedingDecoder(attention.DotAttention(512, 512), 512, 512, 1, decoders.joined_initial_state)


def key_value() -> decoders.RecurrentDecoder:
    return decoders.KeyValueDecoder(attention.KeyValueAttention(540, 1080), 540, 540, 2)


def hops() -> decoders.RecurrentDecoder:
    return decoders.AttendThenUpdateDecoder(
        attention.MemoryNetworkAttention(256, 5, 1, VOCABULARY, 1024),
        ConditionalLSTMCell,
        256,
        256,
        1,
        decoders.joined_initial_state,
    )


def hops_alone() -> decoders.RecurrentDecoder:
    return decoders.MemoryNetworkDecoder(attention.MemoryNetworkAttention(256, 7, 3, VOCABULARY, 1024))


def fine_grained() -> decoders.RecurrentDecoder:
    return decoders.AttendThenUpdateDecoder(
        attention.FineGrainedAttention(1000, 2000, 620, 1000),
        ConditionalLSTMCell,
        620,
        1000,
        1,
        decoders.TanhInitialState(1000, 1000, 1),
    )


def cky() -> decoders.RecurrentDecoder:
    return decoders.InputFeedingDecoder(
        attention.CKYAttention(DeductionUnits(256), 256),
        256,
        256,
        2,
        decoders.reverse_initial_state,
        state_first=True,
    )


FAMILIES = {
    "rnnsearch": Family(rnnsearch, 620, 1000, cells=False),
    "luong": Family(luong, 512, 256),
    "key_value": Family(key_value, 540, 540, layers=2),
    "memnet_hops": Family(hops, 256, 128),
    "memnet_hops, no LSTM": Family(hops_alone, 256, 128),
    "fine_grained": Family(fine_grained, 620, 1000),
    "cky": Family(cky, 256, 256, layers=2, summed=True),
}


class Workload:
    """A decoder with its sources and targets; ``train`` and ``step`` return how many target words they read."""

    def __init__(self, family: Family, arguments: argparse.Namespace, precision: torch.dtype) -> None:
        torch.manual_seed(1)
        self.sentences, self.words, self.beam = arguments.sentences, arguments.target_words, arguments.beam
        self.decoder = family.build().to(DEVICE, precision)
        like = {"device": DEVICE, "dtype": precision}
        width = family.units if family.summed else 2 * family.units
        self.states = torch.randn(self.sentences, arguments.source_words, width, **like).requires_grad_()
        final = torch.randn(family.layers, 2, self.sentences, family.units, **like)
        self.encoded = EncoderOutput(self.states, final, final if family.cells else None, self.states)
        self.padding_mask = torch.zeros(self.sentences, arguments.source_words, dtype=torch.bool, device=DEVICE)
        hypotheses = self.sentences * self.beam
        self.embedded = torch.randn(hypotheses, self.words, family.embed_size, **like)
        self.ids = torch.randint(VOCABULARY, (hypotheses, self.words), device=DEVICE)
        self.forward = self.decoder.forward
        if arguments.compile:
            self.forward = torch.compile(self.decoder.forward, mode=arguments.compile, dynamic=DEVICE == "cpu")

    def target(self, rows: int, words: slice) -> decoders.TargetWords:
        return decoders.TargetWords(self.ids[:rows, words], self.embedded[:rows, words])

    def train(self) -> int:
        memory, state = self.decoder.begin(self.encoded, self.padding_mask)
        features = self.decoder(self.target(self.sentences, slice(None)), memory, state).features
        self.decoder.zero_grad()
        features.sum().backward()
        return self.sentences * self.words

    @torch.no_grad()
    def step(self) -> int:
        memory, state = self.decoder.begin(self.encoded, self.padding_mask)
        rows = self.sentences * self.beam
        state = decoders.map_tensors(lambda tensor: tensor.repeat_interleave(self.beam, dim=0), state)
        for word in range(self.words):
            state = self.forward(self.target(rows, slice(word, word + 1)), memory, state).state
        return rows * self.words


class Reference:
    """``nn.LSTM`` over the same number of words, one layer, as wide as its input."""

    def __init__(self, units: int, work: Workload, precision: torch.dtype) -> None:
        self.lstm = nn.LSTM(units, units, batch_first=True).to(DEVICE, precision)
        rows = work.sentences * work.beam
        self.words = torch.randn(rows, work.words, units, device=DEVICE, dtype=precision)
        self.sentences = work.sentences

    def train(self) -> int:
        words = self.words[: self.sentences]
        self.lstm.zero_grad()
        self.lstm(words)[0].sum().backward()
        return words.size(0) * words.size(1)

    @torch.no_grad()
    def step(self) -> int:
        state = None
        for word in self.words.split(1, dim=1):
            _, state = self.lstm(word, state)
        return self.words.size(0) * self.words.size(1)


def units_of(operations: float, training: bool) -> int:
    """Units of an LSTM with so many operations a word: 16 a pair of units forward, and twice that backward."""
    return max(8, 8 * round(math.sqrt(operations / (48 if training else 16)) / 8))


def words_a_second(work: Callable[[], int]) -> float:
    begin = time.perf_counter()
    done = work()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return done / (time.perf_counter() - begin)


def started(work: Callable[[], int]) -> int:
    """Kernels launched on the GPU, or operators called on the CPU, by one call of ``work``."""
    with profile(activities=[ProfilerActivity.CUDA if DEVICE == "cuda" else ProfilerActivity.CPU]) as profiled:
        work()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    events = profiled.events()
    if DEVICE == "cuda":
        launches = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
        return sum(event.name.startswith(launches) for event in events)
    operators = [event for event in events if event.name.startswith("aten::")]
    return sum(event.cpu_parent is None or not event.cpu_parent.name.startswith("aten::") for event in operators)


def compare(name: str, precision: torch.dtype, arguments: argparse.Namespace):
    """A row for training and one for single words."""
    work = Workload(FAMILIES[name], arguments, precision)
    for measure in ("training", "one word"):
        training = measure == "training"
        ours = work.train if training else work.step
        # The counter stumbles over parameters that are arguments of a module and want a gradient.
        work.decoder.requires_grad_(training)
        operations = matrix_work(ours)
        reference = Reference(units_of(operations, training), work, precision)
        theirs = reference.train if training else reference.step
        for warm_up in (ours, theirs):
            warm_up()
            warm_up()
        rounds = [(words_a_second(ours), words_a_second(theirs)) for _ in range(arguments.rounds)]
        speeds = [statistics.median(column) for column in zip(*rounds, strict=True)]
        yield {
            "decoder": name,
            "precision": str(precision).removeprefix("torch."),
            "measure": measure,
            "ours": speeds[0],
            "lstm": speeds[1],
            "ratio": statistics.median(one / other for one, other in rounds),
            "lstm_units": reference.lstm.hidden_size,
            "operations_a_word": operations,
            "started_a_word": started(ours) / work.words,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--decoders", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bfloat16"], default=["float32"])
    parser.add_argument("--sentences", type=int, default=64, help="sentences at once")
    parser.add_argument("--source-words", type=int, default=25, help="words of each source")
    parser.add_argument("--target-words", type=int, default=25, help="words of each target")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses of each sentence, word by word")
    parser.add_argument(
        "--compile",
        choices=["default", "reduce-overhead", "max-autotune"],
        help="word by word through torch.compile in this mode; reduce-overhead has CUDA graphs",
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns; the median is printed")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else f"{torch.get_num_threads()} threads of a CPU"
    print(f"PyTorch {torch.__version__}, {where}\n")
    print(
        "| decoder | precision | measured | words/s | started a word | `nn.LSTM` of the same matrix work, words/s | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    rows = []
    for precision in arguments.precision:
        for name in arguments.decoders:
            for row in compare(name, getattr(torch, precision), arguments):
                rows.append(row)
                print(
                    f"| {name} | {precision} | {row['measure']} | {row['ours']:,.0f} | {row['started_a_word']:.0f} | "
                    f"{row['lstm_units']} units, {row['lstm']:,.0f} | {row['ratio']:.2f} |",
                    flush=True,
                )
    if arguments.json:
        settings = {key: str(value) for key, value in vars(arguments).items()}
        environment = {"torch": torch.__version__, "device": where}
        arguments.json.write_text(json.dumps({"settings": settings, **environment, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
