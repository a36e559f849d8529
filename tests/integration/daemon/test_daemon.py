"""The daemon against the simulated API server, over HTTP, in virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_pod_of_ours_is_bound_with_an_event(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("web", cpu="1"))

        await it.until(lambda: it.node_of("web") == "n1")
        await it.until(lambda: it.notes("web", "Scheduled"))

        assert it.condition("web")["status"] == "True"
        assert it.notes("web", "Scheduled") == ["Successfully assigned default/web to n1"]


async def test_the_binding_carries_only_the_uid_of_the_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("web", cpu="1"))
        await it.until(lambda: it.node_of("web"))

        posted = [request for request in it.server.requests if request.path.endswith("/pods/web/binding")]

        assert [json.loads(request.body) for request in posted] == [
            {
                "kind": "Binding",
                "apiVersion": "v1",
                "metadata": {
                    "name": "web",
                    "namespace": "default",
                    "uid": it.pod("web")["metadata"]["uid"],
                },
                "target": {"kind": "Node", "name": "n1"},
            }
        ]


async def test_pods_of_other_schedulers_are_counted_and_not_changed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(
            pod_object("theirs", cpu="1", scheduler_name="default-scheduler"),
            pod_object("theirs-bound", cpu="3", scheduler_name="default-scheduler", node="n1"),
            pod_object("ours", cpu="2"),
        )

        await it.until(lambda: it.condition("ours"))

        assert it.node_of("theirs") == ""
        assert it.condition("theirs") == {}
        assert it.condition("ours")["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_an_unschedulable_pod_waits_with_its_reason_and_is_bound_once_it_fits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("small", cpu="1"))
        it.add_pods(pod_object("big", cpu="8"))
        await it.until(lambda: it.condition("big").get("reason") == "Unschedulable")
        message = it.condition("big")["message"]
        await it.until(lambda: it.notes("big", "FailedScheduling"))

        assert message == (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        assert it.notes("big", "FailedScheduling") == [message]
        await asyncio.sleep(3600)
        patches = [r for r in it.server.requests if r.method == "PATCH" and r.path.endswith("/status")]
        assert len(patches) == 1, "a reason that stays the same is patched once"

        it.add_nodes(node_object("large", cpu="16"))

        await it.until(lambda: it.node_of("big") == "large", seconds=1)


async def test_a_gated_pod_is_never_written_to_and_is_bound_once_its_gates_are_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("gated", cpu="1", gates=("example.com/quota",)))
        await asyncio.sleep(3600)
        assert it.node_of("gated") == ""
        assert not [r for r in it.server.requests if r.method != "GET"]

        gated = it.pod("gated")
        it.server.store.update("pods", {**gated, "spec": {**gated["spec"], "schedulingGates": []}})

        await it.until(lambda: it.node_of("gated") == "n1", seconds=1)


async def test_pods_are_placed_by_priority(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(
            pod_object("low", cpu="1", priority=1),
            pod_object("high", cpu="1", priority=1000),
            pod_object("middle", cpu="1", priority=10),
        )
        async with it.daemon():
            await it.until(lambda: it.condition("low") and it.condition("middle"))

        assert [it.node_of(name) for name in ("low", "middle", "high")] == ["", "", "n1"]


async def test_a_bind_with_a_lost_response_is_verified_and_not_repeated(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        await it.until(lambda: daemon.parts.cache.table.n_nodes == 1)
        it.server.faults.lose_answers(times=1)
        it.add_pods(pod_object("web", cpu="1"))

        await it.until(lambda: it.notes("web", "Scheduled"))

        assert it.node_of("web") == "n1"
        daemon.parts.cache.check()
        assert daemon.parts.cache.counts() == {"nodes": 1, "pods": 1, "assumed_pods": 0}


async def test_a_pod_deleted_while_it_waits_is_forgotten(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(pod_object("big", cpu="8"))
        await it.until(lambda: it.condition("big"))

        it.server.store.delete("pods", "big")

        await it.until(lambda: not list(daemon.parts.queue.pods()))


@pytest.mark.parametrize(("version", "changes"), [("1.34", 3), ("1.35", 1), ("1.36", 1)])
async def test_the_confirmation_of_a_pod_changes_no_row_from_1_35_on(
    tmp_path: Path, version: str, changes: int
) -> None:
    as_version = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nemulatedVersion: '{version}'\n"
    async with cluster(tmp_path) as it, it.daemon(as_version) as daemon:
        it.add_nodes(node_object("n", cpu="4", labels={"topology.kubernetes.io/zone": "a"}))
        await it.until(lambda: daemon.parts.cache.table.n_nodes == 1)
        log = daemon.parts.cache.table.changes
        before = log.end

        it.add_pods(*(pod_object(f"web-{number}", cpu="1") for number in range(3)))

        await it.until(lambda: len([pod for pod in daemon.parts.cache.pods() if pod.pod.spec.node_name]) == 3)
        assert [it.pod("web-0")["metadata"]["labels"]] == [{"topology.kubernetes.io/zone": "a"}]
        assert log.end - before == 3 * changes
