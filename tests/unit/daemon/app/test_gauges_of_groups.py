"""Where pods of groups are counted while their group is tried, is being bound, or does not exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scheduler.daemon.app.gauges import _pending_pods, _queued_entities
from scheduler.engine.state.cache import PodState
from scheduler.loop_work import run_to_end
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import pod
from tests.unit.engine.queue.cluster import Cluster


class Parts(SimpleNamespace):
    """A queue with two pods of a group in flight, a third one that waits, and a pod without a group."""

    def __init__(self, version: str = "1.37") -> None:
        it = Cluster()
        self.states: dict[str, PodState] = {}
        self.known = True
        super().__init__(
            queue=it.queue,
            cache=SimpleNamespace(
                groups=it.queue._contents.groups,
                state_of=lambda uid: self.states.get(uid, PodState.OUTSIDE),
            ),
            profiles=SimpleNamespace(pod_group=lambda _: object() if self.known else None),
            features=FakeFeatures(version),
        )
        members = [pod(name, schedulingGroup={"podGroupName": "g"}) for name in "abc"]
        for each in members[:2]:
            it.queue.add(each)
        self.flying = run_to_end(it.queue.pop_group(it.pop()))
        it.queue.add(members[2])
        it.queue.add(pod("alone"))
        it.queue.check()
        self.held, self.last, self.end_group = it.held, members[2], it.end_group


def waiting(parts: Any) -> tuple[dict[str, float], dict[tuple[str, ...], float]]:
    """Return the pods, and the entities, by where they wait; without zeros."""
    pods, entities = _pending_pods(parts), dict(_queued_entities(parts))
    return (
        {queue: number for queue, number in pods.items() if number},
        {labels: number for labels, number in entities.items() if number},
    )


def test_pods_of_a_group_wait_apart_while_it_is_tried() -> None:
    assert waiting(Parts()) == ({"active": 1, "pending": 1}, {("active", "pod"): 1})


def test_pods_of_a_group_are_queued_as_an_entity_while_others_are_being_bound() -> None:
    parts = Parts()
    parts.states |= {each.pod.uid: PodState.ASSUMED for each in parts.flying}
    parts.end_group(is_placed=True)

    assert waiting(parts) == ({"active": 2}, {("active", "pod"): 1, ("active", "podgroup"): 1})


def test_gated_pods_of_a_group_that_does_not_exist_are_no_entity() -> None:
    parts = Parts()
    for each in parts.flying:
        parts.queue.done(each.pod.uid)
    parts.held.add(parts.last.uid)
    parts.queue.delete(parts.last)
    parts.queue.add(parts.last)
    assert waiting(parts)[1] == {("active", "pod"): 1, ("gated", "podgroup"): 1}

    parts.known = False

    assert waiting(parts) == ({"active": 1, "incomplete": 1}, {("active", "pod"): 1})


def test_up_to_1_36_pods_of_groups_are_counted_where_they_are() -> None:
    """A pod that arrives while its group is tried is gated until the end of the attempt."""
    assert _pending_pods(Parts("1.36")) == {"active": 1, "backoff": 0, "unschedulable": 0, "gated": 1}  # type: ignore[arg-type]
