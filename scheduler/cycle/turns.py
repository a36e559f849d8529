"""Long decisions in slices: between two of them the lease, the watches and the pages have their turn."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

from scheduler.framework.long_work import MOST_TIMES, TOO_OFTEN, NeedsTime, at_once
from scheduler.steps import UNHEARD

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scheduler.clock import Clock
    from scheduler.cycle.freeze import ClusterFreeze
    from scheduler.steps import Steps

T = TypeVar("T")

SLICE_SECONDS: Final = 0.005
"""After so long the others have their turn. Longer ones save little, and are felt by who waits."""

_WORK_SECONDS: Final = 0.05
"""How long a plugin may keep all other pods waiting, by work that it could go on with in another attempt."""


async def answered_in_turns(ask: Callable[[], T], steps: Steps = UNHEARD) -> T:
    """Ask until there is an answer; what plugins need time for is done in slices, between which others have their turn.

    For those that judge beside the queue: they ask on the cluster as it is, each time anew.

    Args:
        ask: asks.
        steps: are told of each turn that others have, where that is part of what is recorded.

    Raises:
        RuntimeError: plugins need time again and again.
    """
    for _ in range(MOST_TIMES):
        try:
            return ask()
        except NeedsTime as needs:
            if steps.needs_time():
                await _in_slices(needs.steps, steps)
            else:
                at_once(needs.steps)
    raise RuntimeError(TOO_OFTEN)


async def _in_slices(work: Generator[None, None, None], steps: Steps) -> None:
    until = time.perf_counter() + SLICE_SECONDS
    for _ in work:
        if steps.observed(time.perf_counter() >= until):
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_SECONDS
    await asyncio.sleep(0)


class Turns:
    """Fulfils `LongWork` within an attempt, at the end of which its owner ends the freeze.

    Args:
        freeze: begun before others first have a turn, so that what is judged stays as it is.
        steps: are told of each turn that others have.
    """

    def __init__(self, freeze: ClusterFreeze, clock: Clock, steps: Steps = UNHEARD) -> None:
        self._freeze = freeze
        self._steps = steps
        self._now = clock.monotonic
        self._began = self._until = 0.0

    async def done(self, steps: Generator[None, None, T]) -> T:
        self._began = self._now()
        self._until = self._began + SLICE_SECONDS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.give_way()

    def has_time(self) -> bool:
        return not self._steps.observed(self._now() - self._began >= _WORK_SECONDS)

    async def give_way(self) -> None:
        """Let the others have a turn, if they have not had one for as long as a slice takes."""
        if self._steps.observed(self._now() >= self._until):
            self._freeze.begin()
            await asyncio.sleep(0)
            self._until = self._now() + SLICE_SECONDS
