"""The victims for a group, compared with reprieving units one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.preemption.disruption_budgets import DisruptionBudgets
from plugins.preemption.preempting import NO_VICTIMS, STILL_UNSCHEDULABLE, _split, choose_victims
from plugins.preemption.ranking import Unit, VictimUnits
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import PodGroup, Status
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.loop_work import run_to_end
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.testing.fakes import FakePodGroups
from tests.support.builders import node, pod
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


@given(
    priorities=st.lists(st.integers(0, 5), max_size=12),
    enough=st.lists(st.frozensets(st.integers(0, 11), max_size=5), max_size=4),
)
def test_units_that_cannot_be_returned_one_by_one_are_evicted(
    priorities: list[int], enough: list[frozenset[int]]
) -> None:
    """The group fits if one of some sets of pods has left, whichever other pods have left too."""
    pods = [pod(f"v{number}", priority=each, node="n") for number, each in enumerate(priorities)]
    units = sorted((Unit((each,), each.priority) for each in pods), key=lambda unit: unit.importance)

    def fits(away: Sequence[PodInfo]) -> bool:
        gone = {each.name for each in away}
        return any({f"v{number}" for number in some} <= gone for some in enough)

    class DryRuns(WithoutSlices):
        def snapshot(self) -> Snapshot:
            return snapshot_of()

        async def fits_without(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
            return frozenset({"n"}) if fits(pods) else None

    found = asyncio.run(choose_victims(units, [pod("m")], DisruptionBudgets(), DryRuns()))

    if not units or not fits(pods):
        assert isinstance(found, Status)
        assert found.message == (STILL_UNSCHEDULABLE if units else NO_VICTIMS)
        return
    left = list(units)
    for unit in units:  # the most important unit is reprieved first
        others = [each for each in left if each is not unit]
        if fits([each.pods[0] for each in others]):
            left = others
    assert not isinstance(found, Status)
    assert {each.name for each in found} == {each.pods[0].name for each in left}


def test_violated_budgets_are_found_pod_by_pod() -> None:
    units = [Unit(tuple(pod(f"v{number}-{other}") for other in range(3)), 1) for number in range(20)]

    steps = _split(units, DisruptionBudgets())

    assert sum(1 for _ in steps) == 60


@pytest.mark.parametrize(("is_entity", "expected"), [(True, 7), (False, 3)])
def test_a_pod_that_leaves_alone_has_the_priority_of_its_group(*, is_entity: bool, expected: int) -> None:
    key = GroupKey(POD_GROUPS, "default", "g")
    one = pod("one", priority=3, node="n", scheduling_group={"podGroupName": "g"})
    groups = FakePodGroups()
    groups.groups[key] = PodGroup(key, "uid", priority=7, is_entity=is_entity)
    units = run_to_end(VictimUnits(PodGroups(), groups).of(snapshot_of(node("n"), pods=[one])))

    assert [unit.priority for unit in units] == [expected]


def test_a_whole_group_of_one_pod_is_as_important_as_a_pod_of_another_group() -> None:
    """By kube-scheduler v1.37, preemption/util.go, MoreImportantVictim, and types.go, NewPodVictim: then the start decides."""

    def member(group: str, second: int) -> PodInfo:
        began = {"startTime": f"2026-01-01T00:00:0{second}Z"}
        return pod(group, node="n", scheduling_group={"podGroupName": group}, status=began)

    alone = Unit((member("g", 1),), 0)
    whole = Unit((member("h", 2),), 0, is_group=True)
    larger = Unit((member("i", 3), member("i", 4)), 0, is_group=True)
    single = Unit((pod("p", node="n", status={"startTime": "2026-01-01T00:00:00Z"}),), 0)

    ranked = sorted([single, whole, alone, larger], key=lambda unit: unit.importance)

    assert ranked == [larger, alone, whole, single]
