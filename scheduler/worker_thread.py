"""Runs long work outside the event loop, and limits its time."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

logger = logging.getLogger(__name__)

THREAD_NAME: Final = "aside"
"""Name of the threads."""
LONGEST_SECONDS = 60.0
_LOOKS: Final = 20
"""Number of checks of a time limit before it is reached."""
_IDLE_SHARE: Final = 0.02
"""Work with a smaller CPU share is not waiting for a processor: even a busy machine gives it more than that."""
_MOST_TIMES_LONGER: Final = 10
"""Factor of the limit after which work is given up, however busy the machine is."""


class TookTooLongError(SchedulerError):
    """Work exceeded its time limit and was given up; it may still run, but nothing waits for it."""


class TimeLimit:
    """Time limit of work in another thread or process, on a machine that may be busy with other work.

    Time counts while the work computes, and while it is idle, such as sleeping or hanging. Time in which it
    waits for a processor does not count.

    Args:
        seconds: the limit.
        computed: returns the CPU seconds of the work so far; None if unknown, and then all time counts.
        clock: monotonic time in seconds.

    Attributes:
        look_seconds: interval of calls of `is_over`.
    """

    def __init__(
        self,
        seconds: float,
        computed: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.look_seconds = seconds / _LOOKS
        self._seconds = seconds
        self._computed = computed
        self._clock = clock
        self._began = self._looked = clock()
        self._first = self._last = computed() or 0.0
        self._counted = 0.0

    def is_over(self) -> bool:
        """Return whether the limit is reached."""
        now, total = self._clock(), self._computed()
        passed = now - self._looked
        spent = passed if total is None else total - self._last
        self._counted += spent if spent > _IDLE_SHARE * passed else passed
        self._looked, self._last = now, total or 0.0
        return self._counted >= self._seconds or now - self._began >= _MOST_TIMES_LONGER * self._seconds

    def __str__(self) -> str:
        """Describe the time taken up to the last check."""
        passed, spent = self._looked - self._began, self._last - self._first
        return f"more than {self._seconds:.0f} seconds ({spent:.1f} s of CPU in {passed:.0f} s)"


def cpu_seconds(process: int | str = "self", thread: int | None = None) -> float | None:
    """Return the CPU seconds of a process, or of one of its threads; None if unknown, such as after its end."""
    where = Path("/proc", str(process), *(() if thread is None else ("task", str(thread))), "stat")
    try:
        # The name before it may contain any characters.
        fields = where.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def waited_seconds() -> float:
    """Return the seconds that this process's first thread waited for a processor; 0 if the system does not count them."""
    try:
        return int(Path("/proc/self/schedstat").read_bytes().split()[1]) / 1e9
    except OSError:
        return 0.0


class Aside(Protocol):
    """Runs work, and returns or raises its result; `doing` names the work in errors."""

    async def __call__(self, work: Callable[[], T], doing: str) -> T: ...


async def at_once(work: Callable[[], T], doing: str) -> T:  # noqa: ARG001
    """Run work in the loop, if it is known to be short."""
    return work()


class _GivenUpError(BaseException):
    """Raised inside work that was given up."""


async def in_a_thread(work: Callable[[], T], doing: str, *, gives_up: bool = True) -> T:
    """Run work in a thread of its own, for at most a minute of CPU or idle time, see `TimeLimit`.

    The loop continues to run every few milliseconds, unless the work is one long C call that keeps the
    interpreter lock. Python code is interrupted at the limit and by cancellation. Other work continues in its
    thread, and the process can end without waiting for it.

    Args:
        work: the function to run.
        doing: describes the work in messages: `reading FILE`.
        gives_up: whether the work is interrupted; otherwise the wait is logged each minute, and cancellation
            leaves the work to end by itself.

    Raises:
        TookTooLongError: the work reached the limit.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - any error is raised in the waiting task
            tell(ended.set_exception, error)
        else:
            tell(ended.set_result, result)

    def tell(callback: Callable[[Any], object], what: object) -> None:
        def now() -> None:
            if not ended.done():
                callback(what)

        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(now)

    thread = threading.Thread(target=run, name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        await _wait(ended, thread, doing, gives_up=gives_up)
    except (TookTooLongError, asyncio.CancelledError):
        ended.cancel()
        if gives_up:
            _interrupt(thread)
        raise
    return ended.result()


async def _wait(ended: asyncio.Future[Any], thread: threading.Thread, doing: str, *, gives_up: bool) -> None:
    """Wait for the end of a thread's work; raises TookTooLongError."""
    computed = partial(cpu_seconds, thread=thread.native_id)
    limit = TimeLimit(LONGEST_SECONDS, computed)
    while not (await asyncio.wait({ended}, timeout=limit.look_seconds))[0]:
        if not limit.is_over():
            continue
        if gives_up:
            raise TookTooLongError(f"{doing} takes {limit}")
        logger.warning("Still waiting", extra={"what": doing, "taken": str(limit)})
        limit = TimeLimit(LONGEST_SECONDS, computed)


def _interrupt(thread: threading.Thread) -> None:
    """Raise an exception in a thread, where it next runs Python."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(_GivenUpError)
        )
