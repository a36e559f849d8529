"""Failed attempts: the pod's place in the queue, and the reports to users."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.attempt import Attempt
from scheduler.engine.queue import Place
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.framework import Code, Status
from tests.support.builders import pod
from tests.unit.engine.cycle.cluster import Cluster, Event

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

WEB = pod("web")
REJECTED = Status(Code.UNSCHEDULABLE, ("0/1 nodes are available: 1 no.",))
FAILED = Status.failed("odd")


def handle(
    cluster: Cluster, status: Status, newest: PodInfo | None = WEB, *, nominated_before: str = "", **more: Any
) -> Place:
    """Let an attempt at a pod fail while the API server has a newer version."""
    cluster.queue.add(WEB)
    queued = cluster.pop()
    cluster.nominator.add(WEB, nominated_before)
    if newest is not None:
        cluster.api.seen[WEB.key] = newest
    cluster.failures.handle(Attempt(cluster.framework, queued, cluster.clock.monotonic()), status, **more)
    cluster.queue.check()
    return cluster.place_of("web")


@pytest.mark.parametrize(
    "newest",
    [
        pytest.param(None, id="deleted"),
        pytest.param(WEB.placed_on("n9"), id="bound"),
        pytest.param(pod("web", uid="another"), id="recreated"),
    ],
)
@pytest.mark.parametrize("status", [REJECTED, FAILED], ids=["rejected", "failed"])
def test_a_pod_that_is_no_longer_ours_is_dropped_silently(status: Status, newest: PodInfo | None):
    cluster = Cluster()

    assert handle(cluster, status, newest) is Place.OUTSIDE
    assert cluster.api.events == []
    assert cluster.api.patches == []
    assert len(cluster.counts.attempts) == 1


def test_a_rejection_waits_for_events_and_gives_an_event_and_a_condition(caplog: pytest.LogCaptureFixture):
    cluster = Cluster()
    with caplog.at_level(logging.DEBUG):
        place = handle(cluster, REJECTED, unschedulable_plugins=frozenset({"A"}))

    assert place is Place.UNSCHEDULABLE
    assert cluster.api.events == [
        Event("default/web", "Warning", "FailedScheduling", "0/1 nodes are available: 1 no.")
    ]
    [patch] = cluster.api.patches
    assert patch.condition is not None
    assert (patch.condition.type, patch.condition.status) == ("PodScheduled", "False")
    assert (patch.condition.reason, patch.condition.message) == ("Unschedulable", REJECTED.message)
    assert patch.nominated_node_name == ""
    assert cluster.counts.attempts == [("custom-scheduler", "unschedulable")]
    [record] = caplog.records
    assert (record.levelno, vars(record)["pod"]) == (logging.DEBUG, "default/web")


def test_an_error_backs_off_and_gives_an_event_and_a_condition(caplog: pytest.LogCaptureFixture):
    cluster = Cluster()

    assert handle(cluster, FAILED, unschedulable_plugins=frozenset({"A"})) is Place.BACKOFF
    [patch] = cluster.api.patches
    assert patch.condition is not None
    assert (patch.condition.reason, patch.condition.message) == ("SchedulerError", "odd")
    assert cluster.counts.attempts == [("custom-scheduler", "error")]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_the_error_of_an_attempt_keeps_no_frames_and_so_no_cycle():
    try:
        try:
            int("odd")
        except ValueError as cause:
            raise ExtenderError("odd") from cause
    except ExtenderError as error:
        failed = error

    handle(Cluster(), Status.failed("odd", failed))

    assert failed.__traceback__ is None
    assert failed.__cause__ is not None
    assert failed.__cause__.__traceback__ is None


@pytest.mark.parametrize(
    ("nominated", "noted"),
    [
        pytest.param("n1", "n1", id="to a node"),
        pytest.param("", "", id="taken back"),
        pytest.param(None, "n5", id="left"),
    ],
)
def test_a_nomination_is_recorded_for_the_next_cycle_and_written(nominated: str | None, noted: str):
    cluster = Cluster()
    handle(
        cluster,
        REJECTED,
        nominated_before="n5",
        unschedulable_plugins=frozenset({"A"}),
        nominated_node_name=nominated,
    )

    assert cluster.nominator.node_of(WEB.uid) == noted
    assert cluster.api.patches[0].nominated_node_name == nominated


def test_writes_use_the_newest_version_of_the_pod():
    cluster = Cluster()
    newest = pod("web", labels={"version": "2"})
    written: list[PodInfo] = []
    cluster.reporter.failed = lambda _profile, each, *_: written.append(each)  # type: ignore[method-assign]
    handle(cluster, REJECTED, newest)

    assert written == [newest]


@pytest.mark.parametrize(
    ("status", "line", "expected"),
    [
        pytest.param(
            REJECTED, "Unable to schedule pod; no fit; waiting", REJECTED.message, id="no node fits"
        ),
        pytest.param(FAILED, "Error scheduling pod; retrying", "odd", id="an error"),
    ],
)
def test_the_log_has_the_lines_of_kube_scheduler(
    status: Status, line: str, expected: str | None, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.DEBUG):
        handle(Cluster(), status)

    [record] = caplog.records
    assert (record.getMessage(), vars(record).get("err")) == (line, expected)
