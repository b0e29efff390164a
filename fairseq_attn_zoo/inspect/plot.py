"""Figures of attention weights, drawn with Altair and saved with vl-convert: no browser is needed.

:func:`figures` draws the papers' kinds of figure from a trace, and :func:`page` is the one to explore: the word under the
pointer shows its weights, and a menu picks hop, dimension, softmax or coverage.

A trace may come from anybody. Its words are data everywhere: charts count positions, and their expressions look words up by
number (:func:`_words`). None is ever written into an expression, where ``constructor`` would be a name of JavaScript's, or
becomes the name of a field.

Fonts: vl-convert brings its own font for Latin, Greek and Cyrillic, and takes every other character from the fonts of
the system. For Japanese, Chinese or Korean words in a PNG a font that holds them must be installed (Debian and Ubuntu:
``apt install fonts-noto-cjk``), or a folder of font files named once with ``vl_convert.register_font_directory``;
otherwise they become empty boxes, and :func:`save_chart` warns. An SVG or HTML file keeps the words as text, so there
the fonts of whoever looks at it count.
"""

import hashlib
import io
import json
import re
import unicodedata
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, Literal

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import ArrayLike

from .trace import Trace, check_splits
from .webpage import web_page

ENDINGS = (".svg", ".png", ".html")

CELL_SIZE = 22  # pixels: room for one line of text at the font size below
FONT_SIZE = 13
LONGEST_LABEL = 50  # columns, of which a Chinese character takes two; a longer word is cut where it labels something
MOST_PIXELS = 25_000_000  # of a PNG: 5,000 x 5,000
MOST_CELLS = 500_000  # of a figure: drawing them takes minutes and two gigabytes
MOST_WORDS = 5_000  # of a side of a figure
NO_FRAME = alt.ViewBackground(stroke=None)
BEGINNING = "<s>"  # the target memory's first entry: nothing is written yet


def attention_chart(
    weights: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
) -> alt.Chart:
    """Draw which source words each target word attended to: target words down, source words across the top, each cell
    the weight in grey from 0 (black) to 1 (white).

    Bahdanau, Cho and Bengio (2015), Neural machine translation by jointly learning to align and translate, Figure 3.

    Args:
        weights: T x S, row t the attention that produced target word t; each between 0 and 1. A NumPy array, nested
            lists or a CPU tensor without gradient.
        source_tokens: the S source words, in the order of the columns. Words may repeat: each keeps its own column.
            One that is wider than 50 letters is cut where it stands beside the cells.
        target_tokens: the T target words, in the order of the rows
        title: a line above the figure

    Returns:
        a chart, to be shown in a notebook, or written with :func:`save_chart`

    Raises:
        ValueError: the weights are not T x S, T or S is 0, there are more than a figure can show, or a weight is no number
            between 0 and 1.
    """
    tokens = _showable(source_tokens), _showable(target_tokens)
    return _matrix(weights, *tokens, title).properties(background="white")


def _matrix(
    weights: ArrayLike, source_tokens: Sequence[str], target_tokens: Sequence[str], title: str | None = None
) -> alt.Chart:
    """:func:`attention_chart` without a background, so that it can stand beside others."""
    values = np.asarray(weights, dtype=float)
    expected = (len(target_tokens), len(source_tokens))
    if values.shape != expected or 0 in expected:
        raise ValueError(
            f"weights of shape {values.shape} for {expected[0]} target and {expected[1]} source tokens: "
            f"need target x source, both at least 1"
        )
    _check_size(*expected)
    # Rounding may carry a float32 softmax a little above 1; NaN fails this comparison too.
    if not bool(np.all((values > -1e-3) & (values < 1 + 1e-3))):
        raise ValueError("attention weights must lie between 0 and 1")

    # A list a word, which Vega takes apart: Altair checks every entry of the data, and one a cell takes it half a minute.
    rows = [{"target": row, "weights": _brief(weights)} for row, weights in enumerate(values)]
    source, target = _words(source_tokens), _words(target_tokens)

    def pair(form: str) -> str:
        return f"{target.name}[datum.target].{form} + ' ← ' + {source.name}[datum.source].{form}"

    chart = (
        alt.Chart(alt.Data(values=rows))
        .transform_calculate(source="sequence(length(datum.weights))")
        .transform_flatten(["source", "weights"], as_=["source", "weight"])
        .transform_calculate(words=pair("word"), description=f"{pair('label')} + ': ' + format(datum.weight, '.3f')")
        .mark_rect()
        .encode(
            x=alt.X("source:O", scale=_positions(source_tokens), axis=_word_axis(source, orient="top")),
            y=alt.Y("target:O", scale=_positions(target_tokens), axis=_word_axis(target, orient="left")),
            color=_grey(),
            tooltip=["words:N", alt.Tooltip("weight:Q", format=".3f")],
            description="description:N",
        )
        .add_params(*_distinct(source, target))
        .properties(width=alt.Step(CELL_SIZE), height=alt.Step(CELL_SIZE))
    )
    return _titled(chart, title)


def figures(trace: Trace) -> dict[str, alt.TopLevelMixin]:
    """Every figure that a trace has, by name.

    - ``matrix``: the alignment (Bahdanau 2015, Figure 3)
    - ``hops`` and ``heads``: a matrix for each, those on the target words first (Simon and Schwenk 2017)
    - ``dimensions``: for each target word the weights of every dimension of every source word (Choi 2018)
    - ``chart``: for each target word the weights of all spans, by first word and length, and ``tree``, the winning tree
      (Watanabe 2017)

    A chart with more cells than :data:`MOST_CELLS` is left out, and a ``UserWarning`` says so.

    Raises:
        ValueError: the sentences are too long for any figure
    """
    trace = replace(trace, source=_showable(trace.source), target=_showable(trace.target))
    found: dict[str, alt.TopLevelMixin] = {"matrix": attention_chart(trace.alignment, trace.source, trace.target)}
    by: Literal["hop", "head"]
    for by in ("hop", "head"):
        if _bounded(trace, by):
            found[f"{by}s"] = matrices_chart(trace, by)
    if trace.arrays("source words", "dimension"):
        found["dimensions"] = dimensions_chart(trace)
    if trace.arrays(over="spans") and _chart_fits(trace):
        found["chart"] = spans_chart(trace)
    if trace.splits is not None:
        found["tree"] = tree_chart(trace.splits, trace.source)
    return found


def matrices_chart(trace: Trace, by: Literal["hop", "head"]) -> alt.TopLevelMixin:
    """One matrix for each hop, in the order in which the query takes them: those on target words first; or for each head."""
    sides = _sides(trace)
    panels = []
    for name in sorted(_bounded(trace, by), key=lambda name: trace.axes[name].over != "target words"):
        weights = trace.weights[name]
        axes = trace.axes[name]
        for number in range(weights.shape[2]):
            title = f"{axes.title} {by} {number + 1}"
            panels.append(_matrix(weights[:, :, number], sides[axes.over], trace.target, title))
    return alt.concat(*panels, columns=3).properties(background="white")


def _bounded(trace: Trace, by: Literal["hop", "head"]) -> list[str]:
    """The names of the weights by hop or head that end at 1, as the grey of a matrix does."""
    return [name for name in trace.arrays(by=by) if trace.axes[name].total != "any"]


def dimensions_chart(trace: Trace) -> alt.TopLevelMixin:
    """For each target word a panel: source words down, dimensions across; white is the largest weight of all.

    Of more than 256 dimensions, or than there is room for, those are drawn that hold the largest single weights.
    """
    (weights, *_) = trace.arrays("source words", "dimension").values()
    weights = weights[:, :, most_peaked(weights, _dimensions(trace, 256))]
    panels = []
    source = _words(trace.source)
    for row, word in enumerate(trace.target):
        rows = [{"source": column, "weights": _brief(values)} for column, values in enumerate(weights[row])]
        panel = (
            alt.Chart(alt.Data(values=rows))
            .transform_calculate(dimension=f"sequence({weights.shape[2]})")
            .transform_flatten(["dimension", "weights"], as_=["dimension", "weight"])
            .mark_rect()
            .encode(
                x=alt.X("dimension:O", axis=alt.Axis(labels=False, ticks=False, title="dimensions")),
                y=alt.Y("source:O", scale=_positions(trace.source), axis=_word_axis(source, orient="left")),
                color=_grey(float(weights.max())),
            )
            .add_params(source)
            .properties(width=2 * weights.shape[2], height=alt.Step(CELL_SIZE))
        )
        panels.append(_titled(panel, word))
    return alt.concat(*panels, columns=2).properties(background="white")


def most_peaked(weights: np.ndarray, most: int) -> list[int]:
    """The dimensions (of T x S x d) that hold the largest single weights, at most so many, in their own order."""
    largest = weights.max(axis=(0, 1))
    return sorted(np.argsort(-largest, kind="stable")[:most].tolist())


def spans_chart(trace: Trace) -> alt.TopLevelMixin:
    """For each target word a panel: the first word of a span across, its length up; white is the largest weight of all.

    The grey is that of the weight's square root, as many spans share each word's attention.
    """
    panels = [_titled(_spans(trace, [row]), word) for row, word in enumerate(trace.target)]
    return alt.concat(*panels, columns=3).properties(background="white")


def tree_chart(splits: ArrayLike, words: Sequence[str], title: str | None = None) -> alt.TopLevelMixin:
    """The winning tree of a sentence: words at the bottom, each span above the two that it was made of.

    Args:
        splits: S x S, words in the left part of the winning split of every span, by its first word and its length less 1
        words: S

    Raises:
        ValueError: the splits are not of so many words, or leave one of the two parts of a span without any
    """
    table, words = np.asarray(splits, dtype=int), _showable(words)
    if table.shape != (len(words), len(words)) or not words:
        raise ValueError(f"splits of shape {table.shape} for {len(words)} words: need words x words, at least 1")
    check_splits(table)
    across: dict[tuple[int, int], float] = {}  # (first word, length) -> where the node stands
    height: dict[tuple[int, int], int] = {}
    waiting, spans = [(0, len(words))], []
    while waiting:
        start, length = waiting.pop()
        spans.append((start, length))
        if length > 1:
            left = table[start, length - 1]
            waiting += [(start, left), (start + left, length - left)]
    lines = []
    for start, length in reversed(spans):  # parts before wholes
        if length == 1:
            across[start, 1], height[start, 1] = start, 0
            continue
        left = table[start, length - 1]
        parts = [(start, left), (start + left, length - left)]
        across[start, length] = sum(across[part] for part in parts) / 2
        height[start, length] = 1 + max(height[part] for part in parts)
        for part in parts:
            top = {"x": across[start, length], "y": height[start, length]}
            lines.append({**top, "x2": across[part], "y2": height[part]})
    tallest = max(height.values())
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(words) - 0.5]))
    labels = list(map(_label, words))
    below = 0.4 + 0.65 * FONT_SIZE * max(map(_columns, labels)) / CELL_SIZE  # room for the words, in levels of the tree
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-below, tallest + 0.2]))
    leaves = [
        {"x": column, "y": -0.15, "word": word, "label": label}
        for column, (word, label) in enumerate(zip(words, labels, strict=True))
    ]
    text = alt.Chart(alt.Data(values=leaves)).mark_text(angle=270, align="right", fontSize=FONT_SIZE)
    layers = [text.encode(x=x, y=y, text="label:N", tooltip=["word:N"], description="label:N")]
    if lines:
        layers.append(alt.Chart(alt.Data(values=lines)).mark_rule().encode(x=x, y=y, x2="x2:Q", y2="y2:Q"))
    size = {"width": 2 * CELL_SIZE * len(words), "height": CELL_SIZE * (tallest + 0.2 + below)}
    return _titled(alt.layer(*layers), title).properties(background="white", view=NO_FRAME, **size)


def page(trace: Trace) -> alt.TopLevelMixin:
    """A figure to explore; save it as .html.

    The word of the translation that the pointer was on last shows what it attended to: a bar for each position, of the hop,
    dimension or softmax that the menu picks, or the coverage after the word, and, of a CKY chart, every span. Of more than
    64 dimensions the menu has those that hold the largest single weights. A chart with more cells than :data:`MOST_CELLS` is
    left out, and a ``UserWarning`` says so.

    Raises:
        ValueError: the sentences are too long for any figure
    """
    _check_size(len(trace.target), len(trace.source))
    trace = replace(trace, source=_showable(trace.source), target=_showable(trace.target))
    layers = dict(_layers(trace))
    names = list(layers)
    # clear=False: else a double click leaves no word chosen, and nothing is shown.
    word = alt.selection_point(
        name="word", fields=["target"], on="pointerover", clear=False, empty=False, value=[{"target": 0}]
    )
    labels = list(map(_label, trace.target))
    targets = [
        {"target": row, "word": word, "label": label}
        for row, (word, label) in enumerate(zip(trace.target, labels, strict=True))
    ]
    line = alt.Chart(alt.Data(values=targets)).encode(
        y=alt.Y("target:O", axis=None), tooltip=_where_cut(trace.target), description="label:N"
    )
    chosen = alt.condition(word, alt.value("#bcd7f2"), alt.value("white"))
    # The whole line is to be pointed at: beside a narrow word, on its way to the menu, the pointer would choose none.
    lines = line.mark_rect().encode(color=chosen).add_params(word)
    words = line.mark_text(fontSize=FONT_SIZE + 2, fontWeight="bold").encode(text="label:N")
    width = max(200, 10 * max(map(_columns, labels)))
    translation = _titled(alt.layer(lines, words), "translation: point at a word").properties(
        width=width, height=alt.Step(CELL_SIZE), view=NO_FRAME
    )
    sides = {side: _words(words) for side, words in _sides(trace).items()}
    rows = [
        {"target": row, "layer": name, "side": side, "weights": _brief(weights[row])}
        for name, (side, weights) in layers.items()
        for row in range(len(trace.target))
    ]
    longest = max(weights.shape[1] for _, weights in layers.values())
    # Weights end at 1, coverage where its largest sum does: an axis for each.
    ends = [max(1, round(float(weights.max()), 4)) for _, weights in layers.values()]
    bounded = all(axes.total != "any" for axes in trace.axes.values())
    end: Any = 1 if bounded else alt.ExprRef(f"{json.dumps(ends)}[indexof({json.dumps(names)}, layer)]")
    at = (
        " : ".join(f"datum.side == '{side}' ? {words.name}[datum.position]" for side, words in sides.items())
        + " : null"
    )
    bars = (
        alt.Chart(alt.Data(values=rows))
        .transform_filter("datum.layer == layer")
        .transform_filter(word)
        .transform_calculate(position="sequence(length(datum.weights))")
        .transform_flatten(["position", "weights"], as_=["position", "weight"])
        .transform_calculate(at=at)
        .transform_calculate(word="datum.at.word", label="datum.at.label")
        .transform_calculate(description="datum.label + ': ' + format(datum.weight, '.3f')")
        .mark_bar(color="black")
        .encode(
            y=alt.Y("position:O", scale=alt.Scale(domain=list(range(longest))), axis=None),
            x=alt.X("weight:Q", scale=alt.Scale(domainMin=0, domainMax=end), title="weight"),
            tooltip=["word:N", alt.Tooltip("weight:Q", format=".3f")],
            description="description:N",
        )
        .add_params(*_distinct(*sides.values()))
    )
    beside = bars.mark_text(align="right", dx=-6, fontSize=FONT_SIZE).encode(
        x=alt.value(0), text="label:N", tooltip=_where_cut([*trace.source, *trace.target]), description="label:N"
    )
    attended = _titled(alt.layer(bars, beside), "attends to").properties(width=260, height=alt.Step(CELL_SIZE))
    panels: list[Any] = [translation, attended]
    if trace.arrays(over="spans") and _chart_fits(trace):
        spans = _spans(trace, range(len(trace.target))).transform_filter(word)
        panels.append(_titled(spans, "spans by first word and length"))
    menu = alt.binding_select(options=names, name="attention: ") if len(names) > 1 else alt.Undefined
    layer = alt.param(name="layer", value=names[0], bind=menu)
    return alt.hconcat(*panels, spacing=40).add_params(layer).properties(background="white")


def save_chart(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart to a .svg, .png or .html file, by the ending of ``path``; returns the path.

    A PNG has two pixels per unit, for sharp text, unless that would make more of them than :data:`MOST_PIXELS`; a
    ``UserWarning`` says when no font here holds some of its characters. An HTML page shows the weights under the pointer, and
    a button saves what it shows as SVG or PNG; it holds all that it needs, and loads nothing from the network.

    Raises:
        ValueError: another ending.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"cannot save a chart as {path.name!r}: the name must end in {', '.join(ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if ending == ".html":
        path.write_text(web_page(chart.to_dict(context={"pre_transform": False})), encoding="utf-8")
        return path
    drawing = io.StringIO()
    chart.save(drawing, format="svg")
    svg = _with_margin(drawing.getvalue())
    if ending == ".svg":
        path.write_text(svg, encoding="utf-8")
    else:
        path.write_bytes(_smaller(vl_convert.svg_to_png(svg, scale=_scale(svg))))
        missing = characters_without_font("".join(_texts(svg)))
        if missing:
            message = f"{path} shows boxes for {missing}: no font here holds them (Debian, Ubuntu: fonts-noto-cjk)"
            warnings.warn(message, stacklevel=2)
    return path


def _texts(svg: str) -> list[str]:
    """All that is written in a picture."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)<", svg)]


def _scale(svg: str) -> float:
    """Pixels for each unit of a picture."""
    size = re.match(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"', svg)
    assert size is not None, svg[:200]
    width, height = map(float, size.groups())
    return min(2, (MOST_PIXELS / (width * height)) ** 0.5)


def _with_margin(svg: str) -> str:
    """The same figure with room around it for words in wider fonts than vl-convert's, which it has left no room for.

    DejaVu Sans, the sans-serif font of many Linux systems, takes about 1.5 pixels more for each character.
    """
    room = round(1.5 * max(map(len, _texts(svg)), default=0))

    def widen(corner: re.Match) -> str:
        width, height = (f"{float(size) + 2 * room:g}" for size in corner.groups())
        box = f'width="{width}" height="{height}"'
        return f'{box} viewBox="{-room} {-room} {width} {height}"><rect x="{-room}" y="{-room}" {box}'

    size = r'width="([\d.]+)" height="([\d.]+)"'
    return re.sub(rf'{size} viewBox="0 0 \1 \2"><rect width="\1" height="\2"', widen, svg, count=1)


def _smaller(png: bytes) -> bytes:
    """The same picture with its pixels compressed anew: vl-convert is quick, and leaves up to sixteen times as much."""
    signature, position, pixels, before, after = png[:8], 8, b"", b"", b""
    while position < len(png):  # chunks: length, kind, data, checksum
        end = position + 12 + int.from_bytes(png[position : position + 4], "big")
        if png[position + 4 : position + 8] == b"IDAT":
            pixels += png[position + 8 : end - 4]
        elif pixels:
            after += png[position:end]
        else:
            before += png[position:end]
        position = end
    chunk = b"IDAT" + zlib.compress(zlib.decompress(pixels))
    length, checksum = len(chunk) - 4, zlib.crc32(chunk)
    return signature + before + length.to_bytes(4, "big") + chunk + checksum.to_bytes(4, "big") + after


def characters_without_font(text: str) -> str:
    """The distinct characters of ``text``, in order, that a PNG made here would show as empty boxes."""

    def draw(character: str) -> bytes:
        label = f'<text x="8" y="24" font-family="sans-serif" font-size="16">{character}</text>'
        return vl_convert.svg_to_png(f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="32">{label}</svg>')

    # vl-convert does not list fonts, but it draws what it lacks like the last private-use character, which no font has.
    box = draw("\U0010fffd")
    characters = dict.fromkeys(character for character in text if not character.isascii())
    return "".join(character for character in characters if draw(character) == box)


def _check_size(target: int, source: int) -> None:
    """Raises ValueError if there are more words than a figure can show."""
    if target * source > MOST_CELLS or max(target, source) > MOST_WORDS:
        most = f"{MOST_WORDS:,} words a side and {MOST_CELLS:,} cells"
        raise ValueError(f"{target:,} x {source:,} words are more than a figure can show (at most {most})")


def _chart_fits(trace: Trace) -> bool:
    """Whether the spans of a chart are not too many to draw them for every word; warns if they are."""
    size = len(trace.source)
    cells = len(trace.target) * size * (size + 1) // 2
    if cells > MOST_CELLS:
        message = f"the chart is left out: {cells:,} cells, and a figure can show {MOST_CELLS:,}"
        warnings.warn(message, stacklevel=3)
    return cells <= MOST_CELLS


def _dimensions(trace: Trace, most: int) -> int:
    """How many dimensions there is room for, at most so many."""
    return min(most, MOST_CELLS // (len(trace.target) * len(trace.source)))


def _sides(trace: Trace) -> dict[str, list[str]]:
    """The words that weights are over."""
    read = [BEGINNING, *trace.target[:-1]]  # entry j of the target memory is y_j
    return {"source words": trace.source, "target words": read}


def _layers(trace: Trace) -> Iterator[tuple[str, tuple[str, np.ndarray]]]:
    """What the page's menu offers: a name, which words are attended to, and weights target words x these words."""
    yield "alignment", ("source words", trace.alignment)
    for name, weights in trace.weights.items():
        over, by, _, title = trace.axes[name]
        if over == "spans":  # which have a panel of their own
            continue
        if by is None:
            if title:
                yield title, (over, weights)
            continue
        numbers = most_peaked(weights, _dimensions(trace, 64)) if by == "dimension" else range(weights.shape[2])
        for number in numbers:
            yield f"{title} {by} {number + 1}", (over, weights[:, :, number])


def _spans(trace: Trace, rows: Sequence[int]) -> alt.Chart:
    """The spans of the source and the weights that these target words give them, all in one place."""
    size = len(trace.source)
    spans = [(start, length) for length in range(1, size + 1) for start in range(size - length + 1)]
    starts, lengths = (list(part) for part in zip(*spans, strict=True))
    (chart, *_) = trace.arrays(over="spans").values()
    weights = [{"target": row, "weights": _brief(chart[row, starts, np.array(lengths) - 1])} for row in rows]
    source = _words(trace.source)
    words = f"join(pluck(slice({source.name}, datum.start, datum.start + datum.length), 'word'), ' ')"
    first = f"{source.name}[datum.start].label"
    last = f"{source.name}[datum.start + datum.length - 1].label"
    description = f"{first} + (datum.length > 1 ? ' … ' + {last} : '') + ': ' + format(datum.weight, '.3f')"
    return (
        alt.Chart(alt.Data(values=weights))
        .transform_calculate(starts=json.dumps(starts), lengths=json.dumps(lengths))
        .transform_flatten(["starts", "lengths", "weights"], as_=["start", "length", "weight"])
        .transform_calculate(words=words, description=f"'span ' + {description}")
        .mark_rect(stroke="#777", strokeWidth=0.5)  # else white cells and the white beside the chart would be one
        .encode(
            x=alt.X("start:O", scale=_positions(trace.source), axis=_word_axis(source, orient="bottom")),
            y=alt.Y("length:O", sort="descending", axis=alt.Axis(title="words", ticks=False)),
            color=_grey(float(chart.max()), "sqrt"),
            tooltip=["words:N", alt.Tooltip("weight:Q", format=".3f")],
            description="description:N",
        )
        .add_params(source)
        .properties(width=alt.Step(CELL_SIZE), height=alt.Step(CELL_SIZE))
    )


def _brief(weights: np.ndarray) -> list[float]:
    """What a figure needs of a row of weights."""
    return np.asarray(weights, dtype=float).round(4).tolist()


def _grey(largest: float = 1.0, kind: Literal["linear", "sqrt"] = "linear") -> alt.Color:
    """From black at 0 to white at the largest weight."""
    return alt.Color(
        "weight:Q",
        scale=alt.Scale(type=kind, domain=[0, largest], range=["black", "white"], interpolate="rgb", clamp=True),
        legend=alt.Legend(title="weight", values=[0, largest / 2, largest], format=".2~g"),
    )


def _showable(words: Sequence[str]) -> list[str]:
    """Words without the control characters that no picture can hold."""
    return [re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "�", word) for word in words]


def _positions(tokens: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(range(len(tokens))), padding=0)


def _label(word: str) -> str:
    """A word as it stands beside cells and bars: what is wider than :data:`LONGEST_LABEL` ends in an ellipsis."""
    if len(word) <= LONGEST_LABEL and _columns(word) <= LONGEST_LABEL:
        return word
    kept = word[: LONGEST_LABEL - 1]
    while kept and (_columns(kept) > LONGEST_LABEL - 1 or unicodedata.combining(word[len(kept)])):
        kept = kept[:-1]  # not between a letter and its accents
    return f"{kept}…"


def _columns(text: str) -> int:
    """How wide a text is, in columns of a terminal: Chinese, Japanese and Korean characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _where_cut(words: Sequence[str]) -> Any:
    """The tooltip of a label: the whole word, if any label is cut."""
    return ["word:N"] if any(_label(word) != word for word in words) else alt.value(None)


def _words(tokens: Sequence[str]) -> alt.Parameter:
    """Words as a value that expressions look up by position: ``name[3].label`` beside a cell, ``name[3].word`` in full.

    The name is made from the words, so that charts of one sentence can share it when they stand side by side.
    """
    words = [{"word": word, "label": _label(word)} for word in tokens]
    return alt.param(name=f"words_{_fingerprint(words)}", value=words)


def _distinct(*words: alt.Parameter) -> list[alt.Parameter]:
    """Each only once: a chart whose two sides are the same words has one value for both."""
    return list({one.name: one for one in words}.values())


def _word_axis(words: alt.Parameter, orient: Literal["top", "bottom", "left"]) -> alt.Axis:
    # The axis counts positions and only its labels are words: an axis of words would merge equal ones.
    return alt.Axis(
        orient=orient,
        title=None,
        labelExpr=f"{words.name}[datum.value].label",
        labelAngle=0 if orient == "left" else -90,
        labelFontSize=FONT_SIZE,
        labelLimit=0,  # the words are as short as they should be
        labelOverlap=False,  # never leave one out
        ticks=False,
        domain=False,
    )


def _titled(chart: Any, title: str | None) -> Any:
    """The chart with a line above it. Also a title may be a word of a trace, and Vega reads some titles as names."""
    if title is None:
        return chart
    label = _label(title)
    text = alt.param(name=f"title_{_fingerprint(label)}", value=label)
    line = alt.Title(alt.ExprRef(text.name), anchor="start", fontWeight="normal")
    return chart.properties(title=line).add_params(text)


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
