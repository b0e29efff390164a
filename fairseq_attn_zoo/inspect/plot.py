"""Figures of attention weights, drawn with Altair and saved with vl-convert: no browser is needed.

:func:`figures` draws the papers' kinds of figure from a trace, and :func:`page` is the one to explore: the word under the
pointer shows its weights, and a menu picks hop, dimension, softmax or coverage.

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

from .trace import Trace

ENDINGS = (".svg", ".png", ".html")

CELL_SIZE = 22  # pixels: room for one line of text at the font size below
FONT_SIZE = 13
# The menu stands above the bars: below it would be off the screen of a long sentence, and at the left the pointer would
# cross other words on its way from a word to the menu. A tooltip that the pointer runs into shall not hide what it is about.
PAGE_STYLE = """
    .chart-wrapper { display: flex; flex-direction: column-reverse; }
    .vega-bindings { margin: 0 0 12px 245px; font-family: sans-serif; font-size: 13px; }
    #vg-tooltip-element { pointer-events: none; }
  """
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
        # A list a word, which Vega takes apart: Altair checks every entry of the data, and one a cell takes it half a minute.
        rows = [{"source": column, "weights": _brief(values)} for column, values in enumerate(weights[row])]
        panels.append(
            alt.Chart(alt.Data(values=rows))
            .transform_calculate(dimension=f"sequence({weights.shape[2]})")
            .transform_flatten(["dimension", "weights"], as_=["dimension", "weight"])
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
    """For each target word a panel: the first word of a span across, its length up; white is the largest weight of all.

    The grey is that of the weight's square root, as many spans share each word's attention.
    """
    panels = [_spans(trace, [row]).properties(**_title(word)) for row, word in enumerate(trace.target)]
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
    return alt.layer(*layers).properties(background="white", view=NO_FRAME, **size, **_title(title))


def page(trace: Trace) -> alt.TopLevelMixin:
    """A figure to explore; save it as .html.

    The word of the translation that the pointer was on last shows what it attended to: a bar for each position, of the hop,
    dimension or softmax that the menu picks, or the coverage after the word, and, of a CKY chart, every span. Of more than
    64 dimensions the menu has those that hold the largest single weights.
    """
    trace = replace(trace, source=_showable(trace.source), target=_showable(trace.target))
    layers = dict(_layers(trace))
    names = list(layers)
    # clear=False: else a double click leaves no word chosen, and nothing is shown.
    word = alt.selection_point(
        name="word", fields=["target"], on="pointerover", clear=False, empty=False, value=[{"target": 0}]
    )
    targets = [{"target": row, "text": text} for row, text in enumerate(trace.target)]
    line = alt.Chart(alt.Data(values=targets)).encode(y=alt.Y("target:O", axis=None))
    chosen = alt.condition(word, alt.value("#bcd7f2"), alt.value("white"))
    # The whole line is to be pointed at: beside a narrow word, on its way to the menu, the pointer would choose none.
    lines = line.mark_rect().encode(color=chosen).add_params(word)
    words = line.mark_text(fontSize=FONT_SIZE + 2, fontWeight="bold").encode(text="text:N")
    width = max(200, 10 * max(map(len, trace.target)))
    translation = alt.layer(lines, words).properties(
        width=width, height=alt.Step(CELL_SIZE), view=NO_FRAME, **_title("translation: point at a word")
    )
    rows = [
        {"target": row, "layer": name, "words": list(words), "weights": _brief(weights[row])}
        for name, (words, weights) in layers.items()
        for row in range(len(trace.target))
    ]
    longest = max(len(words) for words, _ in layers.values())
    # Weights end at 1, coverage where its largest sum does: an axis for each.
    ends = {name: max(1, round(float(weights.max()), 4)) for name, (_, weights) in layers.items()}
    end: Any = alt.ExprRef(f"{json.dumps(ends)}[layer]") if "source_coverage" in trace.weights else 1
    bars = (
        alt.Chart(alt.Data(values=rows))
        .transform_filter("datum.layer == layer")
        .transform_filter(word)
        .transform_calculate(position="sequence(length(datum.words))")
        .transform_flatten(["position", "words", "weights"], as_=["position", "word", "weight"])
        .mark_bar(color="black")
        .encode(
            y=alt.Y("position:O", scale=alt.Scale(domain=list(range(longest))), axis=None),
            x=alt.X("weight:Q", scale=alt.Scale(domainMin=0, domainMax=end), title="weight"),
            tooltip=["word:N", alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    labels = bars.mark_text(align="right", dx=-6, fontSize=FONT_SIZE).encode(
        x=alt.value(0), text="word:N", tooltip=alt.value(None)
    )
    attended = alt.layer(bars, labels).properties(width=260, height=alt.Step(CELL_SIZE), **_title("attends to"))
    panels: list[Any] = [translation, attended]
    if "source_chart" in trace.weights:
        spans = _spans(trace, range(len(trace.target))).transform_filter(word)
        panels.append(spans.properties(**_title("spans by first word and length")))
    menu = alt.binding_select(options=names, name="attention: ") if len(names) > 1 else alt.Undefined
    layer = alt.param(name="layer", value=names[0], bind=menu)
    return alt.hconcat(*panels, spacing=40).add_params(layer).properties(background="white")


def save_chart(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart to a .svg, .png or .html file, by the ending of ``path``; returns the path.

    A PNG has two pixels a unit, for sharp text; a ``UserWarning`` says when no font here holds some of its characters.
    An HTML page shows the weights under the pointer, and a button saves what it shows as SVG or PNG; it holds all that it
    needs, and loads nothing from the network.

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
        # Of Vega's actions only those that stay on this machine: its editor is a website.
        actions = {"export": True, "source": False, "compiled": False, "editor": False}
        chart.save(html, format="html", inline=True, embed_options={"actions": actions})
        page, mark, rest = html.getvalue().rpartition("const spec = ")
        page = page.replace("</style>", f"{PAGE_STYLE}</style>", 1)
        specification, end, rest = rest.partition(";\n")
        # A word may be "</script>": within a script's strings the slash can be escaped.
        path.write_text(page + mark + specification.replace("</", "<\\/") + end + rest, encoding="utf-8")
        return path
    drawing = io.StringIO()
    chart.save(drawing, format="svg")
    svg = _with_margin(drawing.getvalue())
    if ending == ".svg":
        path.write_text(svg, encoding="utf-8")
    else:
        path.write_bytes(_smaller(vl_convert.svg_to_png(svg, scale=2)))
        missing = characters_without_font("".join(_texts(svg)))
        if missing:
            message = f"{path} shows boxes for {missing}: no font here holds them (Debian, Ubuntu: fonts-noto-cjk)"
            warnings.warn(message, stacklevel=2)
    return path


def _texts(svg: str) -> list[str]:
    """All that is written in a picture."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)<", svg)]


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


def _layers(trace: Trace) -> Iterator[tuple[str, tuple[Sequence[str], np.ndarray]]]:
    """What the page's menu offers: a name, the words that are attended to, and weights target words x these words."""
    yield "alignment", (trace.source, trace.alignment)
    read = [BEGINNING, *trace.target[:-1]]
    for name, weights in trace.weights.items():
        words = read if name.startswith("target") else trace.source
        side, kind = name.partition("_")[::2]
        if name == "source_joint":
            yield "words, in the joint softmax", (words, weights)
        elif name == "source_coverage":
            yield "coverage after the word", (words, weights)
        elif weights.ndim == 3 and kind != "chart":
            singular = {"hops": "hop", "dimensions": "dimension"}[kind]
            for number in most_peaked(weights, 64) if kind == "dimensions" else range(weights.shape[2]):
                yield f"{side} {singular} {number + 1}", (words, weights[:, :, number])


def _spans(trace: Trace, rows: Sequence[int]) -> alt.Chart:
    """The spans of the source and the weights that these target words give them, all in one place."""
    size = len(trace.source)
    spans = [(start, length) for length in range(1, size + 1) for start in range(size - length + 1)]
    starts, lengths = (list(part) for part in zip(*spans, strict=True))
    chart = trace.weights["source_chart"]
    weights = [{"target": row, "weights": _brief(chart[row, starts, np.array(lengths) - 1])} for row in rows]
    words = f"join(slice({json.dumps(trace.source)}, datum.start, datum.start + datum.length), ' ')"
    return (
        alt.Chart(alt.Data(values=weights))
        .transform_calculate(starts=json.dumps(starts), lengths=json.dumps(lengths))
        .transform_flatten(["starts", "lengths", "weights"], as_=["start", "length", "weight"])
        .transform_calculate(words=words)
        .mark_rect(stroke="#777", strokeWidth=0.5)  # else white cells and the white beside the chart would be one
        .encode(
            x=alt.X("start:O", scale=_positions(trace.source), axis=_word_axis(trace.source, orient="bottom")),
            y=alt.Y("length:O", sort="descending", axis=alt.Axis(title="words", ticks=False)),
            color=_grey(float(chart.max()), "sqrt"),
            tooltip=["words:N", alt.Tooltip("weight:Q", format=".3f")],
        )
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
