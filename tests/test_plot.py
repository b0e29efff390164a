"""Figures: what stands in the files that a user opens."""

import json
import re
import warnings
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("altair")
vl_convert = pytest.importorskip("vl_convert")

from fairseq_attn_zoo.axes import Axes  # noqa: E402
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


class Scripts(HTMLParser):
    """What a browser takes for scripts of a page: attributes and text of each."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag == "script":
            self.found.append((dict(attributes), ""))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            attributes, text = self.found[-1]
            self.found[-1] = attributes, text + data


def specification(path):
    """The chart of a page."""
    data = [text for attributes, text in Scripts(path.read_text(encoding="utf-8")).found if attributes.get("type")]
    assert len(data) == 1
    return json.loads(data[0])


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
    found = specification(save_chart(attention_chart(weights, SOURCE, TARGET), tmp_path / "figure.html"))
    words = [[word["word"] for word in words["value"]] for words in found["params"]]
    assert words == [SOURCE, TARGET]
    rows = [row["weights"] for row in found["data"]["values"]]
    np.testing.assert_allclose(rows, weights, atol=1e-4)


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


def test_weights_of_a_mechanism_that_nobody_here_knows_are_drawn_by_their_axes():
    weights = {
        "by_head": random_weights(3, 4, 2),
        "gates": 9 * random_weights(3, 4),
        "phrases": random_weights(3, 4, 4),
    }
    axes = {
        "by_head": Axes(by="head", title="source"),
        "gates": Axes(total="any", title="gates so far"),
        "phrases": Axes("spans", total="at most one", title="phrases"),
    }
    found = replace(trace(), weights=weights, axes=axes)
    assert figures(found).keys() == {"matrix", "heads", "chart"}
    assert len(figures(found)["heads"].to_dict()["concat"]) == 2
    drawn = page(found).to_dict()
    (menu,) = [param for param in drawn["params"] if param["name"] == "layer"]
    assert menu["bind"]["options"] == ["alignment", "source head 1", "source head 2", "gates so far"]
    assert "spans by first word and length" in json.dumps(drawn)


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
    assert "default-src 'none'" in html
    names = {
        "plain": ["alignment"],
        "coverage": ["alignment", "coverage after the word"],
        "hops": ["target hop 1", "source hop 2"],
        "dimensions": ["source dimension 5"],
    }
    for name in names.get(mechanism, ["words, in the joint softmax", "spans by first word and length"]):
        assert name in html
    assert "猫" in html or "\\u732b" in html


def test_control_characters_that_no_picture_can_hold_do_no_harm(tmp_path):
    found = trace(**MECHANISMS["chart"])
    found.source[0], found.target[0] = "\x01\0", "\ud800"
    for name, chart in figures(found).items():
        assert "\x01" not in save_chart(chart, tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    assert specification(save_chart(page(found), tmp_path / "page.html"))


# Words that mean something to HTML, to JavaScript, to Vega's expressions, or to a program that searches its own page.
HOSTILE = [
    *("</script>", "<!--", "<script>", "<script>alert(1)</script>", "-->", "]]>", "<b>&amp;", "&lt;", "'", '"', "\\"),
    *("constructor", "toString", "valueOf", "hasOwnProperty", "__proto__", "prototype", "datum", "undefined", "null"),
    *("${1+1}", "{{ spec }}", "`", "\\u003c", "\u2028", "\u2029", "const spec = ", ";\n", "</style>", "item['x']"),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_any_word_can_be_drawn(tmp_path, mechanism):
    """Each stands as it is in every figure that shows it, and a picture of it can be made."""
    source, target = [*HOSTILE, "</s>"], ["</script>", "<!--", "constructor", "valueOf", "</s>"]
    sizes = {"source": (len(target), len(source)), "target": (len(target), len(target))}
    weights = {
        name: random_weights(
            *sizes[name.split("_")[0]], *(array.shape[2:] if name != "source_chart" else (len(source),))
        )
        for name, array in MECHANISMS[mechanism].items()
    }
    splits = np.ones((len(source), len(source)), dtype=int) if "source_chart" in weights else None
    found = Trace("any", source, target, random_weights(*sizes["source"]), weights, splits=splits)
    charts = figures(found)
    for name, chart in charts.items():
        svg = ElementTree.parse(save_chart(chart, tmp_path / f"{name}.svg"))
        texts = {(element.text or "").strip() for element in svg.iter(f"{NAMESPACE}text")}
        assert {word.strip() for word in source} - {""} <= texts  # Vega leaves out blanks around a text
        assert name == "tree" or set(target) <= texts
    save_chart(charts["matrix"], tmp_path / "matrix.png")
    scripts = Scripts(save_chart(page(found), tmp_path / "page.html").read_text(encoding="utf-8")).found
    assert len(scripts) == 3  # Vega, the data, and the line that starts it
    assert "<" not in scripts[1][1]
    assert all(word in json.dumps(json.loads(scripts[1][1]), ensure_ascii=False) for word in ("<!--", "</script>"))


def test_no_word_is_part_of_an_expression(tmp_path):
    """Also not in quotes: Vega's parser of expressions took some words there for names of its own."""
    words = [f"unmistakable{number}" for number in range(4)]
    for mechanism, weights in MECHANISMS.items():
        found = replace(trace(**weights), source=words, target=words[:3])
        for chart in (*figures(found).values(), page(found)):
            strings = list(strings_of(chart.to_dict()))
            assert any("unmistakable" in text for text in strings), mechanism
            assert all(text in words for text in strings if "unmistakable" in text)


def strings_of(value):
    """Every string in a specification."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_of(part)


LONG = ["x" * 3000, "漢" * 3000, "e\u0301" * 3000]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_very_long_word_is_cut_where_it_is_a_label(tmp_path, mechanism):
    found = trace(**MECHANISMS[mechanism])
    found.source[:3], found.target[:2] = LONG, LONG[:2]
    for name, chart in figures(found).items():
        path = save_chart(chart, tmp_path / f"{name}.svg")
        svg = path.read_text(encoding="utf-8")
        assert len(svg) < 250_000  # neither are there whole words in descriptions of cells
        root = ElementTree.fromstring(svg)
        assert max(float(root.get("width")), float(root.get("height"))) < 3000
        texts = {element.text for element in root.iter(f"{NAMESPACE}text")}
        assert {"x" * 49 + "…", "漢" * 24 + "…"} <= texts
        if name != "matrix":
            continue
        assert {len(text) for text in texts if text.startswith("e")} == {49}  # 24 letters with accents, none without
        assert save_chart(chart, tmp_path / f"{name}.png").stat().st_size < 200_000
    assert all(word in strings_of(specification(save_chart(page(found), tmp_path / "page.html"))) for word in LONG[:2])


def test_a_tree_without_end_is_refused():
    with pytest.raises(ValueError, match=r"splits\[0, 2\] is 0; expected at least 1"):
        tree_chart(np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]]), ["a", "b", "c"])


def test_what_is_too_large_to_draw_is_left_out_or_refused(tmp_path, capsys):
    size = 110
    words = [f"w{number}" for number in range(size)]
    weights = {"source": np.zeros((size, size)), "source_chart": np.zeros((size, size, size))}
    splits = np.ones((size, size), dtype=int)
    with pytest.warns(UserWarning, match="the chart is left out: 671,550 cells"):
        assert figures(Trace("any", words, words, weights["source"], weights, splits=splits)).keys() == {
            "matrix",
            "tree",
        }
    path = Trace("any", ["w"] * 2000, ["w"] * 2000, np.zeros((2000, 2000))).save(tmp_path / "long.npz")
    assert main(["plot", str(path), "--folder", str(tmp_path / "figures")]) == 2
    assert "long.npz: 2,000 x 2,000 words are more than a figure can show" in capsys.readouterr().err


@pytest.mark.parametrize("title", ["toString", "constructor", "<script>", "x" * 3000])
def test_any_title_can_be_drawn(tmp_path, title):
    svg = save_chart(attention_chart([[1.0]], ["a"], ["b"], title=title), tmp_path / "title.svg")
    assert any((element.text or "")[:9] == title[:9] for element in ElementTree.parse(svg).iter(f"{NAMESPACE}text"))


def test_a_picture_has_a_bounded_number_of_pixels(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_attn_zoo.inspect.plot.MOST_PIXELS", 50_000)
    png = save_chart(attention_chart(np.zeros((1, 30)), ["x"] * 30, ["y"]), tmp_path / "wide.png").read_bytes()
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    assert 45_000 < width * height < 52_000


def test_of_very_many_dimensions_the_most_peaked_are_drawn():
    assert most_peaked(np.array([[[0.1, 0.9, 0.2, 0.8]], [[0.5, 0.1, 0.1, 0.1]]]), 3) == [0, 1, 3]


def test_the_command_draws_traces(tmp_path, capsys):
    path = trace(**MECHANISMS["chart"]).save(tmp_path / "0007.npz")
    assert main(["plot", str(path), "--folder", str(tmp_path / "figures")]) == 0
    printed = [line.rsplit("/", 1)[1] for line in capsys.readouterr().out.splitlines()]
    figures = [f"0007-{name}.{ending}" for ending in ("svg", "png") for name in ("matrix", "chart", "tree")]
    assert printed == [*figures, "0007.html"]
    assert sorted(printed) == sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert main(["plot", str(tmp_path / "nothing.npz"), "--folder", str(tmp_path)]) == 2
    assert "nothing.npz" in capsys.readouterr().err
    assert main(["plot", str(path), str(path.with_suffix(".json")), "--folder", str(tmp_path)]) == 2
    assert "two traces are named 0007" in capsys.readouterr().err
