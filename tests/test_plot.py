"""Figures: what stands in the files that a user opens."""

import json
import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("altair")

from fairseq_attn_zoo.inspect.plot import attention_chart, characters_without_font, save_chart  # noqa: E402

SOURCE = ["the", "dog", "saw", "the", 'say "<&>"', "Häuser", "</s>"]
TARGET = ["猫", "が", "猫", "\\n", "</s>"]
NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(0).dirichlet(np.full(len(SOURCE), 0.3), size=len(TARGET))


def read_figure(path):
    """Cells as {(x, y): grey}, and the axes' labels as [(x, y, text)], all relative to the figure's corner."""
    cells, labels = {}, []
    for element in ElementTree.parse(path).iter():
        if element.get("aria-roledescription") == "rect mark":
            x, y = map(float, re.match(r"M([\d.]+),([\d.]+)", element.get("d")).groups())
            cells[x, y] = tuple(map(int, re.findall(r"\d+", element.get("fill"))))
        if "role-axis-label" in (element.get("class") or ""):
            for text in element.iter(f"{NAMESPACE}text"):
                x, y = map(float, re.match(r"translate\(([-\d.]+),([-\d.]+)\)", text.get("transform")).groups())
                labels.append((x, y, text.text))
    return cells, labels


def test_every_word_stands_at_its_row_or_column_of_grey_cells(tmp_path, weights):
    cells, labels = read_figure(save_chart(attention_chart(weights, SOURCE, TARGET), tmp_path / "figure.svg"))
    columns = sorted({x for x, _ in cells})
    rows = sorted({y for _, y in cells})
    assert (len(columns), len(rows), len(cells)) == (len(SOURCE), len(TARGET), weights.size)
    size = columns[1] - columns[0]

    across = sorted(label for label in labels if label[1] < 0)  # above the cells
    down = sorted((label for label in labels if label[1] > 0), key=lambda label: label[1])
    assert [text for *_, text in across] == SOURCE
    assert [text for *_, text in down] == TARGET
    assert all(left <= x <= left + size for left, (x, *_) in zip(columns, across, strict=True))
    assert all(top <= y <= top + size for top, (_, y, _) in zip(rows, down, strict=True))

    for row, top in enumerate(rows):
        for column, left in enumerate(columns):
            assert cells[left, top] == pytest.approx([255 * weights[row, column]] * 3, abs=1)


def test_one_word_each_and_a_title(tmp_path):
    path = save_chart(attention_chart([[1.0]], ["yes"], ["ja"], title="RNNsearch"), tmp_path / "figure.svg")
    cells, labels = read_figure(path)
    assert list(cells.values()) == [(255, 255, 255)]
    assert sorted(text for *_, text in labels) == ["ja", "yes"]
    assert "RNNsearch" in path.read_text(encoding="utf-8")


def test_the_png_is_a_picture_of_the_size_of_the_svg(tmp_path, weights):
    chart = attention_chart(weights, SOURCE, ["a", "b", "c", "d", "e"])
    png = save_chart(chart, tmp_path / "folder" / "figure.PNG").read_bytes()
    root = ElementTree.parse(save_chart(chart, tmp_path / "figure.svg")).getroot()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    assert (width, height) == pytest.approx((2 * float(root.get("width")), 2 * float(root.get("height"))), abs=2)
    assert len(png) > 1000


def test_the_page_tells_the_words_and_weight_of_every_cell(tmp_path, weights):
    page = save_chart(attention_chart(weights, SOURCE, TARGET), tmp_path / "figure.html").read_text(encoding="utf-8")
    specification = json.loads(re.search(r"var spec = (\{.*\});", page)[1])
    cells = specification["data"]["values"]
    expected = [f"{target} ← {source}" for target in TARGET for source in SOURCE]
    assert [cell["words"] for cell in cells] == expected
    assert [cell["weight"] for cell in cells] == pytest.approx(weights.flatten().tolist())


def test_a_png_warns_of_characters_that_no_font_holds(tmp_path):
    unassigned = "\U0010fffd"  # the last private-use character
    assert characters_without_font(f"dog Häuser {unassigned}{unassigned}") == unassigned
    with pytest.warns(UserWarning, match=f"boxes for {unassigned}"):
        save_chart(attention_chart([[1.0]], ["dog"], [unassigned]), tmp_path / "figure.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_chart(attention_chart([[1.0]], ["Häuser"], ["&lt;é"]), tmp_path / "figure.png")


@pytest.mark.parametrize("name", ["figure.pdf", "figure", "svg"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.svg, \.png, \.html"):
        save_chart(attention_chart([[1.0]], ["a"], ["b"]), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(2, 3), (3,), (0, 2)])
def test_weights_must_be_target_by_source(shape):
    with pytest.raises(ValueError, match="3 target and 2 source tokens"):
        attention_chart(np.zeros(shape), ["a", "b"], ["c", "d", "e"])


def test_a_figure_without_words_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        attention_chart(np.zeros((0, 2)), ["a", "b"], [])


@pytest.mark.parametrize("weight", [-0.5, 1.5, float("nan")])
def test_weights_must_be_weights(weight):
    with pytest.raises(ValueError, match="between 0 and 1"):
        attention_chart([[weight]], ["a"], ["b"])
