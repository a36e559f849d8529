"""GangScheduling in Kubernetes 1.35: groups of Workloads, whose pods wait for each other at Permit.

Source:
    kube-scheduler v1.35, plugins/gangscheduling/gangscheduling.go; backend/workloadmanager/podgroupinfo.go.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from plugins.pod_groups.gang_scheduling import GangArgs, GangScheduling, WorkloadObject
from scheduler.configuration.feature_gates import features_of
from scheduler.framework import CycleState, EventResource, QueueingHint, Wait
from scheduler.objects.decode import typed_object
from scheduler.objects.pod_group import WORKLOADS, GroupKey
from scheduler.testing.fakes import (
    FakeActivator,
    FakeApi,
    FakeBackground,
    FakePodGroups,
    FakeWaitingPods,
    ManualClock,
)
from tests.support.builders import pod

GROUP = GroupKey(WORKLOADS, "default", "w/gang")


def workload(name: str = "w", namespace: str = "default", min_count: int = 2) -> dict[str, Any]:
    gang = {"name": "gang", "policy": {"gang": {"minCount": min_count}}}
    basic = {"name": "basic", "policy": {"basic": {}}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"podGroups": [gang, basic]}}


class Kind(dict[str, Any]):
    """The Workloads of a test."""

    def typed(self, type_: Any, key: str) -> Any:
        return typed_object(self[key], type_) if key in self else None


class Gang:
    """The plugin, and the pods `a`, `b` and `c` of a gang, by default in the queue."""

    def __init__(self, min_count: int = 2) -> None:
        self.workloads = Kind({"default/w": workload(min_count=min_count)})
        self.clock, self.waiting, self.activator = ManualClock(), FakeWaitingPods(), FakeActivator()
        self.groups = FakePodGroups()
        self.pods = {name: pod(name, workload_ref={"name": "w", "podGroup": "gang"}) for name in "abc"}
        self.groups.in_queue[GROUP] = [each.uid for each in self.pods.values()]
        self.groups.counts[GROUP] = 3
        objects: Any = SimpleNamespace(objects=lambda _kind: self.workloads)
        self.plugin = GangScheduling(
            args=GangArgs(),
            objects=objects,
            members=self.groups,
            features=features_of({}, "1.35"),
            background=FakeBackground(),
            statuses=FakeApi(),
            clock=self.clock,
            waiting_pods=self.waiting,
            activator=self.activator,
        )

    def permit(self, name: str) -> Any:
        """Ask Permit after a pod was assumed."""
        found = self.pods[name].placed_on("n")
        self.groups.on_nodes[GROUP] = [*self.groups.placed(GROUP), found]
        return self.plugin.permit(CycleState(), found, "n")

    def uids(self, names: str) -> list[str]:
        return [self.pods[name].uid for name in names]


def test_pods_are_tried_one_by_one_and_workloads_are_watched_instead_of_pod_groups() -> None:
    plugin = Gang().plugin

    assert plugin.group_kinds == frozenset()
    assert plugin.needs.kinds == {WORKLOADS}
    resources = [each.event.resource for each in plugin.events()]
    assert resources == [EventResource.POD, EventResource.WORKLOAD]


def test_the_first_member_with_a_node_waits_and_the_pending_ones_are_tried_at_once() -> None:
    it = Gang()

    assert it.permit("a") == Wait(300.0)
    assert it.activator.activated == it.uids("bc")
    assert not it.waiting.allowed


def test_the_member_that_completes_the_gang_releases_the_others() -> None:
    it = Gang(3)
    it.permit("a")
    it.permit("b")

    assert it.permit("c") is None
    assert sorted(it.waiting.allowed) == [(uid, "GangScheduling") for uid in sorted(it.uids("abc"))]


def test_all_members_wait_until_the_end_of_the_first_and_later_attempts_have_their_own_end() -> None:
    it = Gang(4)
    assert it.permit("a") == Wait(300.0)
    it.clock.now += 100
    assert it.permit("b") == Wait(200.0)
    it.clock.now += 200
    assert it.permit("c") == Wait(300.0)


def test_a_pod_of_a_basic_group_does_not_wait() -> None:
    it = Gang()
    basic = pod("x", workload_ref={"name": "w", "podGroup": "basic"})

    assert it.plugin.pre_enqueue(basic) is None
    assert it.plugin.permit(CycleState(), basic, "n") is None
    assert not it.activator.activated


@pytest.mark.parametrize(
    ("reference", "held", "error"),
    [
        (
            {"name": "v", "podGroup": "gang"},
            'waiting for pods\'s workload "v" to appear in scheduling queue',
            'failed to get workload default/v: workload.scheduling.k8s.io "v" not found',
        ),
        (
            {"name": "w", "podGroup": "other", "podGroupReplicaKey": "0"},
            'pod group "other" doesn\'t exist for a workload "w"',
            'pod group "other" doesn\'t exist for a workload "w"',
        ),
    ],
)
def test_a_pod_without_its_group_is_held_back_or_fails(reference: Any, held: str, error: str) -> None:
    it, lone = Gang(), pod("x", workload_ref=reference)

    before, at_permit = it.plugin.pre_enqueue(lone), it.plugin.permit(CycleState(), lone, "n")

    assert before is not None
    assert (before.is_rejected, before.message) == (True, held)
    assert not isinstance(at_permit, Wait)
    assert at_permit is not None
    assert (at_permit.is_rejected, at_permit.message) == (False, error)


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (workload(), QueueingHint.QUEUE),
        (workload("v"), QueueingHint.SKIP),
        (workload(namespace="other"), QueueingHint.SKIP),
    ],
)
def test_only_the_own_workload_wakes_a_pod(obj: dict[str, Any], expected: QueueingHint) -> None:
    it = Gang()
    of_workload = it.plugin.events()[1]
    assert of_workload.hint is not None
    assert of_workload.event_keys is not None
    assert of_workload.waits_for_keys is not None

    assert of_workload.hint(it.pods["a"], None, obj) is expected
    matches = {*(of_workload.event_keys(None, obj) or ())} & {
        *(of_workload.waits_for_keys(it.pods["a"]) or ())
    }
    assert bool(matches) == (expected is QueueingHint.QUEUE)


def test_a_workload_is_decoded_with_its_groups() -> None:
    found = typed_object(workload(), WorkloadObject)

    assert [(each.name, each.policy.gang is not None) for each in found.spec.pod_groups] == [
        ("gang", True),
        ("basic", False),
    ]
