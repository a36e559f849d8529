"""PodGroups of scheduler-plugins and of Volcano."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.pod_groups import coscheduling_objects
from plugins.pod_groups.coscheduling import Coscheduling, CoschedulingArgs
from plugins.pod_groups.coscheduling_objects import (
    Members,
    PodGroupObject,
    PodGroupStatuses,
    coscheduling_status,
    resource_gap,
    volcano_status,
)
from scheduler.configuration.load import parse
from scheduler.configuration.notes import ConfigurationNote
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.errors import ObjectError
from scheduler.objects.decode import typed_object
from scheduler.objects.pod_group import VOLCANO_POD_GROUPS, GroupKey
from scheduler.objects.quantity import amounts_text
from scheduler.snapshot import ClusterTable
from tests.support.builders import node, pod
from tests.support.counted_labels import lines_run
from tests.support.manifests import MANIFESTS
from tests.support.snapshots import snapshot_of
from tests.support.status_access import FakeStatusAccess

if TYPE_CHECKING:
    from collections.abc import Mapping


def group(min_member: int, **spec: Any) -> PodGroupObject:
    return typed_object(
        {"metadata": {"name": "g"}, "spec": {"minMember": min_member, **spec}}, PodGroupObject
    )


@pytest.mark.parametrize(
    ("before", "members", "phase"),
    [
        pytest.param("", Members(), "Pending", id="no pods"),
        pytest.param("Pending", Members(pending=2), "Pending", id="too few pods"),
        pytest.param("Pending", Members(pending=3), "Scheduling", id="enough pods"),
        pytest.param("Scheduling", Members(placed=3), "Scheduling", id="on nodes"),
        pytest.param("Scheduling", Members(pending=1, running=2), "Scheduling", id="too few run"),
        pytest.param("Scheduling", Members(running=3), "Running", id="enough run"),
        pytest.param("Running", Members(running=2, succeeded=1), "Running", id="some are done"),
        pytest.param("Running", Members(succeeded=3), "Finished", id="enough are done"),
        pytest.param("Running", Members(running=2, failed=1), "Failed", id="one failed"),
        pytest.param("Scheduling", Members(pending=2, failed=1), "Scheduling", id="one failed too early"),
        pytest.param("Running", Members(succeeded=3, failed=1), "Finished", id="enough are done, one failed"),
        pytest.param("Running", Members(), "Pending", id="no members"),
    ],
)
def test_phases_of_coscheduling(before: str, members: Members, phase: str) -> None:
    assert coscheduling_status(group(3), {"phase": before}, members)["phase"] == phase


def test_the_occupying_job_of_a_group_is_set_once() -> None:
    first = coscheduling_status(group(1), {}, Members(pending=1, occupied_by="default/job"))
    then = coscheduling_status(group(1), first, Members(pending=1, occupied_by="default/other"))
    assert then["occupiedBy"] == "default/job"


NOT_READY = "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"


@pytest.mark.parametrize(
    ("before", "members", "gap", "phase", "expected"),
    [
        pytest.param("", Members(), {"cpu": 1}, "Pending", ("NotEnoughTasks", "Not enough valid tasks for gang-scheduling, valid: 0, min: 3"), id="no capacity"),
        pytest.param("", Members(pending=2), {}, "Inqueue", ("NotEnoughTasks", NOT_READY), id="capacity"),
        pytest.param("", Members(pending=3), {"cpu": 1500}, "Inqueue", ("NotEnoughResources", "3/3 tasks in gang unschedulable: resource gap: cpu: 1500m"), id="pods and no capacity"),
        pytest.param("Inqueue", Members(), {"cpu": 1}, "Inqueue", ("NotEnoughTasks", "Not enough valid tasks for gang-scheduling, valid: 0, min: 3"), id="no capacity any longer"),
        pytest.param("Inqueue", Members(pending=3, refusal="full"), {}, "Inqueue", ("NotEnoughResources", "3/3 tasks in gang unschedulable: full"), id="refused"),
        pytest.param("Inqueue", Members(placed=3), {}, "Running", ("tasks in gang are ready to be scheduled", ""), id="on nodes"),
        pytest.param("Running", Members(pending=1, running=2, refusal="full"), {}, "Unknown", ("NotEnoughResources", "1/3 tasks in gang unschedulable: full"), id="one was lost"),
        pytest.param("Running", Members(running=1, succeeded=2), {}, "Running", ("tasks in gang are ready to be scheduled", ""), id="some are done"),
        pytest.param("Running", Members(succeeded=3), {}, "Completed", ("tasks in gang are ready to be scheduled", ""), id="all are done"),
        pytest.param("Running", Members(pending=1, succeeded=3), {}, "Running", ("tasks in gang are ready to be scheduled", ""), id="one is to come"),
    ],
)  # fmt: skip
def test_phases_of_volcano(
    before: str, members: Members, gap: Mapping[str, int], phase: str, expected: tuple[str, str]
) -> None:
    status, [condition] = volcano_status(group(3), {"phase": before}, members, gap)
    assert (status["phase"], condition["reason"], condition["message"]) == (phase, *expected)
    assert condition["type"] == ("Unschedulable" if condition["message"] else "Scheduled")


def test_tasks_below_their_minimum_are_named() -> None:
    wanted = group(2, minTaskMember={"master": 1, "worker": 2})
    assert wanted.min_count == 3
    assert wanted.short_of(["worker", "worker", "ps"]) == {"master": 0}
    assert not wanted.short_of(["worker", "master", "worker"])


AMOUNT = st.integers(min_value=0, max_value=8)


@given(
    nodes=st.lists(
        st.tuples(AMOUNT, st.lists(st.integers(min_value=1, max_value=4), max_size=3)), max_size=4
    ),
    cpus=AMOUNT,
    pods=st.integers(min_value=0, max_value=20),
)
def test_the_resource_gap_is_the_missing_amount_after_all_nodes(
    nodes: list[tuple[int, list[int]]], cpus: int, pods: int
) -> None:
    snapshot = snapshot_of(
        *(node(f"n{number}", cpu=f"{has}", pods=5) for number, (has, _) in enumerate(nodes)),
        pods=[
            pod(f"p{number}-{index}", cpu=f"{takes}", node=f"n{number}")
            for number, (_, taken) in enumerate(nodes)
            for index, takes in enumerate(taken)
        ],
    )
    missing_cpus, missing_pods = 1000 * cpus, pods
    for has, taken in nodes:
        missing_cpus -= max(0, 1000 * (has - sum(taken)))
        missing_pods -= 5 - len(taken)
    expected = {"cpu": missing_cpus, "pods": missing_pods}
    found = resource_gap({"cpu": 1000 * cpus, "pods": pods}, snapshot)
    assert found == {name: amount for name, amount in expected.items() if amount > 0}


def test_resources_that_no_node_has_are_missing_without_a_look_at_the_nodes() -> None:
    snapshot = snapshot_of(node("n", cpu="1"))
    asked = {f"example.com/r{number}": number for number in range(100)} | {"cpu": 1500}

    found = resource_gap(asked, snapshot)

    assert found == {name: amount for name, amount in asked.items() if amount} | {"cpu": 500}
    assert lines_run(lambda: resource_gap(asked, snapshot)) < 1000


@pytest.mark.parametrize(
    ("field", "most", "reason"),
    [
        ("minResources", 256, "at most 256 resources are expected, were 257"),
        ("minTaskMember", 1000, "at most 1000 tasks are expected, were 1001"),
    ],
)
def test_a_group_with_too_many_resources_or_tasks_is_invalid(field: str, most: int, reason: str) -> None:
    table = ClusterTable()
    groups = table.watch_kind(VOLCANO_POD_GROUPS)
    for name, count in (("most", most), ("more", most + 1)):
        spec = {"minMember": 1, field: {f"example.com/{number}": 1 for number in range(count)}}
        groups[f"default/{name}"] = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    unused: Any = None
    plugin = Coscheduling(args=CoschedulingArgs(), objects=TableObjects(table), members=unused, clock=unused)

    assert plugin.pod_group(GroupKey(VOLCANO_POD_GROUPS, "default", "most"))
    with pytest.raises(ObjectError, match=reason) as error:
        plugin.pod_group(GroupKey(VOLCANO_POD_GROUPS, "default", "more"))
    assert error.value.path == f"spec.{field}"


def test_amounts_are_written_in_readable_units() -> None:
    assert amounts_text({"memory": 4 << 30, "cpu": 1500, "nvidia.com/gpu": 2}) == (
        "cpu: 1500m, memory: 4Gi, nvidia.com/gpu: 2"
    )


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"permit_waiting_time_seconds": -1}, "permitWaitingTimeSeconds"),
        ({"pod_group_backoff_seconds": -1}, "podGroupBackoffSeconds"),
        ({"pod_group_reject_percentage": 101}, "podGroupRejectPercentage"),
        ({"on_partial_failure": "Shrug"}, "onPartialFailure"),
    ],
)
def test_invalid_arguments_are_named(args: dict[str, Any], path: str) -> None:
    assert [fault.path for fault in CoschedulingArgs(**args).faults()] == [path]


EXAMPLE = (MANIFESTS / "examples" / "gangs" / "scheduler.yaml").read_text()


def test_arguments_without_effect_are_accepted_with_a_note() -> None:
    text = EXAMPLE.replace(
        "permitWaitingTimeSeconds: 60",
        "{permitWaitingTimeSeconds: 10, podGroupBackoffSeconds: 5, podGroupRejectPercentage: 20}",
    )
    args = "profiles[0].pluginConfig[0].args"
    assert [note for note in parse(text).notes if note.path.startswith(args)] == [
        ConfigurationNote(
            f"{args}.podGroupBackoffSeconds",
            "has no effect: a group backs off as one, for as long as pods do",
        ),
        ConfigurationNote(
            f"{args}.podGroupRejectPercentage",
            "has no effect: a group is decided in one cycle, none waits half placed",
        ),
    ]


N_GROUPS = 500


class Groups:
    """A cluster with groups and without nodes."""

    def objects(self, kind: str) -> Any:
        return self

    def typed(self, kind: type, key: str) -> Any:
        return kind()

    def snapshot(self) -> Any:
        return None


async def test_statuses_of_many_groups_are_computed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, found_in = 0, Counter[int]()
    count = coscheduling_objects.counted

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def counting(pods: Any) -> Any:
        found_in[turn] += 1
        if found_in[turn] == 1:
            asyncio.get_running_loop().call_soon(next_turn)
        return count(pods)

    monkeypatch.setattr(coscheduling_objects, "counted", counting)
    monkeypatch.setattr(coscheduling_objects, "resource_gap", lambda *_: {})
    statuses = PodGroupStatuses(VOLCANO_POD_GROUPS, FakeStatusAccess({"default/p": pod("p")}, Groups()))
    objects: Any = {f"default/g{number}": {"metadata": {"uid": str(number)}} for number in range(N_GROUPS)}

    status_of = await statuses.status_of(objects)
    assert (
        found_in.total() == sum(status_of(key, obj) is not None for key, obj in objects.items()) == N_GROUPS
    )
    assert max(found_in.values()) <= 64
