"""The recipes, from raw text to scores, on a few sentences."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from hydra import compose, initialize_config_dir

from fairseq_attn_zoo.grammar import write_corpus
from fairseq_attn_zoo.models import ARCHITECTURES
from fairseq_attn_zoo.models.sizes import size_flags, size_overrides

ROOT = Path(__file__).resolve().parents[1]


def run(command: list[str], **settings: str) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **settings}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL)


def multi30k(data: Path, out: Path, **settings: str) -> subprocess.CompletedProcess:
    recipe = str(ROOT / "examples" / "multi30k" / "run.sh")
    return run([recipe], **{"DATA": str(data), "OUT": str(out), "SIZE": "16", "EPOCHS": "1", **settings})


@pytest.fixture(scope="module")
def captions(tmp_path_factory) -> Path:
    """A folder laid out like the corpus: raw captions, cased, not tokenised."""
    folder = tmp_path_factory.mktemp("captions")
    nouns = {"Hund": "dog", "Mann": "man", "Ball": "ball", "Baum": "tree", "Junge": "boy"}
    verbs = {"sieht": "sees", "trägt": "carries", "sucht": "looks for"}
    pairs = [
        (f"Ein {subject} {verb} den „{thing}“.", f'A {nouns[subject]} {verbs[verb]} the "{nouns[thing]}".')
        for subject in nouns
        for verb in verbs
        for thing in nouns
    ]
    (folder / "raw").mkdir()
    for stem, part in {"train": pairs[:60], "val": pairs[60:67], "test_2016_flickr": pairs[67:]}.items():
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in part)
            (folder / "raw" / f"{stem}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def finished(captions, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """A recipe that has run to its end: its folder, and what it said."""
    out = tmp_path_factory.mktemp("multi30k")
    return out, multi30k(captions, out, ARCH="lstm_luong_attention", FLAGS="--attention-score general")


def test_multi30k_goes_from_raw_text_to_a_score_and_repeats_no_finished_step(captions, finished):
    out, first = finished
    assert first.returncode == 0, first.stderr[-2000:]
    (file,) = out.glob("de-en/lstm_luong_attention-*/scores.json")
    scores = json.loads(file.read_text(encoding="utf-8"))
    assert first.stdout.endswith(file.read_text(encoding="utf-8"))
    assert {score["name"] for score in scores} == {"BLEU", "chrF2"}
    assert "case:lc" in scores[0]["signature"]
    (translations,) = out.glob("de-en/lstm_luong_attention-*/test.en")
    assert len(translations.read_text(encoding="utf-8").split("\n")) == 75 - 67 + 1
    assert "@@" not in translations.read_text(encoding="utf-8")
    subwords = (out / "de-en/text/test.bpe.de").read_text(encoding="utf-8")
    assert subwords == subwords.lower() and "&quot;" in subwords.replace("@@ ", "")

    again = multi30k(captions, out, ARCH="lstm_luong_attention", FLAGS="--attention-score general")
    assert "fairseq-preprocess" in first.stdout and "fairseq-preprocess" not in again.stdout
    assert json.loads(file.read_text(encoding="utf-8")) == scores


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"DATA": "/no/such/folder"}, "multi30k: there is no folder /no/such/folder; set DATA"),
        ({"DATA": "/", "SOURCE": "fr"}, "tokenise and split into subwords failed; the reason is at the end of"),
        ({"ARCH": "no_such_architecture"}, "multi30k: sizes: no architecture 'no_such_architecture'; there are"),
        ({"FLAGS": "--no-such-flag"}, "multi30k: fairseq-train failed"),
    ],
    ids=["data", "files", "architecture", "flag"],
)
def test_multi30k_stops_with_one_line_when_a_step_fails(captions, finished, settings, line):
    stopped = multi30k(captions, finished[0], **settings)
    assert stopped.returncode != 0
    assert stopped.stderr.splitlines()[-1].startswith("multi30k: ") and line in stopped.stderr.splitlines()[-1]


def test_tanaka_goes_from_tokens_to_a_score_with_one_more_flag(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    write_corpus(data, train=60, valid=10, test=12)
    (data / "valid.en").rename(data / "dev.en")
    (data / "valid.ja").rename(data / "dev.ja")
    recipe = str(ROOT / "examples" / "tanaka" / "run.sh")
    settings = {"DATA": str(data), "OUT": str(out), "SIZE": "16", "UPDATES": "4", "THRESHOLD": "2"}
    run_to_the_end = run([recipe], ARCH="lstm_memnet_hops", FLAGS="--source-hops 2", **settings)
    assert run_to_the_end.returncode == 0, run_to_the_end.stderr[-2000:]
    (file,) = out.glob("en-ja-threshold2/lstm_memnet_hops-*/scores.json")
    bleu, _ = json.loads(file.read_text(encoding="utf-8"))
    assert "tok:none" in bleu["signature"]
    assert len((file.parent / "test.ja").read_text(encoding="utf-8").split("\n")) == 12 + 1
    assert "--source-hops_2" in file.parent.name


HYDRA = ROOT / "examples" / "multi30k" / "hydra"


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_hydra_config_takes_every_architecture_with_its_sizes(name):
    with initialize_config_dir(str(HYDRA), version_base=None):
        config = compose("training", size_overrides(name, 16))
    assert config.model._name == name
    declared = MODEL_DATACLASS_REGISTRY[name].__dataclass_fields__
    assert set(config.model) <= declared.keys()
    flags = size_flags(name, 16)
    assert {flag: config.model[flag] for flag in config.model if flag not in ("_name", "dropout")} == {
        flag.removeprefix("--").replace("-", "_"): int(size) for flag, size in zip(flags[::2], flags[1::2], strict=True)
    }


def test_a_hydra_config_trains(finished, tmp_path):
    printed = run([sys.executable, "-m", "fairseq_attn_zoo.models.sizes", "lstm_kv_attention", "16", "--hydra"]).stdout
    command = ["fairseq-hydra-train", "--config-dir", str(HYDRA), "--config-name", "training", *printed.split()]
    command += [f"task.data={finished[0] / 'de-en' / 'data'}", f"common.user_dir={ROOT / 'fairseq_attn_zoo'}"]
    command += ["common.cpu=true", "optimization.max_epoch=1", "++model.attention_query=current"]
    trained = run([*command, f"checkpoint.save_dir={tmp_path / 'model'}", f"hydra.run.dir={tmp_path / 'hydra'}"])
    assert trained.returncode == 0, trained.stdout[-2000:] + trained.stderr[-2000:]
    model = torch.load(tmp_path / "model" / "checkpoint_best.pt")["cfg"]["model"]
    assert model["_name"] == "lstm_kv_attention" and model["attention_query"] == "current"
    assert {value for size, value in model.items() if size.endswith(("_embed_dim", "_hidden_size"))} == {16}


def test_quickstart_scores_aligns_and_draws_and_goes_on_where_it_stopped(tmp_path):
    quickstart = [sys.executable, str(ROOT / "examples" / "quickstart" / "run.py"), "--folder", str(tmp_path)]
    quickstart += ["--cpu", "--train", "300", "--valid", "20", "--test", "20", "--size", "16", "--updates", "10"]
    first, again = run(quickstart), run(quickstart)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "BLEU = " in first.stdout and "tok:none" in first.stdout and "AER 0." in first.stdout
    printed = re.search(r"BLEU = ([0-9.]+) ", first.stdout)
    assert f"BLEU     {printed[1]}\n" in first.stdout
    (picture,) = tmp_path.glob("gru_rnnsearch-*/attention.svg")
    assert str(picture) in first.stdout and "<svg" in picture.read_text(encoding="utf-8")
    assert picture.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert again.stdout.count("done before") == 5  # corpus, binary data, model, translation, forced decoding
    assert again.stdout.splitlines()[-5:] == first.stdout.splitlines()[-5:]


def test_quickstart_names_an_unknown_architecture(tmp_path):
    quickstart = [sys.executable, str(ROOT / "examples" / "quickstart" / "run.py"), "--folder", str(tmp_path)]
    refused = run([*quickstart, "--arch", "transformer"])
    assert refused.returncode != 0
    (line,) = refused.stderr.strip().splitlines()
    assert "transformer" in line and "gru_rnnsearch" in line
