"""The cases of pod groups in Kubernetes 1.37: their short forms become cases as those of 1.36 are stored."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.conformance.groups import Case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = Path(__file__).parent / "cases_1_37" / "groups.yaml"
_CONDITION = "PodGroupScheduled"


@cache
def cases_1_37() -> dict[str, Case]:
    """Return every case by its name."""
    return {short["name"]: Case(_whole(short)) for short in yaml.safe_load(FILE.read_text())}


def _whole(short: Mapping[str, Any]) -> dict[str, Any]:
    batches = [list(_objects(short["create"])), list(_objects(short.get("then", ())))]
    first, then = batches
    end = short["end"]
    pods = {name: _state(state) for name, state in end["pods"].items()}
    before = [obj["metadata"]["name"] for obj in first if obj["kind"] == "Pod"] if then else []
    return {
        "name": short["name"],
        "version": "1.37",
        "featureGates": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
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
                "podGroups": {name: _condition(each) for name, each in end.get("groups", {}).items()},
            }
        ],
        "evictedByScheduler": end.get("evicted", []),
    }


def _objects(shorts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
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
                    "metadata": {"name": name},
                    "spec": _pod_spec(short),
                }
        else:
            yield _group(short)


def _group(short: Mapping[str, Any]) -> dict[str, Any]:
    gang = {"gang": {"minCount": short["minCount"]}} if "minCount" in short else {"basic": {}}
    spec: dict[str, Any] = {"schedulingPolicy": gang}
    if "class" in short:
        spec["priorityClassName"] = short["class"]
    if "all" in short:
        spec["disruptionMode"] = "PodGroup"
    if "topology" in short:
        spec["schedulingConstraints"] = {"topology": [{"key": short["topology"]}]}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": short["group"]},
        "spec": spec,
    }


def _pod_spec(short: Mapping[str, Any]) -> dict[str, Any]:
    requests = {"requests": {"cpu": short["cpu"]}}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "i", "resources": requests}],
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
    return spec


def _state(short: Any) -> Any:
    """Return the entry of a pod; None if it is gone."""
    if short == "gone":
        return None
    if isinstance(short, str):
        return {"node": short}
    pending = {"status": "False", "reason": short["reason"], "message": short["message"]}
    return {"node": "", "PodScheduled": pending}


def _condition(short: Any) -> list[dict[str, Any]]:
    if short == "Scheduled":
        return [{"type": _CONDITION, "status": "True", "reason": "Scheduled", "message": ""}]
    return [{"type": _CONDITION, "status": "False", **short}]
