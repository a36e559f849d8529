"""Statuses of objects whose plugin no profile has."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from scheduler.daemon.app.object_statuses import ObjectStatuses
from tests.support.virtual_time import LoopClock
from tests.support.virtual_time_test import virtually


@virtually
async def test_an_inactive_plugin_is_looked_for_every_ten_seconds() -> None:
    looks: list[float] = []

    class Frameworks(dict[str, Any]):
        def values(self) -> Any:
            looks.append(asyncio.get_running_loop().time())
            return super().values()

    source: Any = SimpleNamespace(plugin="FairQueues", kind="queues")
    parts: Any = SimpleNamespace(clock=LoopClock(), profiles=SimpleNamespace(frameworks=Frameworks()))
    nothing: Any = None
    statuses = ObjectStatuses(source, parts, requests=nothing, is_leading=lambda: True, recorder=nothing)

    running = asyncio.create_task(statuses.run())
    await asyncio.sleep(60.0)
    running.cancel()

    assert looks == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
