"""Gangs since Kubernetes 1.37: minCount may change, and a group may have its own preemption policy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from plugins.pod_groups.gang_scheduling import GangArgs, GangScheduling
from plugins.pod_groups.objects import PodGroupObject
from scheduler.configuration.feature_gates import features_of
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import ActionType, EventResource, QueueingHint
from scheduler.objects.decode import typed_object
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.testing.fakes import FakeActivator, FakeApi, FakeBackground, FakeWaitingPods, ManualClock
from tests.support.builders import pod


def group_object(min_count: int | None) -> dict[str, Any]:
    policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": policy}}


class Gang:
    """A gang with two pods."""

    def __init__(self, version: str, now: dict[str, Any], **gates: bool) -> None:
        found = typed_object(now, PodGroupObject)
        kind: Any = SimpleNamespace(typed=lambda _type, _key: found)
        objects: Any = SimpleNamespace(objects=lambda _kind: kind)
        members = PodGroups()
        self.pods = [pod(name, scheduling_group={"podGroupName": "g"}) for name in ("a", "b")]
        for each in self.pods:
            members.note_pending(each)
        self.plugin = GangScheduling(
            args=GangArgs(),
            objects=objects,
            members=members,
            features=features_of(gates, version),
            background=FakeBackground(),
            statuses=FakeApi(),
            clock=ManualClock(),
            waiting_pods=FakeWaitingPods(),
            activator=FakeActivator(),
        )
        self.now = now

    def hint_of_change(self, old: dict[str, Any]) -> QueueingHint | None:
        """Return the hint for a change of the group's object; None if the plugin does not register for it."""
        for event in self.plugin.events():
            watched = event.event
            if watched.resource == EventResource.of(POD_GROUPS) and ActionType.UPDATE in watched.action:
                assert event.hint is not None
                return event.hint(self.pods[0], old, self.now)
        return None


@pytest.mark.parametrize(
    ("old", "now", "expected"),
    [
        pytest.param(3, 2, QueueingHint.QUEUE, id="lower"),
        pytest.param(4, 3, QueueingHint.SKIP, id="lower, and still more than there are"),
        pytest.param(1, 2, QueueingHint.SKIP, id="higher"),
        pytest.param(2, 2, QueueingHint.SKIP, id="the same"),
        pytest.param(None, 2, QueueingHint.QUEUE, id="another policy"),
    ],
)
def test_a_lower_min_count_wakes_members(old: int | None, now: int, expected: QueueingHint) -> None:
    assert Gang("1.37", group_object(now)).hint_of_change(group_object(old)) is expected


def test_changes_of_a_group_wake_nobody_in_1_36() -> None:
    assert Gang("1.36", group_object(2)).hint_of_change(group_object(3)) is None


NEVER, LOWER = "Never", "PreemptLowerPriority"
SAME = "all pods in a single pod group should have the same preemption policy"


@pytest.mark.parametrize(
    ("is_on", "of_group", "of_pods", "expected"),
    [
        pytest.param(False, NEVER, (LOWER, LOWER), "", id="the group's policy is ignored without the gate"),
        pytest.param(False, None, (NEVER, LOWER), f"{SAME}, got {LOWER} and {NEVER}", id="pods differ"),
        pytest.param(
            True,
            NEVER,
            (LOWER, LOWER),
            f"{SAME} as the pod group's preemption policy, got {LOWER} and {NEVER}",
            id="pods differ from their group",
        ),
        pytest.param(
            True,
            None,
            (NEVER, NEVER),
            f"{SAME} as the pod group's preemption policy, got {NEVER} and {LOWER}",
            id="pods differ from the default of their group",
        ),
        pytest.param(True, NEVER, (NEVER, NEVER), "", id="the same"),
    ],
)
def test_pods_must_have_the_preemption_policy_of_their_group(
    is_on: bool, of_group: str | None, of_pods: tuple[str, str], expected: str
) -> None:
    now = group_object(2)
    if of_group is not None:
        now["spec"]["preemptionPolicy"] = of_group
    gang = Gang("1.37", now, PodGroupPreemptionPolicy=is_on)
    group = gang.plugin.pod_group(GroupKey(POD_GROUPS, "default", "g"))
    assert group is not None
    first, second = (pod(str(number), preemption_policy=each) for number, each in enumerate(of_pods))

    assert (gang.plugin.fault(group, first, first) or gang.plugin.fault(group, second, first)) == expected


@pytest.mark.parametrize(
    ("min_count", "placed", "left", "expected"),
    [
        pytest.param(3, 1, 1, "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining", id="too few"),
        pytest.param(3, 1, 2, "minCount (3) is not yet satisfied: 1 scheduled, 2 remaining", id="not yet"),
        pytest.param(3, 3, 2, "", id="enough"),
        pytest.param(None, 0, 1, "minCount (1) is not yet satisfied: 0 scheduled, 1 remaining", id="basic"),
    ],
)
def test_the_number_of_members_decides(min_count: int | None, placed: int, left: int, expected: str) -> None:
    gang = Gang("1.37", group_object(min_count))
    group = gang.plugin.pod_group(GroupKey(POD_GROUPS, "default", "g"))
    assert group is not None

    assert gang.plugin.too_few(group, placed, left) == expected
