"""Where groups wait, and when a group as a whole enters a part of the queue."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.queue.pod_places import MOVES, GroupPlaces, Place, Places
from scheduler.objects.pod_group import GroupKey
from tests.support.builders import pod
from tests.unit.engine.queue.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.pod import PodInfo

G, H = GroupKey("k", "default", "g"), GroupKey("k", "default", "h")
PRECEDENCE = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
UIDS = ("a", "b", "c", "d")


def of_group(name: str) -> PodInfo:
    return pod(name, schedulingGroup={"podGroupName": "g"})


@given(st.lists(st.tuples(st.sampled_from(UIDS), st.sampled_from([*Place]), st.sampled_from([G, H, None]))))
def test_the_counts_are_those_of_a_slow_count(steps: Sequence[tuple[str, Place, GroupKey | None]]) -> None:
    places, groups = Places(), GroupPlaces()
    keys: dict[str, GroupKey | None] = {}
    for at, (uid, end, key) in enumerate(steps):
        start = places.of(uid)
        if end not in MOVES[start]:
            continue
        keys[uid] = None if end is Place.OUTSIDE else key
        groups.moved(uid, keys[uid], start, end)
        places.move(uid, end, at=at, why="")

        groups.check(places)
        inside = {each for each, found in keys.items() if found is not None}
        for place in PRECEDENCE:
            assert groups.count_pods(place) == sum(places.of(each) is place for each in inside)
            waiting = [
                next((first for first in PRECEDENCE if first in found), None)
                for group in (G, H)
                for found in [{places.of(each) for each in inside if keys[each] == group}]
            ]
            assert groups.count(place) == waiting.count(place)


@pytest.mark.parametrize(
    ("moves", "entered"),
    [
        pytest.param(
            [("a", Place.OUTSIDE, Place.GATED), ("b", Place.OUTSIDE, Place.GATED)],
            [True, False],
            id="its first pod",
        ),
        pytest.param(
            [
                ("a", Place.OUTSIDE, Place.GATED),
                ("b", Place.OUTSIDE, Place.ACTIVE),
                ("a", Place.GATED, Place.ACTIVE),
            ],
            [True, True, False],
            id="its first pod that may be tried",
        ),
        pytest.param(
            [
                ("a", Place.OUTSIDE, Place.ACTIVE),
                ("b", Place.OUTSIDE, Place.ACTIVE),
                ("a", Place.ACTIVE, Place.IN_FLIGHT),
                ("b", Place.ACTIVE, Place.IN_FLIGHT),
                ("a", Place.IN_FLIGHT, Place.UNSCHEDULABLE),
                ("b", Place.IN_FLIGHT, Place.UNSCHEDULABLE),
            ],
            [True, False, False, False, True, False],
            id="back from an attempt",
        ),
        pytest.param(
            [
                ("a", Place.OUTSIDE, Place.ACTIVE),
                ("a", Place.ACTIVE, Place.IN_FLIGHT),
                ("b", Place.OUTSIDE, Place.ACTIVE),
            ],
            [True, False, False],
            id="not a pod that comes during an attempt",
        ),
    ],
)
def test_a_group_enters_with_the_first_pod_that_changes_where_it_waits(
    moves: Sequence[tuple[str, Place, Place]], entered: Sequence[bool]
) -> None:
    groups = GroupPlaces()

    assert [groups.moved(uid, G, start, end) for uid, start, end in moves] == entered


def test_groups_are_counted_when_they_enter_the_queue_and_when_they_come_back() -> None:
    cluster = Cluster()
    for each in (of_group("a"), of_group("b"), pod("alone")):
        cluster.queue.add(each)
    first = cluster.pop()
    for queued in cluster.popped_with(first):
        cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Fit"])
    cluster.end_group()

    cluster.queue.check()
    assert cluster.counts.members_came_in == {
        ("active", "UnschedulablePodAdd"): 2,
        ("unschedulable", "ScheduleAttemptFailure"): 2,
    }
    assert +cluster.counts.groups_came_in == Counter(
        {("active", "UnschedulablePodAdd"): 1, ("unschedulable", "ScheduleAttemptFailure"): 1}
    )
    assert cluster.queue.group_places.count(Place.UNSCHEDULABLE) == 1
    assert cluster.queue.group_places.count_pods(Place.UNSCHEDULABLE) == 2


def test_a_pod_that_leaves_its_group_or_the_queue_is_not_counted_with_it() -> None:
    cluster = Cluster()
    old, gone = of_group("a"), of_group("b")
    for each in (old, gone):
        cluster.held.add(each.uid)
        cluster.queue.add(each)
    assert cluster.queue.group_places.count_pods(Place.GATED) == 2

    cluster.queue.delete(gone)
    cluster.update(old, pod("a"))
    cluster.queue.activate([old.uid])
    cluster.held.clear()
    cluster.queue.activate([old.uid])

    cluster.queue.check()
    assert cluster.queue.place_of(old.uid) is Place.ACTIVE
    assert list(cluster.queue.group_places.groups()) == []
