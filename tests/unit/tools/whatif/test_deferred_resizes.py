"""Explanations of pods whose resize is deferred, without a cluster: what their node lacks, and the victims."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.evaluation import evaluate_each
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.clusters import scheduler_of
from tests.unit.tools.whatif.test_table import shown

MESSAGE = "Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": MESSAGE}


def grows(cpu: str = "3", *, has: str = "1", name: str = "grows", **more: Any) -> dict[str, Any]:
    """Return a pod on node n that has an amount of cpu, and waits for another one."""
    of_container = {
        "name": "main",
        "resources": {"requests": {"cpu": has}},
        "allocatedResources": {"cpu": has},
    }
    status = {"phase": "Running", "conditions": [DEFERRED], "containerStatuses": [of_container]}
    return pod_object(name, cpu=cpu, node="n", status=status, **{"priority": 10, **more})


def running(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return pod_object(name, cpu=cpu, node="n", **more)


def explained(pod: dict[str, Any], *others: Any, config: str = "") -> dict[str, Any]:
    scheduler = scheduler_of(node_object("n", cpu="4"), pod, *others, config=config)
    (found,) = evaluate_each(scheduler, [decode_pod(json.dumps(pod).encode())])
    return found.explanation


def verdict(*cluster: Any, **options: Any) -> str:
    """Return the part of the verdict about the resize."""
    return str(explained(*cluster, **options)["verdict"]).partition(" If it were pending")[0]


def test_the_missing_amounts_and_the_victims_are_named():
    found = explained(grows(), running("low", "2"), running("high", "1", priority=20))

    assert found["resize"] == {
        "reason": "Deferred",
        "message": MESSAGE,
        "allocated": {"cpu": "1"},
        "requested": {"cpu": "3"},
        "missing": {"cpu": "2"},
        "heldByOthers": {},
        "preemption": {
            "candidates": {"n": {"victims": ["default/low"], "pdbViolations": 0}},
            "nominated": ["n"],
        },
    }
    assert found["verdict"] == (
        "Pod default/grows is on node n, which lacks 2 cpu for its resize. It would fit without default/low. "
        "If it were pending, it does not fit on the only node. Preemption could free n for it. It would fit if: its cpu "
        "request were 1 or less (now 3); or one node like n were added."
    )
    assert f"Resize to 3 cpu (allocated: 1) deferred by the kubelet: {MESSAGE}" in shown(found, width=200)


def test_only_as_many_victims_as_needed_are_named():
    others = [running("a", "1", priority=1), running("b", "1", priority=2), running("c", "1", priority=3)]

    assert verdict(grows("2"), *others).endswith("It would fit without default/a.")


@pytest.mark.parametrize(
    ("pod", "other", "expected"),
    [
        pytest.param(grows(preemptionPolicy="Never"), running("low", "3"), "The pod preempts no other pod.", id="never"),
        pytest.param(
            grows(),
            running("high", "3", priority=10),
            "The eviction of pods with a lower priority is not enough there, or not possible.",
            id="no pods of lower priority",
        ),
    ],
)  # fmt: skip
def test_a_resize_without_victims_has_a_reason(pod: Any, other: Any, expected: str):
    assert (
        verdict(pod, other) == f"Pod default/grows is on node n, which lacks 2 cpu for its resize. {expected}"
    )


def test_a_protected_pod_is_named():
    config = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args: {protection: {minRunTime: {preemption: 1h}}}
"""
    low = running("low", "3", status={"phase": "Running", "startTime": "2999-01-01T00:00:00Z"})

    assert "There pod default/low is protected from preemption until" in verdict(grows(), low, config=config)


def test_a_disruption_budget_is_respected_where_possible():
    labels = {"app": "a"}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default", "uid": "a"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": 0},
    }
    guarded, free = running("guarded", "1", labels=labels), running("free", "1", priority=5)

    assert verdict(grows(), guarded, free, running("x", "1", priority=20), budget).endswith(
        "It would fit without default/free, default/guarded, against the PodDisruptionBudgets of 1 of them."
    )
    assert verdict(grows("2"), guarded, free, running("x", "1", priority=20), budget).endswith(
        "It would fit without default/free."
    )


def test_what_other_deferred_resizes_hold_is_named():
    other = grows("2", name="other")

    found = explained(grows(), other)
    assert found["resize"]["heldByOthers"] == {"default/other": {"cpu": "1"}}
    assert (
        "which lacks 1 cpu for its resize. The deferred resize of default/other holds 1 cpu."
        in found["verdict"]
    )


def test_a_resize_that_fits_waits_for_its_kubelet():
    assert verdict(grows(), running("low", "1")) == (
        "Pod default/grows is on node n, which has the capacity for its resize; the kubelet carries it out."
    )


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(running("grows", "1"), id="no resize"),
        pytest.param({**grows(), "spec": {**grows()["spec"], "nodeName": "gone"}}, id="its node is gone"),
    ],
)
def test_other_pods_on_nodes_have_no_resize(pod: dict[str, Any]):
    assert "resize" not in explained(pod)


def test_a_resize_ignores_the_filters_that_the_pod_has_passed():
    pod = grows(nodeSelector={"disk": "ssd"})
    assert verdict(pod, running("low", "3")).endswith("It would fit without default/low.")


def test_the_explanation_of_another_pod_names_the_resize_that_holds_capacity():
    waits = pod_object("waits", cpu="1")
    node = explained(waits, grows("4", has="2"))["nodes"]["n"]

    assert node["details"] == ["needs 1 cpu, 0 free of 4, 2 held for the deferred resizes of default/grows"]
