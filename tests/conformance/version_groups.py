"""The cases of pod groups in Kubernetes versions: their short forms become scenarios as those of 1.36 are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.feature_gates import stages_at, written_gates
from tests.conformance.groups import GATES, Case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.conformance.version_cases import VersionCase

_API_VERSIONS = {"1.36": "v1alpha2", "1.37": "v1beta1"}
_CONDITIONS = {"1.36": "PodGroupScheduled", "1.37": "PodGroupInitiallyScheduled"}


def scenario_of(case: VersionCase) -> Case:
    """Return a case with its objects; the gates of groups that it does not name are on."""
    stored, version, expected = case.stored, case.version, case.expected
    gates = {gate: True for gate in GATES if gate in stages_at(version)} | case.gates
    first = list(_objects(stored["create"], version))
    then = list(_objects(stored.get("then", ()), version))
    pods = {name: _state(state) for name, state in expected["pods"].items()}
    groups = {name: _condition(each, version) for name, each in expected.get("groups", {}).items()}
    before = [obj["metadata"]["name"] for obj in first if obj["kind"] == "Pod"] if then else []
    scenario = {
        "name": case.name,
        "version": version,
        "featureGates": written_gates(gates),
        "initialNodes": [obj for obj in first if obj["kind"] == "Node"],
        "steps": [
            {"create": [obj for obj in first if obj["kind"] != "Node"]},
            {"waitUntilBound": before},
            {"create": then},
            {"observe": "end"},
        ],
        "observed": [
            {
                "at": "end",
                "boundCount": sum(bool(state and state["node"]) for state in pods.values()),
                "pods": pods,
                "podGroups": groups,
            }
        ],
        "evictedByScheduler": expected.get("evicted", []),
    }
    return Case(scenario)


def _objects(shorts: Sequence[dict[str, Any]], version: str) -> Iterator[dict[str, Any]]:
    for short in shorts:
        if "node" in short:
            yield {
                "kind": "Node",
                "metadata": {"name": short["node"], "labels": short.get("labels", {})},
                "status": {"allocatable": {"cpu": short["cpu"], "memory": "16Gi", "pods": "110"}},
            }
        elif "pods" in short:
            for name in short["pods"]:
                yield {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "labels": short.get("labels", {})},
                    "spec": _pod_spec(short),
                }
        elif "budget" in short:
            yield {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": short["budget"]},
                "spec": {
                    "minAvailable": short["minAvailable"],
                    "selector": {"matchLabels": short["labels"]},
                },
            }
        else:
            yield _group(short, version)


def _group(short: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return a PodGroup or CompositePodGroup."""
    minimum = "minGroupCount" if "composite" in short else "minCount"
    gang = {"gang": {minimum: short[minimum]}} if minimum in short else {"basic": {}}
    spec: dict[str, Any] = {"schedulingPolicy": gang}
    if "composite" in short or "parent" in short:
        spec["workloadRef"] = {"workloadName": "w", "templateName": "t"}
    if "parent" in short:
        spec["parentCompositePodGroupName"] = short["parent"]
    if "class" in short:
        spec["priorityClassName"] = short["class"]
    if "all" in short:
        spec["disruptionMode"] = "PodGroup" if version == "1.36" else {"all": {}}
    if "topology" in short:
        spec["schedulingConstraints"] = {"topology": [{"key": short["topology"]}]}
    if "composite" in short:
        metadata = {"name": short["composite"]}
        api_version = "scheduling.k8s.io/v1alpha3"
        return {"apiVersion": api_version, "kind": "CompositePodGroup", "metadata": metadata, "spec": spec}
    return {
        "apiVersion": f"scheduling.k8s.io/{_API_VERSIONS[version]}",
        "kind": "PodGroup",
        "metadata": {"name": short["group"]},
        "spec": spec,
    }


def _pod_spec(short: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": short["cpu"]}},
    }
    if "port" in short:
        container["ports"] = [{"containerPort": short["port"], "hostPort": short["port"]}]
    spec: dict[str, Any] = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": short.get("selector", {}),
    }
    if "group" in short:
        spec["schedulingGroup"] = {"podGroupName": short["group"]}
    if "class" in short:
        spec["priorityClassName"] = short["class"]
    if "gate" in short:
        spec["schedulingGates"] = [{"name": short["gate"]}]
    if "prefers" in short:
        terms = [{"key": key, "operator": "In", "values": [value]} for key, value in short["prefers"].items()]
        preferred = [{"weight": 100, "preference": {"matchExpressions": terms}}]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return spec | short.get("spec", {})


def _state(short: Any) -> Any:
    """Return the entry of a pod; None if it is gone."""
    if short == "gone":
        return None
    if isinstance(short, str):
        return {"node": "" if short == "pending" else short}
    pending = {"status": "False", "reason": short["reason"], "message": short["message"]}
    return {"node": "", "PodScheduled": pending}


def _condition(short: Any, version: str) -> list[dict[str, Any]]:
    if short == "none":
        return []
    if short == "Scheduled":
        return [{"type": _CONDITIONS[version], "status": "True", "reason": "Scheduled", "message": ""}]
    return [{"type": _CONDITIONS[version], "status": "False", **short}]
