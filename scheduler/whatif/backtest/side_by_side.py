"""Several configurations in the place of the recorded one, a process each."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scheduler.app.memory import settle_memory
from scheduler.configuration.load import load
from scheduler.errors import SchedulerError
from scheduler.whatif.backtest.result import Backtest
from scheduler.whatif.backtest.run import as_recorded, backtest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from scheduler.whatif.backtest.result import Recorded, Run
    from scheduler.whatif.backtest.run import Material

SAME: Final = "the same again"
"""What the recorded configuration is called by the method of the others."""
_LOOK_SECONDS: Final = 0.2
_shared: dict[str, Any] = {}  # of a worker process: the recording, and whom to tell of progress


class BacktestError(SchedulerError):
    """What went wrong in another process, in its words."""


def backtest_all(
    material: Material,
    configs: Sequence[Path],
    *,
    seed: int = 1,
    processes: int | None = None,
    show: bool = False,
) -> Backtest:
    """Run configurations in the place of the recorded one, some at a time.

    Args:
        material: the recording.
        configs: files.
        seed: of ties that the recording does not decide.
        processes: how many at a time; as many as there are CPUs if not given.
        show: a progress bar on standard error.

    Raises:
        BacktestError: a plugin is unknown, broken, or has bad arguments.
    """
    context = multiprocessing.get_context("fork")  # the recording is there without being sent
    counter = context.Value("q", 0)
    _shared.update(material=material, counter=counter)
    workers = max(1, min(processes or os.cpu_count() or 1, len(configs) + 2))
    with ProcessPoolExecutor(workers, mp_context=context) as pool, _bar(show) as bar:
        runs = [pool.submit(_run, str(path), seed) for path in configs]
        baseline, recorded = pool.submit(_run, "", seed), pool.submit(_watch)
        everything: list[Future[Any]] = [*runs, baseline, recorded]
        total = len(everything) * len(material.history.happenings)
        task = None if bar is None else bar.add_task("recorded", total=total)
        while bar is not None and not all(each.done() for each in everything):
            bar.update(task, completed=counter.value)
            time.sleep(_LOOK_SECONDS)
        return _together([each.result() for each in runs], baseline, recorded.result())


def _together(runs: list[Run], baseline: Any, recorded: Recorded) -> Backtest:
    try:
        return Backtest(recorded=recorded, baseline=baseline.result(), no_baseline="", runs=runs)
    except BacktestError as error:
        return Backtest(recorded=recorded, baseline=None, no_baseline=str(error), runs=runs)


def _run(path: str, seed: int) -> Run:
    settle_memory()
    material: Material = _shared["material"]
    try:
        configuration = load(Path(path)) if path else material.recorded
        return backtest(material, configuration, path or SAME, seed=seed, progress=_progress)
    except SchedulerError as error:
        raise BacktestError(f"{path}: {error}" if path else str(error)) from None


def _watch() -> Recorded:
    return as_recorded(_shared["material"], _progress)


def _progress(more: int) -> None:
    counter = _shared["counter"]
    with counter.get_lock():
        counter.value += more


def _bar(show: bool) -> Any:
    if not show:
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
