"""The page to explore, opened in Chromium without a network: what a user sees there and can do."""

import shutil
import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("altair")
sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright

from fairseq_attn_zoo.inspect.plot import attention_chart, figures, page, save_chart  # noqa: E402
from fairseq_attn_zoo.inspect.trace import Trace  # noqa: E402

NAMES = ("chromium-headless-shell", "google-chrome", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")

SOURCE = ["the", "the", "dog's", "barks", "</s>"]  # S = 5
TARGET = ["猫", "が", "</s>"]  # T = 3
PATIENCE = 10  # seconds: a page follows the pointer in a tenth of one, but a machine may have much else to do


def random_weights(*shape):
    return np.random.default_rng(sum(shape)).random(shape)


def trace(source=SOURCE, target=TARGET, /, **weights):
    return Trace("any", list(source), list(target), random_weights(len(target), len(source)), weights)


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def view(chromium, tmp_path):
    """Opens a chart's page; that it asked for nothing beside itself, and complained of nothing, is asserted at the end."""
    pages, troubles = [], []
    context = chromium.new_context(offline=True)
    context.set_default_timeout(1000 * PATIENCE)
    tab = context.new_page()
    tab.on("request", lambda request: request.url in pages or troubles.append(request.url))
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))

    def open_page(chart, name="page.html"):
        pages.append(save_chart(chart, tmp_path / name).as_uri())
        tab.goto(pages[-1])
        tab.wait_for_selector("svg.marks")
        return tab

    yield open_page
    context.close()
    assert troubles == []


def boxes(view, selector):
    """Text, colour and place of all such elements, in pixels."""
    return view.evaluate(
        """selector => [...document.querySelectorAll(selector)].map(element => {
            const {left, right, top, bottom} = element.getBoundingClientRect()
            return {left, right, top, bottom, text: element.textContent, fill: element.getAttribute("fill")}
        })""",
        selector,
    )


def texts(view):
    return boxes(view, "svg.marks text")


def middle(box):
    return (box["left"] + box["right"]) / 2, (box["top"] + box["bottom"]) / 2


def bars(view):
    """The words that have a bar, from above, and the lengths of the bars as read from the axis below them."""
    seen = texts(view)
    zero = next(text["left"] for text in seen if text["text"] == "0.0")
    one = next(text["right"] for text in seen if text["text"] == "1.0")
    words, weights = [], []
    for bar in sorted(boxes(view, "[aria-roledescription=bar]"), key=lambda bar: bar["top"]):
        beside = [text for text in seen if bar["top"] < middle(text)[1] < bar["bottom"] and text["right"] < zero]
        words.append(max(beside, key=lambda text: text["right"])["text"])
        assert bar["left"] == pytest.approx(zero, abs=1)
        weights.append((bar["right"] - bar["left"]) / (one - zero))
    return words, weights


def spans(view):
    """The greys of the chart's cells: the shortest spans first, then by first word."""
    cells = boxes(view, "[aria-label^='span ']")
    cells.sort(key=lambda cell: (-cell["top"], cell["left"]))
    return [int(cell["fill"].removeprefix("rgb(").split(",")[0]) for cell in cells]


def becomes(read, expected):
    """Whether ``read()`` becomes what is expected; the page needs a moment."""
    end = time.monotonic() + PATIENCE
    while (found := read()) != expected and time.monotonic() < end:
        time.sleep(0.02)
    assert found == expected
    return True


def shows(view, words, weights):
    return becomes(lambda: bars(view), (list(words), pytest.approx(list(weights), abs=0.01)))


def cut(view):
    """The words that are not wholly within the picture."""
    picture = boxes(view, "svg.marks")[0]
    across = [text for text in texts(view) if text["left"] < picture["left"] or text["right"] > picture["right"]]
    down = [text for text in texts(view) if text["top"] < picture["top"] or text["bottom"] > picture["bottom"]]
    return [text["text"] for text in across + down]


def move_to(view, box, beside=0):
    """Move the pointer to the middle of a box, or so many pixels beside it, over everything on the way."""
    x, y = middle(box)
    view.mouse.move(x + beside, y, steps=10)


def in_translation(view, word):
    """The box of a word of the translation, which stands left of all others."""
    return min((text for text in texts(view) if text["text"] == word), key=lambda text: text["left"])


def tooltip(view):
    view.wait_for_selector("#vg-tooltip-element.visible")
    return view.locator("#vg-tooltip-element td.value").all_inner_texts()


def test_the_word_under_the_pointer_shows_what_it_attended_to(view):
    found = trace(source=random_weights(3, 5))
    tab = view(page(found))
    assert [tab.get_by_text(word, exact=True).first.is_visible() for word in TARGET] == [True] * 3
    assert shows(tab, SOURCE, found.alignment[0])
    for row, beside in ((2, 0), (1, -40), (0, 40)):
        move_to(tab, in_translation(tab, TARGET[row]), beside)
        assert shows(tab, SOURCE, found.alignment[row])
    assert tab.locator("select").count() == 0  # nothing to pick


def test_the_word_stays_chosen_until_the_pointer_is_on_another(view):
    found = trace(source=random_weights(3, 5))
    tab = view(page(found))
    move_to(tab, in_translation(tab, TARGET[1]))
    tab.mouse.dblclick(*middle(in_translation(tab, TARGET[1])))
    move_to(tab, boxes(tab, "[aria-roledescription=bar]")[2])
    assert tooltip(tab) == ["dog's", f"{found.alignment[1, 2]:.3f}"]
    for x, y in ((600, 1), (1, 1), (1, 600)):  # above the translation and left of it
        tab.mouse.move(x, y, steps=10)
    assert shows(tab, SOURCE, found.alignment[1])


HOPS = {"source_hops": random_weights(3, 5, 2), "target_hops": random_weights(3, 3, 1)}
DIMENSIONS = {"source_dimensions": random_weights(3, 5, 4)}


@pytest.mark.parametrize(
    "weights, names",
    [
        (HOPS, ["source hop 1", "source hop 2", "target hop 1"]),
        (DIMENSIONS, [f"source dimension {number}" for number in (1, 2, 3, 4)]),
    ],
)
def test_the_menu_picks_a_hop_or_dimension(view, weights, names):
    found = trace(**weights)
    tab = view(page(found))
    menu = tab.get_by_label("attention:")
    assert menu.locator("option").all_inner_texts() == ["alignment", *names]
    assert menu.bounding_box()["y"] < boxes(tab, "svg.marks")[0]["top"]  # in sight, however long the sentence
    for row, name in enumerate(reversed(names)):
        row %= 3
        move_to(tab, in_translation(tab, TARGET[row]))
        move_to(tab, in_translation(tab, TARGET[row]), 150)  # not over other words
        menu.hover()
        menu.select_option(name)
        array = weights["_".join(name.split()[:2]) + "s"]
        words = SOURCE if name.startswith("source") else ["<s>", *TARGET[:-1]]
        assert shows(tab, words, array[row, :, int(name.split()[2]) - 1])


def test_the_axis_of_coverage_ends_at_the_largest_sum_and_that_of_weights_at_1(view):
    coverage = 3 * random_weights(3, 5)
    found = trace(source=random_weights(3, 5), source_coverage=coverage)
    tab = view(page(found))
    row, column = np.unravel_index(coverage.argmax(), coverage.shape)
    move_to(tab, in_translation(tab, TARGET[row]))
    menu = tab.get_by_label("attention:")
    assert menu.locator("option").all_inner_texts() == ["alignment", "coverage after the word"]
    assert shows(tab, SOURCE, found.alignment[row])

    def lengths():
        found = sorted(boxes(tab, "[aria-roledescription=bar]"), key=lambda bar: bar["top"])
        return [(bar["right"] - bar["left"]) / 260 for bar in found]  # of the axis

    menu.select_option("coverage after the word")
    assert becomes(lengths, pytest.approx((coverage[row] / coverage.max()).tolist(), abs=0.01))
    move_to(tab, boxes(tab, "[aria-roledescription=bar]")[column])
    assert tooltip(tab) == [SOURCE[column], f"{coverage.max():.3f}"]
    menu.select_option("alignment")
    assert shows(tab, SOURCE, found.alignment[row])


def test_a_chart_shows_every_span(view):
    chart = random_weights(3, 5, 5)
    joint = random_weights(3, 5)[::-1]
    tab = view(page(trace(source_joint=joint, source_chart=chart)))
    menu = tab.get_by_label("attention:")
    order = [(start, length) for length in range(1, 6) for start in range(6 - length)]
    for row in (0, 2):
        move_to(tab, in_translation(tab, TARGET[row]))
        greys = [255 * np.sqrt(chart[row, start, length - 1] / chart.max()) for start, length in order]
        assert becomes(lambda: spans(tab), pytest.approx(greys, abs=1))  # noqa: B023
        menu.select_option("words, in the joint softmax")
        assert shows(tab, SOURCE, joint[row])
    move_to(tab, boxes(tab, "[aria-label^='span ']")[order.index((1, 3))])
    assert tooltip(tab) == ["the dog's barks", f"{chart[2, 1, 2]:.3f}"]


def test_no_word_is_cut_and_none_overlaps_another(view):
    source = ["Donaudampfschifffahrtsgesellschaftskapitän", "食べられなかったから", "</s>"]
    target = ["pneumonoultramicroscopicsilicovolcanoconiosis", "食べられなかった", "</s>"]
    found = trace(source, target, source_chart=random_weights(3, 3, 3))
    tab = view(page(found))
    assert shows(tab, source, found.alignment[0])
    assert cut(tab) == []
    for one, other in combinations(texts(tab), 2):
        across = min(one["right"], other["right"]) - max(one["left"], other["left"])
        down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
        assert min(across, down) < 2, (one, other)


def test_the_figure_of_an_alignment_tells_the_weight_under_the_pointer(view):
    weights = random_weights(3, 5)
    tab = view(attention_chart(weights, SOURCE, TARGET))
    move_to(tab, boxes(tab, "[aria-roledescription='rect mark']")[7])
    assert tooltip(tab) == ["が ← dog's", f"{weights[1, 2]:.3f}"]


ATTACK = "<img src=x onerror='window.attacked=1'><script>window.attacked=1</script>"
HOSTILE = [
    f"const spec = {ATTACK}",  # a page that is searched for what stands before its data
    f';\n"</script>{ATTACK}',  # or after it
    f"</script>{ATTACK}",
    f"--></style></div>{ATTACK}",
    "<!--",
    "<script>",
    "<!--<script>",
    "');window.attacked=1;//",
    '"];window.attacked=1;//',
    "\\'+(window.attacked=1)+'",
    "${window.attacked=1}",
    "\u2028window.attacked=1\u2029",
    *("constructor", "toString", "valueOf", "hasOwnProperty", "__proto__", "\\u003c", "&lt;", "{{ spec }}"),
]


def plain(text):
    """Without what a browser or Vega leaves out of a line: blanks around it, and how wide those within are."""
    return " ".join(text.split())


@pytest.mark.parametrize("first", range(2))  # the word that comes first is the first that a search finds
def test_words_never_run_as_script_and_are_shown_as_they_are(view, first):
    source, target = HOSTILE[first:], [*HOSTILE[first:], "</s>"]
    rows, columns = len(target), len(source)
    found = trace(
        source, target, source_hops=random_weights(rows, columns, 1), target_hops=random_weights(rows, rows, 1)
    )
    tab = view(page(found))
    for row in (0, rows // 2):
        labels = boxes(tab, "svg.marks .role-mark text")
        shown = [plain(label["text"]) for label in labels]
        assert all(
            shown.count(plain(word[:45])) or any(text.startswith(plain(word[:45])) for text in shown) for word in source
        )
        move_to(tab, next(label for label in labels if plain(target[row])[:40] in plain(label["text"])))
        for column in (0, 2, columns - 1):
            move_to(tab, boxes(tab, "[aria-roledescription=bar]")[column])
            assert plain(tooltip(tab)[0]) == plain(source[column])
    tab.get_by_label("attention:").select_option("target hop 1")
    assert becomes(lambda: len(boxes(tab, "[aria-roledescription=bar]")), rows)
    assert tab.evaluate("[window.attacked, document.images.length, document.scripts.length]") == [None, 0, 3]


def test_the_matrix_of_hostile_words_runs_no_script(view):
    tab = view(attention_chart(random_weights(len(HOSTILE), len(HOSTILE)), HOSTILE, HOSTILE))
    cells = boxes(tab, "[aria-roledescription='rect mark']")
    for column in range(4):
        move_to(tab, cells[column * (len(HOSTILE) + 1)])
        assert plain(tooltip(tab)[0]) == plain(f"{HOSTILE[column]} ← {HOSTILE[column]}")
    assert tab.evaluate("[window.attacked, document.images.length, document.scripts.length]") == [None, 0, 3]


def test_a_page_of_somebody_elses_making_runs_only_its_own_scripts(chromium, tmp_path):
    """The second wall: what would get into the markup after all is not run."""
    path = save_chart(page(trace()), tmp_path / "page.html")
    path.write_text(
        path.read_text(encoding="utf-8").replace('<div id="chart">', f'{ATTACK}<div id="chart">'), encoding="utf-8"
    )
    assert f"<body>\n{ATTACK}" in path.read_text(encoding="utf-8")
    tab = chromium.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("svg.marks")
    assert tab.evaluate("window.attacked") is None
    tab.close()


def test_a_very_long_word_is_cut_and_its_tooltip_tells_it(view):
    long = ["x" * 3000, "漢" * 3000, "</s>"]
    found = trace(long, long, source_chart=random_weights(3, 3, 3))
    tab = view(page(found))
    assert cut(tab) == []
    assert boxes(tab, "svg.marks")[0]["right"] < 2500
    move_to(tab, in_translation(tab, "x" * 49 + "…"))
    assert tooltip(tab) == [long[0]]
    move_to(tab, boxes(tab, "[aria-roledescription=bar]")[1])
    assert tooltip(tab)[0] == long[1]
    box = boxes(tab, "#vg-tooltip-element")[0]
    assert box["right"] - box["left"] < 800


@pytest.mark.parametrize("name", ["matrix", "hops", "chart", "tree"])
def test_no_word_of_a_figure_is_cut(view, name):
    long = ["Bundesausbildungsförderungsgesetz", "食べられなかった", "hippopotomonstrosesquippedaliophobia"]
    found = trace(long, long, source_chart=random_weights(3, 3, 3), source_hops=random_weights(3, 3, 2))
    found = replace(found, splits=np.ones((3, 3), dtype=int))
    tab = view(figures(found)[name], "figure.svg")
    assert cut(tab) == []


def test_what_is_shown_can_be_saved_and_no_website_is_offered(view):
    tab = view(page(trace(source=random_weights(3, 5))))
    tab.locator("summary").click()
    links = tab.locator(".vega-actions a")
    assert links.all_inner_texts() == ["Save as SVG", "Save as PNG"]
    with tab.expect_download() as download:
        links.first.click()
    assert "猫" in download.value.path().read_text(encoding="utf-8")
