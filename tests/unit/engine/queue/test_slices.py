"""The queue works in time slices and keeps the order of events: each pod is checked against each event exactly once."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.queue import Place
from scheduler.framework import ActionType, ClusterEvent, EventResource
from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE_ADD
from tests.support.builders import node, pod
from tests.support.manual_clock import ManualClock
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_LABEL, NODE_TAINT, PVC_ADD, Cluster

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

LARGE, SMALL = node("n1", labels={"size": "9"}), node("n2", labels={"size": "1"})
STEP = 2**-20
RETRIED = {Place.ACTIVE, Place.BACKOFF}


class TickingClock(ManualClock):
    """A clock that advances a step at every reading."""

    def monotonic(self) -> float:
        self.now += STEP
        return self.now


class SlicedCluster(Cluster):
    """A queue that does the given number of steps in each slice."""

    def __init__(self, steps: float, **options: Any) -> None:
        super().__init__(TickingClock(1000.0), slice_seconds=steps * STEP, **options)

    def retried(self) -> set[str]:
        return {each.pod.name for each in self.queue.pods() if self.queue.place_of(each.pod.uid) in RETRIED}

    def turn(self) -> None:
        self.queue.work(self.clock.now)
        self.queue.check()

    def turns(self) -> int:
        """Run slices until nothing is left; return their number."""
        count = 0
        while self.queue.backlog:
            self.turn()
            count += 1
            assert count < 1000, "it never ends"
        return count


def waiting(cluster: Cluster, count: int, *plugins: str, size: int = 5) -> list[PodInfo]:
    pods = [pod(f"w{number}", labels={"size": str(size)}) for number in range(count)]
    for each in pods:
        cluster.reject(each, *plugins)
    return pods


def test_an_event_for_many_pods_is_processed_in_slices() -> None:
    cluster = SlicedCluster(20)
    waiting(cluster, 50, "Taints")

    moved = cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)

    assert 0 < moved < 50
    assert cluster.queue.backlog == 1
    assert cluster.queue.next_deadline(cluster.clock.now) == cluster.clock.now
    assert cluster.turns() > 2
    assert len(cluster.retried()) == 50


@pytest.mark.parametrize("is_error", [True, False], ids=["after a backoff", "unschedulable for too long"])
def test_pods_whose_time_has_come_move_in_slices(is_error: bool) -> None:
    cluster = SlicedCluster(20)
    pods = [pod(f"w{number}") for number in range(50)]
    for each in pods:
        _ = cluster.fail(each) if is_error else cluster.reject(each, "Taints")
    cluster.clock.advance(400)

    done, slices = 0, 0
    while done < 50:
        before = done
        cluster.turn()
        places = [cluster.queue.place_of(each.uid) for each in pods]
        done = places.count(Place.ACTIVE) + (0 if is_error else places.count(Place.BACKOFF))
        assert before < done < before + 25
        slices += 1
        assert done == 50 or cluster.queue.next_deadline(cluster.clock.now) == cluster.clock.now
    assert slices > 2


def test_events_are_processed_in_the_order_of_arrival() -> None:
    cluster = SlicedCluster(20)
    waiting(cluster, 50, "Taints", "Volumes")

    cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)
    assert cluster.queue.move_all(PVC_ADD) == 0
    cluster.turns()

    assert {event for place, event in cluster.counts.came_in if place in {"active", "backoff"}} >= {
        "NodeUpdateNodeTaint"
    }
    assert not [event for place, event in cluster.counts.came_in if event == PVC_ADD.label]


def test_a_pod_is_not_tested_against_events_before_its_rejection() -> None:
    cluster = SlicedCluster(20)
    waiting(cluster, 50, "Taints")
    cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)
    cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)
    assert cluster.queue.backlog == 2

    late = pod("late", priority=10)
    cluster.reject(late, "Taints")
    cluster.turns()

    assert cluster.queue.place_of(late.uid) is Place.UNSCHEDULABLE
    assert len(cluster.retried()) == 50


def test_a_pod_in_flight_is_tested_against_an_unprocessed_event() -> None:
    cluster = SlicedCluster(20)
    late = pod("late", priority=10)
    waiting(cluster, 50, "Taints")
    cluster.queue.add(late)
    queued = cluster.pop()
    cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)
    assert cluster.queue.backlog

    assert cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Taints"]) in RETRIED


def test_a_new_version_of_a_pod_is_tested_against_unprocessed_events() -> None:
    cluster = SlicedCluster(20)
    pods = waiting(cluster, 50, "Taints", "Labels", size=5)
    cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)
    last = pods[-1]
    assert cluster.queue.place_of(last.uid) is Place.UNSCHEDULABLE

    cluster.update(last, pod("w49", labels={"size": "5"}, annotations={"new": "1"}))

    assert cluster.queue.place_of(last.uid) in RETRIED
    cluster.turns()
    assert len(cluster.retried()) == 50


def test_a_new_version_is_tried_and_not_tested_against_very_many_events() -> None:
    cluster = SlicedCluster(20)
    pods = waiting(cluster, 50, "Taints", "Labels", size=5)
    for _ in range(100):
        cluster.queue.move_all(NODE_TAINT, SMALL, SMALL)
    last = pods[-1]
    assert cluster.queue.backlog > 64
    cluster.counts.hints.clear()

    cluster.update(last, pod("w49", labels={"size": "5"}, annotations={"new": "1"}))

    assert cluster.queue.place_of(last.uid) in RETRIED
    assert not cluster.counts.hints


def test_a_pod_excluded_from_an_event_is_not_tested_after_an_update() -> None:
    cluster = SlicedCluster(20)
    pods = waiting(cluster, 50, "Labels")
    last = pods[-1]
    gone = pod("gone")
    cluster.queue.move_all(ASSIGNED_POD_DELETE, gone, None, lambda each: each.name != "w49")
    assert cluster.queue.place_of(last.uid) is Place.UNSCHEDULABLE

    cluster.update(last, pod("w49", labels={"size": "5"}, annotations={"new": "1"}))
    cluster.turns()

    assert cluster.queue.place_of(last.uid) is Place.UNSCHEDULABLE
    assert len(cluster.retried()) == 49


def test_a_reload_evaluates_in_slices_and_drops_earlier_events() -> None:
    cluster = SlicedCluster(20)
    waiting(cluster, 50, "Volumes")
    cluster.queue.move_all(PVC_ADD)
    assert cluster.queue.backlog == 1

    cluster.queue.reload(initial_backoff_seconds=1.0, max_backoff_seconds=10.0)
    assert cluster.queue.backlog == 1
    late = pod("late", priority=10)
    cluster.reject(late, "Taints")
    cluster.turns()

    assert len(cluster.retried()) == 50
    assert cluster.queue.place_of(late.uid) is Place.UNSCHEDULABLE


def test_identical_pods_are_evaluated_once() -> None:
    cluster = Cluster()
    with_size = cluster.profiles["custom-scheduler"] = dict(cluster.profiles["custom-scheduler"])
    fits = with_size["Fit"][0]
    with_size["Fit"] = [type(fits)(fits.event, fits.hint, lambda each: each.labels["size"])]
    waiting(cluster, 3, "Fit", size=5)
    for number in range(3):
        cluster.reject(pod(f"small{number}", labels={"size": "1"}), "Fit")

    assert cluster.queue.move_all(NODE_ADD, None, SMALL) == 3
    assert sorted(cluster.counts.hints) == [("Fit", "NodeAdd", "Queue"), ("Fit", "NodeAdd", "QueueSkip")]


@pytest.mark.parametrize("broken", ["pod_key", "event_keys", "waits_for_keys"])
def test_a_plugin_whose_key_fails_is_called_for_every_pod(broken: str) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no idea")

    cluster = Cluster()
    registered = cluster.profiles["custom-scheduler"] = dict(cluster.profiles["custom-scheduler"])
    fits = registered["Fit"][0]
    said = {
        "pod_key": lambda _: "",
        "event_keys": lambda *_: ("a",),
        "waits_for_keys": lambda _: {"b"},
        broken: fail,
    }
    registered["Fit"] = [type(fits)(fits.event, fits.hint, **said)]
    waiting(cluster, 3, "Fit", size=5)

    assert cluster.queue.move_all(NODE_ADD, None, LARGE) == (0 if broken == "pod_key" else 3)


EVENTS = (
    NODE_ADD,
    NODE_TAINT,
    NODE_LABEL,
    PVC_ADD,
    CSI_NODE_ADD,
    ClusterEvent(EventResource.NODE, ActionType.UPDATE),
)
PLUGINS = st.sets(st.sampled_from(["Fit", "Taints", "Volumes", "Anything", "Labels"]), min_size=1, max_size=2)
STORIES = st.lists(
    st.one_of(
        st.tuples(st.just("happen"), st.sampled_from(EVENTS), st.sampled_from([LARGE, SMALL])),
        st.tuples(st.just("come back"), st.integers(0, 5), PLUGINS),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("turn")),
    ),
    max_size=15,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    steps=st.sampled_from([1, 2, 5, 9]),
    first=st.lists(PLUGINS, min_size=1, max_size=6),
    sizes=st.lists(st.integers(0, 9), min_size=12, max_size=12),
    history=STORIES,
)
def test_slices_requeue_the_same_pods_as_one_pass(steps: int, first: Any, sizes: Any, history: Any) -> None:
    """Six pods wait, and six are in flight and come back at any time."""
    found = []
    for slice_steps in (inf, steps):
        cluster = SlicedCluster(slice_steps)
        pods = [pod(f"p{number}", labels={"size": str(size)}) for number, size in enumerate(sizes)]
        for each, rejectors in zip(pods, first, strict=False):
            cluster.reject(each, *rejectors)
        flying = {}
        for number, each in enumerate(pods[6:]):
            cluster.queue.add(each)
            flying[number] = cluster.pop()
        for what, *details in history:
            if what == "happen":
                cluster.queue.move_all(details[0], SMALL, details[1])
            elif what == "come back" and details[0] in flying:
                queued = flying.pop(details[0])
                cluster.queue.add_unschedulable(queued, unschedulable_plugins=details[1])
            elif what == "delete":
                cluster.queue.delete(pods[details[0]])
            elif what == "turn":
                cluster.turn()
        cluster.turns()
        found.append(cluster.retried())
    assert found[0] == found[1]


def test_without_slices_events_continue_with_the_remaining_pods() -> None:
    """A standby tries no pods, and keeps the gated ones."""
    cluster = SlicedCluster(20)
    waiting(cluster, 50, "Taints")
    cluster.queue.move_all(NODE_TAINT, SMALL, LARGE)
    left = cluster.queue.backlog

    for _ in range(60):
        cluster.clock.advance(0.2)
        cluster.queue.move_all(CSI_NODE_ADD)

    assert left == 1
    assert cluster.queue.backlog == 0
    assert len(cluster.retried()) == 50
