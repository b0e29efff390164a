"""The command line of the package: translate, trace, plot, align, aer, doctor.

Nothing here is imported before a command needs it: ``--help`` answers at once, while PyTorch and fairseq take seconds.
"""

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from .console import run_command
from .files import Files, written_aside, written_lines


def main(arguments: list[str] | None = None) -> int:
    """Run a command; ``arguments`` default to those of the process. Returns the exit status."""
    options = build_parser().parse_args(arguments)

    def run() -> int | None:
        if sys.stdout is None and getattr(options, "output", None) is None:
            raise ValueError("standard output is closed")
        return options.run(options)

    return run_command(f"fairseq-attn-zoo {options.command}", run)


class HelpFormatter(argparse.HelpFormatter):
    """Adds the default to what a flag's help says, where there is one to tell."""

    def _get_help_string(self, action: argparse.Action) -> str:
        nothing = action.default is None or action.default is False or action.default is argparse.SUPPRESS
        return (action.help or "") + ("" if nothing else " (default: %(default)s)")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-attn-zoo",
        description="Ask a trained recurrent translation model: what does it write, and what does it attend to?",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    defaults = HelpFormatter

    translate = commands.add_parser(
        "translate",
        formatter_class=defaults,
        help="raw text in, raw text out",
        description="Translate a text, a sentence a line: N lines in, N lines out, in order. An empty line stays empty; so "
        "does a sentence that is longer than the model's maximum, and standard error names it. With --nbest K there are K "
        "lines for each, and with --scores each line begins with its score and a tab (-inf where there is no translation).",
    )
    add_model(translate)
    add_text(translate)
    add_search(translate)
    translate.add_argument("--nbest", type=positive, default=1, metavar="K", help="translations of a sentence")
    translate.add_argument("--scores", action="store_true", help="mean log2-probability of a word, before each line")
    translate.add_argument(
        "--replace-unk",
        nargs="?",
        const="",
        metavar="DICTIONARY",
        help="put for each unknown word the source word that it attends to most, or that word's translation in a file of "
        "lines 'source target'",
    )
    translate.add_argument(
        "--buffer-size",
        type=positive,
        metavar="N",
        help="lines read before the first answer (default: 1000; 1 on a terminal)",
    )
    translate.set_defaults(run=run_translate)

    trace = commands.add_parser(
        "trace",
        formatter_class=defaults,
        help="every attention weight, word by word, as files",
        description="Write what the model attends to: every hop, dimension or span that its mechanism has, in one .npz and "
        "one .json file a sentence, and the one weight a source word of all sentences in alignments.nematus, which viewers "
        "of soft alignments read. Without --target each sentence is translated by beam search first.",
    )
    add_model(trace)
    add_text(trace)
    add_search(trace)
    trace.add_argument("--target", type=Path, metavar="FILE", help="force these translations, a line for each sentence")
    trace.add_argument("--folder", type=Path, required=True, help="where the files go; made if it does not exist")
    trace.set_defaults(run=run_trace)

    plot = commands.add_parser(
        "plot",
        formatter_class=defaults,
        help="the papers' kinds of figure, and a page to explore, from traces",
        description="Draw traces: the matrix of the alignment, the sequence of hops, all dimensions of each word, the CKY "
        "chart and its tree, as far as the mechanism has them. An .html is one page that needs no network: the word under "
        "the pointer shows its weights, a menu picks hop, dimension or softmax.",
    )
    plot.add_argument("traces", type=Path, nargs="+", help=".npz or .json files of the command trace")
    plot.add_argument("--folder", type=Path, required=True, help="where the figures go; made if it does not exist")
    plot.add_argument(
        "--format", nargs="+", choices=["svg", "png", "html"], default=["svg", "png", "html"], help="of the files"
    )
    plot.set_defaults(run=run_plot)

    align = commands.add_parser(
        "align",
        formatter_class=defaults,
        help="word alignments in the Pharaoh format",
        description="Link each target word to the source word that it attends to most: 'i-j', the source's word first, "
        "counted from 0, a line for each sentence. Subwords count together as their word. With --target a given parallel "
        "text is aligned; without, the beam search's translation, which --translations keeps.",
    )
    add_model(align)
    add_text(align)
    add_search(align)
    align.add_argument("--target", type=Path, metavar="FILE", help="align this translation, a line for each sentence")
    align.add_argument("--translations", type=Path, metavar="FILE", help="write the words that were aligned here")
    align.add_argument(
        "--null",
        action="store_true",
        help="leave a word without a link when its largest weight stands on the source's </s>; otherwise </s> is left out "
        "of the choice. The target's own </s> is never linked",
    )
    align.set_defaults(run=run_align)

    aer = commands.add_parser(
        "aer",
        formatter_class=defaults,
        help="alignment error rate against gold links",
        description="Compare predicted links with gold ones ('i-j' sure, 'i?j' possible), a line for each sentence pair "
        "(Och and Ney 2003).",
    )
    aer.add_argument("predicted", type=Path, help="file of links")
    aer.add_argument("gold", type=Path, help="file of links")
    aer.add_argument("--gold-from-1", action="store_true", help="the gold file counts words from 1")
    aer.add_argument("--predicted-from-1", action="store_true", help="the predicted file counts words from 1")
    aer.set_defaults(run=run_aer)

    doctor = commands.add_parser(
        "doctor",
        help="is everything in place?",
        description="Check versions, fairseq's patches, --user-dir and the GPU, and say what to do about what is wrong.",
    )
    doctor.add_argument("--user-dir", default=None, help="also check that fairseq finds the package under this name")
    doctor.set_defaults(run=run_doctor)
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--path", required=True, help="checkpoint; several with ':' between them are an ensemble")
    group.add_argument("--data", type=Path, help="folder of fairseq-preprocess with the dictionaries, if it has moved")
    group.add_argument("--model-overrides", default="{}", metavar="DICT", help="as in fairseq-generate")
    group.add_argument("--cpu", action="store_true", help="do not use a GPU even where there is one")
    group.add_argument("--bf16", action="store_true", help="compute in bfloat16; faster where doctor says so")


def add_text(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text")
    group.add_argument("--input", type=Path, metavar="FILE", help="sentences, one a line (default: standard input)")
    group.add_argument("--output", type=Path, metavar="FILE", help="where lines go (default: standard output)")
    group.add_argument("--tokenizer", help="moses, nltk or space, if the text is not tokenised")
    group.add_argument("--bpe", help="subword_nmt, sentencepiece, ..., if the text is not split into subwords")
    group.add_argument("--bpe-codes", type=Path, metavar="FILE", help="codes or model of --bpe")


def add_search(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("beam search")
    group.add_argument("--beam", type=positive, default=5, metavar="N", help="hypotheses kept")
    group.add_argument("--lenpen", type=finite, default=1.0, help="scores are divided by length to this power")
    group.add_argument("--max-len-a", type=not_negative, default=0.0, help="at most a x source words + b words")
    group.add_argument("--max-len-b", type=positive, default=200, help="at most a x source words + b words")
    group.add_argument("--batch-size", type=positive, default=64, metavar="N", help="sentences at once")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{value} is no finite number")
    return value


def not_negative(text: str) -> float:
    value = finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


# --- commands ---------------------------------------------------------------------------------------------------------


def run_translate(options: argparse.Namespace) -> None:
    if options.nbest > options.beam:
        raise ValueError(f"--nbest {options.nbest} needs a --beam as large; it is {options.beam}")
    lexicon = read_lexicon(options.replace_unk) if options.replace_unk else {}
    translator, _ = load(options)
    if options.replace_unk is not None and not translator.has_attention:
        raise ValueError(f"--replace-unk reads attention, which {translator.architecture} does not have; leave it out")
    unknown = translator.task.target_dictionary.unk_string()
    live = is_terminal(options.input)
    with lines_in(options.input) as lines, output(options.output) as file:
        if live:
            lines = prompted(lines, translator, options.bpe)
        for hypotheses in translator.translate(lines, options.buffer_size or (1 if live else 1000), report):
            for place in range(options.nbest):
                score, text = float("-inf"), ""
                if place < len(hypotheses):
                    found = hypotheses[place]
                    score, text = found.score, found.text
                    if options.replace_unk is not None and unknown in found.tokens:
                        tokens = without_unknown(found, unknown, lexicon, scheme_of(options.bpe))
                        text = translator.pipeline.decode(" ".join(tokens))
                print(f"{score:.4f}\t{text}" if options.scores else text, file=file)
            file.flush()


def prompted(lines: Iterable[str], translator, bpe: str | None) -> Iterator[str]:
    """The lines of a terminal, each asked for; standard error names the words of each that the model does not know."""
    from .inspect.subwords import join_subwords

    def prompt() -> None:
        print("> ", end="", file=sys.stderr, flush=True)

    print("a sentence a line; Ctrl-D ends", file=sys.stderr)
    prompt()
    for line in lines:
        tokens, known = translator.known_tokens(line)
        words = join_subwords(tokens, scheme_of(bpe))
        unknown = {
            words.texts[word]: None for word, is_known in zip(words.of_subword, known, strict=True) if not is_known
        }
        if unknown:
            print(f"not known to the model: {', '.join(unknown)}", file=sys.stderr)
        yield line
        prompt()
    print(file=sys.stderr)


def report(message: str) -> None:
    print(f"fairseq-attn-zoo translate: {message}; its line stays empty", file=sys.stderr)


def without_unknown(found, unknown: str, lexicon: dict[str, str], scheme: str | None = None) -> list[str]:
    """The tokens of a hypothesis, each unknown one replaced through the source word with its largest weight."""
    from .inspect.subwords import join_subwords

    source = join_subwords(found.source, scheme)
    words = []
    for place, token in enumerate(found.tokens):
        if token == unknown and found.source:
            word = source.texts[source.of_subword[int(found.alignment[place, : len(found.source)].argmax())]]
            token = lexicon.get(word, word)
        words.append(token)
    return words


def scheme_of(bpe: str | None) -> str | None:
    """How the subwords of ``--bpe`` are written; None where it is not known."""
    from .inspect.subwords import SCHEMES

    return {"fastbpe": "subword_nmt"}.get(bpe or "", bpe if bpe in SCHEMES else None)


def read_lexicon(path: str) -> dict[str, str]:
    """Lines of ``source target``, separated by a blank or a tab; the first translation of a word counts."""
    lexicon: dict[str, str] = {}
    for number, line in enumerate(read_lines(Path(path)), start=1):
        parts = line.strip().split(maxsplit=1)
        if len(parts) != 2:
            raise ValueError(f"{path}, line {number}: expected 'source target', found {line!r}")
        lexicon.setdefault(*parts)
    return lexicon


def run_trace(options: argparse.Namespace) -> None:
    translator, files = load(options)
    sentences, traces = read_traces(options, translator)
    options.folder.mkdir(parents=True, exist_ok=True)
    digits = max(4, len(str(sentences)))
    stems = [options.folder / f"{number:0{digits}d}" for number in range(sentences)]
    matrices = options.folder / "alignments.nematus"
    for path in (matrices, *(stem.with_suffix(ending) for stem in stems for ending in (".npz", ".json"))):
        files.writes(str(path), path)
    with written_lines(matrices) as file, output(options.output) as names:
        for number, (stem, trace) in enumerate(zip(stems, traces, strict=True)):
            for ending in (".npz", ".json"):
                with written_aside(stem.with_suffix(ending), ending) as aside:
                    trace.save(aside)
            print(trace.nematus(number), file=file)
            print(stem, " ".join(trace.target[:-1]), sep="\t", file=names)


def read_traces(options: argparse.Namespace, translator) -> tuple[int, Iterator]:
    """How many sentences there are, and their traces. What is wrong is said here, before a file is opened for writing."""
    if is_terminal(options.input):
        print("a sentence a line; Ctrl-D ends the text", file=sys.stderr)
    with lines_in(options.input) as lines:
        sentences = list(lines)
    targets = None if options.target is None else read_lines(options.target)
    return len(sentences), translator.trace(sentences, targets)


def run_plot(options: argparse.Namespace) -> None:
    from .inspect.plot import figures, page, save_chart
    from .inspect.trace import Trace

    files = Files()
    for path in options.traces:
        files.reads(str(path), path)
    stems = [path.stem for path in options.traces]
    twice = sorted({stem for stem in stems if stems.count(stem) > 1})
    if twice:
        raise ValueError(f"two traces are named {twice[0]}, and so would be their figures; draw them into two folders")

    def save(chart, name: str) -> None:
        options.folder.mkdir(parents=True, exist_ok=True)
        target = options.folder / name
        files.writes(str(target), target)
        with written_aside(target, target.suffix) as aside:
            save_chart(chart, aside)
        print(target)

    for path in options.traces:
        trace = Trace.load(path)
        for ending in dict.fromkeys(options.format):
            try:
                charts = {"": page(trace)} if ending == "html" else figures(trace)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
            for name, chart in charts.items():
                save(chart, f"{'-'.join(filter(None, (path.stem, name)))}.{ending}")


def run_align(options: argparse.Namespace) -> None:
    from .inspect.subwords import SCHEMES, join_subwords, links_of, word_weights

    scheme = scheme_of(options.bpe)
    if options.bpe is not None and scheme is None:
        raise ValueError(
            f"the words of --bpe {options.bpe} cannot be told; align knows {', '.join(SCHEMES)} and fastbpe"
        )
    translator, _ = load(options)
    _, traces = read_traces(options, translator)
    with ExitStack() as files:
        file = files.enter_context(output(options.output))
        kept = None if options.translations is None else files.enter_context(output(options.translations))
        for trace in traces:
            source, target = (join_subwords(side[:-1], scheme) for side in (trace.source, trace.target))
            weights = word_weights(trace.alignment[:-1], source, target)
            links = links_of(weights, len(source.texts), options.null)
            print(" ".join(f"{i}-{j}" for i, j in links), file=file)
            if kept is not None:
                print(" ".join(target.texts), file=kept)


def run_aer(options: argparse.Namespace) -> None:
    from .inspect.alignment import alignment_error_rate, read_alignments

    predicted = read_alignments(options.predicted, one_based=options.predicted_from_1)
    gold = read_alignments(options.gold, one_based=options.gold_from_1)
    score = alignment_error_rate([sentence.possible for sentence in predicted], gold)
    print(
        f"AER {score.aer:.4f}, precision {score.precision:.4f}, recall {score.recall:.4f} ({len(gold)} sentence pairs)"
    )


def run_doctor(options: argparse.Namespace) -> int:
    from .doctor import checks

    wrong = 0
    for check in checks(options.user_dir):
        print(f"{'ok     ' if check.ok else 'PROBLEM'} {check.what}")
        wrong += not check.ok
    print("everything is in place" if not wrong else f"{wrong} problem{'s' if wrong > 1 else ''}")
    return int(wrong > 0)


# --- what the commands share ------------------------------------------------------------------------------------------


def load(options: argparse.Namespace):
    """The translator that the options name, and the command's files, in which what it reads cannot be written over."""
    import ast
    import logging
    import warnings

    files = files_of(options)
    try:
        overrides = ast.literal_eval(options.model_overrides)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        overrides = None
    if not isinstance(overrides, dict) or not all(isinstance(name, str) for name in overrides):
        raise ValueError(f"--model-overrides {options.model_overrides!r} is no dictionary like {{'source_hops': 3}}")

    logging.disable(logging.INFO)  # fairseq's log would stand among the translations
    warnings.simplefilter("ignore", FutureWarning)
    warnings.filterwarnings("ignore", "Detected pickle protocol")  # of a file that is refused in a moment
    from . import models  # noqa: F401  (says in one line what is wrong with PyTorch or fairseq)
    from .inspect.translator import Search, Translator

    search = Search(
        beam=options.beam,
        nbest=getattr(options, "nbest", 1),
        lenpen=options.lenpen,
        max_len_a=options.max_len_a,
        max_len_b=options.max_len_b,
        batch_size=options.batch_size,
    )
    translator = Translator.load(
        options.path.split(":"),
        options.data,
        tokenizer=options.tokenizer,
        bpe=options.bpe,
        bpe_codes=options.bpe_codes,
        search=search,
        overrides=overrides,
        cpu=options.cpu,
        bf16=options.bf16,
    )
    for path in translator.files:
        files.reads(f"{path}, which the model reads", path)
    return translator, files


def files_of(options: argparse.Namespace) -> Files:
    """What the options say that is read and written.

    Raises:
        ValueError: if an output would write over what is read, or over another
        OSError: if a text that is read does not exist
    """
    files = Files()
    for path in options.path.split(":"):
        files.reads(f"--path {path}", path)
    for flag in ("input", "target", "replace_unk", "bpe_codes"):
        path = getattr(options, flag, None)
        if path:
            if flag != "bpe_codes":  # of which the translator tells more
                os.stat(path)
            files.reads(f"--{flag.replace('_', '-')} {path}", path)
    if options.input is None and sys.stdin is not None:
        files.reads("the text on standard input", 0)
    for flag in ("output", "translations"):
        path = getattr(options, flag, None)
        if path is not None:
            files.writes(f"--{flag} {path}", path)
        elif flag == "output" and sys.stdout is not None:
            files.writes("standard output", 1)
    return files


def is_terminal(path: Path | None) -> bool:
    """Whether the text comes from someone's hand."""
    return path is None and sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def lines_in(path: Path | None) -> Iterator[Iterable[str]]:
    """The lines of a file or of standard input.

    Only a line feed ends a line, bytes that are no UTF-8 become �, and a byte order mark is dropped.

    Raises:
        ValueError: if standard input is closed
    """
    if path is None:
        if sys.stdin is None:
            raise ValueError("standard input is closed; name a text with --input")
        if hasattr(sys.stdin, "reconfigure"):  # not so in a notebook
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")
        yield (line.removesuffix("\n").removesuffix("\r") for line in sys.stdin)
        return
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield (line.removesuffix("\n").removesuffix("\r") for line in file)


def read_lines(path: Path) -> list[str]:
    with lines_in(path) as lines:
        return list(lines)


@contextmanager
def output(path: Path | None) -> Iterator[IO[str]]:
    """A file to write lines to, or standard output."""
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    with written_lines(path) as file:
        yield file
