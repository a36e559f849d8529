"""Scenarios of simulations: a generated cluster, its workloads, and its changes, from a YAML file.

nodes:                # groups of identical nodes, as in scenarios of the simulated API server
- {name: general, count: 20, cpu: "8", memory: 32Gi, zones: [a, b]}
manifests: [web.yaml] # other objects, in files beside this one or inline: nodes, pods, PodGroups, claims, priorities
workloads:            # pods that arrive
- {name: web, replicas: 30, cpu: 500m, memory: 1Gi}
- {name: batch, kind: Job, replicas: 2, cpu: "2", runs: 10m, every: 30s, until: 2h, priority: -5}
- {name: train, kind: Job, replicas: 4, cpu: "4", runs: 1h, at: 20m, every: 1h, until: 8h, gang: true}
steps:                # each at a time since the beginning
- {at: 30m, addNodes: {name: more, count: 5, cpu: "8", memory: 32Gi}}
- {at: 40m, scale: {name: web, replicas: 60}}
- {at: 1h, drain: general-3}
- {at: 90m, failNode: general-4}
- {at: 2h, removeNode: more-0}
- {at: 3h, cordon: general-5}
- {at: 4h, uncordon: general-5}
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError, ObjectError
from scheduler.objects.durations import Duration
from scheduler.objects.wording import child, entry
from scheduler.simulator.scenarios.manifests import objects_of
from scheduler.simulator.scenarios.parts import TimedPart, read_document
from scheduler.simulator.scenarios.scenario import NodeGroup, Scenario
from scheduler.tools.whatif.cluster_file import ClusterFileError, parse
from scheduler.tools.whatif.documents import item_of
from scheduler.tools.whatif.simulation.cluster_workload import of_cluster
from scheduler.tools.whatif.simulation.timeline import (
    NodeGoes,
    NodeIsCordoned,
    NodeIsDrained,
    NodeIsThere,
    ObjectIsThere,
    OwnerKeeps,
)
from scheduler.tools.whatif.simulation.workload import Arrival, Workload
from scheduler.tools.whatif.typed_items import decoded_pod, identify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.simulation.timeline import TimelineEvent

_POD_GROUPS: Final = "scheduling.k8s.io/v1alpha2/podgroups"
_OWNERS: Final = {"Deployment": "ReplicaSet", "StatefulSet": "StatefulSet", "Job": "Job"}


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all parts of a scenario."""


class WorkloadPart(_Part, frozen=True, kw_only=True):
    """Identical pods.

    Attributes:
        name: prefix of their names.
        kind: kind of their owner, which replaces evicted pods.
        replicas: number of pods that arrive at a time.
        cpu: request of each pod, as a quantity; `memory` and `resources` are requests too.
        spec: other fields of their spec.
        at: time of the first arrival.
        every: average time between arrivals; None for only one.
        until: time after which none arrive.
        random: whether arrivals are random, seeded by the name, instead of regular.
        runs: run time of each pod; None for no end.
        gang: whether the pods of an arrival are placed together.
    """

    name: str
    kind: Literal["Deployment", "StatefulSet", "Job"] = "Deployment"
    namespace: str = "default"
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    cpu: str | None = None
    memory: str | None = None
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    priority: int = 0
    spec: dict[str, Any] = {}
    at: Duration = Duration()
    every: Duration | None = None
    until: Duration | None = None
    random: bool = False
    runs: Duration | None = None
    gang: bool = False

    def __post_init__(self) -> None:
        if (self.every is None) != (self.until is None):
            raise ValueError("must have both every and until, or neither")
        if self.every is not None and self.every.seconds <= 0:
            raise ValueError("every must be more than 0")
        for name, duration in (("at", self.at), ("runs", self.runs)):
            if duration is not None and duration.seconds < 0:
                raise ValueError(f"{name} must not be negative, was {duration}")


class ScalePart(_Part, frozen=True, kw_only=True):
    """A change of the number of pods of a workload."""

    name: str
    replicas: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class StepPart(TimedPart, frozen=True, kw_only=True):
    """A change at a time."""

    add_nodes: NodeGroup | None = None
    remove_node: str | None = None
    fail_node: str | None = None
    drain: str | None = None
    cordon: str | None = None
    uncordon: str | None = None
    scale: ScalePart | None = None


class _File(_Part, frozen=True, kw_only=True):
    nodes: tuple[NodeGroup, ...] = ()
    manifests: tuple[str | dict[str, Any], ...] = ()
    workloads: tuple[WorkloadPart, ...] = ()
    steps: tuple[StepPart, ...] = ()


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
    path = Path(path)
    found = read_document(path, _File)
    errors: list[FieldError] = []
    objects = [*Scenario(found.nodes, {}, (), ()).node_objects()]
    for place, manifest in enumerate(found.manifests):
        objects += objects_of(manifest, path.parent, entry("manifests", place), errors)
    errors += _faults(found, {obj["metadata"]["name"] for obj in objects if obj.get("kind") == "Node"})
    if errors:
        raise ConfigurationError(errors, str(path))
    try:
        there = of_cluster(
            parse(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": objects}), str(path))
        )
        return _with(found, there)
    except ClusterFileError as error:
        raise ConfigurationError(error.faults, str(path)) from error
    except ConfigurationError as error:
        raise ConfigurationError(error.errors, str(path)) from error


def _with(found: _File, there: Workload) -> Workload:
    arrivals, events = [*there.arrivals], []
    for place, part in enumerate(found.workloads):
        scales = [step for step in found.steps if step.scale is not None and step.scale.name == part.name]
        try:
            more, happen = _Made(part).all(scales)
        except ObjectError as error:
            fault = FieldError(entry("workloads", place), f"{error.path}: {error.problem}")
            raise ConfigurationError([fault]) from error
        arrivals += more
        events += happen
    for step in found.steps:
        events += _events(step)
    return replace(
        there,
        arrivals=sorted(arrivals, key=lambda each: (each.at, -each.pod.priority)),
        events=sorted(events, key=lambda each: each.at),
    )


class _Made:
    """The pods of one workload."""

    def __init__(self, part: WorkloadPart) -> None:
        self._part = part
        self._number = 0

    def all(self, scales: list[StepPart]) -> tuple[list[Arrival], list[TimelineEvent]]:
        part = self._part
        runs = inf if part.runs is None else part.runs.seconds
        arrivals: list[Arrival] = []
        events: list[TimelineEvent] = []
        for batch, at in enumerate(self._times()):
            group = f"{part.name}-{batch}" if part.gang else ""
            if group:
                events.append(ObjectIsThere(at, _POD_GROUPS, _pod_group(part, group)))
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

    def _times(self) -> Iterator[float]:
        part, random = self._part, Random(self._part.name)
        at = part.at.seconds
        yield at
        if part.every is None or part.until is None:
            return
        while True:
            at += random.expovariate(1.0 / part.every.seconds) if part.random else part.every.seconds
            if at >= part.until.seconds:
                return
            yield at

    def _pod(self, group: str) -> PodInfo:
        part = self._part
        name = f"{part.name}-{self._number}"
        self._number += 1
        asked = {
            key: value for key, value in (("cpu", part.cpu), ("memory", part.memory)) if value is not None
        } | part.resources
        owner = {
            "apiVersion": "batch/v1" if part.kind == "Job" else "apps/v1",
            "kind": _OWNERS[part.kind],
            "name": part.name,
            "uid": f"uid-of-{part.namespace}/{part.name}",
            "controller": True,
        }
        resources: dict[str, Any] = {"requests": asked}
        if part.resources:
            resources["limits"] = part.resources
        spec: dict[str, Any] = {
            "schedulerName": "custom-scheduler",
            "priority": part.priority,
            "containers": [{"name": "main", "image": "pause", "resources": resources}],
            **part.spec,
        }
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        labels = {"app": part.name, **part.labels}
        metadata = {
            "name": name,
            "namespace": part.namespace,
            "uid": f"uid-of-{part.namespace}/{name}",
            "labels": labels,
            "annotations": part.annotations,
            "ownerReferences": [owner],
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        return decoded_pod(identify(item_of(msgspec.json.encode(pod), part.name)))


def _pod_group(part: WorkloadPart, name: str) -> Mapping[str, Any]:
    metadata = {"name": name, "namespace": part.namespace, "uid": f"uid-of-{part.namespace}/{name}"}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"schedulingPolicy": {"gang": {"minCount": part.replicas}}},
    }


def _events(step: StepPart) -> Iterator[TimelineEvent]:
    at = step.at.seconds
    if step.add_nodes is not None:
        items = Scenario((step.add_nodes,), {}, (), ()).node_objects()
        text = msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": items})
        for node in parse(text, "addNodes").nodes:
            yield NodeIsThere(at, node)
    for name in (step.remove_node, step.fail_node):
        if name is not None:
            yield NodeGoes(at, name)
    if step.drain is not None:
        yield NodeIsDrained(at, step.drain)
    if step.cordon is not None:
        yield NodeIsCordoned(at, step.cordon)
    if step.uncordon is not None:
        yield NodeIsCordoned(at, step.uncordon, wanted=False)


def _faults(found: _File, nodes: set[str]) -> list[FieldError]:
    """Return errors for names that do not exist."""
    known = nodes | {
        name for step in found.steps if step.add_nodes is not None for name in step.add_nodes.node_names
    }
    workloads = {part.name for part in found.workloads}
    faults = []
    for place, step in enumerate(found.steps):
        where = entry("steps", place)
        named = {"removeNode": step.remove_node, "failNode": step.fail_node, "drain": step.drain}
        named |= {"cordon": step.cordon, "uncordon": step.uncordon}
        faults += [
            FieldError(child(where, field), f"there is no node {name}")
            for field, name in named.items()
            if name is not None and name not in known
        ]
        if step.scale is not None and step.scale.name not in workloads:
            faults.append(
                FieldError(child(child(where, "scale"), "name"), f"there is no workload {step.scale.name}")
            )
    seen: set[str] = set()
    for place, part in enumerate(found.workloads):
        if part.name in seen:
            faults.append(
                FieldError(child(entry("workloads", place), "name"), "is the name of another workload")
            )
        seen.add(part.name)
    return faults
