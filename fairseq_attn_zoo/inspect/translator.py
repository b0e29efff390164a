"""A trained model, to ask: translate these sentences, force these translations, show what was attended to."""

import contextlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import encoders
from fairseq.dataclass.configs import GenerationConfig
from fairseq.registry import REGISTRIES
from fairseq.tokenizer import tokenize_line
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..chart import bracketed, first_cell
from ..compat.checkpoints import refuse_infinite
from ..models import ARCHITECTURES
from .trace import Trace


class Hypothesis(NamedTuple):
    """One translation."""

    text: str  # subwords joined, detokenised
    tokens: list[str]  # without </s>
    score: float  # mean log-probability of the tokens and </s>, base 2 (fairseq's, with its length penalty)
    alignment: np.ndarray | None  # (T + 1) x (S + 1): tokens and </s>; None without attention
    source: list[str]  # tokens of the source as they were written, without </s>


class Sentence(NamedTuple):
    """Tokens as a model reads them."""

    tokens: list[str]  # as they were written: unknown words too; without </s>
    numbers: Tensor  # in the dictionary, </s> last


NOTHING = Sentence([], torch.zeros(0, dtype=torch.long))
TRACED_TOGETHER = 8  # sentences


class TextPipeline:
    """What stands between raw text and tokens: fairseq's tokenizers and subwords by their names.

    Args:
        tokenizer: ``moses``, ``nltk``, ``space``, or None for text that is tokenised
        bpe: ``subword_nmt``, ``sentencepiece`` and fairseq's others, or None for text that is split already
        codes: the codes or the model of ``bpe``
        source_language, target_language: for the tokenizer

    Raises:
        ValueError: if there is no such tokenizer or subword, if what it needs is not installed, or if ``codes`` are missing
    """

    def __init__(
        self,
        tokenizer: str | None = None,
        bpe: str | None = None,
        codes: str | Path | None = None,
        source_language: str = "en",
        target_language: str = "en",
    ) -> None:
        self.bpe_name = bpe
        self.source_tokenizer = self.target_tokenizer = self.bpe = None
        try:
            if tokenizer is not None:
                self.source_tokenizer, self.target_tokenizer = (
                    build_tokenizer(tokenizer, language, target_language)
                    for language in (source_language, target_language)
                )
            if bpe is not None:
                self.bpe = build_bpe(bpe, codes)
        except ImportError as error:
            raise ValueError(f"{error}") from error

    def encode(self, text: str) -> str:
        """A raw source as tokens with blanks between them."""
        return self.split(text, self.source_tokenizer)

    def encode_target(self, text: str) -> str:
        """A raw translation as tokens with blanks between them."""
        return self.split(text, self.target_tokenizer)

    def split(self, text: str, tokenizer: Any) -> str:
        for step in (tokenizer, self.bpe):
            text = text if step is None else step.encode(text)
        return text

    def decode(self, tokens: str) -> str:
        """Tokens of a translation as raw text."""
        for step in (self.bpe, self.target_tokenizer):
            tokens = tokens if step is None else step.decode(tokens)
        return tokens


CODES = {"subword_nmt": "bpe_codes", "fastbpe": "bpe_codes", "sentencepiece": "sentencepiece_model"}


def build_tokenizer(name: str, source_language: str, target_language: str) -> Any:
    """fairseq's tokenizer, which encodes the one language and decodes the other."""
    settings = settings_of("tokenizer", name)
    if hasattr(settings, "source_lang"):
        settings.source_lang, settings.target_lang = source_language, target_language
    return encoders.TOKENIZER_REGISTRY[name](settings)


def build_bpe(name: str, codes: str | Path | None) -> Any:
    """fairseq's subwords."""
    settings = settings_of("bpe", name)
    if name in CODES:
        if codes is None:
            raise ValueError(f"--bpe {name} needs --bpe-codes: the file that the training's subwords came from")
        if not Path(codes).is_file():
            raise ValueError(f"there is no file {codes}; --bpe-codes is what the training's subwords came from")
        setattr(settings, CODES[name], str(codes))
    elif codes is not None:
        raise ValueError(f"--bpe-codes is for {', '.join(CODES)}; --bpe {name} does not read it")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return encoders.BPE_REGISTRY[name](settings)
    except ImportError:
        raise
    except (Exception, SystemExit) as error:
        if codes is None:
            raise
        reason = " ".join(said.getvalue().split()) or f"{type(error).__name__}: {error}"
        raise ValueError(f"{codes} cannot be read as the --bpe-codes of --bpe {name} ({reason})") from None


def settings_of(kind: str, name: str) -> Any:
    """fairseq's settings for one of its tokenizers or subwords."""
    known = REGISTRIES[kind]["dataclass_registry"]
    if name not in known:
        raise ValueError(f"no --{kind} {name!r}; there are {', '.join(sorted(known))}")
    return known[name]()


@dataclass
class Search:
    """Settings of the beam search, as ``fairseq-generate`` has them."""

    beam: int = 5
    nbest: int = 1
    lenpen: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    batch_size: int = 64


class Translator:
    """One model, or an ensemble of several, with its dictionaries and its text pipeline."""

    def __init__(
        self,
        models: list,
        task,
        architecture: str,
        pipeline: TextPipeline,
        search: Search,
        files: Sequence[str | Path] = (),
    ) -> None:
        self.models, self.task, self.architecture = models, task, architecture
        self.pipeline, self.search = pipeline, search
        self.files = files  # that the models and their dictionaries were read from
        settings = GenerationConfig(
            beam=search.beam,
            nbest=search.nbest,
            lenpen=search.lenpen,
            max_len_a=search.max_len_a,
            max_len_b=search.max_len_b,
        )
        self.generator = task.build_generator(models, settings)

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        data: str | Path | None = None,
        *,
        tokenizer: str | None = None,
        bpe: str | None = None,
        bpe_codes: str | Path | None = None,
        search: Search | None = None,
        overrides: dict[str, Any] | None = None,
        cpu: bool = False,
        bf16: bool = False,
    ) -> "Translator":
        """Load checkpoints of this package, or of fairseq's other recurrent models.

        Args:
            path: a checkpoint, or several for an ensemble
            data: folder of fairseq-preprocess with the dictionaries; None: where the training read them
            tokenizer, bpe, bpe_codes: see :class:`TextPipeline`
            search: settings of the beam search
            overrides: of the model, as ``--model-overrides``
            cpu: stay off the GPU
            bf16: compute in bfloat16, whatever the training computed in; scores stay in float32

        Raises:
            ValueError: if a checkpoint is missing, is refused, does not fit the dictionaries or has parameters that are
                no finite numbers
        """
        paths = [str(path)] if isinstance(path, (str, Path)) else [str(one) for one in path]
        for one in paths:
            if not Path(one).is_file():
                raise ValueError(f"there is no checkpoint {one}; fairseq-train writes them into --save-dir")
        overrides = {"bf16": bf16, **(overrides or {})}  # see compat.translate_in_bfloat16
        if "_name" in overrides:
            raise ValueError(
                "--model-overrides cannot change '_name': a checkpoint has the architecture it was trained with"
            )
        if data is not None:
            if not Path(data).is_dir():
                raise ValueError(f"there is no folder {data}; it is the one that fairseq-preprocess wrote")
            overrides["data"] = str(data)
        try:
            models, config, task = checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides=overrides)
            source_language, target_language = task.cfg.source_lang, task.cfg.target_lang
        except FileNotFoundError as error:
            raise ValueError(f"{error}; name the folder of fairseq-preprocess with the dictionaries") from error
        except ValueError:
            raise  # says what is wrong
        except Exception as error:  # fairseq looks at nothing before it uses it
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{':'.join(paths)} is no checkpoint of a translation model, or does not fit the data folder or the "
                f"overrides ({type(error).__name__}: {reason[:300]})"
            ) from error
        device = "cuda" if torch.cuda.is_available() and not cpu else "cpu"
        for one, model in zip(paths, models, strict=True):
            refuse_infinite(one, dict(model.named_parameters()))  # of ours it was done before
            model.to(device).eval()
            model.prepare_for_inference_(config)
            if type(model) in ARCHITECTURES.values():
                model.decoder.need_attn = model.decoder.network.has_attention
        pipeline = TextPipeline(tokenizer, bpe, bpe_codes, source_language, target_language)
        folder = Path(utils.split_paths(task.cfg.data)[0])
        files: list[str | Path] = [*paths]
        files += [folder / f"dict.{language}.txt" for language in (source_language, target_language)]
        files += filter(None, (config.model.get(f"{side}_embed_path") for side in ("encoder", "decoder")))
        return cls(models, task, config.model._name, pipeline, search or Search(), files)

    @property
    def has_attention(self) -> bool:
        """Whether every model has attention to show."""
        return all(
            type(model) in ARCHITECTURES.values() and model.decoder.network.has_attention for model in self.models
        )

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    # --- translating --------------------------------------------------------------------------------------------------

    def translate(
        self, sentences: Iterable[str], together: int = 1000, report: Callable[[str], None] | None = None
    ) -> Iterator[list[Hypothesis]]:
        """Translate raw sentences: one list of ``search.nbest`` hypotheses for each, in order.

        A sentence without words has no hypotheses.

        Args:
            sentences: one string each, without line ends
            together: so many are read, sorted by length and translated in batches before the first is returned
            report: is told of every sentence that is longer than the model's maximum, which then has no hypotheses

        Raises:
            ValueError: if there is such a sentence and no ``report``; the sentences before it are returned first
        """
        block: list[Sentence] = []
        for number, sentence in enumerate(sentences, start=1):
            try:
                block.append(self.encode_source(self.pipeline.encode(sentence)))
            except ValueError as error:
                if report is None:
                    yield from self.translate_block(block)
                    raise ValueError(f"sentence {number}: {error}") from None
                report(f"sentence {number}: {error}")
                block.append(NOTHING)
            if len(block) == together:
                yield from self.translate_block(block)
                block = []
        yield from self.translate_block(block)

    def translate_block(self, sources: list[Sentence]) -> list[list[Hypothesis]]:
        """The hypotheses of encoded sources, in order."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        with_words = [number for number, source in enumerate(sources) if source.tokens]
        for batch in batches(
            sorted(with_words, key=lambda number: -len(sources[number].tokens)), self.search.batch_size
        ):
            sample = self.sample([sources[number] for number in batch])
            translated = self.task.inference_step(self.generator, self.models, sample)
            for row, hypotheses in zip(sample["order"].tolist(), translated, strict=True):
                best = hypotheses[: self.search.nbest]
                found[batch[row]] = [self.hypothesis(sources[batch[row]], hypothesis) for hypothesis in best]
        return found

    def hypothesis(self, source: Sentence, found: dict[str, Any]) -> Hypothesis:
        """What fairseq's generator found, in words."""
        tokens = self.words(found["tokens"])
        attention = found["attention"]  # (columns of the batch) x T
        alignment = None
        if self.has_attention and attention is not None and attention.numel():
            alignment = attention[-len(source.numbers) :].t().float().cpu().numpy()  # sources are padded on the left
        text = self.pipeline.decode(" ".join(tokens))
        return Hypothesis(text, tokens, float(found["score"]) / math.log(2), alignment, source.tokens)

    # --- forcing ------------------------------------------------------------------------------------------------------

    def trace(self, sentences: Sequence[str], translations: Sequence[str] | None = None) -> Iterator[Trace]:
        """Every attention weight, for the best translation of each sentence or for a given one.

        Args:
            sentences: raw
            translations: raw, as many; None: what beam search finds

        Raises:
            ValueError: for an ensemble, for a model without attention or not of this package, if there are not as many
                translations as sentences, or if a sentence is longer than the model's maximum; all before the first trace
        """
        if len(self.models) > 1:
            raise ValueError("an ensemble has no weights of its own; name one checkpoint")
        if not self.has_attention:
            raise ValueError(f"{self.architecture} has no attention of this package to show")
        if translations is not None and len(translations) != len(sentences):
            raise ValueError(f"{len(sentences)} sentences, but {len(translations)} translations; give one for each")
        sources = []
        for number, sentence in enumerate(sentences, start=1):
            try:
                sources.append(self.encode_source(self.pipeline.encode(sentence)))
            except ValueError as error:
                raise ValueError(f"sentence {number}: {error}") from None
        return self.traces(sources, translations)

    def traces(self, sources: list[Sentence], translations: Sequence[str] | None) -> Iterator[Trace]:
        """A trace for each source; a few at a time, as every weight is in memory at once."""
        for block in batches(range(len(sources)), self.search.batch_size):
            if translations is None:
                found = self.translate_block([sources[number] for number in block])
                targets = [self.encode_target(" ".join(best[0].tokens if best else [])) for best in found]
            else:
                targets = [self.encode_target(self.pipeline.encode_target(translations[number])) for number in block]
            for few in batches(range(len(block)), TRACED_TOGETHER):
                yield from self.force([sources[block[place]] for place in few], [targets[place] for place in few])

    @torch.no_grad()
    def force(self, sources: list[Sentence], targets: list[Sentence]) -> list[Trace]:
        """The traces of encoded pairs, in order."""
        model = self.models[0]
        dictionary = self.task.target_dictionary
        end = dictionary.eos_word
        sample = self.sample(sources)
        order = sample["order"].tolist()
        gold = pad_sequence([targets[number].numbers for number in order], True, dictionary.pad()).to(self.device)
        first = torch.tensor([dictionary.eos()])
        before = [torch.cat([first, targets[number].numbers[:-1]]) for number in order]
        read = pad_sequence(before, True, dictionary.pad()).to(self.device)
        encoded = model.encoder(**sample["net_input"])
        logits, extra = model.decoder(read, encoder_out=encoded, need_trace=True)
        scores = utils.log_softmax(logits, dim=-1).gather(2, gold.unsqueeze(2)).squeeze(2)
        splits = encoded["sentences"].memory.splits if self.is_cky else None
        traces: list[Trace | None] = [None] * len(sources)
        for row, number in enumerate(order):
            source, target = sources[number], targets[number]
            columns, words = len(source.numbers), len(target.numbers)
            arrays = {}
            for name, (values, axes) in extra["trace"].items():
                real = slice(words) if axes.over == "target words" else slice(-columns, None)  # sources are left-padded
                of_row = values[row, :words, real]
                if axes.over == "spans":
                    of_row = of_row[:, :, :columns]
                arrays[name] = of_row.float().cpu().numpy()
            alignment = extra["attn"][0][row, :words, -columns:].float().cpu().numpy()
            mean = float(scores[row, :words].mean()) / math.log(2)
            winners, tree = (None, None) if splits is None else tree_of(splits[row], [*source.tokens, end])
            traces[number] = Trace(
                self.architecture,
                [*source.tokens, end],
                [*target.tokens, end],
                alignment,
                arrays,
                mean,
                winners,
                tree,
                {name: traced.axes for name, traced in extra["trace"].items()},
            )
        return [trace for trace in traces if trace is not None]

    @property
    def is_cky(self) -> bool:
        return hasattr(self.models[0], "source_trees")

    # --- words and numbers --------------------------------------------------------------------------------------------

    def encode_source(self, text: str) -> Sentence:
        """Tokens and their numbers.

        Raises:
            ValueError: if there are more than the model can read
        """
        sentence = encode(self.task.source_dictionary, text)
        most = min(model.max_positions()[0] for model in self.models)
        if len(sentence.numbers) > most:
            raise ValueError(
                f"a sentence of {len(sentence.numbers)} tokens is longer than the model's maximum of {most} "
                f"({text[:40]}...); split it, or raise max_source_positions with --model-overrides"
            )
        return sentence

    def encode_target(self, text: str) -> Sentence:
        """Tokens and their numbers."""
        return encode(self.task.target_dictionary, text)

    def known_tokens(self, text: str) -> tuple[list[str], list[bool]]:
        """The tokens of a raw source, and whether the model knows each."""
        sentence = encode(self.task.source_dictionary, self.pipeline.encode(text))
        return sentence.tokens, sentence.numbers[:-1].ne(self.task.source_dictionary.unk()).tolist()

    def words(self, target: Tensor) -> list[str]:
        """The words of a target's numbers, without the final ``</s>``."""
        return [self.task.target_dictionary[number] for number in target.tolist()[:-1]]

    def sample(self, sources: list[Sentence]) -> dict[str, Any]:
        """A batch as fairseq makes them, longest first; ``order`` says which source each row is."""
        order = torch.tensor(sorted(range(len(sources)), key=lambda number: -len(sources[number].tokens)))
        counts = torch.tensor([len(sources[number].numbers) for number in order.tolist()])
        longest = int(counts[0])
        pad = self.task.source_dictionary.pad()
        tokens = torch.full((len(sources), longest), pad)
        for row, number in enumerate(order.tolist()):
            tokens[row, longest - len(sources[number].numbers) :] = sources[number].numbers
        net_input = {"src_tokens": tokens.to(self.device), "src_lengths": counts.to(self.device)}
        return {"net_input": net_input, "order": order, "nsentences": len(sources)}


def encode(dictionary, text: str) -> Sentence:
    """Tokens, and their numbers with ``</s>`` last."""
    return Sentence(tokenize_line(text), dictionary.encode_line(text, add_if_not_exist=False, append_eos=True).long())


def tree_of(splits: Tensor, words: list[str]) -> tuple[np.ndarray, str]:
    """The winning splits of every span, by its first word and its length less 1, and the tree of the sentence."""
    positions = int(((8 * len(splits) + 1) ** 0.5 - 1) / 2)
    table = np.zeros((len(words), len(words)), dtype=np.int64)
    for length in range(1, len(words) + 1):
        first, count = first_cell(length, positions), len(words) - length + 1
        table[:count, length - 1] = splits[first : first + count].cpu().numpy()
    return table, bracketed(splits, words)


def batches(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    block: list[int] = []
    for number in numbers:
        block.append(number)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
