from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.kinds import age, human_duration
from scheduler.tools.simulator.printing.printers import printer_of
from scheduler.tools.simulator.printing.workloads import pod_cells

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 60, "3h1m"),
        (9 * HOUR, "9h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (10 * DAY, "10d"),
        (800 * DAY, "2y70d"),
        (9 * 365 * DAY, "9y"),
    ],
)
def test_a_duration_is_printed_in_short_form(seconds: int, shown: Any):
    assert human_duration(seconds) == shown


def test_an_unknown_age_is_printed_as_unknown():
    assert age(None, NOW) == "<unknown>"
    assert age("2026-01-01T11:59:00Z", NOW) == "60s"


def container(ready: bool = True, restarts: int = 0, **state: object) -> dict:
    return {"name": "c", "ready": ready, "restartCount": restarts, "state": state}


RUNNING = container(running={})
COMPLETED = container(False, terminated={"exitCode": 0, "reason": "Completed"})


@pytest.mark.parametrize(
    ("status", "spec", "metadata", "shown"),
    [
        pytest.param({"phase": "Pending"}, {}, {}, ("0/1", "Pending", "0"), id="pending"),
        pytest.param(
            {"phase": "Running", "containerStatuses": [RUNNING]},
            {},
            {},
            ("1/1", "Running", "0"),
            id="running",
        ),
        pytest.param(
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            {},
            {},
            ("0/1", "SchedulingGated", "0"),
            id="gated",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "OutOfcpu"}, {}, {}, ("0/1", "OutOfcpu", "0"), id="rejected"
        ),
        pytest.param(
            {"phase": "Running"},
            {},
            {"deletionTimestamp": "x"},
            ("0/1", "Terminating", "0"),
            id="terminating",
        ),
        pytest.param(
            {"phase": "Failed"},
            {},
            {"deletionTimestamp": "x"},
            ("0/1", "Failed", "0"),
            id="ended and terminating",
        ),
        pytest.param(
            {
                "phase": "Running",
                "containerStatuses": [container(False, 3, waiting={"reason": "CrashLoopBackOff"})],
            },
            {},
            {},
            ("0/1", "CrashLoopBackOff", "3"),
            id="crashing",
        ),
        pytest.param(
            {"phase": "Succeeded", "containerStatuses": [COMPLETED]},
            {},
            {},
            ("0/1", "Completed", "0"),
            id="completed",
        ),
        pytest.param(
            {
                "phase": "Running",
                "containerStatuses": [RUNNING, COMPLETED],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
            {"containers": [{}, {}]},
            {},
            ("1/2", "Running", "0"),
            id="one of two completed",
        ),
        pytest.param(
            {
                "phase": "Failed",
                "containerStatuses": [container(False, terminated={"exitCode": 137, "signal": 9})],
            },
            {},
            {},
            ("0/1", "Signal:9", "0"),
            id="killed",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [container(False, waiting={"reason": "PodInitializing"})],
            },
            {"initContainers": [{"name": "c"}, {"name": "d"}]},
            {},
            ("0/1", "Init:0/2", "0"),
            id="initializing",
        ),
        pytest.param(
            {"phase": "Pending", "initContainerStatuses": [container(False, 2, terminated={"exitCode": 1})]},
            {"initContainers": [{"name": "c"}]},
            {},
            ("0/1", "Init:ExitCode:1", "2"),
            id="an init container failed",
        ),
        pytest.param(
            {
                "phase": "Running",
                "initContainerStatuses": [{**RUNNING, "started": True}],
                "containerStatuses": [RUNNING],
            },
            {"initContainers": [{"name": "c", "restartPolicy": "Always"}]},
            {},
            ("2/2", "Running", "0"),
            id="a sidecar",
        ),
    ],
)
def test_the_state_of_a_pod_is_printed_in_one_word(
    status: dict[str, Any], spec: Any, metadata: Any, shown: Any
):
    pod = {"metadata": {"name": "a", **metadata}, "spec": {"containers": [{}], **spec}, "status": status}

    assert tuple(pod_cells(pod, NOW)[1:4]) == shown


def test_the_wide_columns_of_a_pod_include_its_node():
    pod = {
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T11:59:30Z"},
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "x"}]},
        "status": {
            "podIPs": [{"ip": "10.0.0.1"}],
            "nominatedNodeName": "n2",
            "conditions": [{"type": "x", "status": "True"}],
        },
    }

    assert pod_cells(pod, NOW)[4:] == ["30s", "10.0.0.1", "n1", "n2", "1/1"]


def test_a_cordoned_node_is_printed_as_such():
    cells = printer_of("nodes").cells(
        {
            "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": True},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        },
        NOW,
    )

    assert cells[1:3] == ["NotReady,SchedulingDisabled", "worker"]


def test_a_network_policy_prints_its_pod_selector():
    metadata = {"name": "p", "creationTimestamp": "2026-01-01T11:59:00Z"}
    policy = {"metadata": metadata, "spec": {"podSelector": {"matchLabels": {"b": "2", "a": "1"}}}}

    assert printer_of("networkpolicies.networking.k8s.io").cells(policy, NOW) == ["p", "a=1,b=2", "60s"]


@pytest.mark.parametrize(
    ("spec", "conditions", "shown"),
    [
        pytest.param({}, {}, ["g", "Gang", "<none>", "Pending", "60s"], id="new"),
        pytest.param(
            {"schedulingPolicy": {"basic": {}}}, {}, ["g", "Basic", "<none>", "Pending", "60s"], id="basic"
        ),
        pytest.param(
            {"podGroupTemplateRef": {"workload": {"workloadName": "w"}}},
            {"PodGroupScheduled": "True"},
            ["g", "Gang", "w", "Scheduled", "60s"],
            id="scheduled",
        ),
        pytest.param(
            {},
            {"PodGroupScheduled": "False"},
            ["g", "Gang", "<none>", "Unschedulable", "60s"],
            id="unschedulable",
        ),
        pytest.param(
            {},
            {"DisruptionTarget": "True", "PodGroupScheduled": "True"},
            ["g", "Gang", "<none>", "why DisruptionTarget", "60s"],
            id="disrupted",
        ),
    ],
)
def test_a_pod_group_prints_its_policy_and_status(spec: dict, conditions: dict, shown: list):
    listed = [{"type": type_, "status": is_, "reason": f"why {type_}"} for type_, is_ in conditions.items()]
    group = {
        "metadata": {"name": "g", "creationTimestamp": "2026-01-01T11:59:00Z"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}} | spec,
        "status": {"conditions": listed},
    }

    assert printer_of("podgroups.scheduling.k8s.io").cells(group, NOW) == shown


def test_a_composite_group_prints_its_policy_and_parent():
    group = {
        "metadata": {"name": "c", "creationTimestamp": "2026-01-01T11:59:00Z"},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "workloadRef": {"workloadName": "w", "templateName": "t"},
            "parentCompositePodGroupName": "root",
        },
    }
    printer = printer_of("compositepodgroups.scheduling.k8s.io")

    assert printer.cells(group, NOW) == ["c", "Gang", "w", "root", "60s"]
    del group["spec"]["parentCompositePodGroupName"]
    assert printer.cells(group, NOW)[3] == "<none>"


@pytest.mark.parametrize(
    "resource", ["pods", "nodes", "events", "namespaces", "services", "configmaps", "deployments.apps", "replicasets.apps",
                 "leases.coordination.k8s.io", "priorityclasses.scheduling.k8s.io", "csinodes.storage.k8s.io", "networkpolicies.networking.k8s.io",
                 "podgroups.scheduling.k8s.io", "compositepodgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"],
)  # fmt: skip
def test_every_column_is_described(resource: str):
    for column in printer_of(resource).columns:
        description = column.definition()["description"]
        assert description
        assert not description.startswith(":")
