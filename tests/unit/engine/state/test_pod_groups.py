"""Membership of groups compared with recounted sets, over random histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.engine.state.pod_groups import PodGroups
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from tests.support.builders import pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

NAMES = st.sampled_from([f"p{number}" for number in range(5)])
GROUPS = st.sampled_from(["", "a", "b"])


class PodGroupsMachine(RuleBasedStateMachine):
    """The obvious model: each pod's group, for pending pods and for those on nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = PodGroups()
        self.pending: dict[str, str] = {}  # name -> group
        self.placed: dict[str, PodInfo] = {}

    @rule(name=NAMES, group=GROUPS)
    def is_in_the_queue(self, name: str, group: str) -> None:
        self.groups.note_pending(a_pod(name, group))
        self.pending[name] = group

    @rule(name=NAMES)
    def leaves_the_queue(self, name: str) -> None:
        self.groups.drop_pending(pod(name).uid)
        self.pending.pop(name, None)

    @rule(name=NAMES, group=GROUPS)
    def is_on_a_node(self, name: str, group: str) -> None:
        if name in self.placed:
            self.groups.drop_placed(self.placed[name])
        self.placed[name] = a_pod(name, group)
        self.groups.note_placed(self.placed[name])

    @rule(name=NAMES)
    def leaves_its_node(self, name: str) -> None:
        if name in self.placed:
            self.groups.drop_placed(self.placed.pop(name))

    @invariant()
    def is_as_counted_anew(self) -> None:
        self.groups.check()
        for name in ("a", "b"):
            key = GroupKey(POD_GROUPS, "default", name)
            pending = {pod(each).uid for each, group in self.pending.items() if group == name}
            placed = {each.uid for each in self.placed.values() if each.group == key}
            assert set(self.groups.pending(key)) == pending
            assert {each.uid for each in self.groups.placed(key)} == placed
            assert self.groups.count(key) == len(pending | placed)


def a_pod(name: str, group: str) -> PodInfo:
    return pod(name, schedulingGroup={"podGroupName": group}) if group else pod(name)


TestPodGroups = PodGroupsMachine.TestCase


def test_a_member_that_a_trial_leaves_out_has_no_node_and_counts() -> None:
    groups, bound, coming = PodGroups(), a_pod("p0", "a"), a_pod("p1", "a")
    for each in (bound, coming):
        groups.note_placed(each)
    groups.note_pending(coming)  # it is being bound
    key = GroupKey(POD_GROUPS, "default", "a")
    groups.leave_out(bound)
    groups.leave_out(coming)
    assert (len(groups.placed(key)), groups.count(key)) == (0, 2)

    groups.drop_pending(coming.uid)  # by now it is bound
    assert groups.count(key) == 2
    groups.note_placed(bound)
    groups.note_placed(coming)
    assert (len(groups.placed(key)), groups.count(key)) == (2, 2)
    groups.check()
