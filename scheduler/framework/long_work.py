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
