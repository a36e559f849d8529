"""Work that may take long, done where it does not hold up the loop."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LONGEST_SECONDS = 60.0


class TookTooLongError(SchedulerError):
    """Work was given up; it may still be under way, where nobody waits for it."""


class Aside(Protocol):
    """Does work, and returns or raises what it comes to."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


async def at_once(work: Callable[[], T]) -> T:
    """Do it in the loop: for who knows that it is short."""
    return work()


class _GivenUpError(BaseException):
    """Raised in the middle of work that nobody waits for any more."""


async def in_a_thread(work: Callable[[], T]) -> T:
    """Do it in a thread of its own, for at most a minute.

    The loop gets its turn every few milliseconds, unless the work is one long call of C that does not give it up. Work in
    Python is interrupted when the time is over; what cannot be is left alone, in a thread that no end of the process
    waits for.

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

    thread = threading.Thread(target=run, name="aside", daemon=True)
    thread.start()
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            return await ended
    except TimeoutError as error:
        _interrupt(thread)
        raise TookTooLongError(f"it takes more than {LONGEST_SECONDS:.0f} seconds") from error
    except asyncio.CancelledError:
        _interrupt(thread)
        raise


def _interrupt(thread: threading.Thread) -> None:
    """Raise an exception in a thread, where it next runs Python."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(_GivenUpError)
        )
