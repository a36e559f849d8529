"""Simulated kubelets resize pods in place, or report why a resize is pending; in virtual time on a store without HTTP.

Source of the cases: kubelet v1.36, pkg/kubelet/allocation/allocation_manager.go.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from scheduler.tools.simulator.node_agents.kubelet import KubeletOptions
from tests.unit.tools.simulator.a_store import AStore, node, pod
from tests.unit.tools.simulator.definitions import running

PENDING = "PodResizePending"


def resize(store: AStore, name: str, **requests: str) -> None:
    container = {"name": "c", "resources": {"requests": requests}}
    patch = {"spec": {"containers": [{**store.get("pods", name)["spec"]["containers"][0], **container}]}}
    store.patch("pods", name, patch, subresource="resize")


def condition(store: AStore, name: str) -> dict[str, Any]:
    conditions = store.get("pods", name)["status"].get("conditions", ())
    return next((each for each in conditions if each["type"] == PENDING), {})


def allocated(store: AStore, name: str) -> str | None:
    (status,) = store.get("pods", name)["status"]["containerStatuses"]
    resources = status.get("resources", {}).get("requests", {})
    assert status.get("allocatedResources", {}) == resources
    return resources.get("cpu")


async def start(store: AStore, **cpu: str) -> None:
    """Run pods with these requests on one node of 4 cpus; underscores stand for hyphens."""
    store.create("nodes", node("n1"))
    for name, amount in cpu.items():
        store.create("pods", pod(name, requests={"cpu": amount}))
        store.bind(name, "n1")
    await asyncio.sleep(2)


async def test_a_resize_that_fits_is_carried_out(store: AStore):
    async with running(store):
        await start(store, p="1")
        assert "allocatedResources" not in store.get("pods", "p")["status"]["containerStatuses"][0]
        resize(store, "p", cpu="3")
        await asyncio.sleep(1)

        assert allocated(store, "p") == "3"
        assert condition(store, "p") == {}
        assert store.get("pods", "p")["status"]["observedGeneration"] == 2


async def test_a_resize_is_deferred_until_another_pod_leaves():
    store = AStore(normal_events=True)
    async with running(store):
        await start(store, p="1", other="2")
        resize(store, "p", cpu="3")
        await asyncio.sleep(1)

        assert allocated(store, "p") == "1"
        found = condition(store, "p")
        message = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
        assert (found["status"], found["reason"], found["message"]) == ("True", "Deferred", message)
        (event,) = [each for each in store.list("events") if each["reason"] == "ResizeDeferred"]
        about = json.loads(event["message"].removeprefix("Pod resize Deferred: "))
        container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
        assert about == {"containers": [container], "generation": 2, "error": message}

        store.delete("pods", "other")
        await asyncio.sleep(3)
        assert allocated(store, "p") == "3"
        assert condition(store, "p") == {}
        reasons = {each["reason"] for each in store.list("events")}
        assert reasons >= {"ResizeStarted", "ResizeCompleted"}


async def test_a_resize_is_carried_out_when_another_pod_shrinks_or_its_node_grows(store: AStore):
    async with running(store):
        await start(store, p="1", other="3")
        resize(store, "p", cpu="2")
        await asyncio.sleep(1)
        assert condition(store, "p")["reason"] == "Deferred"
        resize(store, "other", cpu="2")
        await asyncio.sleep(1)
        assert allocated(store, "p") == "2"

        resize(store, "p", cpu="4")
        await asyncio.sleep(1)
        assert condition(store, "p")["reason"] == "Deferred"
        store.patch("nodes", "n1", {"status": {"allocatable": {"cpu": "6"}}}, subresource="status")
        await asyncio.sleep(1)
        assert allocated(store, "p") == "4"


async def test_a_resize_beyond_the_node_is_infeasible(store: AStore):
    async with running(store):
        await start(store, p="1")
        resize(store, "p", cpu="5")
        await asyncio.sleep(1)

        found = condition(store, "p")
        message = "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
        assert (found["reason"], found["message"]) == ("Infeasible", message)
        assert allocated(store, "p") == "1"


async def test_a_withdrawn_resize_is_not_pending_any_more(store: AStore):
    async with running(store):
        await start(store, p="1", other="2")
        resize(store, "p", cpu="3")
        await asyncio.sleep(1)
        assert condition(store, "p")
        resize(store, "p", cpu="1")
        await asyncio.sleep(1)

        assert condition(store, "p") == {}
        assert allocated(store, "p") == "1"


async def test_the_deferred_resize_with_the_highest_priority_is_carried_out_first(store: AStore):
    classes = "priorityclasses.scheduling.k8s.io"
    store.create(classes, {"metadata": {"name": "high"}, "value": 1000})
    async with running(store):
        await start(store, other="2", first="1")
        store.create("pods", pod("high", requests={"cpu": "1"}, priorityClassName="high"))
        store.bind("high", "n1")
        await asyncio.sleep(2)
        for name in ("first", "high"):
            resize(store, name, cpu="3")
            await asyncio.sleep(1)
        store.delete("pods", "other")
        await asyncio.sleep(3)

        assert (allocated(store, "first"), allocated(store, "high")) == ("1", "3")
        assert condition(store, "first")["reason"] == "Deferred"


async def test_a_pending_resize_is_reported_once(store: AStore):
    async with running(store):
        await start(store, p="1", other="2", more="1")
        resize(store, "p", cpu="4")
        await asyncio.sleep(1)
        version = store.get("pods", "p")["metadata"]["resourceVersion"]
        store.delete("pods", "more")
        await asyncio.sleep(3)

        assert store.get("pods", "p")["metadata"]["resourceVersion"] == version


async def test_a_new_pod_gets_what_a_deferred_resize_does_not_have(store: AStore):
    async with running(store):
        await start(store, p="1", other="2")
        resize(store, "p", cpu="4")
        await asyncio.sleep(1)
        store.create("pods", pod("new", requests={"cpu": "1"}))
        store.bind("new", "n1")
        await asyncio.sleep(2)

        assert store.get("pods", "new")["status"]["phase"] == "Running"


async def test_a_restarted_kubelet_knows_what_it_allocated(store: AStore):
    async with running(store):
        await start(store, p="1", other="2")
        resize(store, "p", cpu="3")
        await asyncio.sleep(1)
    async with running(store):
        await asyncio.sleep(1)
        assert condition(store, "p")["reason"] == "Deferred"
        assert allocated(store, "p") == "1"
        store.delete("pods", "other")
        await asyncio.sleep(3)
        assert allocated(store, "p") == "3"


async def test_the_resources_of_a_pod_as_a_whole_are_resized_too(store: AStore):
    async with running(store):
        store.create("nodes", node("n1"))
        made = pod("p", requests={"cpu": "1"}, resources={"requests": {"cpu": "2"}})
        store.create("pods", made)
        store.bind("p", "n1")
        await asyncio.sleep(2)
        patch = {"spec": {"resources": {"requests": {"cpu": "3"}}}}
        store.patch("pods", "p", patch, subresource="resize")
        await asyncio.sleep(1)

    status = store.get("pods", "p")["status"]
    assert status["allocatedResources"] == {"cpu": "3"}
    assert status["resources"] == {"requests": {"cpu": "3"}}


async def test_without_the_option_another_client_reports_resizes(store: AStore):
    async with running(store, kubelet=KubeletOptions(resizes=False)):
        await start(store, p="1")
        resize(store, "p", cpu="5")
        await asyncio.sleep(1)

        assert condition(store, "p") == {}


@pytest.mark.parametrize(("version", "cpu"), [("1.35", "2"), ("1.36", "3")])
async def test_a_pod_as_a_whole_is_resized_since_1_36(version: str, cpu: str):
    store = AStore(version=version)
    store.create("pods", pod("p", requests={"cpu": "1"}, resources={"requests": {"cpu": "2"}}))
    patch = {"spec": {"resources": {"requests": {"cpu": "3"}}}}
    store.patch("pods", "p", patch, subresource="resize")

    assert store.get("pods", "p")["spec"]["resources"] == {"requests": {"cpu": cpu}}
