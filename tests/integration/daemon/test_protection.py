"""Protection of running pods in a daemon: when it ends, when the preempting pod is tried again, and the explanations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.live_explain import live_explanation, live_groups
from tests.integration.groups.gangs import add_gang, fill, placed, running, told
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock, now

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

CLASSES = "priorityclasses.scheduling.k8s.io"
PROTECTED = "Pods that could be preempted are protected"


def profile(protection: str) -> str:
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args:
      protection: {protection}
"""


def priority_class(it: Cluster, value: int, **annotations: str) -> None:
    metadata = {"name": f"priority-{value}", "annotations": annotations}
    it.server.store.create(CLASSES, {"metadata": metadata, "value": value})


def urgent(name: str = "urgent", **fields: Any) -> dict[str, Any]:
    return pod_object(name, cpu="2", priority=10, **fields)


async def runs(it: Cluster, name: str) -> None:
    await it.until(lambda: it.pod(name).get("status", {}).get("startTime"))


async def test_a_pod_is_preempted_when_its_minimum_run_time_ends_without_another_event(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(profile("{}")) as daemon:
        priority_class(it, 1, **{"custom-scheduler.io/min-run-time": "45s"})
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("batch", cpu="2", priority=1))
        await runs(it, "batch")
        began = now()
        it.add_pods(urgent())
        await it.until(lambda: it.condition("urgent"))

        assert it.condition("urgent")["message"].endswith(f"0/1 nodes are available: 1 {PROTECTED}.")
        waiting = live_explanation(daemon, "default/urgent", LoopClock())
        running = live_explanation(daemon, "default/batch", LoopClock())
        assert waiting is not None
        assert running is not None
        protected = waiting["attempt"]["preemption"]["protected"]["n"]
        assert (protected["pod"], protected["by"]) == ("default/batch", "PriorityClass priority-1")
        assert running["now"]["protections"] == [{"cause": "preemption by priority", **protected}]

        await it.until(lambda: it.node_of("urgent"), seconds=120.0)
        assert 44.0 <= now() - began <= 80.0, "at most the longest backoff and the end of the pod later"
        assert daemon.metrics.registry.get_sample_value(
            "custom_scheduler_preemptions_prevented_total", {"protection": "min_run_time"}
        )


async def test_a_node_that_comes_within_the_delay_spares_the_victim(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(profile("{delay: 2m}")):
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("batch", cpu="2"))
        await runs(it, "batch")
        it.add_pods(urgent())
        await asyncio.sleep(90.0)
        assert "not eligible until 2m0s after the first attempt" in it.condition("urgent")["message"]
        it.add_nodes(node_object("added", cpu="2"))
        await it.until(lambda: it.node_of("urgent"))

        assert it.node_of("urgent") == "added"
        await asyncio.sleep(300.0)
        assert it.node_of("batch") == "n"


async def test_without_a_new_node_a_pod_preempts_when_the_delay_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(profile("{delay: 2m}")):
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("batch", cpu="2"))
        await runs(it, "batch")
        it.add_pods(urgent())
        began = now()
        await asyncio.sleep(119.0)
        assert it.node_of("batch") == "n"
        await it.until(lambda: it.node_of("urgent"))

        assert now() - began < 160.0


async def test_a_controller_loses_no_more_pods_in_an_hour_than_the_limit(tmp_path: Path) -> None:
    owner = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "name": "web",
        "uid": "uid-web",
        "controller": True,
    }
    async with (
        cluster(tmp_path, kubelet=True) as it,
        it.daemon(profile("{evictionsPerHour: {controller: 1}}")),
    ):
        for name in ("n", "m"):
            it.add_nodes(node_object(name, cpu="2"))
        for name in ("web-1", "web-2"):
            replica = pod_object(name, cpu="2")
            replica["metadata"]["ownerReferences"] = [owner]
            it.add_pods(replica)
            await runs(it, name)
        it.add_pods(urgent("first"))
        await it.until(lambda: it.node_of("first"))
        it.add_pods(urgent("second"))
        await asyncio.sleep(3000.0)
        assert PROTECTED in it.condition("second")["message"]
        await it.until(lambda: it.node_of("second"), seconds=900.0)


async def test_a_gang_preempts_when_enough_protections_have_ended(tmp_path: Path) -> None:
    nodes = (node_object("n", cpu="2"), node_object("m", cpu="2"))
    configuration = profile("{minRunTime: {preemption: 1m}}")
    async with running(tmp_path, *nodes, configuration=configuration, kubelet=True) as (it, daemon):
        await fill(it, 2, cpu="2")
        await asyncio.sleep(5.0)
        began = now()
        add_gang(it, "g", 2, cpu="2", priority=10)
        await it.until(lambda: told(it, "g-0"))

        answer = live_groups(daemon.parts, daemon.cycles.group_attempts, "default/g")
        assert answer is not None
        [group] = answer["groups"]
        assert PROTECTED in group["message"]
        assert group["protected"]["by"] == "minRunTime.preemption of the profile"
        await it.until(lambda: {"g-0", "g-1"} <= placed(it), seconds=200.0)
        assert now() - began > 50.0
