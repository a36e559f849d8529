"""The API server restarts, as it was or as it was before, and so does the daemon: in good order, or all of a sudden."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from tests.faults.actors.actor import Actor

if TYPE_CHECKING:
    from scheduler.tools.simulator.registry.registry import Backup


class ServerRestarts(Actor):
    """The API server goes away for a while; nobody takes connections meanwhile."""

    name = "server"
    pause_seconds: ClassVar[tuple[float, float]] = (10.0, 90.0)

    async def act(self) -> None:
        seconds = self.random.choice((0.0, 0.5, 5.0, 40.0))
        async with self.stage.server_is_away:
            self.tell(f"stops for {seconds} s")
            await self.stage.server.stop()
            await asyncio.sleep(seconds)
            if self.random.random() < 0.5:
                self.stage.server.faults.compact()
            await self.stage.server.start()
            self.tell("is back")


class Restores(Actor):
    """Whoever restores etcd from a backup: the API server comes back in an older state, and goes on from there."""

    name = "backups"
    pause_seconds: ClassVar[tuple[float, float]] = (2.0, 15.0)

    def begin(self) -> None:
        self._backups: list[tuple[float, Backup]] = []

    async def act(self) -> None:
        if self._backups and self.random.random() < 0.5:
            await self._restore(*self.random.choice(self._backups[-2:]))
        self._backups.append((self.stage.now, self.stage.server.backup()))
        self.tell("take a backup")

    async def _restore(self, taken_at: float, backup: Backup) -> None:
        async with self.stage.server_is_away:
            seconds = self.random.choice((1.0, 5.0, 30.0))
            self.tell(f"the server stops, to be restored in {seconds} s")
            await self.stage.server.stop()
            await asyncio.sleep(seconds)
            self.tell(f"all is as it was at {taken_at:.3f}, with version {backup.version}")
            self.stage.restore(backup)
            if self.random.random() < 0.3:
                self.stage.server.faults.compact()
            # Others, who are back sooner, may have come further than all versions that were known.
            await asyncio.sleep(self.random.choice((0.0, 0.0, 10.0)))
            await self.stage.server.start()
            self.tell("the server is back")


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
