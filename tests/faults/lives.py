"""The daemons of a campaign, one after another: begun, stopped in good order, or killed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import aiohttp

from plugins.registry import IN_TREE
from scheduler.app.daemon import Daemon
from scheduler.client.resources import NODES, PODS
from scheduler.configuration.load import parse
from tests.daemon_harness import GarblingConnection
from tests.faults.troubles import TROUBLES, Mood
from tests.faults.witness import NAME as WITNESS
from tests.faults.witness import Ledger, Witness
from tests.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from scheduler.client.resources import Resource
    from scheduler.framework import Plugin
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.faults.stage import Stage

_NEVER_SECONDS = 1e9


class Life:
    """One daemon.

    Attributes:
        name: as in the story.
        began_at: seconds.
        mood: of its plugins.
        ledger: of its choices.
    """

    def __init__(self, stage: Stage, number: int) -> None:
        self.name = f"daemon {number}"
        self.began_at = asyncio.get_running_loop().time()
        self.mood = Mood(stage, stage.random_of(f"plugins of {self.name}"))
        self.ledger = Ledger(stage, self)
        self._stage = stage
        self._stop = asyncio.Event()
        connector = aiohttp.UnixConnector(path=str(stage.server.socket_path))
        self.connection = GarblingConnection("http://localhost", connector)
        self.connection.garbled = stage.garbled
        self.daemon = self._build(stage.random_of(self.name), self._plugins())
        self._task: asyncio.Task[None] | None = None

    def judge(self) -> Daemon:
        """Return another daemon of the same configuration, with empty hands and calm plugins; it is not to run."""
        return self._build(Random(0), self._plugins())

    def begin(self) -> None:
        self._task = asyncio.create_task(self.daemon.run(self._stop), name=self.name)

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """End it in good order."""
        self._stop.set()
        await self._over()

    async def kill(self) -> None:
        """End it as a lost machine does: nothing is finished."""
        assert self._task is not None
        self._task.cancel()
        await self._over()

    @property
    def nodes(self) -> Mapping[str, NodeObject]:
        """What its watch has told of nodes."""
        return self._store(NODES)

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """What its watch has told of pods."""
        return self._store(PODS)

    def _store(self, resource: Resource) -> Mapping[str, Any]:
        return next(each.store for each in self.daemon._reflectors if each.resource == resource)

    async def _over(self) -> None:
        assert self._task is not None
        results = await asyncio.gather(self._task, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                self._stage.find(f"{self.name} broke: {result!r}")
        await self.connection.close()

    def _plugins(self) -> dict[str, type[Plugin]]:
        plugins: dict[str, type[Plugin]] = {
            trouble.name: type(trouble.__name__, (trouble,), {"mood": self.mood}) for trouble in TROUBLES
        }
        plugins[WITNESS] = type("Witness", (Witness,), {"ledger": self.ledger})
        return plugins

    def _build(self, random: Random, plugins: Mapping[str, type[Plugin]]) -> Daemon:
        daemon = Daemon(
            self.connection,
            parse(self._stage.plan.configuration),
            clock=LoopClock(),
            random=random,
            in_tree={**IN_TREE, **plugins},
        )
        if not self._stage.plan.flushes:
            # What is tried again anyway after five minutes hides that nothing woke it.
            daemon.queue._max_in_unschedulable_seconds = _NEVER_SECONDS
        return daemon


class Lives:
    """One daemon at a time.

    Attributes:
        past: those that ended.
    """

    def __init__(self, stage: Stage) -> None:
        self.past: list[Life] = []
        self._stage = stage
        self._present: Life | None = None

    @property
    def present(self) -> Life | None:
        """The daemon that runs; None between two."""
        return self._present

    @property
    def all(self) -> list[Life]:
        return [*self.past, *([self._present] if self._present else ())]

    def begin(self) -> None:
        """Begin the next."""
        assert self._present is None
        self._present = life = Life(self._stage, len(self.past) + 1)
        self._stage.story.tell(life.name, "begins")
        life.begin()

    async def end(self, *, gracefully: bool) -> None:
        """End the present one; nothing of it goes on."""
        life = self._present
        if life is None:
            return
        self._stage.story.tell(life.name, "is stopped" if gracefully else "is killed")
        self._present = None
        self.past.append(life)
        await (life.stop() if gracefully else life.kill())
        self._stage.story.tell(life.name, "has ended")
        left = [task.get_name() for task in asyncio.all_tasks() if _is_ours(task)]
        if left:
            self._stage.find(f"{life.name} left tasks running: {left}")


def _is_ours(task: asyncio.Task[object]) -> bool:
    """Whether a task runs code of the daemon: the server and the campaign live in the same loop."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and any(
        part in code.co_filename
        for part in ("/scheduler/client/", "/scheduler/cycle/", "/scheduler/app/", "/scheduler/runtime/")
    )
