"""Replay hooks: the points at which a recorder sees the steps of a scheduler and all input from outside.

Between two waits no input arrives, so the behaviour there follows from the state and the time. A step begins
with an input, such as an object's new version, or where a task continues after a wait. With the order of the
steps, the input and the time of each, and the clock-dependent branches within it, `scheduler.daemon.recording` can
repeat the same decisions.

The hooks of this module do nothing.
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


class ReplayHooks:
    """Replay hooks without any effect.

    Attributes:
        clock: the time for decisions; another clock measures durations.
    """

    clock: Clock

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def stopwatch(self, clock: Clock) -> Clock:
        """Return the clock that measures work within a step, in place of one that may be constant there."""
        return clock

    def random(self, random: Random) -> Random:
        """Return the source of random numbers that breaks ties."""
        return random

    def end(self) -> None:
        """Handle the end of the scheduler: later events belong to no step."""

    def on_watch_event(self, kind: str, handler: H) -> H:
        """Return the handler of a kind's watch events in whose place each event is a step."""
        return handler

    def configured(self, stage: str, configuration: object) -> None:
        """Record a configuration: it is `built`, `active` from now on, or `dropped`."""

    def decided(self, uid: str, node_name: str, message: str, nominated_node_name: str | None) -> None:
        """Record a decision about a pod: its node, or the message and the nominated node."""

    def repaired(self, what: str) -> None:
        """Record a coming repair of the cache, `put right`, or of the API server's state, `restored`."""

    def stopped(self) -> None:
        """Record that an attempt, or another plugin call, was stopped at its time limit, which a replay cannot repeat."""

    def needs_time(self) -> bool:
        """Record that an attempt needs more than a time slice; return whether it continues as a long attempt.

        If False, the attempt continues at once: in the recorded run, the plugin already had the result at
        this point.
        """
        return True

    def branch(self, is_so: bool, what: str = "") -> bool:
        """Record a condition that does not follow from the state, such as the end of a time slice, and return it.

        Args:
            is_so: the condition.
            what: counts these observations separately, because they are frequent; "" for all others.
        """
        return is_so

    def task(self, work: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
        """Return the coroutine to run as a task, so that each of its continuations is a step."""
        return work

    async def external_call(self, what: str, ask: Callable[[], Awaitable[T]], kind: type[object]) -> T:
        """Call something outside of this process, and return or raise the result.

        Args:
            what: describes the call.
            ask: makes the call.
            kind: type of the result: bytes, bool, dict, `PodInfo`, or None if the value has no use.
        """
        return await ask()


def resumed(
    work: Generator[Any, Any, Any] | Coroutine[Any, Any, Any], waits_for: object
) -> Generator[Any, Any, tuple[Callable[..., Any], Any]]:
    """Wait for the awaited object of a coroutine that is driven by hand; return the function and the value to continue with.

    Raises:
        GeneratorExit: the driver is closed, and the coroutine with it.
    """
    try:
        return work.send, (yield waits_for)
    except GeneratorExit:
        work.close()
        raise
    except BaseException as error:  # noqa: BLE001  # passed to the coroutine, including cancellation
        return work.throw, error


NO_HOOKS: Final = ReplayHooks(SystemClock())
"""For parts that are used without a recorder."""
