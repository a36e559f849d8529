"""A backtest as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from scheduler.tools.whatif.backtest import phrases
from scheduler.tools.whatif.explanation_text import filled

if TYPE_CHECKING:
    from rich.console import Console

    from scheduler.tools.whatif.backtest.result import Backtest, BacktestRun, Figures, PlacementChange

_EXAMPLES: Final = 5
_NAMES: Final = 8


def show(console: Console, result: Backtest) -> None:
    """Print a backtest."""
    for verdict in phrases.verdicts(result):
        _print(console, verdict, style="bold")
    console.print()
    _print(console, phrases.about(result.recorded))
    missing = phrases.no_baseline(result)
    if missing:
        _print(console, missing)
    console.print()
    table = Table("", box=None)
    for title in phrases.titles(result):
        table.add_column(Text(title), justify="right")
    for name, figures in phrases.rows(result):
        table.add_row(Text(name), *figures)
    console.print(table)
    for run in result.played:
        console.print()
        _show_run(console, run)


def _show_run(console: Console, run: BacktestRun) -> None:
    _print(console, f"{phrases.title_of(run.configuration)}: {phrases.elsewhere(run)}")
    for why, number in phrases.causes(run):
        _print(console, f"  {number:>7,}  {why}", hanging=11)
    for line in [
        *map(_example, run.moves.examples[:_EXAMPLES]),
        *_nodes(run.figures),
        *phrases.provisos(run),
    ]:
        _print(console, f"  {line}", hanging=4)


def _print(console: Console, text: str, *, hanging: int = 2, style: str = "") -> None:
    console.print(Text(filled(text, console.width, hanging=hanging), style=style))


def _nodes(figures: Figures) -> list[str]:
    lines = []
    names = figures.nodes.empty_names
    if names:
        more = figures.nodes.empty_at_end - _NAMES
        lines.append(
            f"unused at the end: {', '.join(names[:_NAMES])}{f' and {more:,} more' if more > 0 else ''}"
        )
    if figures.unplaced:
        first = figures.unplaced[0]
        lines.append(
            f"never placed: {first.pod}, pending for {first.waited:,.0f} s: {first.message or 'no attempt'}"
        )
    return lines


def _example(move: PlacementChange) -> str:
    text = f"{move.pod}: {move.recorded or 'no node'} → {move.now}"
    scores = phrases.scores(move)
    return f"{text} ({scores})" if scores else text
