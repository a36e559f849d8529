"""Groups in a running daemon: placed together or not at all; time is virtual."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.daemon.app.live_explain import live_explanation, live_groups
from scheduler.engine.queue.pod_places import Place
from scheduler.tools.simulator.faults import requests
from tests.integration.groups.gangs import (
    POD_GROUPS,
    RACK,
    add_gang,
    add_group,
    condition,
    fill,
    in_one_rack,
    member,
    members,
    placed,
    racks,
    told,
)
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path


IN_DOMAINS = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - {name: GangScheduling, args: {preemptInDomains: true}}
"""
FITS = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


async def test_a_gang_is_placed_as_a_whole_once_its_last_required_member_exists(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="4"))
        add_gang(it, "g", 2, 3)
        await asyncio.sleep(5)
        assert not placed(it)
        assert told(it, "g-0") == ""
        assert condition(it, "g") == ("", "", "")

        it.add_pods(member("g", "g-2"))
        await it.until(lambda: placed(it) == {"g-0", "g-1", "g-2"})
        await it.until(lambda: condition(it, "g") == ("True", "Scheduled", ""))


async def test_a_gang_that_does_not_fit_is_not_placed_at_all_and_reports_it_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        add_gang(it, "g", 3)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await asyncio.sleep(120)
        assert not placed(it)
        messages = sorted(told(it, f"g-{number}") for number in range(3))
        assert messages[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert messages[1:] == [FITS, FITS]
        assert condition(it, "g") == (
            "False",
            "Unschedulable",
            "pod group is unschedulable, No preemption victims found for incoming preemptor",
        )
        writes = [each for each in it.server.requests if "podgroups" in each.path and each.method == "PATCH"]
        assert len(writes) == 1
        assert daemon.cycles.attempts.noted < 10

        it.add_nodes(node_object("m", cpu="2"))
        await it.until(lambda: len(placed(it)) == 3)


async def test_a_condition_is_written_again_after_a_429_response(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="4"))
        it.server.faults.refuse(
            429,
            requests(verb="patch", resource="podgroups", subresource="status"),
            times=1,
            retry_after_seconds=7,
        )
        add_gang(it, "g", 3)
        await it.until(lambda: len(placed(it)) == 3)
        began = loop.time()
        await it.until(lambda: condition(it, "g")[0] == "True", seconds=10)
        assert loop.time() - began >= 6


async def test_preemption_for_a_gang_evicts_no_more_pods_than_needed(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(*(node_object(f"n{number}", cpu="2") for number in range(2)))
        it.add_pods(*(pod_object(f"low-{number}", cpu="1", priority=number) for number in range(4)))
        await it.until(lambda: len(placed(it)) == 4)
        add_gang(it, "g", 2, priority=1000)
        await it.until(lambda: {"g-0", "g-1"} <= placed(it))
        assert placed(it) == {"g-0", "g-1", "low-2", "low-3"}


async def test_no_pod_is_evicted_for_a_gang_that_does_not_fit_without_it_either(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(node_object("n", cpu="2"))
        it.add_pods(pod_object("low", cpu="1", priority=1), pod_object("high", cpu="1", priority=5000))
        await it.until(lambda: len(placed(it)) == 2)
        add_gang(it, "g", 2, priority=1000)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await asyncio.sleep(60)
        assert placed(it) == {"low", "high"}
        assert condition(it, "g")[2] == "pod group is unschedulable, pod group is unschedulable"


async def test_a_gang_goes_to_the_one_rack_that_holds_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(*racks(a="2", b="4", c="2"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 3))
        it.add_pods(*members("g", 3))
        await it.until(lambda: len(placed(it)) == 3)
        assert {it.node_of(f"g-{number}") for number in range(3)} == {"b"}


async def test_the_fuller_of_the_racks_that_hold_a_gang_is_chosen(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(*racks(a="6", b="4", c="8"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 3))
        it.add_pods(*members("g", 3))
        await it.until(lambda: len(placed(it)) == 3)
        assert {it.node_of(f"g-{number}") for number in range(3)} == {"b"}


async def test_a_gang_that_fits_in_no_rack_reports_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(*racks(a="2", b="2"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 3))
        it.add_pods(*members("g", 3))
        await it.until(lambda: condition(it, "g")[0] == "False")
        assert condition(it, "g")[2].startswith(
            "0/2 placements are available, first placement status: pod group is unschedulable"
        )
        assert not placed(it)


async def test_preemption_frees_one_rack_for_a_gang_with_a_topology_constraint(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon(IN_DOMAINS):
        it.add_nodes(*racks(a="2", b="2"))
        await fill(it, 4, priority=1)
        add_group(it, "g", 2, priority=1000, schedulingConstraints={"topology": [{"key": RACK}]})
        it.add_pods(*members("g", 2, priority=1000))
        await it.until(lambda: {"g-0", "g-1"} <= placed(it))
        assert len(placed(it)) == 4
        assert it.node_of("g-0") == it.node_of("g-1")


async def test_a_gang_that_fits_in_another_order_is_placed(tmp_path: Path) -> None:
    """The first pod, tried first, takes the only node that the second may go to."""
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("big", cpu="4", labels={"disk": "ssd"}), node_object("small", cpu="3"))
        add_group(it, "g", 2)
        picky = member("g", "picky", cpu="3")
        picky["spec"]["nodeSelector"] = {"disk": "ssd"}
        it.add_pods(member("g", "anywhere", cpu="2", priority=10), picky)
        await it.until(lambda: placed(it) == {"anywhere", "picky"})
        assert it.node_of("anywhere") == "small"
        assert (
            'custom_scheduler_podgroup_search_decisions_count{result="found"} 1'
            in daemon.metrics.text()[0].decode()
        )


async def test_a_gang_is_placed_even_if_its_first_member_must_take_a_lower_score(tmp_path: Path) -> None:
    """3 + 2 + 2 cpus fit on nodes of 4 and 3 in one way only, and the 3 scores best where the 2s have to go."""
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(node_object("four", cpu="4"), node_object("three", cpu="3"))
        add_group(it, "g", 3)
        it.add_pods(
            member("g", "three", cpu="3"), member("g", "two", cpu="2"), member("g", "two-too", cpu="2")
        )
        await it.until(lambda: len(placed(it)) == 3)
        assert it.node_of("three") == "three"


async def test_capacity_nominated_for_a_gang_is_kept_for_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(*(node_object(f"n{number}", cpu="1") for number in range(2)))
        for number in range(2):
            low = pod_object(f"low-{number}", cpu="1", priority=1)
            low["spec"]["terminationGracePeriodSeconds"] = 0 if number else 20
            it.add_pods(low)
        await it.until(lambda: len(placed(it)) == 2)
        add_gang(it, "g", 2, priority=1000)
        await it.until(lambda: len(placed(it)) == 1)  # one has left, the other takes its time
        it.add_pods(pod_object("thief", cpu="1", priority=2))
        await asyncio.sleep(5)
        assert it.node_of("thief") == ""
        await it.until(lambda: {"g-0", "g-1"} <= placed(it), seconds=90)
        assert "thief" not in placed(it)


async def test_explain_shows_the_last_attempt_of_a_group_and_its_place_in_the_queue(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(*racks(a="2", b="1"))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 3))
        it.add_pods(*members("g", 2))
        await it.until(lambda: daemon.parts.queue.count(Place.GATED) == 2)
        (gated,) = live_groups(daemon.parts, daemon.cycles.group_attempts, "default/g")["groups"]  # type: ignore[index]
        assert (gated["result"], gated["place"], gated["placed"]) == ("gated", "gated", 0)
        assert gated["message"] == "waiting for minCount pods from a gang to appear in scheduling queue"

        it.add_pods(member("g", "g-2"))
        await it.until(lambda: condition(it, "g")[0] == "False")
        (found,) = live_groups(daemon.parts, daemon.cycles.group_attempts, "default/g")["groups"]  # type: ignore[index]
        assert (found["result"], found["fits"], found["message"]) == (
            "unschedulable",
            2,
            condition(it, "g")[2],
        )
        assert {each["pod"]: each["message"] for each in found["members"]} == {
            f"default/g-{number}": told(it, f"g-{number}") for number in range(3)
        }
        assert [(each["name"], each["room"]) for each in found["placements"]] == [("a", 2), ("b", 1)]
        assert (found["place"], found["waitingGroups"]) == ("unschedulable", 1)
        assert "Node" in found["requeuingEvents"]["NodeResourcesFit"]
        pod = live_explanation(daemon, "default/g-0", daemon.parts.clock)
        assert pod is not None
        assert (pod["group"]["result"], pod["group"]["fits"], pod["group"]["members"]) == (
            "unschedulable",
            2,
            3,
        )
        text = daemon.metrics.text("")[0].decode()
        assert 'custom_scheduler_pending_podgroups{queue="unschedulable"} 1.0' in text
        assert live_groups(daemon.parts, daemon.cycles.group_attempts, "default/nobody") is None

        it.add_nodes(*racks(c="3"))
        await it.until(lambda: len(placed(it)) == 3)
        (found,) = live_groups(daemon.parts, daemon.cycles.group_attempts, "default/g")["groups"]  # type: ignore[index]
        assert (found["result"], found["place"], found["placed"]) == ("schedulable", None, 3)
        assert [each["name"] for each in found["placements"] if each["chosen"]] == ["c"]


async def test_a_gang_with_a_topology_constraint_waits_for_new_racks(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.server.store.create(POD_GROUPS, in_one_rack("g", 2))
        it.add_pods(*members("g", 2))
        await it.until(lambda: condition(it, "g")[2].startswith("no feasible placements found"))
        it.add_nodes(node_object("outside", cpu="4"))
        await asyncio.sleep(60)
        assert not placed(it)

        it.add_nodes(*racks(a="4"))
        await it.until(lambda: len(placed(it)) == 2)
        assert {it.node_of(f"g-{number}") for number in range(2)} == {"a"}


async def test_free_capacity_in_any_rack_requeues_a_gang(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon():
        it.add_nodes(
            node_object("a", cpu="9", labels={RACK: "a"}, taints=["dedicated=other:NoSchedule"]),
            node_object("b", cpu="2", labels={RACK: "b"}),
        )
        it.add_pods(pod_object("full", cpu="1", priority=5000))
        await it.until(lambda: len(placed(it)) == 1)
        it.server.store.create(POD_GROUPS, in_one_rack("g", 2))
        it.add_pods(*members("g", 2))
        await it.until(lambda: condition(it, "g")[0] == "False")
        await asyncio.sleep(30)
        it.server.store.delete("pods", "full", grace_period_seconds=0)
        await it.until(lambda: {"g-0", "g-1"} <= placed(it), seconds=30)


async def test_after_its_placed_member_ends_a_group_may_use_another_rack(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(*racks(a="4"), node_object("b", cpu="4", labels={RACK: "b", "pool": "large"}))
        it.server.store.create(POD_GROUPS, in_one_rack("g", 0))
        it.add_pods(member("g", "first", nodeName="a"), pod_object("other", nodeName="a"))
        it.add_pods(member("g", "second", nodeSelector={"pool": "large"}))
        await it.until(lambda: condition(it, "g")[0] == "False")
        it.server.store.delete("pods", "other", grace_period_seconds=0)
        await asyncio.sleep(30)
        assert daemon.parts.queue.place_of(it.pod("second")["metadata"]["uid"]) is Place.UNSCHEDULABLE
        it.server.store.delete("pods", "first", grace_period_seconds=0)
        await it.until(lambda: it.node_of("second") == "b", seconds=30)


async def test_a_recreated_pod_group_requeues_its_gang(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon():
        it.add_nodes(*racks(a="1", b="1"))
        add_gang(it, "g", 3)
        await it.until(lambda: condition(it, "g")[0] == "False")
        await asyncio.sleep(30)
        it.server.store.delete(POD_GROUPS, "g", "default")
        it.server.store.patch(POD_GROUPS, "g", {"metadata": {"finalizers": None}}, "default")
        add_group(it, "g", 2)
        await it.until(lambda: len(placed(it)) == 2, seconds=30)
