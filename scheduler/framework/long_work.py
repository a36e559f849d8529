"""Work in steps: done all at once where nobody else wants a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Go through all steps, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class AtOnce:
    """Fulfils `LongWork` where a decision is all there is to do: in simulations and tests."""

    async def done(self, steps: Generator[None, None, T]) -> T:
        return at_once(steps)


class NeedsTime(Exception):  # noqa: N818  # a request, not an error
    """Raised by a plugin that cannot answer within one turn of the event loop.

    The attempt ends without a verdict. The runtime advances `steps`, a few milliseconds at a time, between attempts at
    other pods, and then begins the attempt again on the cluster as it is by then. The plugin keeps what the steps found,
    so that it answers the same question at once.

    Args:
        steps: the work; each step takes a few milliseconds at most.
    """

    def __init__(self, steps: Generator[None, None, None]) -> None:
        super().__init__("a plugin needs more time than one turn of the event loop")
        self.steps = steps
