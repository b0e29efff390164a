"""Figures: what stands in the files that a user opens."""

import json
import re
import warnings
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("altair")
vl_convert = pytest.importorskip("vl_convert")

from fairseq_attn_zoo.cli import main  # noqa: E402
from fairseq_attn_zoo.inspect.plot import (  # noqa: E402
    attention_chart,
    characters_without_font,
    figures,
    most_peaked,
    page,
    save_chart,
    tree_chart,
)
from fairseq_attn_zoo.inspect.trace import Trace  # noqa: E402

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


def chunks(png):
    """Kind and data of the parts of a PNG file, whose checksums are right."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    position, found = 8, {}
    while position < len(png):
        length = int.from_bytes(png[position : position + 4], "big")
        kind, data = png[position + 4 : position + 8], png[position + 8 : position + 8 + length]
        assert zlib.crc32(kind + data) == int.from_bytes(png[position + 8 + length : position + 12 + length], "big")
        found[kind] = found.get(kind, b"") + data
        position += 12 + length
    return {**found, b"IDAT": zlib.decompress(found[b"IDAT"])}


def test_a_png_is_small_and_none_of_it_is_lost(tmp_path):
    chart = figures(trace(**MECHANISMS["chart"]))["chart"]
    png = save_chart(chart, tmp_path / "figure.png").read_bytes()
    quick = vl_convert.svg_to_png(save_chart(chart, tmp_path / "figure.svg").read_text(encoding="utf-8"), scale=2)
    assert chunks(png) == chunks(quick)
    assert len(png) < len(quick) / 2


def test_the_page_tells_the_words_and_weight_of_every_cell(tmp_path, weights):
    page = save_chart(attention_chart(weights, SOURCE, TARGET), tmp_path / "figure.html").read_text(encoding="utf-8")
    specification = json.loads(re.search(r"const spec = (\{.*\});\n", page)[1])
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


def trace(**weights):
    """Of a mechanism with these arrays beside the alignment."""
    source, target = ["the", "the", "猫", "</s>"], ["a", "b", "</s>"]
    alignment = np.random.default_rng(1).dirichlet(np.ones(4), size=3)
    splits = np.array([[0, 1, 2, 3], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]) if "source_chart" in weights else None
    return Trace("any", source, target, alignment, weights, splits=splits)


def random_weights(*shape):
    return np.random.default_rng(2).random(shape)


MECHANISMS = {
    "plain": {"source": random_weights(3, 4)},
    "coverage": {"source": random_weights(3, 4), "source_coverage": 3 * random_weights(3, 4)},
    "hops": {"source_hops": random_weights(3, 4, 2), "target_hops": random_weights(3, 3, 1)},
    "dimensions": {"source_dimensions": random_weights(3, 4, 5)},
    "chart": {"source_joint": random_weights(3, 4), "source_chart": random_weights(3, 4, 4)},
}


@pytest.mark.parametrize(
    "mechanism, names",
    [
        ("plain", {"matrix"}),
        ("coverage", {"matrix"}),
        ("hops", {"matrix", "hops"}),
        ("dimensions", {"matrix", "dimensions"}),
        ("chart", {"matrix", "chart", "tree"}),
    ],
)
def test_a_trace_is_drawn_in_every_way_that_it_has(mechanism, names):
    assert figures(trace(**MECHANISMS[mechanism])).keys() == names


def test_hops_stand_side_by_side_in_their_order(tmp_path):
    path = save_chart(figures(trace(**MECHANISMS["hops"]))["hops"], tmp_path / "hops.svg")
    svg = path.read_text(encoding="utf-8")
    assert re.findall(r">((?:source|target) hop \d)<", svg) == ["target hop 1", "source hop 1", "source hop 2"]
    cells, _ = read_figure(path)
    assert svg.count('aria-roledescription="rect mark"') == 3 * 3 + 2 * 3 * 4
    assert "&lt;s&gt;" in svg  # what the first word of the translation can attend to among the target words


def test_all_dimensions_and_all_spans_are_drawn(tmp_path):
    for mechanism, marks in (("dimensions", 3 * 4 * 5), ("chart", 3 * (4 + 3 + 2 + 1))):
        path = save_chart(figures(trace(**MECHANISMS[mechanism]))[mechanism], tmp_path / "figure.svg")
        assert path.read_text(encoding="utf-8").count('aria-roledescription="rect mark"') == marks


def test_a_tree_has_two_lines_for_each_inner_node(tmp_path):
    splits = trace(**MECHANISMS["chart"]).splits
    path = save_chart(tree_chart(splits, ["w", "x", "y", "z"]), tmp_path / "tree.svg")
    svg = path.read_text(encoding="utf-8")
    assert svg.count('aria-roledescription="rule mark"') == 2 * 3
    assert re.findall(r">([wxyz])<", svg) == ["w", "x", "y", "z"]
    save_chart(tree_chart([[0]], ["alone"]), path)
    assert "alone" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="4 words: need words x words|for 3 words"):
        tree_chart(splits, ["w", "x", "y"])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_page_holds_everything_and_loads_nothing(tmp_path, mechanism):
    found = trace(**MECHANISMS[mechanism])
    html = save_chart(page(found), tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link)[^>]*(src|href)=", html)
    names = {
        "plain": ["alignment"],
        "coverage": ["alignment", "coverage after the word"],
        "hops": ["target hop 1", "source hop 2"],
        "dimensions": ["source dimension 5"],
    }
    for name in names.get(mechanism, ["words, in the joint softmax", "spans by first word and length"]):
        assert name in html
    assert "猫" in html or "\\u732b" in html


def test_words_that_no_picture_or_script_can_hold_do_no_harm(tmp_path):
    found = trace(**MECHANISMS["chart"])
    found.source[0], found.target[0] = "\x01\0", "</script><b>x"
    for name, chart in figures(found).items():
        assert "\x01" not in save_chart(chart, tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    html = save_chart(page(found), tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.count("</script>") == html.count("<script")
    assert "<\\/script><b>x" in html


def test_of_very_many_dimensions_the_most_peaked_are_drawn():
    assert most_peaked(np.array([[[0.1, 0.9, 0.2, 0.8]], [[0.5, 0.1, 0.1, 0.1]]]), 3) == [0, 1, 3]


def test_the_command_draws_traces(tmp_path, capsys):
    path = trace(**MECHANISMS["chart"]).save(tmp_path / "0007.npz")
    assert main(["plot", str(path), "--folder", str(tmp_path / "figures"), "--format", "svg", "html"]) == 0
    printed = [line.rsplit("/", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["0007-matrix.svg", "0007-chart.svg", "0007-tree.svg", "0007.html"]
    assert sorted(printed) == sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert main(["plot", str(tmp_path / "nothing.npz"), "--folder", str(tmp_path)]) == 2
    assert "nothing.npz" in capsys.readouterr().err
    assert main(["plot", str(path), str(path.with_suffix(".json")), "--folder", str(tmp_path)]) == 2
    assert "two traces are named 0007" in capsys.readouterr().err
