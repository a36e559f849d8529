"""Events go by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.virtual_time_test import virtually
from tests.unit.simulator.a_store import AStore
from tests.unit.simulator.definitions import running


def event(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "reason": "R"}


@virtually
async def test_an_event_expires_an_hour_after_its_last_write():
    store = AStore()
    async with running(store, controllers=False):
        watch = store.watch("events", lambda: None)
        store.create("events", event("old"))
        store.create("events", event("repeated"))
        await asyncio.sleep(3000)
        store.patch("events", "repeated", {"count": 2})
        await asyncio.sleep(599)
        assert len(store.list("events")) == 2
        await asyncio.sleep(2)
        assert [one["metadata"]["name"] for one in store.list("events")] == ["repeated"]
        await asyncio.sleep(3000)

        assert store.list("events") == []
        assert [type_ for type_, _ in watch.take()][-2:] == ["DELETED", "DELETED"]
