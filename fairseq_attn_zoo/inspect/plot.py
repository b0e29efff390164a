"""Figures of attention weights, drawn with Altair and saved with vl-convert: no browser is needed.

:func:`figures` draws the papers' kinds of figure from a trace, and :func:`page` is the one to explore: the word under the
pointer shows its weights, and a menu picks hop, dimension or softmax.

Fonts: vl-convert brings its own font for Latin, Greek and Cyrillic, and takes every other character from the fonts of
the system. For Japanese, Chinese or Korean words in a PNG a font that holds them must be installed (Debian and Ubuntu:
``apt install fonts-noto-cjk``), or a folder of font files named once with ``vl_convert.register_font_directory``;
otherwise they become empty boxes, and :func:`save_chart` warns. An SVG or HTML file keeps the words as text, so there
the fonts of whoever looks at it count.
"""

import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Literal

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import ArrayLike

from .trace import Trace

ENDINGS = (".svg", ".png", ".html")

CELL_SIZE = 22  # pixels: room for one line of text at the font size below
FONT_SIZE = 13
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
        target_tokens: the T target words, in the order of the rows
        title: a line above the figure

    Returns:
        a chart, to be shown in a notebook, or written with :func:`save_chart`

    Raises:
        ValueError: the weights are not T x S, T or S is 0, or a weight is no number between 0 and 1.
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
    # Rounding may carry a float32 softmax a little above 1; NaN fails this comparison too.
    if not bool(np.all((values > -1e-3) & (values < 1 + 1e-3))):
        raise ValueError("attention weights must lie between 0 and 1")

    cells = [
        {"source": column, "target": row, "weight": float(weight), "words": f"{target_tokens[row]} ← {word}"}
        for row in range(expected[0])
        for column, (word, weight) in enumerate(zip(source_tokens, values[row], strict=True))
    ]
    return (
        alt.Chart(alt.Data(values=cells))
        .mark_rect()
        .encode(
            x=alt.X("source:O", scale=_positions(source_tokens), axis=_word_axis(source_tokens, orient="top")),
            y=alt.Y("target:O", scale=_positions(target_tokens), axis=_word_axis(target_tokens, orient="left")),
            color=_grey(),
            tooltip=["words:N", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(width=alt.Step(CELL_SIZE), height=alt.Step(CELL_SIZE), **_title(title))
    )


def figures(trace: Trace) -> dict[str, alt.TopLevelMixin]:
    """Every figure that a trace has, by name.

    - ``matrix``: the alignment (Bahdanau 2015, Figure 3)
    - ``hops``: a matrix a hop, those on the target words first (Simon and Schwenk 2017)
    - ``dimensions``: for each target word the weights of every dimension of every source word (Choi 2018)
    - ``chart``: for each target word the weights of all spans, by first word and length, and ``tree``, the winning tree
      (Watanabe 2017)
    """
    trace = replace(trace, source=_showable(trace.source), target=_showable(trace.target))
    found: dict[str, alt.TopLevelMixin] = {"matrix": attention_chart(trace.alignment, trace.source, trace.target)}
    if "source_hops" in trace.weights:
        found["hops"] = hops_chart(trace)
    if "source_dimensions" in trace.weights:
        found["dimensions"] = dimensions_chart(trace)
    if "source_chart" in trace.weights:
        found["chart"] = spans_chart(trace)
    if trace.splits is not None:
        found["tree"] = tree_chart(trace.splits, trace.source)
    return found


def hops_chart(trace: Trace) -> alt.TopLevelMixin:
    """One matrix a hop, in the order in which the query takes them."""
    read = [BEGINNING, *trace.target[:-1]]  # entry j of the target memory is y_j
    panels = []
    for name, columns in (("target_hops", read), ("source_hops", trace.source)):
        weights = trace.weights.get(name, np.zeros((0, 0, 0)))  # no hops on the target
        for hop in range(weights.shape[2]):
            title = f"{name.split('_')[0]} hop {hop + 1}"
            panels.append(_matrix(weights[:, :, hop], columns, trace.target, title))
    return alt.concat(*panels, columns=3).properties(background="white")


def dimensions_chart(trace: Trace) -> alt.TopLevelMixin:
    """For each target word a panel: source words down, dimensions across; white is the largest weight of all.

    Of more than 256 dimensions those are drawn that hold the largest single weights.
    """
    weights = trace.weights["source_dimensions"]
    weights = weights[:, :, most_peaked(weights, 256)]
    panels = []
    for row, word in enumerate(trace.target):
        cells = [
            {"source": column, "dimension": dimension, "weight": round(float(weight), 4)}
            for column, values in enumerate(weights[row])
            for dimension, weight in enumerate(values)
        ]
        panels.append(
            alt.Chart(alt.Data(values=cells))
            .mark_rect()
            .encode(
                x=alt.X("dimension:O", axis=alt.Axis(labels=False, ticks=False, title="dimensions")),
                y=alt.Y("source:O", scale=_positions(trace.source), axis=_word_axis(trace.source, orient="left")),
                color=_grey(float(weights.max())),
            )
            .properties(width=2 * weights.shape[2], height=alt.Step(CELL_SIZE), **_title(word))
        )
    return alt.concat(*panels, columns=2).properties(background="white")


def most_peaked(weights: np.ndarray, most: int) -> list[int]:
    """The dimensions (of T x S x d) that hold the largest single weights, at most so many, in their own order."""
    largest = weights.max(axis=(0, 1))
    return sorted(np.argsort(-largest, kind="stable")[:most].tolist())


def spans_chart(trace: Trace) -> alt.TopLevelMixin:
    """For each target word a panel: the first word of a span across, its length up; white is the largest weight of all."""
    panels = []
    for row, word in enumerate(trace.target):
        cells = _spans(trace, row)
        panels.append(
            alt.Chart(alt.Data(values=cells)).mark_rect().encode(**_span_axes(trace)).properties(**_span_size(word))
        )
    return alt.concat(*panels, columns=3).properties(background="white")


def tree_chart(splits: ArrayLike, words: Sequence[str], title: str | None = None) -> alt.TopLevelMixin:
    """The winning tree of a sentence: words at the bottom, each span above the two that it was made of.

    Args:
        splits: S x S, words in the left part of the winning split of every span, by its first word and its length less 1
        words: S

    Raises:
        ValueError: the splits are not of so many words
    """
    table, words = np.asarray(splits, dtype=int), _showable(words)
    if table.shape != (len(words), len(words)) or not words:
        raise ValueError(f"splits of shape {table.shape} for {len(words)} words: need words x words, at least 1")
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
    below = 0.4 + 0.65 * FONT_SIZE * max(map(len, words)) / CELL_SIZE  # room for the words, in levels of the tree
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-below, tallest + 0.2]))
    leaves = [{"x": column, "y": -0.15, "word": word} for column, word in enumerate(words)]
    text = alt.Chart(alt.Data(values=leaves)).mark_text(angle=270, align="right", fontSize=FONT_SIZE)
    layers = [text.encode(x=x, y=y, text="word:N")]
    if lines:
        layers.append(alt.Chart(alt.Data(values=lines)).mark_rule().encode(x=x, y=y, x2="x2:Q", y2="y2:Q"))
    size = {"width": 2 * CELL_SIZE * len(words), "height": CELL_SIZE * (tallest + 0.2 + below)}
    return alt.layer(*layers).properties(background="white", **size, **_title(title))


def page(trace: Trace) -> alt.TopLevelMixin:
    """A figure to explore; save it as .html.

    The word of the translation under the pointer shows what it attended to: a bar for each position, of the hop, dimension
    or softmax that the menu picks, and, of a CKY chart, every span. Of more than 64 dimensions the menu has those that hold
    the largest single weights.
    """
    trace = replace(trace, source=_showable(trace.source), target=_showable(trace.target))
    layers = dict(_layers(trace))
    names = list(layers)
    rows = [
        {"target": row, "position": column, "word": word, "layer": name, "weight": round(float(weight), 4)}
        for name, (words, weights) in layers.items()
        for row in range(len(trace.target))
        for column, (word, weight) in enumerate(zip(words, weights[row], strict=True))
    ]
    menu = alt.binding_select(options=names, name="attention: ")
    layer = alt.param(name="layer", value=names[0], bind=menu)
    word = alt.selection_point(name="word", fields=["target"], on="pointerover", empty=False, value=[{"target": 0}])
    targets = [{"target": row, "text": text} for row, text in enumerate(trace.target)]
    chosen = alt.condition(word, alt.value("black"), alt.value("#bbb"))
    translation = (
        alt.Chart(alt.Data(values=targets))
        .mark_text(fontSize=FONT_SIZE + 2, fontWeight="bold")
        .encode(y=alt.Y("target:O", axis=None), text="text:N", color=chosen)
        .add_params(word)
        .properties(width=160, height=alt.Step(CELL_SIZE), title="translation: point at a word")
    )
    longest = max(len(words) for words, _ in layers.values())
    bars = (
        alt.Chart(alt.Data(values=rows))
        .transform_filter("datum.layer == layer")
        .transform_filter(word)
        .mark_bar(color="black")
        .encode(
            y=alt.Y("position:O", scale=alt.Scale(domain=list(range(longest))), axis=None),
            x=alt.X("weight:Q", scale=alt.Scale(domain=[0, 1]), title="weight"),
            tooltip=["word:N", alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    labels = bars.mark_text(align="right", dx=-6, fontSize=FONT_SIZE).encode(
        x=alt.value(0), text="word:N", tooltip=alt.value(None)
    )
    attended = alt.layer(bars, labels).properties(width=260, height=alt.Step(CELL_SIZE), title="attends to")
    panels = [translation, attended]
    if "source_chart" in trace.weights:
        cells = [{**cell, "target": row} for row in range(len(trace.target)) for cell in _spans(trace, row)]
        spans = alt.Chart(alt.Data(values=cells)).transform_filter(word).mark_rect().encode(**_span_axes(trace))
        panels.append(spans.properties(**_span_size("spans by first word and length")))
    return alt.hconcat(*panels, spacing=120).add_params(layer).properties(background="white")


def save_chart(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart to a .svg, .png or .html file, by the ending of ``path``; returns the path.

    A PNG has two pixels a unit, for sharp text; a ``UserWarning`` says when no font here holds some of its characters.
    An HTML page shows the weights under the pointer; it holds all that it needs, and loads nothing from the network.

    Raises:
        ValueError: another ending.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"cannot save a chart as {path.name!r}: the name must end in {', '.join(ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if ending == ".html":
        html = io.StringIO()
        chart.save(html, format="html", inline=True)
        page, mark, rest = html.getvalue().rpartition("const spec = ")
        specification, end, rest = rest.partition(";\n")
        # A word may be "</script>": within a script's strings the slash can be escaped.
        path.write_text(page + mark + specification.replace("</", "<\\/") + end + rest, encoding="utf-8")
        return path
    drawing = io.StringIO()
    chart.save(drawing, format="svg")
    svg = drawing.getvalue()
    if ending == ".svg":
        path.write_text(svg, encoding="utf-8")
    else:
        path.write_bytes(vl_convert.svg_to_png(svg, scale=2))
        missing = characters_without_font("".join(re.findall(r"<text[^>]*>([^<]*)<", svg)))
        if missing:
            message = f"{path} shows boxes for {missing}: no font here holds them (Debian, Ubuntu: fonts-noto-cjk)"
            warnings.warn(message, stacklevel=2)
    return path


def characters_without_font(text: str) -> str:
    """The distinct characters of ``text``, in order, that a PNG made here would show as empty boxes."""

    def draw(character: str) -> bytes:
        label = f'<text x="8" y="24" font-family="sans-serif" font-size="16">{character}</text>'
        return vl_convert.svg_to_png(f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="32">{label}</svg>')

    # vl-convert does not list fonts, but it draws what it lacks like the last private-use character, which no font has.
    box = draw("\U0010fffd")
    characters = dict.fromkeys(character for character in unescape(text) if not character.isascii())
    return "".join(character for character in characters if draw(character) == box)


def _layers(trace: Trace) -> Iterator[tuple[str, tuple[Sequence[str], np.ndarray]]]:
    """What the page's menu offers: a name, the words that are attended to, and weights target words x these words."""
    yield "alignment", (trace.source, trace.alignment)
    read = [BEGINNING, *trace.target[:-1]]
    for name, weights in trace.weights.items():
        words = read if name.startswith("target") else trace.source
        side, kind = name.partition("_")[::2]
        if name == "source_joint":
            yield "words, in the joint softmax", (words, weights)
        elif weights.ndim == 3 and kind != "chart":
            singular = {"hops": "hop", "dimensions": "dimension"}[kind]
            for number in most_peaked(weights, 64) if kind == "dimensions" else range(weights.shape[2]):
                yield f"{side} {singular} {number + 1}", (words, weights[:, :, number])


def _spans(trace: Trace, row: int) -> list[dict]:
    """The spans of the source and the weights that one target word gives them."""
    weights = trace.weights["source_chart"][row]
    return [
        {
            "start": start,
            "length": length,
            "weight": round(float(weights[start, length - 1]), 4),
            "words": " ".join(trace.source[start : start + length]),
        }
        for length in range(1, len(trace.source) + 1)
        for start in range(len(trace.source) - length + 1)
    ]


def _span_axes(trace: Trace) -> dict:
    lengths = list(range(len(trace.source), 0, -1))
    return {
        "x": alt.X("start:O", scale=_positions(trace.source), axis=_word_axis(trace.source, orient="bottom")),
        "y": alt.Y("length:O", scale=alt.Scale(domain=lengths), axis=alt.Axis(title="words", ticks=False)),
        "color": _grey(float(trace.weights["source_chart"].max())),
        "tooltip": ["words:N", alt.Tooltip("weight:Q", format=".3f")],
    }


def _span_size(title: str) -> dict:
    return {"width": alt.Step(CELL_SIZE), "height": alt.Step(CELL_SIZE), **_title(title)}


def _grey(largest: float = 1.0) -> alt.Color:
    """From black at 0 to white at the largest weight."""
    return alt.Color(
        "weight:Q",
        scale=alt.Scale(domain=[0, largest], range=["black", "white"], interpolate="rgb", clamp=True),
        legend=alt.Legend(title="weight", values=[0, largest / 2, largest], format=".2~g"),
    )


def _showable(words: Sequence[str]) -> list[str]:
    """Words without the control characters that no picture can hold."""
    return [re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "�", word) for word in words]


def _positions(tokens: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(range(len(tokens))), padding=0)


def _word_axis(tokens: Sequence[str], orient: Literal["top", "bottom", "left"]) -> alt.Axis:
    # The axis counts positions and only its labels are words: an axis of words would merge equal ones. JSON without
    # raw non-ASCII characters is also a valid literal of Vega's expression language.
    return alt.Axis(
        orient=orient,
        title=None,
        labelExpr=f"{json.dumps(list(tokens))}[datum.value]",
        labelAngle=0 if orient == "left" else -90,
        labelFontSize=FONT_SIZE,
        labelLimit=0,  # never shorten a word
        labelOverlap=False,  # never leave one out
        ticks=False,
        domain=False,
    )


def _title(title: str | None) -> dict:
    # Altair writes an absent title only when the property is absent: None would be an explicit null.
    return {} if title is None else {"title": alt.Title(title, anchor="start", fontWeight="normal")}
