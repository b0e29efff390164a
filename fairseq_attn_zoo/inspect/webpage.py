"""One Vega-Lite chart as one HTML file that loads nothing, and in which words are never code.

A trace may come from anybody, so its words may hold anything. Two walls stand between them and the browser:

- The chart is JSON in a block that no browser runs, and none of its characters is ``<``: a browser that reads
  ``<!--``, ``<script>`` or ``</script>`` there would end the block, or would not see its end.
- A content security policy lets only the two scripts below run, named by their hashes, and lets nothing be loaded.
"""

import base64
import hashlib
import json
from functools import cache
from typing import Any

import altair as alt
import vl_convert

# The menu stands above the bars: below it would be off the screen of a long sentence, and at the left the pointer would
# cross other words on its way from a word to the menu. A tooltip that the pointer runs into shall not hide what it is
# about, and shows the whole of a word whose label is cut.
STYLE = """
    .chart-wrapper { display: flex; flex-direction: column-reverse; }
    .vega-bindings { margin: 0 0 12px 245px; font-family: sans-serif; font-size: 13px; }
    @media (max-width: 600px) { .vega-bindings { margin-left: 0; } }
    #vg-tooltip-element { pointer-events: none; max-width: 90vw; }
    #vg-tooltip-element table tr td.value { max-width: 600px; max-height: none; overflow-wrap: anywhere; }
"""

# Of Vega's actions only those that stay on this machine: its editor is a website.
START = """
    const specification = JSON.parse(document.getElementById("specification").textContent);
    const actions = { export: true, source: false, compiled: false, editor: false };
    vegaEmbed("#chart", specification, { actions }).catch(console.error);
"""


def web_page(specification: dict[str, Any]) -> str:
    """The HTML file of a Vega-Lite chart, as text."""
    vega = vega_bundle()
    # Vega turns a chart's expressions, in which no word of a trace stands, into functions: that is 'unsafe-eval'.
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        f"script-src 'unsafe-eval' {fingerprint(vega)} {fingerprint(START)}"
    )
    return f"""<!DOCTYPE html>
<html>
<head>
<meta charset="UTF-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention</title>
<style>{STYLE}</style>
<script>{vega}</script>
</head>
<body>
<div id="chart"></div>
<script type="application/json" id="specification">{json_for_html(specification)}</script>
<script>{START}</script>
</body>
</html>
"""


def json_for_html(value: Any) -> str:
    """JSON that may stand in a ``<script>``: ``<`` can occur within strings only, where JSON may write it as a number."""
    return json.dumps(value).replace("<", "\\u003c")


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed with all that they need; it defines ``vegaEmbed``."""
    version = ".".join(alt.SCHEMA_VERSION.split(".")[:2])  # v6.4.1 -> v6.4
    return vl_convert.javascript_bundle(vl_version=version)  # type: ignore[call-arg]  # its types forget the default


def fingerprint(script: str) -> str:
    """How a content security policy names a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
