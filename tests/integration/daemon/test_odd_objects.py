"""The event loop continues after unexpected objects of the API server, and the field is named."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from scheduler.testing.samples import claim
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_undecodable_node_is_left_out_and_named_with_its_field(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it, it.daemon():
            it.garbled[b'"7777m"'] = b'"many"'
            it.add_nodes(node_object("broken", cpu="7777m"), node_object("n1"))
            it.add_pods(pod_object("web", cpu="1"))

            await it.until(lambda: it.node_of("web") == "n1")

            found = it.server.store.get("nodes", "broken")
            mended = {"cpu": "64", "memory": "1Ti", "pods": "9"}
            status = {**found["status"], "allocatable": mended}
            it.server.store.update("nodes", {**found, "status": status}, subresource="status")
            it.add_pods(pod_object("big", cpu="32"))
            await it.until(lambda: it.node_of("big") == "broken")

    with caplog.at_level(logging.WARNING):
        virtual_time.run(scenario())

    reported = [vars(record).get("error", "") for record in caplog.records]
    assert any(
        "Node broken: status.allocatable.cpu: 'many' is not a quantity" in error for error in reported
    ), reported


async def test_an_undecodable_pod_gets_a_condition_and_is_bound_once_it_is_valid(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.garbled[b'"7777m"'] = b'"a little"'
        it.add_nodes(node_object("n1", cpu="16"))
        it.add_pods(pod_object("web", cpu="7777m"), pod_object("other", cpu="1"))

        await it.until(lambda: it.node_of("other") == "n1")
        await it.until(lambda: it.condition("web").get("reason") == "SchedulerError")
        field = "spec.containers[0].resources.requests.cpu: 'a little' is not a quantity"
        assert field in it.condition("web")["message"]
        assert field in it.notes("web", "FailedScheduling")[0]

        it.garbled.clear()
        it.label_pod("web", mended="yes")

        await it.until(lambda: it.node_of("web") == "n1")


async def test_an_undecodable_gated_pod_gets_a_condition_once_its_gates_are_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.garbled[b'"7777m"'] = b'"a little"'
        it.add_nodes(node_object("n1", cpu="16"))
        it.add_pods(pod_object("web", cpu="7777m", gates=("example.com/quota",)))
        await it.until(lambda: daemon.parts.cache.table.n_nodes)
        await asyncio.sleep(60)
        assert it.condition("web")["reason"] == "SchedulingGated"
        assert not it.notes("web", "FailedScheduling")

        it.server.store.patch("pods", "web", {"spec": {"schedulingGates": []}})

        await it.until(lambda: it.condition("web")["reason"] == "SchedulerError")


async def test_a_bound_pod_with_an_undecodable_update_keeps_using_its_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="8"))
        it.add_pods(pod_object("web", cpu="7777m"))
        await it.until(lambda: daemon.parts.cache.counts() == {"nodes": 1, "pods": 1, "assumed_pods": 0})

        it.garbled[b'"7777m"'] = b'"odd"'
        it.label_pod("web", seen="no")
        it.add_pods(pod_object("other", cpu="2"))

        await it.until(lambda: it.condition("other"))
        assert it.condition("other")["message"].startswith("0/1 nodes are available: 1 Insufficient cpu. ")


def test_a_claim_with_an_undecodable_update_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            it.garbled[b'"size":"7"'] = b'"size":7'
            it.server.store.create("persistentvolumeclaims", claim("data"))
            it.server.store.create("persistentvolumeclaims", claim("odd", annotations={"size": "7"}))
            known = daemon.parts.cache.table.objects("v1/persistentvolumeclaims")
            assert known is not None
            await it.until(lambda: known)

            it.server.store.patch("persistentvolumeclaims", "data", {"metadata": {"labels": {"size": "7"}}})
            await asyncio.sleep(1)

            assert set(known) == {"default/data"}
            assert "labels" not in known["default/data"]["metadata"]

    with caplog.at_level(logging.WARNING):
        virtual_time.run(scenario())

    reported = {vars(record).get("error", "") for record in caplog.records}
    for name, field in (("data", "labels"), ("odd", "annotations")):
        problem = f"metadata.{field}[...]: expected `str`, got `int`"
        assert f"PersistentVolumeClaim default/{name}: {problem}" in reported


async def test_a_node_without_status_and_labels_gets_no_pods_and_does_no_harm(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}, node_object("n1"))
        it.add_pods(pod_object("web", cpu="1"))

        await it.until(lambda: it.node_of("web") == "n1")

        assert daemon.parts.cache.table.n_nodes == 2


async def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        node, pod = node_object("n1"), pod_object("web", cpu="1")
        node["spec"]["fieldOfTheFuture"] = {"a": [1, None]}
        pod["spec"]["fieldOfTheFuture"] = [[{}]]
        it.add_nodes(node)
        it.add_pods(pod)

        await it.until(lambda: it.node_of("web") == "n1")


async def test_a_pod_bound_to_a_node_that_comes_later_counts_once_it_is_there(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_pods(pod_object("early", cpu="3", node="late"))
        await it.until(lambda: daemon.parts.cache.counts()["pods"] == 1)
        it.add_nodes(node_object("late", cpu="4"))
        it.add_pods(pod_object("web", cpu="2"))

        await it.until(lambda: it.condition("web"))
        await asyncio.sleep(1)

        assert it.condition("web")["message"].startswith("0/1 nodes are available: 1 Insufficient cpu. ")


_DEEP = b'{"f:a":' * 5000 + b"{}" + b"}" * 5000


async def test_objects_with_deeply_nested_managed_fields_do_no_harm(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        version = b'"resourceVersion":'
        it.garbled[version] = b'"managedFields":[{"fieldsV1":' + _DEEP + b"}]," + version
        it.add_nodes(node_object("n1", cpu="16"))
        it.add_pods(pod_object("before"))
        for name in ("first", "second"):  # it also starts again
            async with it.daemon() as daemon:
                it.server.store.create("services", service(name))
                it.add_pods(pod_object(name))
                await it.until(lambda name=name: it.node_of("before") and it.node_of(name))
                known = daemon.parts.cache.table.objects("v1/services")
                assert known is not None
                await it.until(lambda known=known, name=name: f"default/{name}" in known)
                assert "managedFields" not in known[f"default/{name}"]["metadata"]


async def test_a_pod_that_nests_too_deeply_gets_a_condition_and_is_bound_later(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.garbled[b'"odd":"7"'] = b'"odd":' + _DEEP
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("web", labels={"odd": "7"}), pod_object("other"))

        await it.until(lambda: it.node_of("other") == "n1")
        await it.until(lambda: it.condition("web").get("reason") == "SchedulerError")
        assert it.condition("web")["message"] == "Pod default/web: nests too deeply"
        assert it.notes("web", "FailedScheduling") == ["Pod default/web: nests too deeply"]

        it.label_pod("web", odd="8")

        await it.until(lambda: it.node_of("web") == "n1")


def service(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
