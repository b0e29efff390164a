"""Looking inside a model: traces of every architecture, and the package's command line on a trained one."""

import io
import os
import pty
import select
import shutil
import signal
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import LONGEST, USER_DIR, error_message, read_lines, run, server, write_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo import dictionary, random_batch, tiny_model, variant_name, variants

from fairseq_attn_zoo import doctor
from fairseq_attn_zoo.cli import main, read_lexicon, without_unknown
from fairseq_attn_zoo.compat.checkpoints import refuse_infinite
from fairseq_attn_zoo.files import remove_leftovers
from fairseq_attn_zoo.inspect.trace import Trace
from fairseq_attn_zoo.inspect.translator import Hypothesis, Search, TextPipeline, Translator
from fairseq_attn_zoo.models import ARCHITECTURES

WITH_ATTENTION = [variant for variant in variants() if ARCHITECTURES[variant[0]].card.has_attention]


def translator(name: str, **flags) -> Translator:
    """A tiny model that was never trained, with what surrounds it."""
    task = SimpleNamespace(
        source_dictionary=dictionary(), target_dictionary=dictionary(), build_generator=lambda models, settings: None
    )
    return Translator([tiny_model(name, **flags)], task, name, TextPipeline(), Search(batch_size=3))


def sentences(lengths: list[int], seed: int) -> list[str]:
    """Sentences of so many words."""
    words = dictionary()
    found = random_batch([length + 1 for length in lengths], seed)
    return [" ".join(words[number] for number in sentence[:-1]) for sentence in found]


# Traces


@pytest.mark.parametrize("variant", WITH_ATTENTION, ids=variant_name)
def test_a_trace_has_every_weight_and_is_the_same_in_a_batch_and_alone(variant, tmp_path):
    name, flags = variant
    model = translator(name, **flags)
    sources, targets = sentences([4, 1, 6, 2], seed=1), sentences([3, 5, 1, 2], seed=2)
    traces = list(model.trace(sources, targets))
    assert [trace.source[:-1] for trace in traces] == [source.split() for source in sources]
    assert [trace.target[:-1] for trace in traces] == [target.split() for target in targets]
    for source, target, trace in zip(sources, targets, traces, strict=True):
        rows, columns = len(trace.target), len(trace.source)
        assert trace.alignment.shape == (rows, columns)
        np.testing.assert_allclose(trace.alignment.sum(axis=1), 1, rtol=1e-5)
        for array_name, weights in trace.weights.items():
            assert weights.shape[:2] == (rows, columns if array_name.startswith("source") else rows)
        (alone,) = model.trace([source], [target])
        assert alone.score == pytest.approx(trace.score)
        assert alone.tree == trace.tree
        assert alone.weights.keys() == trace.weights.keys()
        assert (
            Trace.load(trace.save(tmp_path / "trace.npz")).weights.keys() == trace.weights.keys()
        )  # it is a right one
        for array_name, weights in alone.weights.items():
            np.testing.assert_allclose(trace.weights[array_name], weights, rtol=1e-5, atol=1e-7)


def test_the_score_is_the_mean_log_probability_of_the_forced_words():
    model = translator("lstm_luong_attention")
    (source,), (target,) = sentences([4], seed=1), sentences([3], seed=2)
    (trace,) = model.trace([source], [target])
    numbers = model.encode_target(target).numbers
    read = torch.cat([numbers[-1:], numbers[:-1]]).unsqueeze(0)
    logits, _ = model.models[0](model.encode_source(source).numbers.unsqueeze(0), None, read)
    expected = logits[0].log_softmax(-1)[torch.arange(4), numbers].mean() / np.log(2)
    assert trace.score == pytest.approx(expected.item(), rel=1e-5)


def test_a_word_the_model_does_not_know_keeps_its_name():
    (trace,) = translator("gru_rnnsearch").trace(["w1 zebra w2"], ["okapi w3"])
    assert trace.source == ["w1", "zebra", "w2", "</s>"]
    assert trace.target == ["okapi", "w3", "</s>"]


def test_cky_traces_hold_the_winning_splits_and_the_tree():
    (trace,) = translator("lstm_cky_attention").trace(["w1 w2 w3"], ["w4"])
    assert trace.splits.shape == (4, 4)
    assert trace.tree.replace("(", "").replace(")", "") == "w1 w2 w3 </s>"
    left = trace.tree.replace("(", "").split()[: trace.splits[0, 3]]  # of the whole sentence
    assert trace.tree.startswith("(" + (left[0] if len(left) == 1 else "("))


def test_what_cannot_be_traced_is_refused_in_a_line():
    model = translator("gru_rnnsearch")
    with pytest.raises(ValueError, match="2 sentences, but 1 translations"):
        list(model.trace(["w1", "w2"], ["w1"]))
    model.models *= 2
    with pytest.raises(ValueError, match="an ensemble has no weights of its own"):
        list(model.trace(["w1"], ["w1"]))
    with pytest.raises(ValueError, match="gru_rnnencdec has no attention"):
        list(translator("gru_rnnencdec").trace(["w1"], ["w1"]))
    with pytest.raises(
        ValueError, match="sentence 2: a sentence of 61 tokens is longer than the model's maximum of 50"
    ):
        translator("gru_rnnsearch").trace(["w1", "w1 " * 60], ["w1", "w2"])  # before the first trace is asked for


@pytest.mark.parametrize("name", ["lstm_cky_attention", "lstm_memnet_hops", "lstm_fine_grained"])
@pytest.mark.parametrize("ending", [".npz", ".json"])
def test_a_saved_trace_comes_back(tmp_path, name, ending):
    (trace,) = translator(name).trace(["w1 日本 w3"], ["w4 w5"])
    again = Trace.load(trace.save(tmp_path / f"trace{ending}"))
    assert (again.source, again.target, again.tree, again.score) == (
        trace.source,
        trace.target,
        trace.tree,
        trace.score,
    )
    assert again.weights.keys() == trace.weights.keys()
    for array_name, weights in {**trace.weights, "alignment": trace.alignment}.items():
        found = again.alignment if array_name == "alignment" else again.weights[array_name]
        np.testing.assert_allclose(found, weights, rtol=1e-5)
    if trace.splits is not None:
        np.testing.assert_array_equal(again.splits, trace.splits)


@pytest.mark.parametrize("text", ["{}", '{"weights": [], "splits": null}', ""])
def test_a_file_that_is_no_trace_is_named(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json is not a trace"):
        Trace.load(path)


@pytest.mark.parametrize("kept", [0, 200])
def test_a_trace_that_was_cut_off_is_named(tmp_path, kept):
    (trace,) = translator("gru_rnnsearch").trace(["w1"], ["w2"])
    path = trace.save(tmp_path / "trace.npz")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"trace\.npz is not a trace"):
        Trace.load(path)


def test_each_language_has_its_own_tokenizer():
    pipeline = TextPipeline("moses", source_language="de", target_language="en")
    assert pipeline.encode_target("don't") == TextPipeline("moses", source_language="en").encode("don't")
    assert pipeline.encode("don't") != pipeline.encode_target("don't")


def test_the_format_of_nematus():
    trace = Trace("x", ["ein", "haus", "</s>"], ["house", "</s>"], np.array([[0.25, 0.5, 0.25], [0, 0, 1]]), score=-0.5)
    assert trace.nematus(7) == "7 ||| house ||| -0.5 ||| ein haus ||| 3 2\n0.25 0.5 0.25\n0 0 1\n"


# The command line


@pytest.fixture(scope="module")
def command(corpus, trained):
    """A function that runs a command on a trained RNNsearch, subwords in and out, and returns its exit status."""

    def run(name: str, *arguments) -> int:
        model = ["--path", str(trained("gru_rnnsearch").best), "--cpu"]
        return main([name, *model, *map(str, arguments)])

    return run


@pytest.fixture
def pieces(corpus):
    """Subwords of the test set."""
    return corpus.codes.parent / "pieces"


def test_translations_and_scores_are_those_of_fairseq_generate(command, corpus, generated, tmp_path):
    expected = generated("gru_rnnsearch", "--remove-bpe", "--max-len-a", "0", "--max-len-b", "30", "--nbest", "2")
    text, output = corpus.raw / "test.en", tmp_path / "out"
    flags = ("--bpe", "subword_nmt", "--bpe-codes", corpus.codes, "--nbest", 2, "--max-len-b", 30)
    assert command("translate", "--input", text, "--output", output, "--scores", *flags) == 0
    lines = [line.split("\t") for line in read_lines(output)]
    assert len(lines) == 2 * len(expected)
    for number, sentence in expected.items():
        for (score, words), hypothesis in zip(lines[2 * number : 2 * number + 2], sentence.hypotheses, strict=True):
            assert words.split() == hypothesis.words
            assert float(score) == pytest.approx(hypothesis.score, abs=1e-3)


def test_commands_in_bfloat16_are_close_to_float32(corpus, trained, pieces, tmp_path):
    """Of a model that knows where to look: between weights that are nearly equal, rounding decides."""
    model = ("--path", trained("lstm_luong_attention").best, "--cpu", "--input", pieces / "test.en")
    forced = ("--target", pieces / "test.ja")
    scored, links, traces = [], [], []
    for asked in ([], ["--bf16"]):
        folder = tmp_path / f"traces{''.join(asked)}"
        commands = {
            "translate": ("--scores", "--max-len-b", 30, "--output", tmp_path / "translations"),
            "align": (*forced, "--output", tmp_path / "links"),
            "trace": (*forced, "--folder", folder, "--output", tmp_path / "names"),
        }
        for name, flags in commands.items():
            assert main([name, *map(str, (*model, *flags)), *asked]) == 0
        scored.append([line.split("\t") for line in read_lines(tmp_path / "translations")])
        links.append([set(line.split()) for line in read_lines(tmp_path / "links")])
        traces.append([Trace.load(path) for path in sorted(folder.glob("*.npz"))])

    pairs = zip(*scored, strict=True)
    same = [(float(one), float(other)) for (one, text), (other, words) in pairs if text == words]
    assert len(same) > len(scored[0]) / 2
    assert any(one != other for one, other in same)
    assert all(one == pytest.approx(other, abs=0.1) for one, other in same)
    shared = sum(len(one & other) for one, other in zip(*links, strict=True))
    assert shared > 0.9 * sum(map(len, links[0]))
    for one, other in zip(*traces, strict=True):
        np.testing.assert_allclose(other.alignment, one.alignment, rtol=0, atol=0.05)
        assert one.score == pytest.approx(other.score, abs=0.1)
        assert one.score != other.score


def test_as_many_lines_come_out_as_go_in_and_in_order(command, pieces, tmp_path, monkeypatch, capsys):
    lines = read_lines(pieces / "test.en")[:6]
    alone = tmp_path / "alone"
    write_lines(tmp_path / "in", lines)
    command("translate", "--input", tmp_path / "in", "--output", alone)
    odd = [
        lines[0],
        "",
        lines[1],
        "   ",
        "\u2028",
        lines[2].replace(" ", "\u2028"),
        *lines[3:],
        "a " * LONGEST,
        "\0",
        "�",
    ]
    text = b"\xef\xbb\xbf" + "\n".join(odd).encode() + b" \xff\xfe"  # no line feed at the end, and no UTF-8
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert command("translate", "--buffer-size", 2, "--batch-size", 2) == 0
    printed = capsys.readouterr()
    found = printed.out.split("\n")
    assert found.pop() == ""
    assert printed.err.count("\n") == 1
    assert (
        f"sentence 10: a sentence of {LONGEST + 1} tokens is longer than the model's maximum of {LONGEST}"
        in printed.err
    )
    assert len(found) == len(odd)
    expected = read_lines(alone)
    assert [found[0], found[2], *found[5:9]] == expected
    assert found[1] == found[3] == found[4] == found[9] == ""


lines_of_bytes = st.one_of(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30).map(str.encode),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from(
        [b"", b" ", b"\r", b"\xef\xbb\xbf", b"a " * 10_000, "👩‍👩‍👧‍👦".encode(), "\u2028\u2029\x85".encode()]
    ),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(lines_of_bytes, min_size=1, max_size=6), ended=st.booleans())
def test_any_lines_of_bytes_get_a_line_each(command, pieces, tmp_path, lines, ended):
    """A known sentence behind each of them is translated as it is alone."""
    known = read_lines(pieces / "test.en")[0]
    assert command("translate", "--input", pieces / "test1.en", "--output", tmp_path / "alone", "--beam", 1) == 0
    text = b"\n".join(part for line in lines for part in (line, known.encode())) + b"\n" * ended
    (tmp_path / "in").write_bytes(text)
    (tmp_path / "out").unlink(missing_ok=True)
    assert command("translate", "--input", tmp_path / "in", "--output", tmp_path / "out", "--beam", 1) == 0
    found = read_lines(tmp_path / "out")
    assert len(found) == 2 * len(lines)
    assert found[1::2] == read_lines(tmp_path / "alone") * len(lines)


def test_alignments_are_those_of_fairseqs_scorer(command, generated, pieces, tmp_path):
    expected = generated("gru_rnnsearch", "--score-reference", "--print-alignment", "hard")
    flags = ("--input", pieces / "test.en", "--target", pieces / "test.ja", "--output", tmp_path / "links")
    assert command("align", *flags) == 0
    lines = read_lines(tmp_path / "links")
    assert lines == [expected[number].best.alignment for number in range(len(expected))]


def test_subwords_are_aligned_as_words(command, corpus, tmp_path):
    raw = corpus.raw
    flags = ("--bpe", "subword_nmt", "--bpe-codes", corpus.codes, "--translations", tmp_path / "words")
    target = ("--target", raw / "test.ja", "--output", tmp_path / "links")
    assert command("align", "--input", raw / "test.en", *target, *flags) == 0
    assert read_lines(tmp_path / "words") == read_lines(raw / "test.ja")
    sides = [read_lines(raw / f"test.{side}") for side in ("en", "ja")]
    for line, source, target in zip(read_lines(tmp_path / "links"), *sides, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert [j for _, j in links] == list(range(len(target.split())))
        assert all(0 <= i < len(source.split()) for i, _ in links)


def test_traces_of_a_text_become_files(command, pieces, tmp_path, capsys):
    write_lines(tmp_path / "in", [*read_lines(pieces / "test.en")[:2], ""])
    assert command("trace", "--input", tmp_path / "in", "--folder", tmp_path / "traces") == 0
    names = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert names == [*(f"000{i}.{ending}" for i in range(3) for ending in ("json", "npz")), "alignments.nematus"]
    printed = capsys.readouterr().out.splitlines()
    trace = Trace.load(tmp_path / "traces" / "0001.npz")
    assert printed[1].split("\t")[1] == " ".join(trace.target[:-1])
    blocks = (tmp_path / "traces" / "alignments.nematus").read_text().split("\n\n")
    assert blocks[1] + "\n" == trace.nematus(1)


def test_unknown_words_take_what_they_attend_to(tmp_path):
    write_lines(tmp_path / "lexicon", ["haus house", "haus home\r", "zug\ttrain\r"])
    lexicon = read_lexicon(str(tmp_path / "lexicon"))
    assert lexicon == {"haus": "house", "zug": "train"}
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0, 0, 1.0]])
    found = Hypothesis("", ["<unk>", "<unk>"], 0.0, weights, ["haus", "okapi"])
    assert without_unknown(found, "<unk>", lexicon) == ["okapi", "house"]
    split = found._replace(source=["ha@@", "us"], tokens=["<unk>"])
    assert without_unknown(split, "<unk>", lexicon, "subword_nmt") == ["house"]
    write_lines(tmp_path / "lexicon", ["haus"])
    with pytest.raises(ValueError, match="lexicon, line 1: expected 'source target'"):
        read_lexicon(str(tmp_path / "lexicon"))


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--path", "nowhere.pt"), "there is no checkpoint nowhere.pt"),
        (("--data", "nowhere"), "there is no folder nowhere"),
        (("--bpe", "subword_nmt"), "--bpe subword_nmt needs --bpe-codes"),
        (("--tokenizer", "perfect"), "no --tokenizer 'perfect'; there are "),
        (("--input", "nowhere.txt"), "there is no file or folder nowhere.txt"),
        (("--replace-unk", "nowhere.txt"), "there is no file or folder nowhere.txt"),
        (("--output", "nowhere/out"), "--output nowhere/out cannot be written: there is no folder "),
        (("--nbest", "9"), "--nbest 9 needs a --beam as large; it is 5"),
        (("--model-overrides", "beam"), "--model-overrides 'beam' is no dictionary"),
        (("--model-overrides", "[1]"), "--model-overrides '[1]' is no dictionary"),
        (("--model-overrides", "{'attention_dim': 9}"), "does not fit the data folder or the overrides"),
        (("--path", __file__), f"{__file__} is no checkpoint but some other file"),
        (("--model-overrides", "{'_name': 'lstm'}"), "--model-overrides cannot change '_name'"),
        (("--bpe", "subword_nmt", "--bpe-codes", __file__), f"{__file__} cannot be read as the --bpe-codes"),
        (("--bpe", "gpt2", "--bpe-codes", __file__), "--bpe gpt2 does not read it"),
    ],
)
def test_a_mistake_gets_one_line(command, capsys, flags, message):
    assert command("translate", *flags) == 2
    errors = capsys.readouterr().err.strip().split("\n")
    assert len(errors) == 1
    assert errors[0].startswith("fairseq-attn-zoo translate: ")
    assert message in errors[0]


def test_a_strangers_checkpoint_is_no_traceback(tmp_path, capsys):
    torch.save({"a": 1}, tmp_path / "other.pt")
    assert main(["translate", "--path", str(tmp_path / "other.pt")]) == 2
    assert "other.pt is no checkpoint of a model" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--max-len-a", "inf"), ("--max-len-a", "nan"), ("--lenpen", "nan")], ids=" ".join)
def test_a_number_that_is_none_gets_one_line(capsys, flags):
    with pytest.raises(SystemExit):
        main(["translate", "--path", "x", *flags])
    assert f"argument {flags[0]}: {flags[1]} is no finite number" in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def reading(corpus, trained, pieces, tmp_path):
    """A folder with a file of each kind that is read, and the flags that name them."""
    shutil.copy(trained("gru_rnnsearch").best, tmp_path / "model.pt")
    shutil.copytree(corpus.data, tmp_path / "data")
    shutil.copy(corpus.codes, tmp_path / "codes")
    write_lines(tmp_path / "lexicon", ["dog inu"])
    for language in ("en", "ja"):
        write_lines(tmp_path / f"text.{language}", read_lines(corpus.raw / f"test.{language}")[:3])
    model = ["--path", tmp_path / "model.pt", "--data", tmp_path / "data", "--cpu"]
    model += ["--bpe", "subword_nmt", "--bpe-codes", tmp_path / "codes", "--input", tmp_path / "text.en"]
    return tmp_path, [str(part) for part in model]


def bytes_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


READ = ("model.pt", "codes", "text.en", "data/dict.en.txt", "data/dict.ja.txt")


@pytest.mark.parametrize("name", READ)
def test_nothing_that_is_read_is_written_over(reading, capsys, name):
    folder, model = reading
    (folder / "soft").symlink_to(folder / name)
    (folder / "hard").hardlink_to(folder / name)
    before = bytes_of(folder)
    for output in (folder / name, folder / "soft", folder / "hard"):
        assert main(["translate", *model, "--output", str(output)]) == 2
        assert f"--output {output} would write over " in capsys.readouterr().err
    assert bytes_of(folder) == before


def test_no_other_text_that_is_read_is_written_over(reading, capsys, monkeypatch):
    folder, model = reading
    before = bytes_of(folder)
    target, lexicon = str(folder / "text.ja"), str(folder / "lexicon")
    for flag in ("--output", "--translations"):
        assert main(["align", *model, "--target", target, flag, target]) == 2
        assert f"{flag} {target} would write over --target" in capsys.readouterr().err
    assert main(["translate", *model, "--replace-unk", lexicon, "--output", lexicon]) == 2
    assert "would write over --replace-unk" in capsys.readouterr().err
    (folder / "alignments.nematus").symlink_to("text.en")
    assert main(["trace", *model, "--folder", str(folder)]) == 2
    assert "alignments.nematus would write over --input" in capsys.readouterr().err
    (folder / "alignments.nematus").unlink()
    (folder / "0001.json").hardlink_to(target)
    assert main(["trace", *model, "--target", target, "--folder", str(folder)]) == 2
    assert "0001.json would write over --target" in capsys.readouterr().err
    (folder / "0001.json").unlink()
    assert main(["align", *model, "--output", str(folder / "new"), "--translations", str(folder / "new")]) == 2
    assert "are the same file" in capsys.readouterr().err
    assert bytes_of(folder) == before


def test_the_text_on_standard_input_is_not_written_over(reading, capsys):
    folder, model = reading
    before = bytes_of(folder)
    text = folder / "text.en"
    kept = os.dup(0)
    try:
        with text.open() as file:
            os.dup2(file.fileno(), 0)
        assert main(["translate", *model[: model.index("--input")], "--output", str(text)]) == 2
    finally:
        os.dup2(kept, 0)
    assert f"--output {text} would write over the text on standard input" in capsys.readouterr().err
    assert bytes_of(folder) == before


def test_outputs_appear_whole_or_not_at_all(reading, monkeypatch, capsys):
    folder, model = reading
    write_lines(folder / "out", ["before"])
    before = bytes_of(folder)

    def translate(self, *_):
        yield [Hypothesis("one", ["one"], 0.0, None, ["one"])]
        raise ValueError("and then it failed")

    monkeypatch.setattr(Translator, "translate", translate)
    assert main(["translate", *model, "--output", str(folder / "out")]) == 2
    assert "and then it failed" in capsys.readouterr().err
    assert bytes_of(folder) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_killed_leaves_the_output_as_it_was(reading, number):
    folder, model = reading
    write_lines(folder / "out", ["before"])
    names = set(os.listdir(folder)) | {"text", "log"}
    os.mkfifo(folder / "text")
    arguments = [*model, "--input", folder / "text", "--output", folder / "out", "--buffer-size", 1]
    process = server().start("attn-zoo", ["translate", *arguments], folder / "log", folder)
    with open(os.open(folder / "text", os.O_RDWR), "w") as text:  # the command reads a line and waits for the next
        print(read_lines(folder / "text.en")[0], file=text, flush=True)
        while not any(path.stat().st_size for path in folder.glob(".out.*")):
            os.kill(process, 0)  # raises if it has ended of itself
            time.sleep(0.01)
        os.kill(process, number)
        status = server().wait()
    assert read_lines(folder / "out") == ["before"]
    if number == signal.SIGTERM:
        assert status == 128 + signal.SIGTERM and set(os.listdir(folder)) == names
    remove_leftovers.cache_clear()
    assert main(["translate", *model, "--output", str(folder / "out")]) == 0
    assert set(os.listdir(folder)) == names and len(read_lines(folder / "out")) == 3


def test_a_model_whose_parameters_are_no_numbers_is_refused_by_every_command(reading, corpus, capsys):
    folder, model = reading
    state = torch.load(folder / "model.pt")
    state["model"]["decoder.output_projection.weight"][0, 0] = float("nan")
    state["model"]["encoder.embed_tokens.weight"][5] = float("-inf")
    torch.save(state, folder / "model.pt")
    wrong = (
        "model.pt cannot be used: encoder.embed_tokens.weight, decoder.output_projection.weight hold NaN or infinite"
    )
    for command in (["translate"], ["align"], ["trace", "--folder", str(folder / "traces")]):
        assert main([*command, *model]) == 2
        errors = capsys.readouterr().err
        assert wrong in errors and errors.count("\n") == 1
    for command in ("generate", "validate"):
        flags = ("--path", folder / "model.pt", "--task", "translation", "--max-tokens", 500)
        output = run(command, corpus.data, *USER_DIR, *flags, cwd=folder, fails=True)
        assert wrong in error_message(output)


def test_a_model_of_fairseqs_own_is_looked_at_too():
    layer = torch.nn.Linear(2, 2)
    refuse_infinite("other.pt", dict(layer.named_parameters()))
    torch.nn.init.constant_(layer.bias, float("inf"))
    with pytest.raises(ValueError, match="other.pt cannot be used: bias hold"):
        refuse_infinite("other.pt", dict(layer.named_parameters()))


def test_closed_streams_get_one_line(reading, capsys, monkeypatch):
    folder, model = reading
    model = model[: model.index("--input")]
    monkeypatch.setattr("sys.stdin", None)
    assert main(["translate", *model]) == 2
    assert capsys.readouterr().err == (
        "fairseq-attn-zoo translate: standard input is closed; name a text with --input\n"
    )


def test_a_reader_that_has_seen_enough_ends_a_translation(reading):
    folder, model = reading
    write_lines(folder / "long", read_lines(folder / "text.en") * 50)
    os.mkfifo(folder / "pipe")
    flags = ["--input", folder / "long", "--buffer-size", 1, "--beam", 1]
    server().start("attn-zoo", ["translate", *model, *flags], folder / "pipe", folder)
    with (folder / "pipe").open() as pipe:
        assert pipe.readline().strip()
        rest = pipe.buffer.peek()  # what was written meanwhile
    assert server().wait() == 141
    assert b"Error" not in rest


def test_on_a_terminal_each_line_is_asked_for_and_answered(reading):
    folder, model = reading
    known = read_lines(folder / "text.en")[0]
    assert main(["translate", *model, "--output", str(folder / "alone")]) == 0
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    terminal = os.ttyname(theirs)
    model = model[: model.index("--input")]
    process = server().start("attn-zoo", ["translate", *model], Path(terminal), folder, Path(terminal))

    def answer(line: str) -> str:
        os.write(ours, line.encode())
        return until_prompt()

    def until_prompt() -> str:
        read = ""
        while not read.endswith("> ") and select.select([ours], [], [], 60)[0]:
            read += os.read(ours, 10_000).decode()
        return read.replace("\r", "")

    try:
        assert until_prompt() == "a sentence a line; Ctrl-D ends\n> "
        assert answer(f"{known}\n") == read_lines(folder / "alone")[0] + "\n> "
        assert answer("the Zq zebra\n").startswith("not known to the model: Zq, zebra\n")
        assert answer("\n") == "\n> "
        os.write(ours, b"\x04")
    finally:
        if not select.select([server().process.stdout], [], [], 60)[0]:
            os.kill(process, signal.SIGKILL)
    assert server().wait() == 0
    os.close(ours)
    os.close(theirs)


def test_a_refused_command_leaves_its_outputs_alone(command, pieces, tmp_path):
    write_lines(tmp_path / "text", read_lines(pieces / "test.en")[:2])
    write_lines(tmp_path / "short", ["one"])
    write_lines(tmp_path / "links", ["0-0"])
    flags = ("--input", tmp_path / "text", "--target", tmp_path / "short", "--output", tmp_path / "links")
    assert command("align", *flags) == 2
    assert read_lines(tmp_path / "links") == ["0-0"]


def test_aer_of_two_files(tmp_path, capsys):
    write_lines(tmp_path / "predicted", ["0-0 1-2", "0-1"])
    write_lines(tmp_path / "gold", ["1-1 2?3", "1-1"])
    assert main(["aer", str(tmp_path / "predicted"), str(tmp_path / "gold"), "--gold-from-1"]) == 0
    # |A| = 3, |S| = 2, |A & S| = 1, |A & P| = 2
    assert capsys.readouterr().out == "AER 0.4000, precision 0.6667, recall 0.5000 (2 sentence pairs)\n"
    (tmp_path / "gold").write_bytes(b"\xef\xbb\xbf1-1 2?3\r\n1-1\r\n")  # as some editors save it
    assert main(["aer", str(tmp_path / "predicted"), str(tmp_path / "gold"), "--gold-from-1"]) == 0
    assert capsys.readouterr().out.startswith("AER 0.4000")
    (tmp_path / "gold").write_bytes(b"0-0\n\xff\n")
    assert main(["aer", str(tmp_path / "predicted"), str(tmp_path / "gold")]) == 2
    assert "gold, line 2: malformed link" in capsys.readouterr().err
    write_lines(tmp_path / "gold", ["1-1"])
    assert main(["aer", str(tmp_path / "predicted"), str(tmp_path / "gold")]) == 2
    assert "2 predicted alignments, but 1 gold alignments" in capsys.readouterr().err


def test_the_doctor_finds_the_package_and_what_is_wrong(capsys, tmp_path, monkeypatch):
    assert main(["doctor"]) == 0
    healthy = capsys.readouterr().out
    assert "keep_last_batch" in healthy and "lstm_cky_attention" in healthy
    assert healthy.count(" bfloat16: this ") == 1
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--user-dir", "no_such_folder"]) == 1
    sick = capsys.readouterr().out
    assert "PROBLEM --user-dir no_such_folder: no package there" in sick
    assert sick.endswith("1 problem\n")


@pytest.mark.parametrize(
    "flags, said",
    [
        ("flags : sse2 avx512_bf16 amx_bf16 amx_tile", "this processor multiplies it in hardware (AMX); --bf16 may be"),
        ("flags : sse2 avx512_bf16", "in hardware (AVX512-BF16)"),
        ("Features : fp asimd bf16", "in hardware (Arm's BF16)"),
        ("flags : sse2 avx512f", "does not multiply it in hardware; leave --bf16 out"),
        (None, "does not say whether this processor multiplies it"),
    ],
    ids=["amx", "avx512", "arm", "none", "unknown"],
)
def test_the_doctor_knows_processors_that_multiply_bfloat16(monkeypatch, tmp_path, flags, said):
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\n{flags}\n")
    monkeypatch.setattr(doctor, "PROCESSOR", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check = doctor.bfloat16()
    assert check.ok and said in check.what and "\n" not in check.what


@pytest.mark.parametrize("capability, said", [((7, 5), "does not multiply"), ((8, 0), "multiplies it in hardware")])
def test_the_doctor_knows_gpus_that_multiply_bfloat16(monkeypatch, capability, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert f"{capability[0]}.{capability[1]}) {said}" in doctor.bfloat16().what


def test_every_command_explains_itself(capsys):
    for name in ("translate", "trace", "plot", "align", "aer", "doctor"):
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert len(capsys.readouterr().out.split()) > 20
