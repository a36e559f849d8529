"""A backtest as one self-contained page: tables, and charts drawn by uPlot.

Text from the recording is escaped in the page and read as data by its script, so that no name is executed; the page's
Content-Security-Policy enforces this.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.tools.whatif.backtest import phrases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scheduler.tools.whatif.backtest.result import Backtest, BacktestRun, BacktestSample, Figures

    Chart = dict[str, Any]

_TABLE_LINES: Final = 20
"""Approximate number of rows of a chart's table."""
_EXAMPLES: Final = 100
_MOST_ZONE_CHARTS: Final = 24
_STYLES: Final = ("assets/vendor/uplot.css", "assets/board.css", "assets/backtest.css")
_SCRIPTS: Final = ("assets/vendor/uplot.js", "assets/plot.js", "assets/backtest.js")


def page_of(result: Backtest) -> str:
    """Return the page as HTML."""
    style = "\n".join(_asset(name) for name in _STYLES)
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    charts = list(_charts(result))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    body = "\n".join(
        [
            _panel("Figures", _figures(result)),
            _panel("Charts", _shown(charts)),
            *(_panel(f"Pods with {phrases.title_of(run.configuration)}", _run(run)) for run in result.played),
        ]
    )
    missing = phrases.no_baseline(result)
    verdicts = "\n".join(f"<p><strong>{escape(each)}</strong></p>" for each in phrases.verdicts(result))
    no_baseline = f'<p class="warn">{escape(missing)}</p>' if missing else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Backtest of {escape(result.recorded.source)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>{style}</style>
</head>
<!-- uPlot, which draws the charts:
{_licence()}
-->
<body>
<a class="skip" href="#figures">Skip to figures</a>
<header class="top"><h1>What another configuration would have done</h1></header>
<main id="figures">
{verdicts}
<p class="numbers">{escape(phrases.about(result.recorded))}</p>
{no_baseline}
{body}
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


# Tables.


def _panel(name: str, content: str) -> str:
    return f'<section class="panel" aria-label="{escape(name)}"><header><h2>{escape(name)}</h2></header>{content}</section>'


def _table(
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


def _figures(result: Backtest) -> str:
    lines = [[name, *figures] for name, figures in phrases.rows(result)]
    return _table("Figures of the whole recording", ["figure", *phrases.titles(result)], lines)


def _run(run: BacktestRun) -> str:
    parts = [f"<p>{escape(phrases.elsewhere(run))}</p>"]
    parts += [f'<p class="dim">{escape(each)}</p>' for each in phrases.provisos(run)]
    why = [[why, f"{number:,}"] for why, number in phrases.causes(run)]
    if why:
        parts.append(_table("Causes of moves", ["cause", "pods"], why))
    parts += _moves(run)
    parts += _unplaced(run.figures)
    names = run.figures.nodes.empty_names
    if names:
        left = run.figures.nodes.empty_at_end - len(names)
        more = f" and {left:,} more" if left else ""
        parts.append(f"<h3>Unused at the end</h3><p>{escape(', '.join(names))}{more}</p>")
    return "".join(parts)


def _moves(run: BacktestRun) -> Iterator[str]:
    shown = run.moves.examples[:_EXAMPLES]
    if shown:
        lines = [
            [
                move.pod,
                f"{move.at:.1f}",
                move.recorded or "no node",
                move.now,
                f"{move.cause} ({move.by})" if move.by else move.cause,
                phrases.scores(move),
            ]
            for move in shown
        ]
        heads = ["pod", "time (s)", "recorded", "now", "cause", "scores x weights that differ"]
        caption = f"The first {len(shown):,} pods on another node"
        table = _table(caption, heads, lines, numbers_from=len(heads))
        yield f"<details><summary>{escape(caption)}</summary>{table}</details>"


def _unplaced(figures: Figures) -> Iterator[str]:
    if figures.unplaced:
        lines = [[each.pod, f"{each.waited:,.1f}", each.message] for each in figures.unplaced]
        caption = f"The first {len(lines):,} pods that were never placed"
        table = _table(caption, ["pod", "pending (s)", "last message"], lines, numbers_from=9)
        yield f"<details><summary>{escape(caption)}</summary>{table}</details>"


# Charts.


def _charts(result: Backtest) -> Iterator[Chart]:
    columns = [(phrases.title_of(title), figures) for title, figures in result.columns]
    resources = list(dict.fromkeys(name for _, each in columns for name in each.mean_utilisation))

    def chart(title: str, unit: str, read: Callable[[BacktestSample], float | None]) -> Chart:
        at = [sample.at for sample in columns[0][1].samples]
        series = [[name, [read(sample) for sample in figures.samples]] for name, figures in columns]
        return {"title": title, "unit": unit, "x": "seconds", "at": at, "series": series}

    yield chart("Nodes in use", "", lambda sample: sample.in_use)
    yield chart("Pending pods", "", lambda sample: sample.waiting)
    percents = list(columns[0][1].waits.curve)
    yield {
        "title": "Waiting time by percentile",
        "unit": "s",
        "x": "percent",
        "at": percents,
        "series": [
            [name, [figures.waits.curve[percent] for percent in percents]] for name, figures in columns
        ],
    }
    for name in resources:
        yield chart(f"{name} requested", "%", _of(lambda sample: sample.utilisation, name))
    for name in resources:
        yield chart(
            f"{name} free on nodes that typical pods do not fit",
            "%",
            _of(lambda sample: sample.fragmentation, name),
        )
    for zone, name in phrases.zones(result)[:_MOST_ZONE_CHARTS]:
        yield chart(f"{zone or 'no zone'}: {name} requested", "%", _of(_in_zone(zone), name))


def _of(
    part: Callable[[BacktestSample], dict[str, float]], name: str
) -> Callable[[BacktestSample], float | None]:
    def read(sample: BacktestSample) -> float | None:
        share = part(sample).get(name)
        return None if share is None else round(100.0 * share, 3)

    return read


def _in_zone(zone: str) -> Callable[[BacktestSample], dict[str, float]]:
    return lambda sample: sample.zones.get(zone, {})


def _shown(charts: Sequence[Chart]) -> str:
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
    table = _table(title, [chart["x"], *(name for name, _ in chart["series"])], lines)
    return (
        f"<figure><figcaption>{escape(title)}: {keys}</figcaption>"
        f'<div class="chart" data-chart="{place}" aria-hidden="true"></div>'
        f"<details><summary>{escape(title)} as a table</summary>{table}</details></figure>"
    )
