"""The recipes, from raw text to scores, on a few sentences."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(command: list[str], **settings: str) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **settings}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL)


def multi30k(data: Path, out: Path, **settings: str) -> subprocess.CompletedProcess:
    recipe = str(ROOT / "examples" / "multi30k" / "run.sh")
    return run([recipe], DATA=str(data), OUT=str(out), SIZE="16", EPOCHS="1", **settings)


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


def test_multi30k_goes_from_raw_text_to_a_score_and_repeats_no_finished_step(captions, tmp_path):
    first = multi30k(captions, tmp_path, ARCH="lstm_luong_attention", FLAGS="--attention-score general")
    assert first.returncode == 0, first.stderr[-2000:]
    (file,) = tmp_path.glob("de-en/lstm_luong_attention-*/scores.json")
    scores = json.loads(file.read_text(encoding="utf-8"))
    assert first.stdout.endswith(file.read_text(encoding="utf-8"))
    assert {score["name"] for score in scores} == {"BLEU", "chrF2"}
    assert "case:lc" in scores[0]["signature"]
    (translations,) = tmp_path.glob("de-en/lstm_luong_attention-*/test.en")
    assert len(translations.read_text(encoding="utf-8").split("\n")) == 75 - 67 + 1
    assert "@@" not in translations.read_text(encoding="utf-8")
    subwords = (tmp_path / "de-en/text/test.bpe.de").read_text(encoding="utf-8")
    assert subwords == subwords.lower() and "&quot;" in subwords.replace("@@ ", "")

    again = multi30k(captions, tmp_path, ARCH="lstm_luong_attention", FLAGS="--attention-score general")
    assert "fairseq-preprocess" in first.stdout and "fairseq-preprocess" not in again.stdout
    assert json.loads(file.read_text(encoding="utf-8")) == scores


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"DATA": "/no/such/folder"}, "multi30k: there is no folder /no/such/folder; set DATA"),
        ({"DATA": "/"}, "tokenise and split into subwords failed; the reason is at the end of"),
        ({"ARCH": "no_such_architecture"}, "multi30k: fairseq-train failed"),
    ],
    ids=["data", "files", "architecture"],
)
def test_multi30k_stops_with_one_line_when_a_step_fails(captions, tmp_path, settings, line):
    recipe = str(ROOT / "examples" / "multi30k" / "run.sh")
    finished = run([recipe], **{"DATA": str(captions), "OUT": str(tmp_path), "EPOCHS": "1", **settings})
    assert finished.returncode != 0
    assert finished.stderr.splitlines()[-1].startswith("multi30k: ") and line in finished.stderr.splitlines()[-1]


def test_quickstart_scores_aligns_and_draws_and_goes_on_where_it_stopped(tmp_path):
    quickstart = [sys.executable, str(ROOT / "examples" / "quickstart" / "run.py"), "--folder", str(tmp_path)]
    quickstart += ["--cpu", "--train", "300", "--valid", "20", "--test", "20", "--size", "16", "--updates", "10"]
    first, again = run(quickstart), run(quickstart)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "BLEU = " in first.stdout and "tok:none" in first.stdout and "AER 0." in first.stdout
    (picture,) = tmp_path.glob("gru_rnnsearch-*/attention.svg")
    assert str(picture) in first.stdout and "<svg" in picture.read_text(encoding="utf-8")
    assert picture.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert again.stdout.count("done before") == 5  # corpus, binary data, model, translation, forced decoding
    assert again.stdout.splitlines()[-5:] == first.stdout.splitlines()[-5:]


def test_quickstart_names_an_unknown_architecture(tmp_path):
    quickstart = [sys.executable, str(ROOT / "examples" / "quickstart" / "run.py"), "--folder", str(tmp_path)]
    finished = run([*quickstart, "--arch", "transformer"])
    assert finished.returncode != 0
    (line,) = finished.stderr.strip().splitlines()
    assert "transformer" in line and "gru_rnnsearch" in line
