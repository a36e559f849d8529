"""Metrics and their names by Kubernetes version."""

from __future__ import annotations

import re

import pytest

from plugins.dynamic_resources.claim_writes import ClaimMetrics
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.metrics.stages import GATES, STAGES
from scheduler.framework.preemption import Evaluation
from scheduler.framework.status import Code
from scheduler.testing.fakes import FakeFeatures
from tests.unit.daemon.metrics import absent_metrics
from tests.unit.daemon.metrics.exposition import families

GROUPS = {
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
}
DEVICES = {
    "scheduler_dra_bindingconditions_allocations_total",
    "scheduler_dra_bindingconditions_wait_duration_seconds",
}
ENTITIES = {"scheduler_queued_entities", "scheduler_queue_incoming_entities_total"}
GROUP_PREEMPTION = {
    "scheduler_preemption_evaluation_duration_seconds",
    "scheduler_preemption_execution_duration_seconds",
    "scheduler_preemption_pdb_violations_total",
    "scheduler_preemption_workload_disruptions",
    "scheduler_workload_preemption_attempts_total",
    "scheduler_workload_preemption_victims",
}
PLACEMENTS = {
    "scheduler_generated_placements_total",
    "scheduler_placement_evaluation_duration_seconds",
    "scheduler_placement_evaluations_total",
}
NEW_IN_1_37 = {
    *ENTITIES,
    *GROUP_PREEMPTION,
    *PLACEMENTS,
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "informer_store_resource_version",
    "informer_queued_items",
    "informer_processing_latency_seconds",
    "scheduler_batch_rescore_attempts_total",
    "scheduler_batch_rescore_duration_seconds",
    "scheduler_pre_queueing_hint_evaluations_total",
}
"""The metrics that kube-scheduler 1.37 has and 1.36 does not: metrics/metrics.go and pull request #140511."""


def metrics_of(version: str, **gates: bool) -> Metrics:
    """Return the metrics in a version, each with something to show."""
    metrics = Metrics()
    metrics.follow(FakeFeatures(version, **gates))
    metrics.group_decided(0.1)
    metrics.group_attempted("p", "scheduled", 0.1)
    metrics.group_preemption_attempted(Code.SUCCESS)
    metrics.preemption_evaluated("pod", Evaluation(Code.SUCCESS, 2, 3), 0.1)
    metrics.preempted("podgroup", 4)
    metrics.preemption_ended("podgroup", "success", 0.1)
    metrics.placements_generated("p", 5)
    metrics.placement_evaluated("p", is_feasible=False, seconds=0.1)
    metrics.incoming("active", "NodeAdd")
    return metrics


def shown(metrics: Metrics) -> dict[str, dict[str, float]]:
    """Return name -> series of all that is shown."""
    return {name: family.series for name, family in families(metrics.text()[0].decode()).items()}


@pytest.mark.parametrize(
    ("version", "gates", "lacking"),
    [
        pytest.param(
            "1.34",
            {},
            {*GROUPS, *DEVICES, *ENTITIES, *GROUP_PREEMPTION, *PLACEMENTS}
            | {"scheduler_pod_scheduled_after_flush_total"},
            id="1.34",
        ),
        pytest.param(
            "1.35",
            {},
            {*GROUPS, *DEVICES, *ENTITIES, *GROUP_PREEMPTION, *PLACEMENTS}
            | {"scheduler_pod_scheduled_after_flush_total"},
            id="1.35",
        ),
        pytest.param("1.36", {}, {*ENTITIES, *GROUP_PREEMPTION, *PLACEMENTS}, id="1.36"),
        pytest.param("1.37", {}, set(), id="1.37"),
        pytest.param(
            "1.37", {"TopologyAwareWorkloadScheduling": False}, PLACEMENTS, id="1.37 without placements"
        ),
        pytest.param(
            "1.37",
            {"GenericWorkload": False},
            {*GROUPS, *GROUP_PREEMPTION, *PLACEMENTS},
            id="1.37 without groups",
        ),
    ],
)
def test_metrics_that_a_version_lacks_are_not_shown(version: str, gates: dict[str, bool], lacking: set[str]):
    optional = {*GROUPS, *ENTITIES, *GROUP_PREEMPTION, *PLACEMENTS} - {"scheduler_queued_entities"}
    optional |= {"scheduler_pod_scheduled_after_flush_total"}

    assert optional - shown(metrics_of(version, **gates)).keys() == lacking & optional


def test_every_new_metric_of_1_37_exists_or_has_a_reason_why_not():
    new = {name for name, text in STAGES.items() if text.startswith("1.37")}

    assert NEW_IN_1_37 - new == set(absent_metrics.NEW_IN_1_37)
    assert new <= NEW_IN_1_37
    assert GATES.keys() <= STAGES.keys()


@pytest.mark.parametrize(
    ("name", "beginnings"),
    [
        pytest.param(
            "scheduler_schedule_attempts_total", ["[STABLE] ", "[STABLE] ", "[STABLE] "], id="stable"
        ),
        pytest.param(
            "scheduler_scheduling_algorithm_duration_seconds", ["[ALPHA] ", "[ALPHA] ", "[BETA] "], id="beta"
        ),
        pytest.param("scheduler_pod_scheduled_after_flush_total", [None, "[ALPHA] ", "[ALPHA] "], id="new"),
    ],
)
def test_the_description_begins_with_the_stability_in_the_version(name: str, beginnings: list[str | None]):
    for version, beginning in zip(("1.35", "1.36", "1.37"), beginnings, strict=True):
        metrics = metrics_of(version)
        metrics.attempted("p", "scheduled", 0.1)
        found = re.search(rf"# HELP {name} (\[\w+\] )\w", metrics.text()[0].decode())
        assert (None if found is None else found[1]) == beginning, version


def test_a_deprecated_metric_is_still_shown_and_says_so():
    text = {version: metrics_of(version).text()[0].decode() for version in ("1.36", "1.37")}

    head = "# HELP scheduler_preemption_goroutines_duration_seconds [ALPHA] "
    assert f"{head}Duration in seconds" in text["1.36"]
    assert f"{head}(Deprecated since 1.37.0) Duration in seconds" in text["1.37"]


def test_metrics_of_this_scheduler_have_no_stability_and_are_in_every_version():
    for version in ("1.34", "1.37"):
        text = metrics_of(version).text()[0].decode()
        assert "# HELP custom_scheduler_pods_counted_late_total Pods on nodes" in text


def test_another_version_shows_what_was_counted_before():
    metrics = metrics_of("1.36")
    assert "scheduler_workload_preemption_victims" not in shown(metrics)

    metrics.follow(FakeFeatures("1.37"))

    assert (
        shown(metrics)["scheduler_workload_preemption_victims"]["scheduler_workload_preemption_victims_sum"]
        == 4
    )
    metrics.incoming("active", "UnschedulablePodAdd")
    assert (
        'scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"}'
        in (shown(metrics)["scheduler_queue_incoming_pods_total"])
    )


@pytest.mark.parametrize("version", ["1.34", "1.36", "1.37"])
def test_the_build_is_that_of_the_emulated_version(version: str):
    (series,) = shown(metrics_of(version))["kubernetes_build_info"]

    assert f'git_version="v{version}.0+custom-scheduler.' in series
    assert f'minor="{version.removeprefix("1.")}"' in series


def test_preemptions_are_counted_by_preemptor_and_result():
    found = shown(metrics_of("1.37"))

    assert found["scheduler_workload_preemption_attempts_total"] == {
        'scheduler_workload_preemption_attempts_total{result="Success"}': 1
    }
    assert found["scheduler_preemption_pdb_violations_total"] == {
        'scheduler_preemption_pdb_violations_total{preemptor="pod"}': 2
    }
    name = "scheduler_preemption_workload_disruptions"
    assert found[name][f'{name}_sum{{preemptor="pod"}}'] == 3
    name = "scheduler_preemption_evaluation_duration_seconds"
    assert found[name][f'{name}_count{{preemptor="pod",result="Success"}}'] == 1
    name = "scheduler_preemption_execution_duration_seconds"
    assert found[name][f'{name}_count{{preemptor="podgroup",result="success"}}'] == 1
    # Victims of single pods only.
    assert found["scheduler_preemption_victims"]["scheduler_preemption_victims_count"] == 0


def test_a_preemption_that_disrupts_no_group_is_not_counted_as_a_disruption():
    metrics = Metrics()
    metrics.follow(FakeFeatures("1.37"))
    metrics.preemption_evaluated("pod", Evaluation(Code.SUCCESS, 0, 0), 0.1)

    assert "scheduler_preemption_workload_disruptions" not in shown(metrics)


def test_placements_are_counted_by_profile_and_result():
    found = shown(metrics_of("1.37"))

    assert found["scheduler_generated_placements_total"] == {
        'scheduler_generated_placements_total{profile="p"}': 5
    }
    assert found["scheduler_placement_evaluations_total"] == {
        'scheduler_placement_evaluations_total{profile="p",result="infeasible"}': 1
    }
    name = "scheduler_placement_evaluation_duration_seconds"
    assert found[name][f'{name}_count{{profile="p",result="infeasible"}}'] == 1


def test_incoming_groups_are_counted_once_and_their_pods_not_as_entities():
    metrics = Metrics()
    metrics.follow(FakeFeatures("1.37"))
    metrics.incoming("active", "UnschedulablePodAdd")
    for is_first in (True, False, False):
        metrics.incoming("active", "UnschedulablePodAdd")
        metrics.incoming_member("active", "UnschedulablePodAdd", with_group=is_first)

    name = "scheduler_queue_incoming_entities_total"
    assert shown(metrics)[name] == {
        f'{name}{{event="UnscheduledPodAdd",queue="active",type="pod"}}': 1,
        f'{name}{{event="UnscheduledPodAdd",queue="active",type="podgroup"}}': 1,
    }


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.36", ["UnschedulablePodUpdate", "UnschedulablePodUpdatePodLabel", "NodeAdd"]),
        ("1.37", ["UnscheduledPodUpdate", "TargetPodUpdatePodLabel", "NodeAdd"]),
    ],
)
def test_events_of_pods_without_a_node_have_the_names_of_the_version(version: str, names: list[str]):
    metrics = Metrics()
    metrics.follow(FakeFeatures(version))
    for event in ("UnschedulablePodUpdate", "UnschedulablePodUpdatePodLabel", "NodeAdd"):
        metrics.incoming("active", event)
        metrics.event_handled(event, 0.1)

    text = metrics.text()[0].decode()
    for name in names:
        assert f'scheduler_queue_incoming_pods_total{{event="{name}",queue="active"}} 1' in text
        assert f'scheduler_event_handling_duration_seconds_count{{event="{name}"}} 1' in text


@pytest.mark.parametrize(
    ("version", "name"), [("1.36", "UnschedulablePodUpdate"), ("1.37", "TargetPodUpdate")]
)
def test_hints_are_counted_under_the_name_of_the_version(version: str, name: str):
    metrics = Metrics()
    metrics.follow(FakeFeatures(version))
    metrics.hint_asked("NodeAffinity", "UnschedulablePodUpdate", "Queue", 0.1)

    assert f'event="{name}"' in metrics.text()[0].decode()
    assert metrics.event_name("UnschedulablePodUpdate", is_own=True) == name


@pytest.mark.parametrize(
    ("version", "gates", "name", "labels"),
    [
        ("1.36", {}, "scheduler_resourceclaim_creates_total", {"status": "success"}),
        (
            "1.37",
            {},
            "dynamic_resource_allocation_resourceclaim_creates_total",
            {"status": "success", "admin_access": "false", "owner_api_group": "", "owner_api_kind": "Pod"},
        ),
        ("1.36", {"DRAExtendedResource": False}, None, {}),
    ],
)
def test_created_claims_are_counted_under_the_name_of_the_version(
    version: str, gates: dict[str, bool], name: str | None, labels: dict[str, str]
):
    metrics, features = Metrics(), FakeFeatures(version, **gates)
    metrics.follow(features)
    ClaimMetrics(metrics, features).claim_created("success")

    text = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    expected = {} if name is None else {name: {f"{name}{{{text}}}": 1}}
    found = {each: series for each, series in shown(metrics).items() if "resourceclaim" in each}
    assert found == expected
