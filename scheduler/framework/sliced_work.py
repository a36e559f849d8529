"""Work in time slices, its immediate execution where no other task waits, and coroutines that are driven by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler.loop_work import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from scheduler.framework.interface import ExtensionCall, ExtensionPoint, Plugin

T = TypeVar("T")

MAX_RESTARTS: Final = 1000
"""Maximum number of `NeedsTime` for one result, if nothing else limits them."""
TOO_MANY_RESTARTS: Final = f"plugins needed more time {MAX_RESTARTS} times without a result"


def answer_to_end(ask: Callable[[], T]) -> T:
    """Call a function until it returns; work that plugins request by `NeedsTime` is done at once.

    Raises:
        RuntimeError: plugins needed time too often.
    """
    for _ in range(MAX_RESTARTS):
        try:
            return ask()
        except NeedsTime as needs:
            run_to_end(needs.steps)
    raise RuntimeError(TOO_MANY_RESTARTS)


class WithoutSlices:
    """Implements `SlicedWork` where no other task waits: in simulations and tests."""

    async def done(self, work: Generator[None, None, T]) -> T:
        return run_to_end(work)

    def has_time(self) -> bool:
        return True


class NeedsTime(Exception):  # noqa: N818  # a request, not an error
    """Raised by a plugin that cannot return a result within one time slice of the event loop.

    The attempt ends without a result. The runtime advances `steps`, a few milliseconds at a time, between
    attempts at other pods, and then repeats the attempt on the cluster of that time. The plugin keeps the
    result of the steps, so that it answers the same question at once.

    Args:
        steps: the work; each step takes a few milliseconds at most. It is closed if the attempt ends earlier.
        is_unlimited: whether the attempt may take any time, as the plugin is configured; else it ends when
            the attempt's budget is used up.

    Attributes:
        plugin: the plugin that raised it, and the extension point; set by the runtime.
    """

    def __init__(self, steps: Generator[None, None, None], *, is_unlimited: bool = False) -> None:
        super().__init__("a plugin needs more time than one turn of the event loop")
        self.steps = steps
        self.is_unlimited = is_unlimited
        self.plugin: tuple[Plugin, ExtensionPoint | ExtensionCall] | None = None


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
