"""Groups with GenericWorkload and without GangScheduling: their pods are tried together, and none is a gang.

Source:
    kube-scheduler v1.36, schedule_one.go, ScheduleOne, and its test podgroup/topology_aware_scheduling/tas_test.go.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.groups.gangs import (
    POD_GROUPS,
    condition,
    in_one_rack,
    member,
    members,
    placed,
    pod_group,
    racks,
    told,
)
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BY_GATE = HEAD + "featureGates: {GangScheduling: false}\n"
BY_PROFILE = HEAD + "profiles:\n- plugins: {multiPoint: {disabled: [{name: GangScheduling}]}}\n"
WITHOUT_TOPOLOGY = HEAD + "featureGates: {GangScheduling: false, TopologyAwareWorkloadScheduling: false}\n"
WITHOUT_GROUPS = HEAD + "featureGates: {GenericWorkload: false}\n"

without_gangs = pytest.mark.parametrize("configuration", [BY_GATE, BY_PROFILE], ids=["by gate", "by profile"])


@without_gangs
async def test_a_group_with_a_topology_constraint_stays_in_one_domain(
    tmp_path: Path, configuration: str
) -> None:
    """Two of the three pods fit on one rack; the third waits, though the other rack is free."""
    async with cluster(tmp_path) as it, it.daemon(configuration):
        it.add_nodes(*racks(a="2", b="2"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 0))
        it.add_pods(*members("g", 3))
        await it.until(lambda: len(placed(it)) == 2)
        await it.until(lambda: condition(it, "g") == ("True", "Scheduled", ""))
        await asyncio.sleep(20)

        (waiting,) = {"g-0", "g-1", "g-2"} - placed(it)
        assert len({it.node_of(name) for name in placed(it)}) == 1
        assert told(it, waiting).startswith("0/1 nodes are available: 1 Insufficient cpu.")


@without_gangs
async def test_the_fuller_domain_is_chosen(tmp_path: Path, configuration: str) -> None:
    """1 of 4 cpus is more than 1 of 6."""
    async with cluster(tmp_path) as it, it.daemon(configuration):
        it.add_nodes(*racks(a="6", b="4"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 0))
        it.add_pods(*members("g", 3))
        await it.until(lambda: len(placed(it)) == 3)

        assert {it.node_of(f"g-{number}") for number in range(3)} == {"b"}


@without_gangs
async def test_min_count_has_no_effect(tmp_path: Path, configuration: str) -> None:
    """Neither PreEnqueue holds the pods back, nor Permit."""
    async with cluster(tmp_path) as it, it.daemon(configuration):
        it.add_nodes(*racks(a="1"))
        it.server.store.create(POD_GROUPS, pod_group("g", 3))
        it.add_pods(*members("g", 2))
        await it.until(lambda: len(placed(it)) == 1)
        await it.until(lambda: condition(it, "g") == ("True", "Scheduled", ""))


@without_gangs
async def test_a_group_without_any_fitting_pod_reports_it(tmp_path: Path, configuration: str) -> None:
    async with cluster(tmp_path) as it, it.daemon(configuration):
        it.add_nodes(*racks(a="2", b="2"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 0))
        it.add_pods(*members("g", 2, cpu="3"))
        await it.until(lambda: condition(it, "g")[:2] == ("False", "Unschedulable"))

        assert not placed(it)
        assert condition(it, "g")[2].startswith("0/2 placements are available, first placement status: ")


@without_gangs
async def test_the_pods_of_a_missing_group_fail_until_it_exists(tmp_path: Path, configuration: str) -> None:
    """TopologyPlacementGenerator needs the object."""
    async with cluster(tmp_path) as it, it.daemon(configuration):
        it.add_nodes(*racks(a="2"))
        it.add_pods(member("g", "web"))
        missing = 'podgroup.scheduling.k8s.io "g" not found'
        await it.until(lambda: told(it, "web") == missing)
        assert it.condition("web")["reason"] == "SchedulerError"

        it.server.store.create(POD_GROUPS, pod_group("g"))
        await it.until(lambda: it.node_of("web"))


@pytest.mark.parametrize(
    "configuration", [WITHOUT_TOPOLOGY, WITHOUT_GROUPS], ids=["no topology", "no groups"]
)
async def test_without_topology_nothing_reads_the_object(tmp_path: Path, configuration: str) -> None:
    async with cluster(tmp_path) as it, it.daemon(configuration):
        it.add_nodes(*racks(a="2"))
        it.add_pods(*members("g", 2))
        await it.until(lambda: len(placed(it)) == 2)


async def test_without_generic_workload_pods_are_tried_one_by_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(WITHOUT_GROUPS):
        it.add_nodes(*racks(a="1", b="1"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 3))
        it.add_pods(*members("g", 2))
        await it.until(lambda: len(placed(it)) == 2)
        assert {it.node_of("g-0"), it.node_of("g-1")} == {"a", "b"}
        assert condition(it, "g") == ("", "", "")
