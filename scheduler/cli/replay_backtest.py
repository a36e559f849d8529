"""Backtests configurations with a recording, and shows the results."""

from __future__ import annotations

import logging
import sys
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from scheduler.configuration.load import load
from scheduler.tools.whatif.backtest.backtest_run import material_of
from scheduler.tools.whatif.backtest.parallel_backtests import backtest_all
from scheduler.tools.whatif.backtest.recorded_history import history_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scheduler.tools.whatif.backtest.result import Backtest
    from scheduler.tools.whatif.replay.script import Stretch


class Output(Enum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"


class Asked(NamedTuple):
    """A request for a backtest.

    Attributes:
        configs: configuration files.
        seed: seed for ties that the recording does not decide.
        processes: number of configurations that run at a time; None for one per CPU.
        output: output format.
        html: file for a page of charts; None for none.
    """

    configs: Sequence[Path]
    seed: int
    processes: int | None
    output: Output
    html: Path | None


def backtested(found: Sequence[Stretch], source: str, asked: Asked) -> None:
    """Backtest configurations, and show the results.

    Raises:
        SchedulerError: the recording or a configuration cannot be used.
        OSError: the recording cannot be read, or the page cannot be written.
    """
    logging.basicConfig(level=logging.WARNING)
    configs = [load(path) for path in asked.configs]  # errors are reported before anything runs
    if asked.html is not None:
        asked.html.touch()
    material = material_of(history_of(found, source))
    result = backtest_all(
        material, configs, seed=asked.seed, processes=asked.processes, show=sys.stderr.isatty()
    )
    if asked.html is not None:
        _write_page(asked.html, result)
    if asked.output is Output.JSON:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
        return
    from rich.console import Console

    from scheduler.tools.whatif.backtest.report import show

    show(Console(highlight=False), result)


def _write_page(path: Path, result: Backtest) -> None:
    from scheduler.tools.board.backtest_page import page_of

    path.write_text(page_of(result), encoding="utf-8")
