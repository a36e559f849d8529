"""Scenarios and clusters from files as workloads of simulations."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.configuration.manifests import item_of
from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError, ObjectError
from scheduler.objects.wording import child, entry
from scheduler.simulator.scenarios.scenario import load_scenario
from scheduler.tools.whatif.cluster_file import ClusterFile, ClusterFileError, parse
from scheduler.tools.whatif.documents import decoded_pod, identify
from scheduler.tools.whatif.evaluation import is_pending
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    NodeGoes,
    NodeIsCordoned,
    NodeIsDrained,
    NodeIsThere,
    ObjectIsThere,
    OwnerKeeps,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.simulator.scenarios.scenario import Scaling, Scenario, Step, WorkloadPart
    from scheduler.tools.whatif.simulation.workload import TimelineEvent


def of_cluster(cluster: ClusterFile) -> Workload:
    """Return a cluster as a workload."""
    pending: Sequence[PodInfo] = [pod for pod in cluster.pods if is_pending(pod)]
    there = [pod for pod in cluster.pods if pod.node_name]
    return Workload(
        ClusterFile(cluster.nodes, there, cluster.others),
        [Arrival(pod, 0.0) for pod in sorted(pending, key=lambda pod: -pod.priority)],
    )


_POD_GROUPS: Final = "scheduling.k8s.io/v1alpha2/podgroups"
_OWNERS: Final = {"Deployment": "ReplicaSet", "StatefulSet": "StatefulSet", "Job": "Job"}
_NAMED: Final = ("remove_node", "kill_node", "restore_node", "drain", "cordon", "uncordon")
"""Actions at a node, which they name."""


def is_scenario(data: bytes) -> bool:
    """Return whether a file is a scenario and not an API object: a mapping with `workloads`, or `nodes` without a kind."""
    try:
        value = read(data.decode()).value
    except UnicodeDecodeError:
        return False
    return isinstance(value, dict) and "kind" not in value and bool(value.keys() & {"workloads", "nodes"})


def read_scenario(path: str | Path) -> Workload:
    """Read a scenario and the files it names.

    Raises:
        ConfigurationError: all errors, by file and field.
    """
    scenario = load_scenario(path)
    try:
        return _workload(scenario, str(path))
    except ClusterFileError as error:
        raise ConfigurationError(error.faults, str(path)) from error
    except ConfigurationError as error:
        raise ConfigurationError(error.errors, str(path)) from error


def _workload(scenario: Scenario, source: str) -> Workload:
    there = of_cluster(_cluster([*scenario.node_objects(), *scenario.objects], source))
    nodes = {node.name: node for node in there.cluster.nodes}
    events: list[TimelineEvent] = []
    for step, _ in scenario.steps:
        if step.add_nodes is not None:
            added = _cluster(step.add_nodes.node_objects(), source).nodes
            nodes |= {node.name: node for node in added}
            events += [NodeIsThere(step.at.seconds, node) for node in added]
    faults = _faults(scenario, nodes)
    if faults:
        raise ConfigurationError(faults)
    arrivals = [*there.arrivals]
    for place, part in enumerate(scenario.workloads):
        scales = [step for step, _ in scenario.steps if step.scale is not None and _is_of(step.scale, part)]
        try:
            more, happen = _Pods(part).all(scales)
        except ObjectError as error:
            fault = FieldError(entry("workloads", place), f"{error.path}: {error.problem}")
            raise ConfigurationError([fault]) from error
        arrivals += more
        events += happen
    events += [
        _event(step.action, step.at.seconds, nodes[getattr(step, step.action)])
        for step, _ in scenario.steps
        if step.action in _NAMED
    ]
    return replace(
        there,
        arrivals=sorted(arrivals, key=lambda each: (each.at, -each.pod.priority)),
        events=sorted(events, key=lambda each: each.at),
    )


def _cluster(objects: list[dict[str, Any]], source: str) -> ClusterFile:
    return parse(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": objects}), source)


def _is_of(scaling: Scaling, part: WorkloadPart) -> bool:
    """Return whether a scale step is about a workload."""
    resource, _, _ = scaling.resource.partition(".")
    return (resource, scaling.namespace, scaling.name) == (part.resource, part.namespace, part.name)


class _Pods:
    """The pods of one workload."""

    def __init__(self, part: WorkloadPart) -> None:
        self._part = part
        self._number = 0

    def all(self, scales: list[Step]) -> tuple[list[Arrival], list[TimelineEvent]]:
        part = self._part
        runs = inf if part.runs is None else part.runs.seconds
        arrivals: list[Arrival] = []
        events: list[TimelineEvent] = []
        for batch, at in enumerate(part.times()):
            group = part.group_of(batch)
            if group:
                events.append(ObjectIsThere(at, _POD_GROUPS, _identified(part.pod_group(batch))))
            arrivals += [Arrival(self._pod(group), at, runs) for _ in range(part.replicas)]
        gone = 0
        for step in sorted(scales, key=lambda step: step.at):
            assert step.scale is not None
            at, wanted = step.at.seconds, step.scale.replicas
            there = sum(each.at <= at for each in arrivals) - gone
            arrivals += [Arrival(self._pod(""), at, runs) for _ in range(wanted - there)]
            gone += max(there - wanted, 0)
            events.append(OwnerKeeps(at, part.namespace, part.name, wanted))
        return arrivals, events

    def _pod(self, group: str) -> PodInfo:
        part = self._part
        template = part.template(group)
        owner = {
            "apiVersion": "batch/v1" if part.kind == "Job" else "apps/v1",
            "kind": _OWNERS[part.kind],
            "name": part.name,
            "uid": f"uid-of-{part.namespace}/{part.name}",
            "controller": True,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template["metadata"],
                "name": f"{part.name}-{self._number}",
                "namespace": part.namespace,
                "ownerReferences": [owner],
            },
            "spec": {"priority": part.priority, **template["spec"]},
            "status": {"phase": "Pending"},
        }
        self._number += 1
        return decoded_pod(identify(item_of(msgspec.json.encode(_identified(pod)), part.name)))


def _identified(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with a uid of its own."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "uid": f"uid-of-{metadata['namespace']}/{metadata['name']}"}}


def _event(action: str, at: float, node: NodeObject) -> TimelineEvent:
    match action:
        case "remove_node" | "kill_node":
            return NodeGoes(at, node.name)
        case "restore_node":
            return NodeIsThere(at, node)
        case "drain":
            return NodeIsDrained(at, node.name)
    return NodeIsCordoned(at, node.name, wanted=action == "cordon")


def _faults(scenario: Scenario, nodes: Mapping[str, NodeObject]) -> list[FieldError]:
    """Return errors for actions that a simulation has not, and for names that do not exist."""
    faults = []
    for place, (step, _) in enumerate(scenario.steps):
        where = child(entry("steps", place), step.action_field)
        if step.scale is not None:
            if not any(_is_of(step.scale, part) for part in scenario.workloads):
                what = f"{step.scale.resource} {step.scale.namespace}/{step.scale.name}"
                faults.append(FieldError(where, f"there is no workload {what}"))
        elif step.action in _NAMED:
            name = getattr(step, step.action)
            if name not in nodes:
                faults.append(FieldError(where, f"there is no node {name}"))
        elif step.add_nodes is None:
            faults.append(FieldError(where, "only the simulated API server can do this, not a simulation"))
    return faults
