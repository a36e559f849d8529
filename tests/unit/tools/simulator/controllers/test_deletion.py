"""Events that expire, and PodGroups that are in use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.tools.simulator.a_store import AStore, pod
from tests.unit.tools.simulator.definitions import running


def event(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "reason": "R"}


async def test_an_event_expires_an_hour_after_its_last_write(store: AStore):
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


GROUPS = "podgroups.scheduling.k8s.io"


def group(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}


def member(name: str, group_name: str = "g") -> dict[str, Any]:
    return pod(name, schedulingGroup={"podGroupName": group_name})


def end(store: AStore, name: str, phase: str) -> None:
    store.patch("pods", name, {"status": {"phase": phase}}, subresource="status")


async def test_a_group_without_pods_is_deleted_at_once(store: AStore):
    async with running(store):
        store.create(GROUPS, group("g"))
        store.create("pods", member("p", "another"))
        store.create("pods", pod("q"))
        store.delete(GROUPS, "g")
        await asyncio.sleep(1)

        assert store.find(GROUPS, "g") is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", ""])
async def test_a_terminating_group_is_deleted_with_the_last_of_its_pods(store: AStore, phase: str):
    async with running(store, kubelet=False):
        store.create("pods", member("p"))
        store.create("pods", member("q"))
        store.create(GROUPS, group("g"))
        store.delete(GROUPS, "g")
        await asyncio.sleep(1)
        store.delete("pods", "p")
        await asyncio.sleep(1)
        assert "deletionTimestamp" in store.get(GROUPS, "g")["metadata"]

        if phase:
            end(store, "q", phase)
        else:
            store.delete("pods", "q")
        await asyncio.sleep(1)
        assert store.find(GROUPS, "g") is None


async def test_a_group_without_pods_is_kept_until_it_is_deleted(store: AStore):
    async with running(store):
        store.create(GROUPS, group("g"))
        store.create("pods", member("p"))
        store.delete("pods", "p")
        await asyncio.sleep(1)

        assert "finalizers" in store.get(GROUPS, "g")["metadata"]


async def test_other_finalizers_are_kept(store: AStore):
    async with running(store):
        store.create(GROUPS, group("g") | {"metadata": {"name": "g", "finalizers": ["a.b/c"]}})
        store.delete(GROUPS, "g")
        await asyncio.sleep(1)

        assert store.get(GROUPS, "g")["metadata"]["finalizers"] == ["a.b/c"]


async def test_existing_pods_protect_their_group(store: AStore):
    store.create("pods", member("p"))
    store.create(GROUPS, group("g"))
    store.delete(GROUPS, "g")
    async with running(store, kubelet=False):
        await asyncio.sleep(1)
        assert store.find(GROUPS, "g") is not None

        store.delete("pods", "p")
        await asyncio.sleep(1)
        assert store.find(GROUPS, "g") is None


async def test_a_pod_of_another_namespace_protects_no_group(store: AStore):
    store.create("namespaces", {"metadata": {"name": "other"}})
    async with running(store):
        other = member("p")
        store.create("pods", other | {"metadata": {"name": "p", "namespace": "other"}})
        store.create(GROUPS, group("g"))
        store.delete(GROUPS, "g")
        await asyncio.sleep(1)

        assert store.find(GROUPS, "g") is None


async def test_a_namespace_is_deleted_with_its_groups_and_their_pods(store: AStore):
    store.create("namespaces", {"metadata": {"name": "other"}})
    async with running(store):
        store.create(GROUPS, group("g") | {"metadata": {"name": "g", "namespace": "other"}})
        store.create("pods", member("p") | {"metadata": {"name": "p", "namespace": "other"}})
        store.delete("namespaces", "other")
        await asyncio.sleep(30)

        assert store.find("namespaces", "other") is None
