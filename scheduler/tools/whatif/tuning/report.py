"""The result of a search as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from scheduler.tools.whatif.explanation_text import filled
from scheduler.tools.whatif.tuning import phrases

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from scheduler.tools.whatif.tuning.comparison import Tuned
    from scheduler.tools.whatif.tuning.parameters import Parameter


def show(console: Console, result: Tuned) -> None:
    """Print a result: the verdict, the objectives and changes, and what could not be told apart."""
    _print(console, phrases.lead(result), style="bold")
    console.print()
    _print(console, phrases.about(result))
    console.print()
    _table(console, ["", *phrases.titles(result)], phrases.objectives(result))
    for each in result.candidates:
        console.print()
        _print(console, phrases.verdict(each))
        for change in each.changes:
            _print(console, f"  {change.parameter}: {change.value} instead of {change.today}", hanging=4)
    for index, line in enumerate(phrases.not_told_apart(result)):
        if not index:
            console.print()
            _print(console, "Not told apart:")
        _print(console, f"  {line}", hanging=4)


def show_parameters(console: Console, parameters: Iterable[Parameter], searched: Iterable[str]) -> None:
    """Print a table of parameters: name, today's value, and the values that are searched."""
    names = set(searched)
    rows = [(each.name, [str(each.today), each.values if each.name in names else ""]) for each in parameters]
    _table(console, ["parameter", "today", "searched"], rows, right=False)


def _table(
    console: Console, heads: Iterable[str], rows: Iterable[tuple[str, list[str]]], *, right: bool = True
) -> None:
    first, *others = heads
    table = Table(box=None)
    table.add_column(Text(first), no_wrap=True)
    for head in others:
        table.add_column(Text(head), justify="right" if right else "left", overflow="fold")
    for name, cells in rows:
        table.add_row(Text(name), *map(Text, cells))
    console.print(table)


def _print(console: Console, text: str, *, hanging: int = 2, style: str = "") -> None:
    console.print(Text(filled(text, console.width, hanging=hanging), style=style))
