"""Looking inside a model: traces of every architecture, and the package's command line on a trained one."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import LONGEST, read_lines, write_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo import dictionary, random_batch, tiny_model, variant_name, variants

from fairseq_attn_zoo import doctor
from fairseq_attn_zoo.cli import main, read_lexicon, without_unknown
from fairseq_attn_zoo.inspect.trace import Trace
from fairseq_attn_zoo.inspect.translator import Hypothesis, Search, TextPipeline, Translator

WITH_ATTENTION = [variant for variant in variants() if variant[0] != "gru_rnnencdec"]


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
        (("--input", "nowhere.txt"), "No such file or directory: 'nowhere.txt'"),
        (("--nbest", "9"), "--nbest 9 needs a --beam as large; it is 5"),
        (("--model-overrides", "beam"), "--model-overrides 'beam' is no dictionary"),
        (("--model-overrides", "[1]"), "--model-overrides '[1]' is no dictionary"),
        (("--model-overrides", "{'attention_dim': 9}"), "does not fit the data folder or the overrides"),
        (("--path", __file__), "test_inspect.py"),
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
    assert "is no checkpoint of a translation model" in capsys.readouterr().err


def test_no_text_is_written_over(command, corpus, pieces, tmp_path, capsys):
    text = tmp_path / "text"
    write_lines(text, read_lines(pieces / "test.en")[:2])
    before = text.read_bytes()
    for name, flag in (("translate", "--output"), ("align", "--output"), ("align", "--translations")):
        assert command(name, "--input", text, flag, text) == 2
        assert f"{flag} {text} would write over the text" in capsys.readouterr().err
    assert text.read_bytes() == before
    write_lines(tmp_path / "short", ["one"])
    write_lines(tmp_path / "links", ["0-0"])
    assert command("align", "--input", text, "--target", tmp_path / "short", "--output", tmp_path / "links") == 2
    assert read_lines(tmp_path / "links") == ["0-0"]


def test_aer_of_two_files(tmp_path, capsys):
    write_lines(tmp_path / "predicted", ["0-0 1-2", "0-1"])
    write_lines(tmp_path / "gold", ["1-1 2?3", "1-1"])
    assert main(["aer", str(tmp_path / "predicted"), str(tmp_path / "gold"), "--gold-from-1"]) == 0
    # |A| = 3, |S| = 2, |A & S| = 1, |A & P| = 2
    assert capsys.readouterr().out == "AER 0.4000, precision 0.6667, recall 0.5000 (2 sentence pairs)\n"
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
