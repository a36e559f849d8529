"""The result of `tune` as one self-contained page: the candidates, compared with today's profile."""

from __future__ import annotations

from html import escape
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING

from scheduler.tools.board.standalone_page import page, panel, shown, table
from scheduler.tools.whatif.tuning import phrases
from scheduler.tools.whatif.tuning.objectives import Objective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.tools.board.standalone_page import Chart
    from scheduler.tools.whatif.tuning.comparison import Tuned


def page_of(result: Tuned) -> str:
    """Return the page as HTML."""
    charts = list(_charts(result))
    heads = phrases.titles(result)
    body = [
        f"<p><strong>{escape(phrases.lead(result))}</strong></p>",
        f'<p class="numbers">{escape(phrases.about(result))}</p>',
        panel("Objectives", _objectives(result, heads)),
        panel(
            "Changes",
            table(
                "Changed parameters", ["parameter", *heads], _rows(phrases.changes(result)), numbers_from=99
            ),
        ),
        panel("Not told apart", _not_told_apart(result)),
        panel("Charts", shown(charts)),
        panel(
            "Parameters",
            table(
                "Searched parameters",
                ["parameter", "today", "values"],
                [[each.name, str(each.today), each.values] for each in result.parameters],
                numbers_from=9,
            ),
        ),
    ]
    return page(f"Tuned profile for {result.source}", "Which profile serves this workload best", body, charts)


def _rows(rows: Iterator[phrases.Row]) -> list[list[str]]:
    return [[name, *cells] for name, cells in rows]


def _objectives(result: Tuned, heads: list[str]) -> str:
    values = table(
        "Means on what was held out, with the standard deviation between parts",
        ["objective", *heads],
        _rows(phrases.objectives(result)),
    )
    differences = table(
        "Differences from today's profile, with 95 % confidence",
        ["objective", *heads[1:]],
        _rows(phrases.differences(result)),
    )
    return values + (differences if result.candidates else "")


def _not_told_apart(result: Tuned) -> str:
    lines = "".join(f"<li>{escape(each)}</li>" for each in phrases.not_told_apart(result))
    return f"<ul>{lines}</ul>" if lines else "<p>Nothing</p>"


def _charts(result: Tuned) -> Iterator[Chart]:
    for name in result.objectives:
        if result.held_out > 1:
            yield {
                "title": f"{Objective(name).title} by held-out part",
                "unit": "",
                "x": "part",
                "at": list(range(result.parts - result.held_out + 1, result.parts + 1)),
                "series": [
                    [
                        each.name,
                        [round(fmean(of_part), 3) for of_part in zip(*each.values[name], strict=True)],
                    ]
                    for each in (result.today, *result.measured)
                ],
            }
    titles = [Objective(name).title for name in result.objectives]
    if len(titles) == 1:
        yield {
            "title": "Best trial so far",
            "unit": "",
            "x": "trial",
            "at": [number for number, _ in result.history],
            "series": [[titles[0], list(accumulate((values[0] for _, values in result.history), min))]],
        }
    else:
        yield {
            "title": f"Pareto front: {', '.join(titles[1:])} by {titles[0]}",
            "unit": "",
            "x": titles[0],
            "at": [values[0] for values in result.front],
            "series": [
                [title, [values[place] for values in result.front]]
                for place, title in enumerate(titles[1:], start=1)
            ],
        }
