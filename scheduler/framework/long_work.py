"""Work in steps: done all at once where nobody else wants a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scheduler.framework.interface import Plugin
    from scheduler.framework.points import ExtensionPoint

T = TypeVar("T")

MOST_TIMES: Final = 1000
"""So often a plugin may need time for one answer, where nothing else bounds it."""
TOO_OFTEN: Final = f"plugins needed more time {MOST_TIMES} times, and there is no answer yet"


def at_once(steps: Generator[None, None, T]) -> T:
    """Go through all steps, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def answered_at_once(ask: Callable[[], T]) -> T:
    """Ask until there is an answer; what plugins need time for is done at once.

    Raises:
        RuntimeError: a plugin needs time again and again.
    """
    for _ in range(MOST_TIMES):
        try:
            return ask()
        except NeedsTime as needs:
            at_once(needs.steps)
    raise RuntimeError(TOO_OFTEN)


class AtOnce:
    """Fulfils `LongWork` where a decision is all there is to do: in simulations and tests."""

    async def done(self, steps: Generator[None, None, T]) -> T:
        return at_once(steps)

    def has_time(self) -> bool:
        return True


class NeedsTime(Exception):  # noqa: N818  # a request, not an error
    """Raised by a plugin that cannot answer within one turn of the event loop.

    The attempt ends without a verdict. The runtime advances `steps`, a few milliseconds at a time, between attempts at
    other pods, and then begins the attempt again on the cluster as it is by then. The plugin keeps what the steps found,
    so that it answers the same question at once.

    Args:
        steps: the work; each step takes a few milliseconds at most. It is closed if the attempt ends before it.
        is_unlimited: whether the attempt may go on for however long it takes, as the plugin was configured; else it
            ends when the attempt has used up its budget.

    Attributes:
        plugin: the plugin that raised it, and the extension point; set by the runtime.
    """

    def __init__(self, steps: Generator[None, None, None], *, is_unlimited: bool = False) -> None:
        super().__init__("a plugin needs more time than one turn of the event loop")
        self.steps = steps
        self.is_unlimited = is_unlimited
        self.plugin: tuple[Plugin, ExtensionPoint] | None = None
