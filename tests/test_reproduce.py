"""The runner of the papers' tables: from a recipe and tokens to a table, figures, and what is not done twice."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path[:0] = [str(EXAMPLES / "reproduce"), str(EXAMPLES)]

from claims import BEGIN, END, claim_lines, decide, difference, verdict, write_page  # noqa: E402
from corpora import find_corpus, get_corpus, prepare, read_lines  # noqa: E402
from recipe import Claim, Preparation, conditions_of, read_recipe  # noqa: E402
from report import add_significance, grid, table_row  # noqa: E402
from runs import how_it_ended, learning_curve, update_of_half, without_unknown, words_per_second  # noqa: E402
from scores import bleu_by_length, corpus_scores, paired_bootstrap  # noqa: E402
from steps import StepFailed  # noqa: E402

from fairseq_attn_zoo.grammar import write_corpus  # noqa: E402

PAPERS = ("bahdanau2015", "mino2017", "simon2017", "choi2018", "watanabe2017")
RECIPES = (*PAPERS, "zoo", "grammar", "tanaka")
TOY = """
title: Toy
languages: en-ja
prepare: {threshold: 2, max-length: 15}
flags: >-
  --encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8 --decoder-hidden-size 16
  --optimizer adam --lr 0.01 --max-update 12 --max-tokens 300
decoding: --beam 2
no-unk: true
baseline: T0S1
systems:
  T0S1: --arch lstm_memnet_hops --source-hops 1 --target-hops 0
  broken: --arch lstm_memnet_hops --source-hops 99
  T0S1 with S2: {model: T0S1, decoding: '--model-overrides "{''source_hops'':2}"'}
  paper only: --arch gru_rnnsearch
small:
  prepare: {max-length: 10}
  systems: {paper only: null}
"""


@pytest.fixture
def toy(tmp_path) -> Path:
    """A folder with a corpus, its hand-aligned test set and a recipe."""
    write_corpus(tmp_path / "toy", train=200, valid=10, test=15, max_length=14)
    for language in ("en", "ja"):
        (tmp_path / "toy" / f"valid.{language}").rename(tmp_path / "toy" / f"dev.{language}")
    sides = [read_lines(tmp_path / "toy" / f"test.{language}") for language in ("en", "ja")]
    pairs = "".join(f"{source} ||| {target}\n" for source, target in zip(*sides, strict=True))
    (tmp_path / "toy" / "gold.txt").write_text(pairs, encoding="utf-8")
    (tmp_path / "toy.yaml").write_text(TOY, encoding="utf-8")
    return tmp_path


def reproduce(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(EXAMPLES / "reproduce"), "toy.yaml", "--data", "toy", "--small", "--cpu", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")


def test_a_recipe_becomes_a_table_a_failing_row_stops_no_other_and_nothing_is_done_twice(toy):
    gold = ("--gold", "toy/test.align", "--gold-text", "toy/gold.txt")
    first = reproduce(toy, *gold, "--report", "results")
    assert first.returncode == 1
    assert "training of broken, seed 1 failed" in first.stderr and "1 failed; the same command" in first.stderr
    with (toy / "results" / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["system"] for row in rows] == ["T0S1", "T0S1 with S2"]
    for row in rows:
        assert 0 < float(row["aer"]) <= 1 and int(row["updates"]) == 12 and 0 < int(row["no_unk_sentences"]) <= 15
        assert "tok:none" in row["bleu_signature"]
    assert rows[0]["p"] == "" and 0 < float(rows[1]["p"]) <= 1
    assert rows[0]["parameters"] == rows[1]["parameters"] != ""
    table = (toy / "results" / "results.md").read_text(encoding="utf-8")
    assert table in first.stdout and "| T0S1 with S2 | 1 |" in table and "No UNK" in table
    assert "--data DATA/toy" in table and str(toy) not in table
    lengths, curves = (
        (toy / "results" / f"{name}.svg").read_text("utf-8") for name in ("bleu-by-length", "learning-curves")
    )
    assert "T0S1 with S2" in lengths and ">T0S1<" in lengths
    assert "T0S1 with S2" not in curves and ">T0S1<" in curves  # one model, one curve

    logs = {path: path.stat().st_mtime_ns for path in (toy / "build").rglob("*.log") if "t0s1" in str(path)}
    again = reproduce(toy, *gold, "--report", "results", "--systems", "T0S1", "T0S1 with S2")
    assert again.returncode == 0, again.stderr
    assert "training, log in" not in again.stdout
    assert len(logs) > 3 and logs == {path: path.stat().st_mtime_ns for path in logs}
    with (toy / "results" / "results.csv").open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == rows

    # What stands beside the table is enough, also on another machine.
    for model in (toy / "build").rglob("t0s1-seed1-*"):
        shutil.rmtree(model)
    later = reproduce(toy, *gold, "--report", "results", "--systems", "T0S1", "T0S1 with S2")
    assert later.returncode == 0, later.stderr
    assert "training, log in" not in later.stdout and not list((toy / "build").rglob("checkpoint_*.pt"))
    with (toy / "results" / "results.csv").open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == rows


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--systems", "T9"], "toy has no system T9; it has T0S1"),
        (["--data", "nowhere"], "nowhere has no corpus: expected tokenised files named"),
        (["--conditions", "dark"], "toy.yaml has no condition dark; it has none"),
        (["--prepare", "bpe"], "--prepare bpe is not KEY=VALUE"),
        (["--prepare", "stemming=1"], "unexpected keyword argument 'stemming'"),
        (["--gold", "a", "--gold-text", "b"], "there is no file b"),
        (
            ["--gold", "toy/test.align", "--gold-text", "toy/test.en"],
            "toy/test.en, line 1: expected 'source ||| target'",
        ),
        (["--gold", "toy.yaml", "--gold-text", "toy/gold.txt"], "toy/gold.txt has 15 lines, toy.yaml"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(toy, arguments, line):
    finished = reproduce(toy, *arguments)
    assert finished.returncode == 1
    assert finished.stderr.startswith("reproduce: ") and finished.stderr.count("\n") == 1
    assert line in finished.stderr


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("small", [False, True])
def test_every_flag_of_the_recipes_is_one_of_fairseq_train(name, small):
    from fairseq import options

    import fairseq_attn_zoo  # noqa: F401  (registers the architectures)

    recipe = read_recipe(name, small)
    assert recipe.system(recipe.baseline).model is None
    for system in recipe.systems:
        if system.model is None:
            parsed = options.parse_args_and_arch(options.get_training_parser(), ["data", *system.flags])
            assert parsed.arch == system.architecture
        options.parse_args_and_arch(options.get_generation_parser(), ["data", "--path", "x", *system.decoding])


def test_one_system_stands_for_every_architecture_beside_a_baseline_with_as_wide_an_encoder(tmp_path):
    from fairseq_attn_zoo.models import ARCHITECTURES

    path = tmp_path / "all.yaml"
    path.write_text(
        """
title: All
languages: de-en
width: 16
flags: --dropout 0.2
baseline: wide
systems:
  wide: --arch lstm
  narrow: --arch lstm --encoder-hidden-size 8
  every architecture: {flags: --max-update 3, against: [wide, narrow]}
  gru_rnnsearch: {flags: --arch gru_rnnsearch --encoder-layers 2, against: narrow}
  gru_coverage: null
""",
        encoding="utf-8",
    )
    recipe = read_recipe(str(path))
    assert {system.name for system in recipe.systems} == {"wide", "narrow", *ARCHITECTURES} - {"gru_coverage"}
    for system in recipe.systems[2:-1]:
        assert system.architecture == system.name and "--max-update" in system.flags
        half = ARCHITECTURES[system.name].card.widths.directions == 2
        assert system.against == ("narrow" if half else "wide")
    assert recipe.systems[-1].name == "gru_rnnsearch" and "--max-update" not in recipe.systems[-1].flags
    path.write_text(path.read_text(encoding="utf-8").replace("[wide, narrow]", "[wide]"), encoding="utf-8")
    with pytest.raises(StepFailed, match="lstm_luong_attention has an --encoder-hidden-size of 8, as none of wide"):
        read_recipe(str(path))


def test_every_paper_has_its_page_and_its_script():
    for paper in PAPERS:
        assert (EXAMPLES / paper / "README.md").is_file()
        script = EXAMPLES / paper / "run.sh"
        assert os.access(script, os.X_OK)
        finished = subprocess.run([script], env={**os.environ, "DATA": ""}, capture_output=True, encoding="utf-8")
        assert finished.returncode == 1 and finished.stderr.startswith(f"{paper}: set DATA to the folder")


@pytest.mark.parametrize(
    "change, line",
    [
        ({"baseline": "T5"}, "names systems that it does not have: T5"),
        ({"colour": "red"}, "the recipe has colour; known are"),
        ({"systems": {"T0S1": "--source-hops 1"}}, "the flags of T0S1 name no --arch"),
        ({"systems": {"T0S1": {"decoding": "--beam 1"}}}, "the system T0S1 needs either flags or model"),
    ],
)
def test_a_mistake_in_a_recipe_is_named(tmp_path, change, line):
    path = tmp_path / "mistake.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(TOY), **change}), encoding="utf-8")
    with pytest.raises(StepFailed, match=line):
        read_recipe(str(path))


def test_small_replaces_key_by_key_and_null_takes_a_row_away(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(TOY, encoding="utf-8")
    whole, small = read_recipe(str(path)), read_recipe(str(path), small=True)
    assert [system.name for system in whole.systems] == ["T0S1", "broken", "T0S1 with S2", "paper only"]
    assert [system.name for system in small.systems] == ["T0S1", "broken", "T0S1 with S2"]
    assert whole.systems[0].prepare == Preparation(threshold=2, max_length=15)
    assert small.systems[0].prepare == Preparation(threshold=2, max_length=10)
    assert small.systems[2].decoding == ["--beam", "2", "--model-overrides", "{'source_hops':2}"]


def test_preparation_drops_long_training_pairs_only_lowercases_and_splits_into_subwords(tmp_path):
    for split, lines in {"train": ["Aa aab c", "Daab e", "F aab"], "tune": ["A b c d"], "dev": ["Zaa Z"]}.items():
        for language in ("ja", "en"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus = find_corpus(tmp_path, ("ja", "en"))
    assert corpus.valid.name == "tune" and corpus.test.name == "dev"
    prepared = prepare(corpus, Preparation(lowercase=True, max_length=2, bpe=1), tmp_path / "out")
    assert read_lines(prepared.text / "train.ja") == ["d@@ a@@ ab e", "f a@@ ab"]
    assert read_lines(prepared.text / "valid.words.ja") == ["a b c d"]
    assert prepared.words("test", 0) == ["zaa z"] and read_lines(prepared.text / "test.ja") == ["z@@ a@@ a z"]
    assert without_unknown(prepared) == []  # z@@ stands in no training sentence
    (tmp_path / "train.ja").write_text("Aa aab c\nDaab z\nF aab\n", encoding="utf-8")
    changed = prepare(corpus, Preparation(lowercase=True, max_length=2, bpe=1), tmp_path / "out")
    assert changed.folder != prepared.folder and "d@@ a@@ ab z" in read_lines(changed.text / "train.ja")
    with (tmp_path / "dev.en").open("a", encoding="utf-8") as file:
        file.write("one more\n")
    with pytest.raises(StepFailed, match="differ in length"):
        prepare(corpus, Preparation(), tmp_path / "other")


def test_bleu_by_length_takes_every_sentence_once_and_parts_no_length():
    sources = ["a " * count for count in (1, 2, 2, 2, 2, 3, 9, 9)]
    references = [f"x y z w {number}" for number in range(8)]
    groups = bleu_by_length(references[:6] + ["no", "no"], references, sources, groups=4)
    assert sum(group["sentences"] for group in groups) == 8
    assert [(group["shortest"], group["longest"]) for group in groups] == [(1, 2), (3, 9)] or all(
        before["longest"] < after["shortest"] for before, after in zip(groups, groups[1:], strict=False)
    )
    assert groups[0]["bleu"] == pytest.approx(100) and groups[-1]["bleu"] < 50


def test_a_better_system_is_significant_and_an_equal_one_is_not():
    references = [f"the {n} dogs saw a {n + 1} cat in the garden" for n in range(60)]
    bad = [f"the {n} dogs saw {n + 2} in garden the" for n in range(60)]
    p = paired_bootstrap(bad, {"good": references, "same": list(bad)}, references)
    assert p["good"] < 0.01 and p["same"] > 0.5
    assert corpus_scores(references, references)["bleu"] == pytest.approx(100)
    results = [
        {"system": "base", "seed": 1, "hypotheses": bad},
        {"system": "good", "seed": 1, "hypotheses": references},
        {"system": "good", "seed": 2, "hypotheses": references},
        {"system": "other data", "seed": 1, "hypotheses": references},
    ]
    texts = {"base": references, "good": references, "other data": references[:-1] + ["x"]}
    like = read_recipe("mino2017").systems[0]
    systems = [like._replace(name=name, against="base") for name in ("base", "good", "other data")]
    recipe = read_recipe("mino2017")._replace(baseline="base", systems=systems)
    add_significance(recipe, results, texts)
    assert [("p" in result) for result in results] == [False, True, False, False]
    results.append({"system": "best", "seed": 1, "hypotheses": references})
    recipe = recipe._replace(systems=[*systems, like._replace(name="best", against="good")])
    add_significance(recipe, results, {**texts, "best": references})
    assert results[1]["p"] < 0.01 and results[4]["p"] == 1.0


def test_systems_that_say_nothing_right_differ_by_nothing():
    """Their scores come from the smoothing alone, and the same in every resample: no chance makes their difference larger."""
    references = [f"the {n} dogs saw a {n + 1} cat in the garden" for n in range(60)]
    one, as_good, longer = (["the x y z"] * 60, ["the p q r"] * 60, ["the p q r s"] * 60)
    assert paired_bootstrap(one, {"as good": as_good, "longer": longer}, references) == {"as good": 1.0, "longer": 1.0}
    assert paired_bootstrap(one, {"right": references}, references)["right"] < 0.01


def test_the_help_names_every_recipe():
    finished = subprocess.run(
        [sys.executable, str(EXAMPLES / "reproduce"), "--help"], capture_output=True, encoding="utf-8", check=True
    )
    assert all(paper in finished.stdout for paper in PAPERS)


def test_a_row_shows_mean_and_spread_over_seeds_and_simons_grid_stands_apart():
    recipe = read_recipe("simon2017")
    results = [
        {"system": f"T{t}S{s}", "seed": seed, "parameters": 1_500_000, "dev_bleu": 20.0, "bleu": 10.0 * s + t + seed}
        for t in (0, 1)
        for s in (1, 2)
        for seed in (1, 3)
    ]
    row = table_row(recipe, "T0S1", results)
    assert row["test BLEU"] == "12.0 ± 1.4" and row["seeds"] == "1, 3" and row["parameters"] == "1.50 M"
    assert row["AER"] == "" and table_row(recipe, "T5S7", results) is None
    assert grid(results)[-2:] == ["| T0 | 12.0 ± 1.4 | 22.0 ± 1.4 |", "| T1 | 13.0 ± 1.4 | 23.0 ± 1.4 |"]


def sentences(right: int, of: int = 200) -> tuple[list[str], list[str]]:
    """Translations of which so many are right, and the references."""
    references = [f"the {n} dogs saw a {n + 1} cat in the {n} garden" for n in range(of)]
    return [text if n % of < right else text.replace("saw a", "a saw") for n, text in enumerate(references)], references


def test_a_difference_is_that_of_the_means_and_its_interval_grows_with_the_spread_of_seeds():
    bad, references = sentences(60)
    good, _ = sentences(140)
    gain, low, high = difference([good, good], [bad, bad], references)
    means = [corpus_scores(texts, references)["bleu"] for texts in (good, bad)]
    assert gain == pytest.approx(means[0] - means[1]) and 0 < low < gain < high
    back = difference([bad, bad], [good, good], references)
    assert back == pytest.approx((-gain, -high, -low), rel=0.2)
    same = difference([good], [good], references)
    assert same == pytest.approx((0, 0, 0))
    middle, _ = sentences(100)
    _, wide_low, wide_high = difference([good, good, bad], [middle, middle, middle], references)
    _, narrow_low, narrow_high = difference([middle, middle, middle], [middle, middle, middle], references)
    assert wide_low < narrow_low <= 0 <= narrow_high < wide_high


def test_a_verdict_follows_the_interval_and_one_seed_decides_nothing():
    claim = Claim("a is better than b", "2 to 1", "a", "b")
    equal = claim._replace(within=1.0)
    assert verdict(claim, (0.1, 2), 3) == "shows" and verdict(claim, (0.1, 2), 1) == "undecided"
    assert verdict(claim, (-2, -0.1), 3) == "does not show" and verdict(claim, (-1, 1), 3) == "undecided"
    assert verdict(equal, (-0.9, 0.9), 3) == "shows" and verdict(equal, (1.1, 3), 3) == "does not show"
    assert verdict(equal, (-3, -1.1), 3) == "does not show" and verdict(equal, (0, 2), 3) == "undecided"


def test_claims_of_all_tables_come_between_the_marks_of_the_page(tmp_path):
    bad, references = sentences(60)
    good, _ = sentences(140)
    results = [
        {"system": name, "seed": seed, "bleu": 1.0, "hypotheses": texts, "ended": ended}
        for name, texts, ended in (("key-value", good, "plateau"), ("baseline", bad, "cut off"))
        for seed in (1, 2)
    ]
    recipe = read_recipe("mino2017")
    claims = [Claim("keys are better", "3 above 2", "key-value", "baseline")]
    claims.append(claims[0]._replace(better="modified-init"))  # a row that was not run
    found = decide(
        recipe._replace(claims=claims), results, dict.fromkeys(("key-value", "baseline"), references), "command"
    )
    assert [(claim["better"], claim["verdict"], claim["seeds"]) for claim in found] == [("key-value", "shows", 2)]
    assert "keys are better | 3 above 2 |" in claim_lines(found)[2] and "cut off" in claim_lines(found)[2]
    (tmp_path / "mino").mkdir()
    (tmp_path / "mino" / "claims.json").write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(StepFailed, match="has no lines"):
        write_page(tmp_path)
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_page(tmp_path)
    written = page.read_text(encoding="utf-8")
    assert "keys are better" in written and "old" not in written
    assert written.startswith("before\n") and written.endswith("\nafter\n")
    write_page(tmp_path)
    assert page.read_text(encoding="utf-8") == written


def test_a_condition_changes_the_text_and_the_test_set_may_differ_from_the_training(tmp_path):
    assert {"quickstart", "pairs-1000", "longer"} <= set(conditions_of("grammar")) and conditions_of("zoo") == []
    recipe = read_recipe(
        "grammar", changes={"corpus": {"grammar": {"train": 30, "valid": 5, "test": 7}}}, condition="longer"
    )
    assert recipe.name == "grammar-longer" and recipe.title != read_recipe("grammar").title
    corpus = get_corpus(recipe.corpus, recipe.languages, tmp_path)
    lengths = {
        split: [len(line.split()) for line in read_lines(getattr(corpus, split).with_name(f"{split}.en"))]
        for split in ("train", "valid", "test")
    }
    assert {split: len(found) for split, found in lengths.items()} == {"train": 30, "valid": 5, "test": 7}
    assert max(lengths["train"] + lengths["valid"]) <= 12 < 13 <= min(lengths["test"])
    for ending in ("ja", "align", "pairs"):
        assert len(read_lines(corpus.test.with_name(f"test.{ending}"))) == 7
    assert get_corpus(recipe.corpus, recipe.languages, tmp_path) == corpus
    with pytest.raises(StepFailed, match="--data is missing"):
        get_corpus({}, recipe.languages, tmp_path)


def test_a_run_says_how_it_ended_and_when_it_had_learned_half():
    def curve(*scores: float) -> list[dict[str, float]]:
        return [{"update": 100.0 * (number + 1), "bleu": score} for number, score in enumerate(scores)]

    assert how_it_ended(curve(1, 3, 2, 2), ["--patience", "9", "--patience", "2"]) == "plateau"
    assert how_it_ended(curve(1, 2, 3, 2), ["--patience", "2"]) == "cut off"
    assert how_it_ended(curve(1, 2), ["--lr", "1"]) == "schedule"
    assert how_it_ended(curve(0, 0.5, 0), ["--patience", "1"]) == "never began"
    assert update_of_half(curve(2, 6, 10)) == pytest.approx(175)
    assert update_of_half(curve(8, 10)) == pytest.approx(62.5) and update_of_half(curve(0, 0)) is None


def test_a_log_of_two_starts_gives_one_curve(tmp_path):
    lines = [
        'x | train_inner | {"wps": "100"}',
        'x | valid | {"valid_num_updates": "5", "valid_ppl": "9", "valid_bleu": "1"}',
        'x | valid | {"valid_num_updates": "10", "valid_ppl": "8", "valid_bleu": "2"}',
        "$ fairseq-train again",
        'x | train_inner | {"wps": "300"}',
        'x | train_inner | {"wps": "200"}',
        'x | valid | {"valid_num_updates": "10", "valid_ppl": "7", "valid_bleu": "3"}',
    ]
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines), encoding="utf-8")
    assert [(point["update"], point["bleu"]) for point in learning_curve(log)] == [(5, 1.0), (10, 3.0)]
    assert words_per_second(log) == 200
