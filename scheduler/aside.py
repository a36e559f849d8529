"""Work that may take long, done where it does not hold up the loop; and how long it may take."""

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

ASIDE: Final = "aside"
"""The name of threads."""
LONGEST_SECONDS = 60.0
_LOOKS: Final = 20
"""So often a limit is looked at until it is over."""
_IDLE_SHARE: Final = 0.02
"""Work that computes for a smaller share of the time has no use for a processor; on a busy machine it gets more than that."""
_MOST_TIMES_LONGER: Final = 10
"""However busy the machine is, work is given up after so many times the limit."""


class TookTooLongError(SchedulerError):
    """Work was given up; it may still be under way, where nobody waits for it."""


class TimeLimit:
    """How long work in another thread or process may take, on a machine that may be busy with others.

    Time in which the work computes counts, and time in which it does nothing, as when it sleeps or hangs. Time in which it
    waits for a processor does not.

    Args:
        seconds: the limit.
        computed: gives the seconds of CPU that the work took so far; None where that is not known, then all time counts.
        clock: seconds that only grow.

    Attributes:
        look_seconds: after so long `is_over` is to be asked again.
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
        """Whether the work has had its time."""
        now, total = self._clock(), self._computed()
        passed = now - self._looked
        spent = passed if total is None else total - self._last
        self._counted += spent if spent > _IDLE_SHARE * passed else passed
        self._looked, self._last = now, total or 0.0
        return self._counted >= self._seconds or now - self._began >= _MOST_TIMES_LONGER * self._seconds

    def __str__(self) -> str:
        """What was taken, up to the last look."""
        passed, spent = self._looked - self._began, self._last - self._first
        return f"more than {self._seconds:.0f} seconds ({spent:.1f} s of CPU in {passed:.0f} s)"


def cpu_seconds(process: int | str = "self", thread: int | None = None) -> float | None:
    """Return how long a process, or a thread of it, computed so far; None if that is not known, as of one that ended."""
    where = Path("/proc", str(process), *(() if thread is None else ("task", str(thread))), "stat")
    try:
        fields = where.read_bytes().rpartition(b")")[2].split()  # a name before it may hold anything
    except OSError:
        return None
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def waited_seconds() -> float:
    """Return for how long this process, its first thread that is, had work to do and no processor; 0 where nobody counts that."""
    try:
        return int(Path("/proc/self/schedstat").read_bytes().split()[1]) / 1e9
    except OSError:
        return 0.0


class Aside(Protocol):
    """Does work, and returns or raises what it comes to; `doing` names it where it takes too long."""

    async def __call__(self, work: Callable[[], T], doing: str) -> T: ...


async def at_once(work: Callable[[], T], doing: str) -> T:  # noqa: ARG001
    """Do it in the loop: for who knows that it is short."""
    return work()


class _GivenUpError(BaseException):
    """Raised in the middle of work that nobody waits for any more."""


async def in_a_thread(work: Callable[[], T], doing: str, *, gives_up: bool = True) -> T:
    """Do it in a thread of its own, for at most a minute that it computes or does nothing, see `TimeLimit`.

    The loop gets its turn every few milliseconds, unless the work is one long call of C that does not give it up. Work in
    Python is interrupted when the time is over; what cannot be is left alone, in a thread that no end of the process
    waits for.

    Args:
        work: what is to be done.
        doing: names it, for messages: `reading FILE`.
        gives_up: whether it is given up; otherwise that it is waited for is logged each minute.

    Raises:
        TookTooLongError: it is not done.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where it is waited for
            tell(ended.set_exception, error)
        else:
            tell(ended.set_result, result)

    def tell(told: Callable[[Any], object], what: object) -> None:
        def now() -> None:
            if not ended.done():
                told(what)

        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(now)

    thread = threading.Thread(target=run, name=ASIDE, daemon=True)
    thread.start()
    try:
        await _wait(ended, thread, doing, gives_up=gives_up)
    except (TookTooLongError, asyncio.CancelledError):
        ended.cancel()
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
