"""Runs calls in parallel processes, and shows their progress."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from scheduler.daemon.app.memory import settle_memory
from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 60.0
"""Time between two lines of progress, which are written where no bar can be drawn."""
_inherited: dict[str, Any] = {}  # state that a process inherits from its parent


class OtherProcessError(SchedulerError):
    """An error in another process, as one text, because that can be sent between processes."""


class Progress(NamedTuple):
    """What the progress shows.

    Attributes:
        what: the unit that is counted.
        total: the total number of units.
    """

    what: str
    total: int


class ProgressLines:
    """The progress as lines of text, one a minute.

    Args:
        shown: what is counted.
        began: the time of the beginning, in seconds of any clock.
    """

    def __init__(self, shown: Progress, began: float) -> None:
        self._shown = shown
        self._began = self._last = began

    def line(self, completed: int, now: float) -> str:
        """Return the next line; "" if it is not due."""
        if now - self._last < _LINE_SECONDS:
            return ""
        self._last = now
        share = min(completed / max(1, self._shown.total), 1.0)
        text = f"{share:.0%} of {self._shown.total:,} {self._shown.what}"
        if not share:
            return text
        left = timedelta(seconds=round((now - self._began) * (1 - share) / share))
        return f"{text}, about {left} left"


def side_by_side(
    given: object,
    calls: Sequence[Callable[[], T]],
    *,
    processes: int | None = None,
    shown: Progress | None = None,
) -> Sequence[Future[T]]:
    """Make calls, some at a time, and return their results after all have ended; our errors become OtherProcessErrors.

    If this is interrupted, each running call gets one KeyboardInterrupt, and no other call begins.

    Args:
        given: input of all calls, returned by `given()`; processes inherit it, so it is not sent.
        calls: the calls; they and their results are sent between processes.
        processes: number of processes; None for one per CPU.
        shown: the progress on standard error, if wanted: a bar on a terminal, otherwise a line each minute.
    """
    context = multiprocessing.get_context("fork")
    counter = context.Value("q", 0)
    _inherited.update(given=given, counter=counter)
    workers = max(1, min(processes or os.cpu_count() or 1, len(calls)))
    others = multiprocessing.active_children()
    with (
        ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_ctrl_c) as pool,
        _showing(shown) as show,
    ):
        try:
            futures = [pool.submit(_call, call) for call in calls]
            while wait(futures, _LOOK_SECONDS).not_done:
                show(counter.value)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise
    return futures


def _ignore_ctrl_c() -> None:
    """Leave Ctrl-C, which a terminal sends to all processes, to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(*_: object) -> None:
    # A second interrupt could stop the clean-up after the first one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


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
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return call()
    except SchedulerError as error:
        raise OtherProcessError(str(error)) from None
    except KeyboardInterrupt:
        os._exit(1)  # nobody waits for the result
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _showing(shown: Progress | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the number of completed units."""
    if shown is None:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(shown) as show:
            yield show
    else:
        lines = ProgressLines(shown, time.monotonic())

        def write(completed: int) -> None:
            line = lines.line(completed, time.monotonic())
            if line:
                sys.stderr.write(f"{line}\n")

        yield write


@contextmanager
def _bar(shown: Progress) -> Iterator[Callable[[int], None]]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as drawn:
        task = drawn.add_task(shown.what, total=shown.total)
        yield lambda completed: drawn.update(task, completed=completed)
