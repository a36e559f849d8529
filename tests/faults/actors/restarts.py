"""The API server restarts, and so does the daemon: in good order, or all of a sudden."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from tests.faults.actors.actor import Actor


class ServerRestarts(Actor):
    """The API server goes away for a while; nobody takes connections meanwhile."""

    name = "server"
    pause_seconds: ClassVar[tuple[float, float]] = (10.0, 90.0)

    async def act(self) -> None:
        seconds = self.random.choice((0.0, 0.5, 5.0, 40.0))
        self.tell(f"stops for {seconds} s")
        await self.stage.server.stop()
        await asyncio.sleep(seconds)
        if self.random.random() < 0.5:
            self.stage.server.faults.compact()
        await self.stage.server.start()
        self.tell("is back")


class DaemonRestarts(Actor):
    """The daemon ends, and another begins with nothing but what the API server knows."""

    name = "operator"
    pause_seconds: ClassVar[tuple[float, float]] = (8.0, 90.0)

    async def act(self) -> None:
        life = self.one_of(self.stage.lives.running)
        if life is None:
            return
        await self.stage.lives.end(life, gracefully=self.random.random() < 0.4)
        await asyncio.sleep(self.random.choice((0.0, 0.0, 1.0, 15.0)))
        self.stage.lives.begin()
