"""The event bus resumes plugins that wait for events, and wakes the scheduling loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.engine.cycle.event_bus import EventBus
from scheduler.engine.queue import Place
from scheduler.framework.capabilities import PodActivator, WaitForEvent
from scheduler.framework.events import (
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    ActionType,
    ClusterEvent,
    EventResource,
)
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import Cluster


def bus() -> EventBus:
    return EventBus(Cluster().queue)


async def test_a_plugin_resumes_at_the_first_matching_event():
    it, n1, n2 = bus(), node("n1"), node("n2")
    asked: list[Any] = []

    def wanted(event: Any, old: Any, new: Any) -> bool:
        asked.append((event, old, new))
        return new is n2

    waiting = asyncio.create_task(it.wait_for_event(wanted, timeout_seconds=60))
    await asyncio.sleep(1)
    for each in (n1, n2, n2):
        it.happened(NODE_ADD, None, each)

    assert await waiting is True
    assert asyncio.get_running_loop().time() == 1
    assert asked == [(NODE_ADD, None, n1), (NODE_ADD, None, n2)]
    assert isinstance(it, WaitForEvent)


async def test_a_wait_for_an_event_returns_false_at_its_timeout():
    it = bus()

    assert await it.wait_for_event(lambda *_: True, timeout_seconds=60) is False
    assert asyncio.get_running_loop().time() == 60
    assert not it._waiters


async def test_a_cancelled_wait_leaves_nothing_behind():
    it = bus()
    waiting = asyncio.create_task(it.wait_for_event(lambda *_: True, timeout_seconds=60))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.sleep(1)

    assert waiting.cancelled()
    assert not it._waiters
    it.happened(NODE_ADD, None, node("n1"))


async def test_a_filter_that_raises_resumes_its_own_plugin_only(caplog: Any):
    it = bus()

    def broken(*_: Any) -> bool:
        raise KeyError("x")

    first = asyncio.create_task(it.wait_for_event(broken, timeout_seconds=60))
    second = asyncio.create_task(
        it.wait_for_event(lambda event, *_: event is NODE_DELETE, timeout_seconds=60)
    )
    await asyncio.sleep(1)
    it.happened(NODE_ADD, None, node("n1"))

    assert await first is True
    assert await second is False
    assert [record.getMessage() for record in caplog.records] == ["A plugin's event filter failed"]


async def test_every_event_reaches_the_queue_and_wakes_the_loop():
    cluster = Cluster()
    it = EventBus(cluster.queue)
    cluster.reject(pod("web"), "Anything")
    waiting = asyncio.create_task(it.wait_woken(60))
    await asyncio.sleep(1)
    it.happened(NODE_ADD, None, node("n1"))
    await waiting

    assert asyncio.get_running_loop().time() == 1
    assert cluster.queue.place_of(pod("web").uid) is Place.BACKOFF


async def test_a_wake_before_the_wait_counts_once():
    it = bus()
    it.wake()
    it.wake()
    await it.wait_woken(60)
    assert asyncio.get_running_loop().time() == 0

    await it.wait_woken(60)
    assert asyncio.get_running_loop().time() == 60


async def test_pods_that_a_plugin_activates_wake_the_loop():
    cluster = Cluster()
    it = EventBus(cluster.queue)
    cluster.reject(pod("web"), "Fit")
    it.activate([pod("web").uid])
    await it.wait_woken(None)

    assert cluster.queue.place_of(pod("web").uid) is Place.ACTIVE
    assert isinstance(it, PodActivator)


async def test_plugins_receive_events_even_without_queued_pods():
    it = EventBus(Cluster().queue)
    waiting = asyncio.create_task(it.wait_for_event(lambda *_: True, timeout_seconds=60))
    await asyncio.sleep(1)
    it.activate(["nobody"])
    it.happened(NODE_ADD, None, node("n1"))

    assert await waiting is True


CLAIM_CHANGED = ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.UPDATE)
CLAIM = {"metadata": {"namespace": "shop", "name": "data"}}

OF_OBJECTS = [
    pytest.param((EventResource.NODE, "n1"), (NODE_ADD, None, node("n1")), id="a node"),
    pytest.param((EventResource.POD, "default/web"), (ASSIGNED_POD_DELETE, pod("web"), None), id="a pod"),
    pytest.param(
        (EventResource.PERSISTENT_VOLUME_CLAIM, "shop/data"), (CLAIM_CHANGED, CLAIM, CLAIM), id="a claim"
    ),
]


@pytest.mark.parametrize(("awaited", "event"), OF_OBJECTS)
async def test_a_wait_for_objects_ends_only_by_their_changes(awaited: Any, event: Any):
    it = bus()
    waiting = asyncio.create_task(
        it.wait_for_change_of([awaited, (EventResource.CSI_NODE, "n9")], timeout_seconds=60)
    )
    await asyncio.sleep(1)
    it.happened(NODE_ADD, None, node("n2"))
    it.happened(ClusterEvent(EventResource.CSI_DRIVER, ActionType.ADD), None, {"metadata": {"name": "n1"}})
    await asyncio.sleep(1)
    assert not waiting.done()
    it.happened(*event)
    it.happened(*event)

    assert await waiting is True
    assert not it._waiting_for


async def test_a_wait_for_objects_ends_by_a_wildcard_event():
    it = bus()
    waiting = asyncio.create_task(
        it.wait_for_change_of([(EventResource.PERSISTENT_VOLUME_CLAIM, "shop/data")], timeout_seconds=60)
    )
    await asyncio.sleep(1)
    it.happened(ClusterEvent(EventResource.WILDCARD, ActionType.ALL), None, None)

    assert await waiting is True


async def test_several_tasks_may_wait_for_one_object_and_time_out_separately():
    it, objects = bus(), [(EventResource.NODE, "n1")]
    early = asyncio.create_task(it.wait_for_change_of(objects, timeout_seconds=10))
    late = asyncio.create_task(it.wait_for_change_of(objects, timeout_seconds=60))
    also_late = asyncio.create_task(it.wait_for_change_of(objects, timeout_seconds=60))
    await asyncio.sleep(20)
    it.happened(NODE_DELETE, node("n1"), None)

    assert [await early, await late, await also_late] == [False, True, True]
    assert not it._waiting_for
