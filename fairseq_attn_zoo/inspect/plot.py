"""Figures of attention weights, drawn with Altair and saved with vl-convert: no browser is needed.

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
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Literal

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import ArrayLike

ENDINGS = (".svg", ".png", ".html")

CELL_SIZE = 22  # pixels: room for one line of text at the font size below
FONT_SIZE = 13


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
            color=alt.Color(
                "weight:Q",
                scale=alt.Scale(domain=[0, 1], range=["black", "white"], interpolate="rgb", clamp=True),
                legend=alt.Legend(title="weight", values=[0, 0.5, 1]),
            ),
            tooltip=["words:N", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(width=alt.Step(CELL_SIZE), height=alt.Step(CELL_SIZE), background="white", **_title(title))
    )


def save_chart(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart to a .svg, .png or .html file, by the ending of ``path``; returns the path.

    A PNG has two pixels a unit, for sharp text; a ``UserWarning`` says when no font here holds some of its characters.
    An HTML page shows the weights under the pointer, and loads Vega from the network when it is opened.

    Raises:
        ValueError: another ending.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"cannot save a chart as {path.name!r}: the name must end in {', '.join(ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if ending == ".html":
        chart.save(str(path), format="html")
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


def _positions(tokens: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(range(len(tokens))), padding=0)


def _word_axis(tokens: Sequence[str], orient: Literal["top", "left"]) -> alt.Axis:
    # The axis counts positions and only its labels are words: an axis of words would merge equal ones. JSON without
    # raw non-ASCII characters is also a valid literal of Vega's expression language.
    return alt.Axis(
        orient=orient,
        title=None,
        labelExpr=f"{json.dumps(list(tokens))}[datum.value]",
        labelAngle=-90 if orient == "top" else 0,
        labelFontSize=FONT_SIZE,
        labelLimit=0,  # never shorten a word
        labelOverlap=False,  # never leave one out
        ticks=False,
        domain=False,
    )


def _title(title: str | None) -> dict:
    # Altair writes an absent title only when the property is absent: None would be an explicit null.
    return {} if title is None else {"title": alt.Title(title, anchor="start", fontWeight="normal")}
