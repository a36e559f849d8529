"""Backtests of several configurations, each in its own process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import SchedulerError
from scheduler.tools.whatif.backtest.backtest_run import as_recorded, backtest
from scheduler.tools.whatif.backtest.result import Backtest
from scheduler.tools.whatif.processes import OtherProcessError, Progress, given, progress, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.backtest.backtest_run import Material
    from scheduler.tools.whatif.backtest.result import BacktestRun, Recorded

SAME: Final = "recorded configuration"
"""Title of the recorded configuration among the configurations."""


def backtest_all(
    material: Material,
    configs: Sequence[Configuration],
    *,
    seed: int = 1,
    processes: int | None = None,
    show: bool = False,
) -> Backtest:
    """Backtest several configurations, some at a time.

    Args:
        material: the recording.
        configs: configurations read from files.
        seed: seed for ties that the recording does not decide.
        processes: number of processes; None for one per CPU.
        show: whether to show the progress on standard error.

    Raises:
        OtherProcessError: a plugin is unknown, broken, or has bad arguments.
    """
    calls: list[Callable[[], Any]] = [
        *(partial(_run, place, seed) for place in range(len(configs))),
        partial(_run, None, seed),
        _watch,
    ]
    shown = Progress("recorded changes", len(calls) * len(material.history.happenings)) if show else None
    *runs, same, recorded = side_by_side((material, configs), calls, processes=processes, shown=shown)
    ran: list[BacktestRun] = [each.result() for each in runs]
    try:
        return Backtest(recorded=recorded.result(), baseline=same.result(), no_baseline="", runs=ran)
    except OtherProcessError as error:
        return Backtest(recorded=recorded.result(), baseline=None, no_baseline=str(error), runs=ran)


def _run(place: int | None, seed: int) -> BacktestRun:
    material, configs = _given()
    configuration = material.recorded if place is None else configs[place]
    path = "" if place is None else configuration.source
    try:
        return backtest(material, configuration, path or SAME, seed=seed, progress=progress)
    except SchedulerError as error:
        raise OtherProcessError(f"{path}: {error}" if path else str(error)) from None


def _watch() -> Recorded:
    return as_recorded(_given()[0], progress)


def _given() -> tuple[Material, Sequence[Configuration]]:
    found: tuple[Material, Sequence[Configuration]] = given()
    return found
