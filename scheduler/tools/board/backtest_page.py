"""A backtest as one self-contained page: tables and charts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from scheduler.tools.board.standalone_page import page, panel, shown, table
from scheduler.tools.whatif.backtest import phrases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.tools.board.standalone_page import Chart
    from scheduler.tools.whatif.backtest.result import Backtest, BacktestRun, BacktestSample, Figures

_EXAMPLES: Final = 100
_MOST_ZONE_CHARTS: Final = 24


def page_of(result: Backtest) -> str:
    """Return the page as HTML."""
    charts = list(_charts(result))
    missing = phrases.no_baseline(result)
    body = [
        *(f"<p><strong>{escape(each)}</strong></p>" for each in phrases.verdicts(result)),
        f'<p class="numbers">{escape(phrases.about(result.recorded))}</p>',
        f'<p class="warn">{escape(missing)}</p>' if missing else "",
        panel("Figures", _figures(result)),
        panel("Charts", shown(charts)),
        *(panel(f"Pods with {phrases.title_of(run.configuration)}", _run(run)) for run in result.played),
    ]
    return page(
        f"Backtest of {result.recorded.source}", "What another configuration would have done", body, charts
    )


def _figures(result: Backtest) -> str:
    lines = [[name, *figures] for name, figures in phrases.rows(result)]
    return table("Figures of the whole recording", ["figure", *phrases.titles(result)], lines)


def _run(run: BacktestRun) -> str:
    parts = [f"<p>{escape(phrases.elsewhere(run))}</p>"]
    parts += [f'<p class="dim">{escape(each)}</p>' for each in phrases.provisos(run)]
    why = [[why, f"{number:,}"] for why, number in phrases.causes(run)]
    if why:
        parts.append(table("Causes of moves", ["cause", "pods"], why))
    parts += _moves(run)
    parts += _unplaced(run.figures)
    names = run.figures.nodes.empty_names
    if names:
        left = run.figures.nodes.empty_at_end - len(names)
        more = f" and {left:,} more" if left else ""
        parts.append(f"<h3>Unused at the end</h3><p>{escape(', '.join(names))}{more}</p>")
    return "".join(parts)


def _moves(run: BacktestRun) -> Iterator[str]:
    first = run.moves.examples[:_EXAMPLES]
    if first:
        lines = [
            [
                move.pod,
                f"{move.at:.1f}",
                move.recorded or "no node",
                move.now,
                f"{move.cause} ({move.by})" if move.by else move.cause,
                phrases.scores(move),
            ]
            for move in first
        ]
        heads = ["pod", "time (s)", "recorded", "now", "cause", "scores x weights that differ"]
        caption = f"The first {len(first):,} pods on another node"
        moves = table(caption, heads, lines, numbers_from=len(heads))
        yield f"<details><summary>{escape(caption)}</summary>{moves}</details>"


def _unplaced(figures: Figures) -> Iterator[str]:
    if figures.unplaced:
        lines = [[each.pod, f"{each.waited:,.1f}", each.message] for each in figures.unplaced]
        caption = f"The first {len(lines):,} pods that were never placed"
        pods = table(caption, ["pod", "pending (s)", "last message"], lines, numbers_from=9)
        yield f"<details><summary>{escape(caption)}</summary>{pods}</details>"


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
