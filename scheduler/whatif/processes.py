"""Work side by side, a process each, with one bar of progress."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from scheduler.app.memory import settle_memory
from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.2
_inherited: dict[str, Any] = {}  # what a process has from the one that began it


class OtherProcessError(SchedulerError):
    """What went wrong in another process; one text, so that it comes over as it is."""


class Bar(NamedTuple):
    """How far all of it is.

    Attributes:
        what: is counted.
        total: of it.
    """

    what: str
    total: int


def side_by_side(
    given: object, calls: Sequence[Callable[[], T]], *, processes: int | None = None, bar: Bar | None = None
) -> Sequence[Future[T]]:
    """Make calls, some at a time, and return what came of them once all have ended; errors of ours are OtherProcessErrors.

    Args:
        given: what all of them work with, by `given()`: processes have it without its being sent.
        calls: what each does; they and what they return are sent from process to process.
        processes: how many at a time; as many as there are CPUs if not given.
        bar: shown on standard error, if given.
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
    """Return what all work with, in a process that works."""
    return _inherited["given"]


def progress(more: int) -> None:
    """Tell from such a process that so much more is done."""
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
