"""A page in one file that loads nothing from the internet: tables, and charts drawn by uPlot.

Text is escaped in the page and read as data by its script, so that no name is executed; the page's
Content-Security-Policy enforces this.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Chart = dict[str, Any]
    """Title, unit, what `x` is, the values of x `at`, and `series` of a name and values."""

_TABLE_LINES: Final = 20
"""Approximate number of rows of a chart's table."""
_STYLES: Final = ("assets/vendor/uplot.css", "assets/board.css", "assets/backtest.css")
_SCRIPTS: Final = ("assets/vendor/uplot.js", "assets/plot.js", "assets/backtest.js")


def page(title: str, heading: str, body: Iterable[str], charts: Sequence[Chart]) -> str:
    """Return a page as HTML.

    Args:
        title: title of the document, as text.
        heading: heading of the page, as text.
        body: elements of the page, as HTML, with the charts as of `shown`.
        charts: the data of the charts.
    """
    style = "\n".join(_asset(name) for name in _STYLES)
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    content = "\n".join(body)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>{style}</style>
</head>
<!-- uPlot, which draws the charts:
{_licence()}
-->
<body>
<a class="skip" href="#figures">Skip to figures</a>
<header class="top"><h1>{escape(heading)}</h1></header>
<main id="figures">
{content}
</main>
<script type="application/json" id="charts">{_as_data(charts)}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files(__package__).joinpath(*name.split("/")).read_text(encoding="utf-8")


def _licence() -> str:
    """Return the licence text that must accompany uPlot."""
    _, _, text = _asset("assets/vendor/LICENSES.txt").partition("uplot@")
    return escape(text.strip())


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _as_data(value: object) -> str:
    """Return JSON that cannot end the element that contains it."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def panel(name: str, content: str) -> str:
    """Return a section with a heading; the content is HTML."""
    return f'<section class="panel" aria-label="{escape(name)}"><header><h2>{escape(name)}</h2></header>{content}</section>'


def table(
    caption: str, heads: Sequence[str], lines: Iterable[Sequence[str]], *, numbers_from: int = 1
) -> str:
    """Return a table whose first column contains the headings of rows; from a column on, cells are numbers."""
    parts = [f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>']
    parts.append(f"<caption>{escape(caption)}</caption><thead><tr>")
    parts += [
        f'<th scope="col"{_number(place, numbers_from)}>{escape(head)}</th>'
        for place, head in enumerate(heads)
    ]
    parts.append("</tr></thead><tbody>")
    for first, *others in lines:
        parts.append(f'<tr><th scope="row">{escape(first)}</th>')
        parts += [
            f"<td{_number(place, numbers_from)}>{escape(cell)}</td>"
            for place, cell in enumerate(others, start=1)
        ]
        parts.append("</tr>")
    parts.append("</tbody></table></div>")
    return "".join(parts)


def _number(place: int, numbers_from: int) -> str:
    return ' class="n"' if place >= numbers_from else ""


def shown(charts: Sequence[Chart]) -> str:
    """Return the places of the charts, each with a table of its values."""
    return f'<div class="charts">{"".join(_chart(place, each) for place, each in enumerate(charts))}</div>'


def _chart(place: int, chart: Chart) -> str:
    keys = " ".join(
        f'<span class="key"><i class="line line-{number % 8 + 1}"></i>{escape(name)}</span>'
        for number, (name, _) in enumerate(chart["series"])
    )
    step = max(1, len(chart["at"]) // _TABLE_LINES)
    lines = [
        [
            f"{at:,.0f}",
            *("-" if values[line] is None else f"{values[line]:,.2f}" for _, values in chart["series"]),
        ]
        for line, at in enumerate(chart["at"])
        if line % step == 0
    ]
    unit = f", {chart['unit']}" if chart["unit"] else ""
    title = f"{chart['title']}{unit}"
    as_table = table(title, [chart["x"], *(name for name, _ in chart["series"])], lines)
    return (
        f"<figure><figcaption>{escape(title)}: {keys}</figcaption>"
        f'<div class="chart" data-chart="{place}" aria-hidden="true"></div>'
        f"<details><summary>{escape(title)} as a table</summary>{as_table}</details></figure>"
    )
