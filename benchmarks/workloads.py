"""What the benchmarks measure: an architecture in training and in beam search, on data of fairseq-preprocess."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BASELINE = "lstm"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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
    from fairseq_attn_zoo.models import ARCHITECTURES

    card = ARCHITECTURES[contender.architecture].card
    direction, layers = card.widths.encoder_beside(size), card.config.encoder_layers
    return Contender(BASELINE, f"--encoder-hidden-size {direction} --encoder-layers {layers} --decoder-layers {layers}")


class Workload:
    """A model and its batches.

    Args:
        arguments: of the command line
        source_words: the shortest and longest source; sentences are joined to reach it. None: sources as they are.
    """

    def __init__(
        self, contender: Contender, arguments: argparse.Namespace, source_words: tuple[int, int] | None
    ) -> None:
        from fairseq import options, tasks
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.optim.adam import Adam

        from fairseq_attn_zoo.models.sizes import size_flags

        self.arguments = arguments
        command = [str(arguments.data), "--user-dir", str(ROOT / "fairseq_attn_zoo"), "--arch", contender.architecture]
        command += [*size_flags(contender.architecture, arguments.size), *contender.flags.split(), "--dropout", "0.3"]
        command += ["--max-tokens", str(arguments.max_tokens)]
        parser = options.get_training_parser()
        config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))
        self.task = tasks.setup_task(config.task)
        dictionary = self.task.target_dictionary
        for number in range(len(dictionary), arguments.vocabulary or 0):
            dictionary.add_symbol(f"<filler {number}>")
        torch.manual_seed(1)
        self.model = self.task.build_model(config.model).to(DEVICE)
        self.optimizer = Adam(self.model.parameters(), lr=1e-3)
        for split in ("train", "test"):
            self.task.load_dataset(split)
            if source_words:
                self.task.datasets[split] = joined(self.task.dataset(split), *source_words)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def training(self, criterion: str) -> Callable[[], float]:
        """A function that trains for a round and returns how many target words it read."""
        from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY

        settings = CRITERION_DATACLASS_REGISTRY[criterion]()
        settings.sentence_avg = False
        loss_of = CRITERION_REGISTRY[criterion].build_criterion(settings, self.task)
        batches = self.training_batches()

        def train() -> float:
            self.model.train()
            for sample in batches:
                self.optimizer.zero_grad()
                loss, sample_size, _ = loss_of(self.model, sample)
                (loss / sample_size).backward()
                self.optimizer.step()
            return sum(sample["ntokens"] for sample in batches)

        return train

    def decoding(
        self, sentences: int, batches: int, features_for_free: bool = False, fairseqs_search: bool = False
    ) -> Callable[[], float]:
        """A function that translates so many batches of so many sentences and returns how many sentences these were.

        Args:
            features_for_free: of our architectures, compute no decoder: what is left is the encoder, the output layer and
                the beam, and nothing that has these can be faster
            fairseqs_search: with fairseq's generator, also where the model is ours
        """
        from fairseq.dataclass.configs import GenerationConfig
        from fairseq.sequence_generator import SequenceGenerator

        if features_for_free:
            width = self.model.decoder.output_projection.in_features
            features = torch.randn(sentences * self.arguments.beam, 1, width, device=DEVICE)
            self.model.decoder.read = lambda words, sentences, past: (
                features[: words.size(0)],
                {"attn": [None]},
                past._replace(decoder=()),
            )
        if fairseqs_search:
            generator = SequenceGenerator([self.model], self.task.target_dictionary, beam_size=self.arguments.beam)
        else:
            generator = self.task.build_generator([self.model], GenerationConfig(beam=self.arguments.beam))
        samples = self.decoding_batches(sentences, batches)

        @torch.no_grad()
        def decode() -> float:
            self.model.eval()
            need_attn(self.model, False)
            # The counter of matrix work stumbles over parameters that are arguments of a module and want a gradient.
            self.model.requires_grad_(False)
            for sample in samples:
                # An untrained model ends its sentences at random: a fixed length gives every model the same work.
                generator.min_len = generator.max_len_b = int(sample["net_input"]["src_lengths"].float().mean())
                generator.generate([self.model], sample)
            self.model.requires_grad_(True)
            return sum(sample["nsentences"] for sample in samples)

        return decode

    def training_batches(self) -> list:
        iterator = self.task.get_batch_iterator(
            self.task.dataset("train"),
            max_tokens=self.arguments.max_tokens,
            required_batch_size_multiple=8,
            seed=1,
            disable_iterator_cache=True,
        ).next_epoch_itr(shuffle=True)
        return [move(sample) for _, sample in zip(range(self.arguments.updates), iterator, strict=False)]

    def decoding_batches(self, sentences: int, batches: int) -> list:
        """Batches spread over the lengths."""
        iterator = self.task.get_batch_iterator(
            self.task.dataset("test"), max_sentences=sentences, disable_iterator_cache=True
        )
        samples = list(iterator.next_epoch_itr(shuffle=False))
        step = max(1, len(samples) // batches)
        return [move(sample) for sample in samples[step // 2 :: step][:batches]]


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
    if not pairs:
        sys.exit(f"speed: no source of {low} to {high} words can be joined of this data; try another --sources")
    ends = dataset.src_dict.eos(), dataset.tgt_dict.eos()
    sources, targets = (
        [torch.tensor([*sentence, end]) for sentence in side]
        for side, end in zip(zip(*pairs, strict=True), ends, strict=True)
    )
    sizes = [numpy.array([len(sentence) for sentence in side]) for side in (sources, targets)]
    return LanguagePairDataset(sources, sizes[0], dataset.src_dict, targets, sizes[1], dataset.tgt_dict, shuffle=True)


def move(sample):
    from fairseq import utils

    return utils.move_to_cuda(sample) if DEVICE == "cuda" else sample
