"""Comparison of metrics with a real kube-scheduler v1.36 that scheduled one pod and rejected another.

`kube_scheduler_metrics.txt` is its output of /metrics and /metrics/resources. Metrics without series in that
run are compared with its source.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from plugins.dynamic_resources.claim_writes import ClaimMetrics
from scheduler.daemon.metrics import Metrics
from scheduler.daemon.metrics.families import exponential_buckets
from scheduler.daemon.metrics.stages import STAGES
from scheduler.framework.interface import ExtensionPoint
from scheduler.framework.status import Code
from scheduler.testing.fakes import FakeFeatures
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.unit.daemon.metrics import absent_metrics
from tests.unit.daemon.metrics.exposition import Family, families

if TYPE_CHECKING:
    from collections.abc import Mapping

KUBE_SCHEDULER = families(Path(__file__).with_name("kube_scheduler_metrics.txt").read_text(encoding="utf-8"))

PODS = 30  # plugins are timed in one cycle out of ten


class Declared(NamedTuple):
    """A metric as v1.36 declares it in metrics.go."""

    kind: str
    labels: frozenset[str]
    bounds: tuple[str, ...] = ()


def bounds(start: float, factor: float, count: int) -> tuple[str, ...]:
    numbers = exponential_buckets(start, factor, count)
    return (*(f"{number!r}".removesuffix(".0") for number in numbers), "+Inf")


ONLY_IN_THE_SOURCE = {
    "scheduler_permit_wait_duration_seconds": Declared(
        "histogram", frozenset({"result"}), bounds(0.001, 2, 15)
    ),
    "scheduler_queueing_hint_execution_duration_seconds": Declared(
        "histogram", frozenset({"plugin", "event", "hint"}), bounds(0.00001, 1.5, 20)
    ),
    "scheduler_resourceclaim_creates_total": Declared("counter", frozenset({"status"})),
    "scheduler_podgroup_schedule_attempts_total": Declared("counter", frozenset({"result", "profile"})),
    "scheduler_podgroup_scheduling_attempt_duration_seconds": Declared(
        "histogram", frozenset({"result", "profile"}), bounds(0.001, 2, 15)
    ),
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": Declared(
        "histogram", frozenset(), bounds(0.001, 2, 15)
    ),
    "scheduler_dra_bindingconditions_allocations_total": Declared(
        "counter", frozenset({"profile", "driver", "status"})
    ),
    "scheduler_dra_bindingconditions_wait_duration_seconds": Declared(
        "histogram", frozenset({"profile", "driver", "status"}), bounds(0.1, 2, 14)
    ),
    "scheduler_preemption_goroutines_duration_seconds": Declared(
        "histogram", frozenset({"result"}), bounds(0.01, 2, 20)
    ),
    "scheduler_preemption_goroutines_execution_total": Declared("counter", frozenset({"result"})),
}
OURS_TO_NAME = ("custom_scheduler_", "process_", "python_")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Family]:
    """Return the metrics of a daemon that scheduled pods, rejected one, and counted every metric once."""

    async def scenario() -> str:
        folder = tmp_path_factory.mktemp("cluster")
        async with cluster(folder) as it, it.daemon() as daemon:
            it.add_nodes(node_object("n1", cpu="40"), node_object("n2", cpu="40"))
            it.add_pods(
                *(pod_object(f"web-{number}", cpu="1") for number in range(PODS)),
                pod_object("big", cpu="500"),
            )
            await it.until(lambda: all(it.node_of(f"web-{number}") for number in range(PODS)))
            await it.until(lambda: it.notes("big", "FailedScheduling"))
            await it.until(lambda: it.notes("web-0", "Scheduled"))
            return daemon.metrics.text()[0].decode()

    return families(virtual_time.run(scenario()))


@pytest.fixture(scope="module")
def rarely_told() -> Mapping[str, Family]:
    """Metrics without series in that run."""
    metrics = Metrics()
    metrics.follow(FakeFeatures())
    metrics.permit_wait(Code.SUCCESS, 0.1)
    metrics.hint_asked("NodeAffinity", "NodeAdd", "Queue", 0.1)
    metrics.plugin("NodeAffinity", ExtensionPoint.FILTER, Code.SUCCESS, 0.1)
    metrics.preemption_ended("pod", "success", 0.1)
    claims = ClaimMetrics(metrics, FakeFeatures())
    claims.claim_created("success")
    claims.devices_allocated("custom-scheduler", "gpu.example.com", "timeout")
    metrics.group_decided(0.1)
    metrics.group_attempted("custom-scheduler", "scheduled", 0.1)
    claims.devices_awaited("custom-scheduler", "gpu.example.com", "timeout", 600.0)
    return families(metrics.text()[0].decode())


def test_every_metric_of_kube_scheduler_exists_after_a_short_run(ours: Mapping[str, Family]) -> None:
    assert len(KUBE_SCHEDULER) == 40
    assert KUBE_SCHEDULER.keys() - ours.keys() == set(absent_metrics.FAMILIES)


def test_no_metric_uses_a_name_of_kube_scheduler_that_it_does_not_have(ours: Mapping[str, Family]) -> None:
    invented = {
        name
        for name in ours
        if name not in KUBE_SCHEDULER
        and name not in ONLY_IN_THE_SOURCE
        and not name.startswith(OURS_TO_NAME)
        # That kube-scheduler ran without leader election, and the build is not in its output.
        and name not in {"leader_election_master_status", "kubernetes_build_info"}
    }

    assert invented == set()


def test_every_metric_of_kube_scheduler_has_its_stability(ours: Mapping[str, Family]) -> None:
    theirs = {name for name in ours if name in KUBE_SCHEDULER or name in ONLY_IN_THE_SOURCE}

    assert {name for name in theirs if not name.startswith(OURS_TO_NAME)} <= STAGES.keys()


def test_types_labels_and_bounds_are_kube_schedulers(ours: Mapping[str, Family]) -> None:
    common = ours.keys() & KUBE_SCHEDULER.keys()

    assert len(common) == 30
    assert {name: ours[name].shape for name in common} == {
        name: KUBE_SCHEDULER[name].shape for name in common
    }


def test_rare_metrics_are_as_the_source_declares_them(
    rarely_told: Mapping[str, Family],
) -> None:
    found = {name: rarely_told[name].shape for name in ONLY_IN_THE_SOURCE}

    assert found == ONLY_IN_THE_SOURCE


def test_the_values_of_labels_are_kube_schedulers(ours: Mapping[str, Family]) -> None:
    missing = {
        (name, label): gone
        for name in KUBE_SCHEDULER.keys() & ours.keys()
        if name.startswith("scheduler_")
        for label in KUBE_SCHEDULER[name].labels - {"profile", "plugin"}
        if (gone := KUBE_SCHEDULER[name].values[label] - ours[name].values[label])
    }

    assert missing == {key: set(values) for key, values in absent_metrics.VALUES.items()}


def test_no_series_has_a_creation_time(ours: Mapping[str, Family]) -> None:
    assert [
        series for family in ours.values() for series in family.series if series.endswith("_created")
    ] == []


def test_the_process_and_the_build_are_shown(ours: Mapping[str, Family]) -> None:
    assert {
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "python_gc_collections_total",
    } <= set(ours)
    assert ours["custom_scheduler_build_info"].labels == {
        "version",
        "python_version",
        "implementation",
        "machine",
    }


def test_alerts_that_compare_versions_read_the_kubernetes_that_it_does_as(ours: Mapping[str, Family]) -> None:
    build = ours["kubernetes_build_info"]

    assert build.labels == {
        "build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform",
    }  # fmt: skip
    (version,) = build.values["git_version"]
    assert re.sub(r"(v[0-9]*\.[0-9]*).*", r"\1", version) == "v1.36"  # the expression of KubeVersionMismatch


def test_requests_are_counted_as_kubernetes_own_client_does(ours: Mapping[str, Family]) -> None:
    requests = ours["rest_client_requests_total"]

    assert requests.values["code"] == {"200", "201"}
    assert {"GET", "POST", "PATCH"} <= requests.values["method"]
    assert requests.values["host"] == {"localhost"}
    assert {"POST", "PATCH"} <= ours["rest_client_request_duration_seconds"].values["verb"]


def test_the_waiting_pod_is_counted_for_the_plugin_that_rejected_it(ours: Mapping[str, Family]) -> None:
    assert ours["scheduler_unschedulable_pods"].series == {
        'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="custom-scheduler"}': 1
    }


def test_a_preemption_attempt_without_victims_is_counted(ours: Mapping[str, Family]) -> None:
    assert ours["scheduler_preemption_attempts_total"].series == {"scheduler_preemption_attempts_total": 1}
    assert ours["scheduler_preemption_victims"].series["scheduler_preemption_victims_count"] == 0


def test_a_hint_is_timed_by_plugin_event_and_result(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            it.add_nodes(node_object("small", cpu="4"))
            it.add_pods(pod_object("big", cpu="50"))
            await it.until(lambda: it.notes("big", "FailedScheduling"))
            it.add_nodes(node_object("too-small", cpu="4"))
            it.add_nodes(node_object("large", cpu="100"))
            await it.until(lambda: it.node_of("big"))
            return daemon.metrics.text()[0].decode()

    hints = families(virtual_time.run(scenario()))["scheduler_queueing_hint_execution_duration_seconds"]

    assert hints.values["plugin"] == {"NodeResourcesFit"}
    assert hints.values["event"] == {"NodeAdd"}
    assert hints.values["hint"] == {"QueueSkip", "Queue"}
    assert sum(number for name, number in hints.series.items() if "_count" in name) == 2
