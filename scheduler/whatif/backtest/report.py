"""A backtest for a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from scheduler.whatif.backtest.words import (
    about,
    causes,
    elsewhere,
    provisos,
    rows,
    scores,
    title_of,
    titles,
)
from scheduler.whatif.lines import filled

if TYPE_CHECKING:
    from rich.console import Console

    from scheduler.whatif.backtest.result import Backtest, Figures, Move, Run

_EXAMPLES: Final = 5
_NAMES: Final = 8


def show(console: Console, result: Backtest) -> None:
    """Write it."""
    _print(console, about(result.recorded))
    if result.no_baseline:
        _print(console, f"The recorded configuration cannot be built here: {result.no_baseline}")
    console.print()
    table = Table("", box=None)
    for title in titles(result):
        table.add_column(Text(title), justify="right")
    for name, figures in rows(result):
        table.add_row(Text(name), *figures)
    console.print(table)
    everyone = [*([] if result.baseline is None else [result.baseline]), *result.runs]
    for run in everyone:
        console.print()
        _show_run(console, run)


def _show_run(console: Console, run: Run) -> None:
    _print(console, f"{title_of(run.configuration)}: {elsewhere(run)}")
    for why, by, number in causes(run):
        _print(console, f"  {number:>7,}  {why} {by}".rstrip(), hanging=11)
    for line in [*map(_example, run.moves.examples[:_EXAMPLES]), *_nodes(run.figures), *provisos(run)]:
        _print(console, f"  {line}", hanging=4)


def _print(console: Console, text: str, *, hanging: int = 2) -> None:
    console.print(Text(filled(text, console.width, hanging=hanging)))


def _nodes(figures: Figures) -> list[str]:
    lines = []
    names = figures.nodes.empty_names
    if names:
        more = figures.nodes.empty_at_end - _NAMES
        lines.append(
            f"empty at the end: {', '.join(names[:_NAMES])}{f' and {more:,} more' if more > 0 else ''}"
        )
    if figures.unplaced:
        first = figures.unplaced[0]
        lines.append(f"never placed: {first.pod} in {first.waited:,.0f} s: {first.message or 'not tried'}")
    return lines


def _example(move: Move) -> str:
    said = f"{move.pod}: {move.recorded or 'nowhere'} → {move.now}"
    told = ", ".join(f"{name} {here} → {there}" for name, here, there in scores(move.scores))
    return f"{said} ({told})" if told else said
