"""Runs calls in parallel processes, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from scheduler.daemon.app.memory import settle_memory
from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.2
_inherited: dict[str, Any] = {}  # state that a process inherits from its parent


class OtherProcessError(SchedulerError):
    """An error in another process, as one text, because that can be sent between processes."""


class Bar(NamedTuple):
    """The progress bar.

    Attributes:
        what: the unit that is counted.
        total: the total number of units.
    """

    what: str
    total: int


def side_by_side(
    given: object, calls: Sequence[Callable[[], T]], *, processes: int | None = None, bar: Bar | None = None
) -> Sequence[Future[T]]:
    """Make calls, some at a time, and return their results after all have ended; our errors become OtherProcessErrors.

    Args:
        given: input of all calls, returned by `given()`; processes inherit it, so it is not sent.
        calls: the calls; they and their results are sent between processes.
        processes: number of processes; None for one per CPU.
        bar: the progress bar on standard error, if wanted.
    """
    context = multiprocessing.get_context("fork")
    counter = context.Value("q", 0)
    _inherited.update(given=given, counter=counter)
    workers = max(1, min(processes or os.cpu_count() or 1, len(calls)))
    with ProcessPoolExecutor(workers, mp_context=context) as pool, _shown(bar) as shown:
        futures = [pool.submit(_call, call) for call in calls]
        while shown is not None and not all(each.done() for each in futures):
            shown.update(shown.task_ids[0], completed=counter.value)
            time.sleep(_LOOK_SECONDS)
    return futures


def given() -> Any:
    """Return the input of all calls, inside a call."""
    return _inherited["given"]


def progress(more: int) -> None:
    """Report progress from inside a call."""
    counter = _inherited["counter"]
    with counter.get_lock():
        counter.value += more


def _call(call: Callable[[], T]) -> T:
    settle_memory()
    try:
        return call()
    except SchedulerError as error:
        raise OtherProcessError(str(error)) from None


def _shown(bar: Bar | None) -> Any:
    if bar is None:
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True))
    shown.add_task(bar.what, total=bar.total)
    return shown
