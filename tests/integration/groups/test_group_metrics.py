"""Metrics of groups as in Kubernetes 1.37: queues, preemption and placements; time is virtual.

The expected numbers follow from kube-scheduler v1.37, metrics/metrics.go, backend/queue/scheduling_queue.go and
framework/preemption/executor_test.go.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.integration.groups.gangs import member, members, placed
from tests.integration.groups.test_groups_as_in_1_37 import AS_1_37, PRIORITY, add_group, higher_members
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.unit.daemon.metrics.exposition import families

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon

ZONE = "topology.kubernetes.io/zone"


def shown(daemon: Daemon, name: str) -> dict[str, float]:
    """Return the series of a metric that are not 0, by their labels."""
    found = families(daemon.metrics.text()[0].decode()).get(name)
    series = {} if found is None else found.series
    return {each.removeprefix(name): number for each, number in series.items() if number}


def waiting(daemon: Daemon) -> tuple[dict[str, float], dict[str, float]]:
    return shown(daemon, "scheduler_pending_pods"), shown(daemon, "scheduler_queued_entities")


async def test_pods_wait_apart_without_their_group_and_as_one_entity_with_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37) as daemon:
        it.add_nodes(node_object("n", cpu="1"))
        it.add_pods(*members("g", 2), pod_object("big", cpu="9"))
        await asyncio.sleep(5)
        big = '{queue="unschedulable",type="pod"}'
        assert waiting(daemon) == ({'{queue="incomplete"}': 2, '{queue="unschedulable"}': 1}, {big: 1})

        add_group(it, "g", 3)
        await asyncio.sleep(5)
        gated = '{queue="gated",type="podgroup"}'
        assert waiting(daemon) == ({'{queue="gated"}': 2, '{queue="unschedulable"}': 1}, {big: 1, gated: 1})

        it.add_pods(member("g", "g-2"))
        await asyncio.sleep(5)
        rejected = '{queue="unschedulable",type="podgroup"}'
        assert waiting(daemon) == ({'{queue="unschedulable"}': 4}, {big: 1, rejected: 1})

        came = shown(daemon, "scheduler_queue_incoming_entities_total")
        failed = '{event="ScheduleAttemptFailure",queue="unschedulable"'
        assert (came[f'{failed},type="pod"}}'], came[f'{failed},type="podgroup"}}']) == (1, 1)
        assert came['{event="UnscheduledPodAdd",queue="active",type="pod"}'] == 1
        pods = shown(daemon, "scheduler_queue_incoming_pods_total")
        assert pods[f"{failed}}}"] == 4


async def test_versions_without_entities_show_no_queues_of_groups(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="1"))
        it.add_pods(*members("g", 2))
        await asyncio.sleep(5)
        assert waiting(daemon) == ({'{queue="gated"}': 2}, {})


async def test_a_preemption_for_a_group_counts_victims_budgets_and_groups_that_leave(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(AS_1_37) as daemon:
        it.add_nodes(node_object("n", cpu="4"))
        guard = {
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        it.server.store.create("poddisruptionbudgets.policy", guard)
        add_group(it, "whole", 2, disruptionMode="PodGroup")
        it.add_pods(*members("whole", 2), pod_object("guarded", cpu="1", labels={"app": "guarded"}))
        it.add_pods(pod_object("low", cpu="1"))
        await it.until(lambda: len(placed(it)) == 4)
        higher_members(it, "g", 4, min_count=4)
        await it.until(lambda: {f"g-{each}" for each in range(4)} <= placed(it))

        for name, expected in {
            "scheduler_workload_preemption_attempts_total": {'{result="Success"}': 1},
            "scheduler_preemption_pdb_violations_total": {'{preemptor="podgroup"}': 1},
            "scheduler_preemption_attempts_total": {},
        }.items():
            assert shown(daemon, name) == expected
        victims = shown(daemon, "scheduler_workload_preemption_victims")
        assert (victims["_count"], victims["_sum"]) == (1, 4)
        left = shown(daemon, "scheduler_preemption_workload_disruptions")
        assert (left['_count{preemptor="podgroup"}'], left['_sum{preemptor="podgroup"}']) == (1, 1)
        assert "_count" not in shown(daemon, "scheduler_preemption_victims")
        searched = shown(daemon, "scheduler_preemption_evaluation_duration_seconds")
        assert searched['_count{preemptor="podgroup",result="Success"}'] == 1
        points = shown(daemon, "scheduler_framework_extension_point_duration_seconds")
        point = 'extension_point="PodGroupPostFilter",profile="custom-scheduler",status="Success"'
        assert points[f"_count{{{point}}}"] == 1
        evicted = shown(daemon, "scheduler_preemption_execution_duration_seconds")
        assert evicted['_count{preemptor="podgroup",result="success"}'] == 1


async def test_a_preemption_for_a_pod_counts_the_groups_that_it_disrupts(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(AS_1_37) as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        add_group(it, "single", 1)
        it.add_pods(*members("single", 2))
        await it.until(lambda: len(placed(it)) == 2)
        it.add_pods(pod_object("high", cpu="2", priority=PRIORITY))
        await it.until(lambda: "high" in placed(it))

        left = shown(daemon, "scheduler_preemption_workload_disruptions")
        assert (left['_count{preemptor="pod"}'], left['_sum{preemptor="pod"}']) == (1, 2)
        victims = shown(daemon, "scheduler_preemption_victims")
        assert (victims["_count"], victims["_sum"]) == (1, 2)
        assert "_count" not in shown(daemon, "scheduler_workload_preemption_victims")
        searched = shown(daemon, "scheduler_preemption_evaluation_duration_seconds")
        assert searched['_count{preemptor="pod",result="Success"}'] == 1


async def test_placements_are_counted_as_they_are_tried(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(AS_1_37) as daemon:
        it.add_nodes(
            node_object("a1", cpu="1", labels={ZONE: "a"}),
            node_object("a2", cpu="1", labels={ZONE: "a"}),
            node_object("b", cpu="1", labels={ZONE: "b"}),
        )
        add_group(it, "g", 2, schedulingConstraints={"topology": [{"key": ZONE}]})
        it.add_pods(*members("g", 2))
        await it.until(lambda: placed(it) == {"g-0", "g-1"})

        profile = '{profile="custom-scheduler"}'
        assert shown(daemon, "scheduler_generated_placements_total") == {profile: 2}
        # The placement of zone b is too small for two pods, and is not tried.
        feasible = '{profile="custom-scheduler",result="feasible"}'
        assert shown(daemon, "scheduler_placement_evaluations_total") == {feasible: 1}
        seconds = shown(daemon, "scheduler_placement_evaluation_duration_seconds")
        assert seconds[f"_count{feasible}"] == 1
