"""Names in metrics that differ between versions of Kubernetes."""

from __future__ import annotations

import pytest

from plugins.dynamic_resources.claim_writes import ClaimMetrics
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.testing.fakes import FakeFeatures


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.36", ["UnschedulablePodUpdate", "UnschedulablePodUpdatePodLabel", "NodeAdd"]),
        ("1.37", ["UnscheduledPodUpdate", "TargetPodUpdatePodLabel", "NodeAdd"]),
    ],
)
def test_events_of_pods_without_a_node_have_the_names_of_the_version(version: str, names: list[str]):
    metrics = Metrics(FakeFeatures(version))
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
    metrics = Metrics(FakeFeatures(version))
    metrics.hint_asked("NodeAffinity", "UnschedulablePodUpdate", "Queue", 0.1)

    assert f'event="{name}"' in metrics.text()[0].decode()
    assert metrics.event_name("UnschedulablePodUpdate", is_own=True) == name


@pytest.mark.parametrize(
    ("version", "name", "labels"),
    [
        ("1.36", "scheduler_resourceclaim_creates_total", {"status": "success"}),
        (
            "1.37",
            "dynamic_resource_allocation_resourceclaim_creates_total",
            {"status": "success", "admin_access": "false", "owner_api_group": "", "owner_api_kind": "Pod"},
        ),
    ],
)
def test_created_claims_are_counted_under_the_name_of_the_version(
    version: str, name: str, labels: dict[str, str]
):
    metrics = Metrics()
    ClaimMetrics(metrics, FakeFeatures(version)).claim_created("success")

    shown = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    assert any(
        line.startswith(name) and set(line[len(name) + 1 :].split("}")[0].split(",")) == set(shown.split(","))
        for line in metrics.text()[0].decode().splitlines()
    )
