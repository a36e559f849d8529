"""The machine: it stops for a while in the middle of things, and its wall clock jumps."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from tests.faults.actors.actor import Actor
from tests.support.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

_SHARE = 0.02
_STALL_SECONDS = (0.1, 1.0, 4.0, 9.0, 12.0, 25.0)
_JUMPS = (
    timedelta(0),
    timedelta(seconds=-90),
    timedelta(hours=1),
    timedelta(days=-400),
    timedelta(days=3650),
)


class Stalls(Actor):
    """Time passes while nobody gets a turn: a process that was stopped, a virtual machine that was moved."""

    name = "stalls"
    pause_seconds: ClassVar[tuple[float, float]] = (5.0, 60.0)

    def begin(self) -> None:
        self.stage.on_step(self._passing)

    async def act(self) -> None:
        self._stall("")

    def _passing(self, step: str, pod: PodInfo) -> None:
        """Stop between a choice and its Binding, or between a Binding and what follows it."""
        if not self.stage.is_calm and self.random.random() < _SHARE:
            turns = self.random.choice((0, 0, 1, 2, 3, 5, 8))
            self.stage.soon(turns, self._stall, f", when {pod.key} was {step}")

    def _stall(self, when: str) -> None:
        loop, seconds = asyncio.get_running_loop(), self.random.choice(_STALL_SECONDS)
        assert isinstance(loop, VirtualTimeLoop)
        self.tell(f"all stops for {seconds} s{when}")
        loop.stall(seconds)


class WallClocks(Actor):
    """Whoever sets the time of day."""

    name = "clocks"
    pause_seconds: ClassVar[tuple[float, float]] = (5.0, 60.0)

    async def act(self) -> None:
        life = self.one_of(self.stage.lives.running)
        if life is not None:
            life.clock.offset = self.random.choice(_JUMPS)
            self.tell(f"{life.name} has another time of day, off by {life.clock.offset}")
