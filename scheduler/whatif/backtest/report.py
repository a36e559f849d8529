"""A backtest as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from scheduler.whatif.backtest import words
from scheduler.whatif.lines import filled

if TYPE_CHECKING:
    from rich.console import Console

    from scheduler.whatif.backtest.result import Backtest, Figures, Move, Run

_EXAMPLES: Final = 5
_NAMES: Final = 8


def show(console: Console, result: Backtest) -> None:
    """Print a backtest."""
    _print(console, words.about(result.recorded))
    missing = words.no_baseline(result)
    if missing:
        _print(console, missing)
    console.print()
    table = Table("", box=None)
    for title in words.titles(result):
        table.add_column(Text(title), justify="right")
    for name, figures in words.rows(result):
        table.add_row(Text(name), *figures)
    console.print(table)
    for run in result.played:
        console.print()
        _show_run(console, run)


def _show_run(console: Console, run: Run) -> None:
    _print(console, f"{words.title_of(run.configuration)}: {words.elsewhere(run)}")
    for why, number in words.causes(run):
        _print(console, f"  {number:>7,}  {why}", hanging=11)
    for line in [*map(_example, run.moves.examples[:_EXAMPLES]), *_nodes(run.figures), *words.provisos(run)]:
        _print(console, f"  {line}", hanging=4)


def _print(console: Console, text: str, *, hanging: int = 2) -> None:
    console.print(Text(filled(text, console.width, hanging=hanging)))


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


def _example(move: Move) -> str:
    said = f"{move.pod}: {move.recorded or 'no node'} → {move.now}"
    told = words.scores(move)
    return f"{said} ({told})" if told else said
