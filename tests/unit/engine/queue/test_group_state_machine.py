"""Random sequences of changes of groups: the queue must behave like the slow and obvious model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.engine.queue import Place
from scheduler.framework.events import NODE_ADD, pod_changes
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import Cluster
from tests.unit.engine.queue.slow_groups import INITIAL, MOST, SlowGroups

if TYPE_CHECKING:
    from scheduler.framework import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

GROUPS, NAMES = "gh", "abc"
LARGE = node("large", labels={"size": "9"})
PODS: dict[tuple[str, str, bool], PodInfo] = {}  # decoded once, for speed


def a_pod(group: str, name: str, *, gated: bool = False) -> PodInfo:
    key = (group, name, gated)
    if key not in PODS:
        fields = {"gates": ["one"]} if gated else {}
        PODS[key] = pod(f"{group}-{name}", schedulingGroup={"podGroupName": group}, **fields)
    return PODS[key]


class GroupMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.cluster = Cluster(initial_backoff_seconds=INITIAL, max_backoff_seconds=MOST)
        self.cluster.has_entities = True
        self.queue = self.cluster.queue
        self.slow = SlowGroups()
        self.tried: dict[str, dict[str, QueuedPodInfo]] = {}  # group -> name -> pod of the running attempt
        self.gone: set[tuple[str, str]] = set()  # deleted during an attempt that is still running

    @property
    def now(self) -> float:
        return self.cluster.clock.now

    @rule(
        group=st.sampled_from(GROUPS),
        name=st.sampled_from(NAMES),
        gated=st.sampled_from([False, False, True]),
    )
    def add(self, group: str, name: str, gated: bool) -> None:
        if not (self.slow.knows(group, name) or (group, name) in self.gone):
            self.queue.add(a_pod(group, name, gated=gated))
            self.slow.add(group, name, gated=gated, now=self.now)

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES))
    def delete(self, group: str, name: str) -> None:
        if self.slow.knows(group, name):
            if name in self.tried.get(group, ()):
                self.gone.add((group, name))
            self.queue.delete(a_pod(group, name))
            self.slow.delete(group, name, self.now)

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES))
    def admit(self, group: str, name: str) -> None:
        known = self.slow.groups.get(group)
        if known is not None and known.gated.get(name):
            old, new = a_pod(group, name, gated=True), a_pod(group, name)
            self.queue.update(old, new, pod_changes(old, new))
            self.slow.admit(group, name, self.now)

    @rule()
    def pop(self) -> None:
        while (first := self.queue.pop()) is not None:
            group = first.pod.name[0]
            model = self.slow.groups[group]
            members = self.cluster.popped_with(first)
            assert model.place == "active", f"{group} is {model.place}"
            if members:
                assert model in self.slow.may_pop(), f"it is not the turn of {group}"
                assert {each.pod.name[2:] for each in members} == set(model.gated)
                self.tried[group] = {each.pod.name[2:]: each for each in members}
                self.slow.pop(model)
                return
            assert model.is_gated, f"{group} was not tried"
            model.place = "held"
        assert not self.slow.may_pop()

    @precondition(lambda self: self.tried)
    @rule(data=st.data(), rejector=st.sampled_from(["Fit", "Taints", ""]))
    def come_back(self, data: st.DataObject, rejector: str) -> None:
        group = data.draw(st.sampled_from(sorted(self.tried)))
        left = sorted(self.slow.groups[group].popped)
        if left:
            self.return_one(group, data.draw(st.sampled_from(left)), rejector)

    def return_one(self, group: str, name: str, rejector: str) -> None:
        queued, plugins = self.tried[group][name], [rejector] if rejector else []
        self.queue.add_unschedulable(queued, unschedulable_plugins=plugins, is_error=not rejector)
        self.slow.come_back(group, name, rejector)

    @precondition(lambda self: self.slow.may_pop() or self.tried)
    @rule(rejector=st.sampled_from(["Fit", "Taints", ""]), late=st.sampled_from([*NAMES, ""]))
    def a_whole_group_fails(self, rejector: str, late: str) -> None:
        """Move groups to the interesting places."""
        if not self.tried:
            self.pop()
        group = next(iter(self.tried))
        if late:
            self.add(group, late, gated=False)
        for name in sorted(self.slow.groups[group].popped):
            self.return_one(group, name, rejector)
        self.end_one(group, is_placed=False)

    @precondition(lambda self: self.tried)
    @rule(data=st.data(), is_placed=st.booleans())
    def end(self, data: st.DataObject, is_placed: bool) -> None:
        self.end_one(data.draw(st.sampled_from(sorted(self.tried))), is_placed=is_placed)

    def end_one(self, group: str, *, is_placed: bool) -> None:
        self.gone = {each for each in self.gone if each[0] != group}
        for name, queued in self.tried.pop(group).items():
            if name not in self.slow.groups[group].rejectors:
                self.queue.done(queued.pod.uid)  # it is placed, or deleted
        self.cluster.end_group(group, is_placed=is_placed)
        self.slow.end(group, is_placed=is_placed, now=self.now)

    @rule()
    def happen(self) -> None:
        self.queue.move_all(NODE_ADD, None, LARGE)
        self.slow.happen(self.now)

    @rule(seconds=st.sampled_from([0.25, 1.0, 1.75, 4.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.clock.advance(seconds)
        self.queue.flush(self.now)
        self.slow.flush(self.now)

    @invariant()
    def always(self) -> None:
        self.queue.check()
        for group, model in self.slow.groups.items():
            if model.place == "in flight":
                continue
            pods = [self.queue.get(f"uid-of-default-{group}-{name}") for name in model.gated]
            counts = {(each.unschedulable_count, each.consecutive_errors_count) for each in pods}
            assert counts == {(model.rejections, model.errors)}, group
            if model.rejections or model.errors:
                assert {each.timestamp for each in pods} == {model.timestamp}
            places = {self.queue.place_of(each.pod.uid) for each in pods}
            if model.place == "backoff" and not model.is_gated:
                assert Place.BACKOFF in places
                assert Place.ACTIVE not in places
        known = {
            f"{group}-{name}"
            for group, model in self.slow.groups.items()
            for name in {*model.gated, *model.popped, *model.rejectors}
        }
        waiting = {each.pod.name for each in self.queue.pods() if self.queue.newest(each.pod.uid) is not None}
        assert waiting == known


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=100, stateful_step_count=50, deadline=None, derandomize=True)
