"""minCount of a PodGroup may change since Kubernetes 1.37: a lower one wakes the pods that wait for others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from plugins.gang_scheduling import GangArgs, GangScheduling, PodGroupObject
from scheduler.configuration.feature_gates import features_of
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import ActionType, EventResource, QueueingHint
from scheduler.objects.decode import typed_object
from scheduler.objects.pod_group import POD_GROUPS
from scheduler.testing.fakes import FakeApi, FakeBackground
from tests.support.builders import pod


def group_object(min_count: int | None) -> dict[str, Any]:
    policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": policy}}


class Gang:
    """A gang with two pods."""

    def __init__(self, version: str, now: dict[str, Any]) -> None:
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
            features=features_of({}, version),
            background=FakeBackground(),
            statuses=FakeApi(),
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
