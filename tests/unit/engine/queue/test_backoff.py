"""How long a pod backs off, and which pods may be tried early."""

from math import inf

import pytest

from scheduler.engine.queue import Place
from scheduler.engine.queue.contents import BackoffQueue
from scheduler.framework import QueuedPodInfo
from scheduler.objects.pod_group import COSCHEDULING_LABEL
from tests.support.builders import pod
from tests.unit.engine.queue.cluster import NODE_TAINT, Cluster


def backoff_queue(initial: float = 1.0, most: float = 10.0) -> BackoffQueue:
    return BackoffQueue(
        initial_seconds=initial,
        max_seconds=most,
        plugins=Cluster(),
    )


@pytest.mark.parametrize(
    ("initial", "most", "rejections", "errors", "expected"),
    [
        pytest.param(1, 10, 0, 0, 0, id="none before the first attempt"),
        pytest.param(1, 10, 1, 0, 1, id="the initial backoff after one"),
        pytest.param(1, 10, 4, 0, 8, id="doubled by each"),
        pytest.param(1, 10, 5, 0, 10, id="the maximum when it is passed"),
        pytest.param(1, 8, 4, 0, 8, id="the maximum when it is met"),
        pytest.param(1, 10, 100_000, 0, 10, id="the maximum for any count"),
        pytest.param(1, 10, 4, 1, 1, id="errors count instead of rejections"),
        pytest.param(1, 10, 1, 4, 8, id="errors in a row double it"),
        pytest.param(20, 10, 1, 0, 10, id="an initial one above the maximum is cut"),
        pytest.param(0.5, 10, 3, 0, 2, id="fractions of seconds"),
        pytest.param(0, 10, 100_000, 0, 0, id="an initial one of 0 stays 0"),
    ],
)
def test_backoff_doubles_up_to_the_maximum(
    initial: float, most: float, rejections: int, errors: int, expected: float
):
    queued = QueuedPodInfo(pod("web"), 0.0, unschedulable_count=rejections, consecutive_errors_count=errors)

    assert backoff_queue(initial, most).duration(queued) == expected


def test_a_pod_backs_off_until_the_end_of_its_backoff_window():
    queue = backoff_queue()
    queued = QueuedPodInfo(pod("web"), 100.4, unschedulable_count=1)

    assert queue.ends_in(queued) == 101.0
    assert queue.is_backing_off(queued, 101.9)
    assert not queue.is_backing_off(queued, 102.0)


def test_without_a_maximum_no_pod_backs_off():
    queued = QueuedPodInfo(pod("web"), 100.0, unschedulable_count=3)

    assert backoff_queue(most=0).ends_in(queued) == -inf
    assert not backoff_queue(most=0).is_backing_off(queued, 100.0)


def test_a_rejected_pod_returns_to_active_through_backoff(cluster: Cluster):
    web = pod("web")
    cluster.fail(web)
    assert cluster.queue.next_deadline(1000.5) == 1002.0

    assert cluster.advance_and_flush(1.9) == 0
    assert cluster.queue.place_of(web.uid) is Place.BACKOFF
    assert cluster.advance_and_flush(0.1) == 1
    assert cluster.queue.place_of(web.uid) is Place.ACTIVE
    assert cluster.counts.came_in["active", "BackoffComplete"] == 1


def test_a_deadline_in_the_past_is_now(cluster: Cluster):
    cluster.fail(pod("web"))

    assert cluster.queue.next_deadline(5000.0) == 5000.0


def test_without_waiting_pods_there_is_no_deadline(cluster: Cluster):
    cluster.queue.add(pod("web"))

    assert cluster.queue.next_deadline(1000.0) is None


def backing_off(cluster: Cluster, name: str, **fields: object) -> None:
    """Reject a pod and requeue it, so that it backs off after a rejection."""
    cluster.reject(pod(name, **fields), "Taints")
    cluster.queue.move_all(NODE_TAINT)
    assert cluster.queue.place_of(f"uid-of-default-{name}") is Place.BACKOFF


def test_an_empty_active_queue_pops_the_pod_whose_backoff_ends_first(cluster: Cluster):
    backing_off(cluster, "first")
    cluster.clock.advance(5)
    backing_off(cluster, "second", priority=9)

    assert cluster.pop_names() == ["first", "second"]
    assert cluster.counts.came_in["active", "PopFromBackoffQ"] == 2


def test_without_the_gate_pods_wait_until_the_end_of_their_backoff(cluster: Cluster):
    cluster.queue.reload(initial_backoff_seconds=1.0, max_backoff_seconds=10.0, pops_from_backoff=False)
    backing_off(cluster, "first")
    assert cluster.pop_names() == []

    cluster.clock.advance(2)
    cluster.queue.work(cluster.clock.now)

    assert cluster.pop_names() == ["first"]


def test_within_a_backoff_window_the_priority_decides(cluster: Cluster):
    cluster.clock.now = 1000.1
    backing_off(cluster, "low")
    cluster.clock.now = 1000.8
    backing_off(cluster, "high", priority=9)

    assert cluster.pop_names() == ["high", "low"]


def test_active_pods_come_before_those_that_back_off(cluster: Cluster):
    backing_off(cluster, "high", priority=9)
    cluster.queue.add(pod("low"))

    assert cluster.pop_names() == ["low", "high"]


def test_a_pod_that_failed_with_an_error_is_never_tried_early(cluster: Cluster):
    cluster.fail(pod("web"))

    assert cluster.queue.pop() is None
    assert cluster.queue.count(Place.BACKOFF) == 1


def test_without_backoff_an_error_is_tried_again_at_once():
    cluster = Cluster(max_backoff_seconds=0.0)

    assert cluster.fail(pod("web")) is Place.ACTIVE
    cluster.queue.check()


@pytest.mark.parametrize("into", [True, False], ids=["into a group", "out of a group"])
def test_a_pod_that_changes_its_group_while_it_backs_off_waits_once(cluster: Cluster, into: bool):
    alone, member = pod("web"), pod("web", labels={COSCHEDULING_LABEL: "gang"})
    before, after = (alone, member) if into else (member, alone)
    cluster.reject(before, "Taints")
    cluster.queue.move_all(NODE_TAINT)
    assert cluster.queue.place_of(before.uid) is Place.BACKOFF

    cluster.update(before, after)
    cluster.queue.check()
    if into:
        assert cluster.queue.pop() is None  # members are not tried early
        cluster.advance_and_flush(2)
    assert cluster.pop().pod is after
    cluster.advance_and_flush(10)
    assert cluster.queue.place_of(after.uid) is Place.IN_FLIGHT
