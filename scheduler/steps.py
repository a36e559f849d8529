"""The steps in which a scheduler goes on, and all that reaches it from outside of them: where one listens to record it.

Between two waits nothing comes in, so what happens there follows from what is known, and from the moment. A step begins
with something that was told, an object's new version for example, or where a task goes on that had waited. Whoever knows
the order of the steps, what each was told, the time at which each began and what the clock decided within it, can make
the same decisions again (`scheduler.recording`).

Here nobody listens: everything is as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from random import Random

    from scheduler.clock import Clock

T = TypeVar("T")
H = TypeVar("H")


class Steps:
    """As they come.

    Attributes:
        clock: the time by which is decided; that by which is measured is another clock.
    """

    clock: Clock

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def stopwatch(self, clock: Clock) -> Clock:
        """Return the clock that measures how long work takes within a step, in place of one that may stand still there."""
        return clock

    def random(self, random: Random) -> Random:
        """Return what breaks ties."""
        return random

    def end(self) -> None:
        """Hear that the scheduler is about to end: what follows is no step any more."""

    def heard(self, kind: str, handler: H) -> H:
        """Return who is told of the objects of a kind instead, whose every word is a step."""
        return handler

    def configured(self, stage: str, configuration: object) -> None:
        """Hear of a configuration: it is `built`, `in force` from now on, or `dropped`."""

    def decided(self, uid: str, node_name: str, message: str, nominated_node_name: str | None) -> None:
        """Hear what was decided of a pod: its node, or why there is none and where room is made."""

    def mended(self, what: str) -> None:
        """Hear that what is known of the cluster is about to be `put right`, or that the API server's state was `restored`."""

    def stopped(self) -> None:
        """Hear that an attempt, or another call of a plugin, was stopped for want of time, which no other does just there."""

    def needs_time(self) -> bool:
        """Hear that an attempt needs more time than a turn; return whether it is to have it as a long attempt.

        If not, what it needs is done at once: when this was recorded, the plugin knew the answer by then.
        """
        return True

    def observed(self, is_so: bool, what: str = "") -> bool:
        """Return what was found of something that does not follow from what is known, as whether a slice of time is over.

        Args:
            is_so: what was found.
            what: names what is observed so often that others must not be counted with it.
        """
        return is_so

    def task(self, work: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
        """Return what is to run in a task of its own instead, so that each of its goings-on is a step."""
        return work

    async def outside(self, what: str, ask: Callable[[], Awaitable[T]], kind: type[object]) -> T:
        """Ask somebody outside of this process, and return or raise what the answer is.

        Args:
            what: is asked, and of whom.
            ask: does it.
            kind: of the answer: bytes, bool, dict, `PodInfo`, or None where no more is asked for than that it comes.
        """
        return await ask()


def resumed(
    work: Generator[Any, Any, Any] | Coroutine[Any, Any, Any], waits_for: object
) -> Generator[Any, Any, tuple[Callable[..., Any], Any]]:
    """Wait for what work that is driven by hand waits for; return how it goes on: what to call, and with what.

    Raises:
        GeneratorExit: who drives it is closed, and the work with it.
    """
    try:
        return work.send, (yield waits_for)
    except GeneratorExit:
        work.close()
        raise
    except BaseException as error:  # noqa: BLE001  # handed on to the work, cancellation too
        return work.throw, error


UNHEARD: Final = Steps(SystemClock())
"""Of parts that are used by themselves."""
