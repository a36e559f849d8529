"""Pods whose attempt exceeded its budget wait long, also under the next leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.engine.queue import Place
from scheduler.engine.queue.quarantine import message, quarantine_duration, times_in_condition
from tests.support.builders import pod
from tests.unit.engine.queue.cluster import NODE_TAINT, Cluster

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

WEB = pod("web")


def put_aside(cluster: Cluster, times: int = 1) -> None:
    queued = cluster.pop()
    queued.over_budget_count += 1
    assert queued.over_budget_count == times
    place = cluster.queue.add_unschedulable(
        queued, is_error=True, quarantine_seconds=quarantine_duration(times)
    )
    assert place is Place.BACKOFF
    cluster.queue.check()


def told(times: int, *, observed: int = 0, reason: str = "SchedulerError", **more: Any) -> PodInfo:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": f'running "Slow" filter plugin: over budget: stopped{message(times)}',
        "observedGeneration": observed,
    }
    return pod("web", status={"conditions": [condition]}, **more)


def test_the_pause_doubles_from_a_minute_up_to_half_an_hour() -> None:
    assert [quarantine_duration(times) for times in (1, 2, 3, 6, 1000)] == [60, 120, 240, 1800, 1800]


def test_no_event_ends_the_quarantine_of_a_pod() -> None:
    cluster = Cluster()
    cluster.queue.add(WEB)
    put_aside(cluster)
    cluster.queue.move_all(NODE_TAINT)
    assert cluster.queue.pop() is None  # nor is it tried early when no other pod waits
    assert cluster.advance_and_flush(59) == 0
    assert cluster.advance_and_flush(2) == 1
    put_aside(cluster, 2)
    assert cluster.advance_and_flush(119) == 0
    assert cluster.advance_and_flush(2) == 1


def test_an_attempt_that_ends_in_time_resets_the_count() -> None:
    cluster = Cluster()
    cluster.queue.add(WEB)
    put_aside(cluster)
    cluster.advance_and_flush(61)
    queued = cluster.pop()
    cluster.queue.add_unschedulable(queued, is_error=True)
    assert (queued.over_budget_count, queued.quarantine_seconds) == (0, 0)
    assert cluster.advance_and_flush(5) == 1
    put_aside(cluster)


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        pytest.param({"priority": 5}, Place.ACTIVE, id="its spec"),
        pytest.param({"labels": {"app": "b"}}, Place.ACTIVE, id="its labels"),
        pytest.param({"annotations": {"a": "b"}}, Place.ACTIVE, id="its annotations"),
        pytest.param({"status": {"nominatedNodeName": ""}}, Place.BACKOFF, id="only its status"),
    ],
)
def test_a_quarantined_pod_is_tried_at_once_after_a_change(changed: dict[str, Any], place: Place) -> None:
    cluster, new = Cluster(), pod("web", **changed)
    cluster.queue.add(WEB)
    put_aside(cluster)
    cluster.update(WEB, new)

    assert cluster.queue.place_of(WEB.uid) is place
    cluster.queue.check()


def test_a_pod_that_changed_during_its_attempt_is_not_quarantined() -> None:
    cluster = Cluster()
    cluster.queue.add(WEB)
    queued = cluster.pop()
    cluster.update(WEB, pod("web", labels={"app": "b"}))
    queued.over_budget_count += 1
    cluster.queue.add_unschedulable(queued, is_error=True, quarantine_seconds=60)

    assert cluster.advance_and_flush(5) == 1


def test_a_new_configuration_ends_the_quarantine() -> None:
    cluster = Cluster()
    cluster.queue.add(WEB)
    put_aside(cluster)
    cluster.queue.reload(initial_backoff_seconds=1, max_backoff_seconds=10)

    assert cluster.queue.place_of(WEB.uid) is Place.ACTIVE
    put_aside(cluster)


@pytest.mark.parametrize(
    ("found", "times"),
    [
        pytest.param(WEB, 0, id="no condition"),
        pytest.param(told(3), 3, id="three times"),
        pytest.param(told(1), 1, id="once"),
        pytest.param(told(3, reason="Unschedulable"), 0, id="rejected since"),
    ],
)
def test_the_count_is_read_from_the_condition(found: PodInfo, times: int) -> None:
    assert times_in_condition(found) == times


def test_a_condition_of_an_older_generation_does_not_count() -> None:
    found = told(3, observed=4)
    older, newer = (
        type(found)(
            msgspec.structs.replace(
                found.pod, metadata=msgspec.structs.replace(found.pod.metadata, generation=generation)
            )
        )
        for generation in (4, 5)
    )
    assert (times_in_condition(older), times_in_condition(newer)) == (3, 0)


def test_the_next_leader_does_not_start_with_a_quarantined_pod() -> None:
    cluster = Cluster()
    for each in (told(2), pod("other")):
        cluster.queue.add(each)
    assert cluster.pop_names() == ["other"]
    assert cluster.advance_and_flush(119) == 0
    assert cluster.advance_and_flush(2) == 1
    put_aside(cluster, 3)


def test_a_standby_follows_the_condition_of_the_leader() -> None:
    cluster = Cluster()
    cluster.queue.add(WEB)
    cluster.update(WEB, told(1))
    assert cluster.queue.place_of(WEB.uid) is Place.BACKOFF
    cluster.advance_and_flush(61)
    assert cluster.queue.place_of(WEB.uid) is Place.ACTIVE
    cluster.update(told(1), told(1, annotations={"seen": "again"}))  # the same quarantine
    assert cluster.queue.place_of(WEB.uid) is Place.ACTIVE
    cluster.update(told(1, annotations={"seen": "again"}), told(2, annotations={"seen": "again"}))
    assert cluster.queue.place_of(WEB.uid) is Place.BACKOFF
    cluster.queue.check()


def test_the_leader_does_not_follow_its_own_late_condition() -> None:
    cluster = Cluster()
    cluster.queue.add(WEB)
    put_aside(cluster)
    cluster.advance_and_flush(61)
    cluster.queue.add_unschedulable(cluster.pop(), is_error=True)  # this one ended
    cluster.update(WEB, told(1))  # written earlier, watched now

    assert cluster.advance_and_flush(5) == 1
    cluster.queue.check()
