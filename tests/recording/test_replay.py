"""What was recorded is decided in the same way when it is gone through again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests import virtual_time
from tests.builders import node_object, pod_object
from tests.daemon_harness import cluster
from tests.recording.taped import Taped
from tests.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path


def test_pods_are_placed_where_they_were(tmp_path: Path) -> None:
    async def story() -> Taped:
        taped = Taped(LoopClock())
        async with cluster(tmp_path) as it, it.daemon(steps=taped.steps):
            it.add_nodes(*(node_object(f"n{number}") for number in range(20)))
            for number in range(50):
                it.add_pods(pod_object(f"p{number}", requests={"cpu": "100m"}))
                await asyncio.sleep(0.01)
            await it.until(lambda: all(it.node_of(f"p{number}") for number in range(50)))
        return taped

    taped = virtual_time.run(story())
    replay = taped.replay()
    assert replay.difference is None
    assert replay.ended == ""
    assert replay.decisions == 50
