"""Scenarios and clusters from files as workloads of simulations."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.clock import SystemClock
from scheduler.configuration.manifests import item_of
from scheduler.configuration.yaml_text import read
from scheduler.errors import AdmissionError, ConfigurationError, FieldError, ObjectError
from scheduler.objects.admission import set_priority
from scheduler.objects.wording import child, entry
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.registry.registry import Registry
from scheduler.tools.simulator.registry.store import Store
from scheduler.tools.simulator.scenarios.scenario import load_scenario
from scheduler.tools.whatif.cluster_file import ClusterFile, ClusterFileError, parse
from scheduler.tools.whatif.documents import decoded_pod, identify, plural
from scheduler.tools.whatif.evaluation import is_pending
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    NodeGoes,
    NodeIsCordoned,
    NodeIsDrained,
    NodeIsThere,
    ObjectIsThere,
    OwnerKeeps,
    PodIsResized,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.scenarios.scenario import Scaling, Scenario, Step, WorkloadPart
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
_OWNERS: Final = {
    "Deployment": ("apps/v1", "ReplicaSet"),
    "StatefulSet": ("apps/v1", "StatefulSet"),
    "Job": ("batch/v1", "Job"),
}
"""Kind of a workload -> the apiVersion and the kind of the controller of its pods."""
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
    classes = _PriorityClasses(scenario.objects)
    objects = [
        classes.admitted(obj, "manifests") if obj["kind"] == "Pod" else obj for obj in scenario.objects
    ]
    there = of_cluster(_cluster([*scenario.node_objects(), *objects], source))
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
            more, happen = _Pods(part, classes, entry("workloads", place)).all(scales)
        except ObjectError as error:
            fault = FieldError(entry("workloads", place), f"{error.path}: {error.problem}")
            raise ConfigurationError([fault]) from error
        arrivals += more
        events += happen
    events += _resizes(scenario, [*there.cluster.pods, *(each.pod for each in arrivals)])
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


class _PriorityClasses:
    """Gives pods the priorities of their PriorityClasses, as the API server does.

    Args:
        objects: the objects of the scenario.

    Raises:
        ConfigurationError: a PriorityClass is invalid.
    """

    def __init__(self, objects: Iterable[dict[str, Any]]) -> None:
        self._registry = Registry(clock=SystemClock(), kinds=builtin_kinds(), seed=0, history=1)
        store = Store(self._registry)
        store.bootstrap()
        for obj in objects:
            if obj["kind"] == "PriorityClass":
                try:
                    store.apply(obj)
                except StatusError as error:
                    raise ConfigurationError([FieldError("manifests", error.message)]) from error

    def admitted(self, pod: dict[str, Any], where: str) -> dict[str, Any]:
        """Return a pod with the priority of its class; one that has a priority stays as it is.

        Raises:
            ConfigurationError: there is no such class; `where` is the field that names the pod.
        """
        spec = pod.get("spec")
        if not isinstance(spec, dict) or "priority" in spec:
            return pod
        admitted = {**pod, "spec": {**spec}}
        try:
            set_priority(admitted["spec"], self._registry)
        except AdmissionError as error:
            raise ConfigurationError([FieldError(where, str(error))]) from error
        return admitted


def _is_of(scaling: Scaling, part: WorkloadPart) -> bool:
    """Return whether a scale step is about a workload."""
    resource, _, _ = scaling.resource.partition(".")
    return (resource, scaling.namespace, scaling.name) == (part.resource, part.namespace, part.name)


class _Pods:
    """The pods of one workload; `where` is its field."""

    def __init__(self, part: WorkloadPart, classes: _PriorityClasses, where: str) -> None:
        self._part, self._classes, self._where = part, classes, where
        self._api_version, self._owner = _OWNERS[part.kind]
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
            kind = f"{self._api_version}/{plural(self._owner)}"
            events.append(OwnerKeeps(at, kind, part.namespace, part.name, wanted))
        return arrivals, events

    def _pod(self, group: str) -> PodInfo:
        part = self._part
        template = part.template(group)
        owner = {
            "apiVersion": self._api_version,
            "kind": self._owner,
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
            "spec": {**({"priority": part.priority} if part.priority else {}), **template["spec"]},
            "status": {"phase": "Pending"},
        }
        self._number += 1
        pod = self._classes.admitted(_identified(pod), self._where)
        return decoded_pod(identify(item_of(msgspec.json.encode(pod), part.name)))


def _identified(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with a uid of its own."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "uid": f"uid-of-{metadata['namespace']}/{metadata['name']}"}}


def _resizes(scenario: Scenario, pods: Iterable[PodInfo]) -> list[TimelineEvent]:
    """Return the resizes of pods.

    Raises:
        ConfigurationError: there is no such pod or container.
    """
    by_key = {pod.key: pod for pod in pods}
    faults: list[FieldError] = []
    events: list[TimelineEvent] = []
    for place, (step, _) in enumerate(scenario.steps):
        if step.resize is None:
            continue
        key, container = f"{step.resize.namespace}/{step.resize.name}", step.resize.container
        where, pod = child(entry("steps", place), step.action_field), by_key.get(key)
        if pod is None:
            faults.append(FieldError(child(where, "name"), f"there is no pod {key}"))
        elif container and all(each.name != container for each in pod.pod.spec.containers):
            faults.append(FieldError(child(where, "container"), f"pod {key} has no container {container}"))
        events.append(PodIsResized(step.at.seconds, key, container, step.resize.requests))
    if faults:
        raise ConfigurationError(faults)
    return events


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
        elif step.add_nodes is None and step.resize is None:
            faults.append(FieldError(where, "only the simulated API server can do this, not a simulation"))
    return faults
