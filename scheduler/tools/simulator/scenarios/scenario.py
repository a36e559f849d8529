"""Scenarios: an initial cluster, its workloads and a sequence of actions, from a YAML file.

`api-server --scenario` plays them on the simulated API server, `simulate` on a cluster in memory in virtual time; the latter
refuses the actions that concern requests, volumes or devices. docs/simulate.md describes the fields.

nodes:                      # groups of identical nodes
- name: general             # general-0, general-1, ...
  count: 3
  cpu: "4"                  # also memory, pods, resources, labels, taints, zones
  drivers:                  # storage drivers: volume limit of a node, topology keys
  - {name: disk.example.com, limit: 16, topologyKeys: [topology.kubernetes.io/zone]}
  devices:                  # of each node: gpu-0, gpu-1, ...
  - {driver: gpu.example.com, name: gpu, count: 4, attributes: {model: a100}, capacity: {memory: 40Gi}}
provisioners: {slow.example.com: 10s}  # provisioning time of a driver; default: 1s
manifests:                  # files beside this one, or objects
- web.yaml
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
workloads:                  # pods that arrive
- {name: web, replicas: 30, cpu: 500m, memory: 1Gi}
- {name: batch, kind: Job, replicas: 2, cpu: "2", runs: 10m, every: 30s, until: 2h, priority: -5}
steps:                      # each with a time since the start and one action
- {at: 30s, scale: {name: web, replicas: 60}}
- {at: 40s, addNodes: {name: more, count: 5, cpu: "8"}}
- {at: 50s, resize: {name: db-0, cpu: "2"}}
- {at: 1m, killNode: general-1}
- {at: 90s, fault: {refuse: 429, verb: create, resource: pods, subresource: binding, for: 10s}}
- {at: 2m, failVolumes: {provisioner: disk.example.com, node: general-0, for: 1m}}
- {at: 3m, withdrawDevices: {node: general-2, driver: gpu.example.com}}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from scheduler.configuration.decode import decode
from scheduler.configuration.feature_gates import DEFAULT_VERSION, features_of
from scheduler.configuration.load import read_file
from scheduler.configuration.manifests import objects_of
from scheduler.configuration.yaml_text import read
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.quantity import canonical_quantity
from scheduler.objects.wording import Duration, child, entry, was
from scheduler.tools.simulator.apimachinery.strategy import dns_subdomain
from scheduler.tools.simulator.kinds.builtin_kinds import group_kinds
from scheduler.tools.simulator.node_agents.volume_drivers import ProvisioningFault
from scheduler.tools.simulator.scenarios.clusters import ready_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object

RESOURCES: Final = {"Deployment": "deployments", "StatefulSet": "statefulsets", "Job": "jobs"}
"""Kind of an owner -> its resource in requests."""
_PART: Final = "all"
"""The name of the only group of a Workload in 1.35."""


def _is_in_workload(version: str) -> bool:
    """Return whether groups are parts of Workloads in a Kubernetes version."""
    features = features_of({}, version)
    return features.enabled("GenericWorkload") and not features.enabled("PodGroupKind")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all parts of a scenario."""


class NodeTaint(_Part, frozen=True, kw_only=True):
    """A taint of a group's nodes, or one that is added or removed."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class StorageDriver(_Part, frozen=True, kw_only=True):
    """A storage driver on a group's nodes.

    Attributes:
        name: name of the driver.
        limit: maximum number of its volumes on a node; None for no limit.
        topology_keys: the node labels of its topology.
    """

    name: str
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    topology_keys: tuple[str, ...] = ("topology.kubernetes.io/zone",)


class Devices(_Part, frozen=True, kw_only=True):
    """Devices of each node of a group.

    Attributes:
        driver: its name.
        name: prefix of their names.
        count: number of devices.
        attributes: text, numbers, booleans, or the form of ResourceSlices, for example `{version: 1.0.0}`.
        capacity: name -> quantity.
        taints: taints, in the format of ResourceSlices.
    """

    driver: str
    name: str = "device"
    count: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    attributes: dict[str, str | int | bool | dict[str, Any]] = {}
    capacity: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()

    def objects(self) -> list[Object]:
        """Return the devices in the format of `spec.devices` of ResourceSlices."""
        fields: Object = {}
        if self.attributes:
            fields["attributes"] = {name: _attribute(value) for name, value in self.attributes.items()}
        if self.capacity:
            fields["capacity"] = {name: {"value": amount} for name, amount in self.capacity.items()}
        if self.taints:
            fields["taints"] = [dict(taint) for taint in self.taints]
        return [{"name": f"{self.name}-{place}", **fields} for place in range(self.count)]


def _attribute(value: str | int | bool | dict[str, Any]) -> Object:
    if isinstance(value, dict):
        return value
    type_ = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {type_: value}


class NodeGroup(_Part, frozen=True, kw_only=True):
    """Identical nodes.

    Attributes:
        name: prefix of their names.
        count: number of nodes.
        cpu: allocatable CPU of each, as a quantity; `memory` has the same format.
        pods: pod limit of each.
        resources: further resources, for example `nvidia.com/gpu`.
        zones: the zones, assigned to the nodes in turn.
        drivers: storage drivers on every node.
        devices: devices of every node.
    """

    name: str
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    cpu: str = "4"
    memory: str = "16Gi"
    pods: Annotated[int, msgspec.Meta(ge=0)] = 110
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: tuple[NodeTaint, ...] = ()
    zones: tuple[str, ...] = ("zone-a",)
    drivers: tuple[StorageDriver, ...] = ()
    devices: tuple[Devices, ...] = ()

    @property
    def node_names(self) -> list[str]:
        """The names of its nodes."""
        return [f"{self.name}-{place}" for place in range(self.count)]

    @property
    def devices_by_driver(self) -> dict[str, list[Object]]:
        """The devices of each node, in the format of ResourceSlices."""
        found: dict[str, list[Object]] = {}
        for devices in self.devices:
            found.setdefault(devices.driver, []).extend(devices.objects())
        return found

    def node_objects(self) -> list[Object]:
        """Return its nodes."""
        return [_node(self, name, place) for place, name in enumerate(self.node_names)]

    def csi_nodes(self) -> list[Object]:
        """Return the CSINodes of its nodes, if they have storage drivers."""
        return [_csi_node(self, name) for name in self.node_names] if self.drivers else []


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
        if self.gang and self.every is not None and self.kind != "Job":
            raise ValueError("gang together with every is only for kind Job")

    @property
    def resource(self) -> str:
        """The resource of its owner, as in requests."""
        return RESOURCES[self.kind]

    def times(self) -> Iterator[float]:
        """Yield the times of the arrivals, in seconds."""
        at, random = self.at.seconds, Random(self.name)
        yield at
        if self.every is None or self.until is None:
            return
        while True:
            at += random.expovariate(1.0 / self.every.seconds) if self.random else self.every.seconds
            if at >= self.until.seconds:
                return
            yield at

    def group_of(self, arrival: int) -> str:
        """Return the name of the PodGroup of an arrival; "" without one."""
        return f"{self.name}-{arrival}" if self.gang else ""

    def pod_group(self, arrival: int, version: str = DEFAULT_VERSION) -> Object:
        """Return the PodGroup of an arrival, as a server of a Kubernetes version serves it; in 1.35 a Workload."""
        policy: Object = {"gang": {"minCount": self.replicas}}
        spec: Object = {"schedulingPolicy": policy}
        in_workload = _is_in_workload(version)
        if in_workload:
            spec = {"podGroups": [{"name": _PART, "policy": policy}]}
        return {
            "apiVersion": group_kinds(features_of({}, version))[0].api_version,
            "kind": "Workload" if in_workload else "PodGroup",
            "metadata": {"name": self.group_of(arrival), "namespace": self.namespace},
            "spec": spec,
        }

    def template(self, group: str = "", version: str = DEFAULT_VERSION) -> Object:
        """Return the labels, annotations and spec of a pod of a PodGroup; its priority is not in the spec."""
        amounts = {"cpu": self.cpu, "memory": self.memory}
        resources: Object = {
            "requests": {key: amount for key, amount in amounts.items() if amount} | self.resources
        }
        if self.resources:
            resources["limits"] = self.resources
        spec: Object = {
            "schedulerName": "custom-scheduler",
            "containers": [{"name": "main", "image": "pause", "resources": resources}],
            **self.spec,
        }
        if group and _is_in_workload(version):
            spec["workloadRef"] = {"name": group, "podGroup": _PART}
        elif group:
            spec["schedulingGroup"] = {"podGroupName": group}
        return {
            "metadata": {"labels": {"app": self.name, **self.labels}, "annotations": self.annotations},
            "spec": spec,
        }

    def objects(self, arrival: int, version: str = DEFAULT_VERSION) -> list[Object]:
        """Return what a client creates for an arrival: the owner of the pods, and the PodGroup and PriorityClass that they name."""
        template = self.template(self.group_of(arrival), version)
        found: list[Object] = []
        spec, name = template["spec"], self.name if self.every is None else f"{self.name}-{arrival}"
        if self.priority:
            spec["priorityClassName"] = f"priority-{self.priority}"
            found.append(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": spec["priorityClassName"]},
                    "value": self.priority,
                }
            )
        if self.gang:
            found.append(self.pod_group(arrival, version))
        if self.runs is not None:
            spec["containers"][0]["command"] = ["sleep", f"{self.runs.seconds:g}"]
        if self.kind == "Job":
            spec.setdefault("restartPolicy", "Never")
            owner: Object = {"parallelism": self.replicas, "completions": self.replicas}
        else:
            owner = {"replicas": self.replicas, "selector": {"matchLabels": {"app": self.name}}}
            name = self.name
        return [
            *found,
            {
                "apiVersion": "batch/v1" if self.kind == "Job" else "apps/v1",
                "kind": self.kind,
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {**owner, "template": template},
            },
        ]


class Target(_Part, frozen=True, kw_only=True):
    """An object to delete.

    Attributes:
        resource: for example `pods` or `deployments.apps`.
        grace_period_seconds: None for the object's own.
    """

    resource: str
    name: str
    namespace: str = "default"
    grace_period_seconds: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Scaling(_Part, frozen=True, kw_only=True):
    """A workload to scale."""

    resource: str = "deployments"
    name: str
    namespace: str = "default"
    replicas: Annotated[int, msgspec.Meta(ge=0)]


class Resizing(_Part, frozen=True, kw_only=True):
    """A pod that is resized in place.

    Attributes:
        name: name of the pod, as in `db-0` of a StatefulSet.
        container: the resized container; "" for the first.
        cpu: its new request, as a quantity; `memory` has the same format. A request that is not given stays.
    """

    name: str
    namespace: str = "default"
    container: str = ""
    cpu: str | None = None
    memory: str | None = None

    def __post_init__(self) -> None:
        if self.cpu is None and self.memory is None:
            raise ValueError("must have cpu, memory or both")
        for name, amount in (("cpu", self.cpu), ("memory", self.memory)):
            try:
                canonical_quantity(amount or "0")
            except ValueError:
                raise ValueError(f"{name} must be a quantity, was {amount!r}") from None

    @property
    def requests(self) -> dict[str, str]:
        """The new requests, by resource."""
        return {name: amount for name, amount in (("cpu", self.cpu), ("memory", self.memory)) if amount}


class Tainting(NodeTaint, frozen=True, kw_only=True):
    """A node that gets or loses a taint."""

    node: str


class FaultStep(_Part, frozen=True, kw_only=True):
    """A fault of requests.

    Attributes:
        delay: delay of requests before they are handled.
        refuse: HTTP status with which requests are rejected.
        retry_after: Retry-After of a rejection.
        lose_answers: whether requests are handled, but not answered.
        stall_watches: whether watches stop sending.
        for_: duration; without it, until the end.
        times: number of hits; without it, unlimited.
        probability: probability of a hit.
        verb: verb of the affected requests; this field and those below match all if not set.
    """

    delay: Duration | None = None
    refuse: Literal[400, 401, 403, 404, 409, 410, 429, 500, 503, 504] | None = None
    retry_after: Duration | None = None
    lose_answers: bool = False
    stall_watches: bool = False
    for_: Duration | None = msgspec.field(default=None, name="for")
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    verb: str = ""
    resource: str = ""
    subresource: str | None = None
    namespace: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if sum((self.delay is not None, self.refuse is not None, self.lose_answers, self.stall_watches)) != 1:
            raise ValueError("must have exactly one of delay, refuse, loseAnswers and stallWatches")


class VolumeFailure(_Part, frozen=True, kw_only=True):
    """A failure of volume provisioning.

    Attributes:
        provisioner: affected driver; this field and those below match all if not set.
        node: affected selected node.
        claim: affected claim, as `namespace/name`.
        for_: duration; without it, until the end.
        times: number of failed volumes; without it, unlimited.
        message: the error.
    """

    provisioner: str = ""
    node: str = ""
    claim: str = ""
    for_: Duration | None = msgspec.field(default=None, name="for")
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    message: str = ProvisioningFault().message


class DevicesOfNode(_Part, frozen=True, kw_only=True):
    """The devices of a node, of one driver or of all."""

    node: str
    driver: str = ""


class WatchDrop(_Part, frozen=True, kw_only=True):
    """Watches whose connection is cut; all if no field is set."""

    resource: str = ""
    namespace: str = ""


class Step(_Part, frozen=True, kw_only=True):
    """One action: one field beside `at`, its time since the start.

    Attributes:
        add_nodes: nodes that are added.
        remove_node: a node that is removed with its pods.
        drain: a node that is cordoned, and whose pods are deleted, except those of DaemonSets.
        apply: a file or an object that is created, or changed if it exists (a merge patch).
        resize: a pod that gets other requests in place, as far as its kubelet has the capacity.
        kill_node: a node whose kubelet dies: it is tainted, its pods are no longer ready.
        restore_node: a node whose kubelet is back.
        compact: a resource whose history is dropped; `all` for all.
        fail_volumes: a failure of volume provisioning.
        withdraw_devices: devices of a node that are withdrawn.
        restore_devices: devices that are available again.
    """

    at: Duration
    add_nodes: NodeGroup | None = None
    remove_node: str | None = None
    drain: str | None = None
    apply: str | dict[str, Any] | None = None
    delete: Target | None = None
    scale: Scaling | None = None
    resize: Resizing | None = None
    cordon: str | None = None
    uncordon: str | None = None
    taint: Tainting | None = None
    untaint: Tainting | None = None
    kill_node: str | None = None
    restore_node: str | None = None
    fault: FaultStep | None = None
    drop_watches: WatchDrop | None = None
    compact: str | None = None
    fail_volumes: VolumeFailure | None = None
    withdraw_devices: DevicesOfNode | None = None
    restore_devices: DevicesOfNode | None = None

    def __post_init__(self) -> None:
        if self.at < Duration():
            raise ValueError("at must not be before the start")
        if len(self._set) != 1:
            names = ", ".join(name for name in self.__struct_encode_fields__ if name != "at")
            raise ValueError(f"must have exactly one of {names} beside at")

    @property
    def _set(self) -> list[str]:
        return [name for name in self.__struct_fields__ if name != "at" and getattr(self, name) is not None]

    @property
    def action(self) -> str:
        """The name of the action, as an attribute."""
        return self._set[0]

    @property
    def action_field(self) -> str:
        """The name of the action in the file."""
        return dict(zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True))[self.action]


class _File(_Part, frozen=True, kw_only=True):
    kubernetes_version: Literal["1.34", "1.35", "1.36", "1.37"] = "1.36"
    nodes: tuple[NodeGroup, ...] = ()
    provisioners: dict[str, Duration] = {}
    manifests: tuple[str | dict[str, Any], ...] = ()
    workloads: tuple[WorkloadPart, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A valid scenario.

    Attributes:
        kubernetes_version: the version whose APIs the API server serves.
        nodes: the groups of nodes.
        provisioners: provisioning times of drivers.
        objects: initial objects.
        workloads: the workloads.
        steps: the actions in the order of the file, each with the objects that it applies.
    """

    kubernetes_version: str
    nodes: tuple[NodeGroup, ...]
    provisioners: Mapping[str, Duration]
    objects: tuple[Object, ...]
    workloads: tuple[WorkloadPart, ...]
    steps: tuple[tuple[Step, tuple[Object, ...]], ...]

    def node_objects(self) -> list[Object]:
        """Return the nodes of all groups."""
        return [node for group in self.nodes for node in group.node_objects()]


def _objects_of(manifest: str | Object, folder: Path, where: str, errors: list[FieldError]) -> list[Object]:
    """Return an object, or those of a file; errors are appended, with the field that names it."""
    objects, found = objects_of(manifest, folder)
    if isinstance(manifest, str):
        errors += [FieldError(where, f"{manifest}: {each}") for each in found]
    else:
        errors += [FieldError(f"{where}.{each.path}", each.problem) for each in found]
    return objects


def gang_faults(workloads: Iterable[WorkloadPart], version: str) -> list[FieldError]:
    """Return an error for each gang if a server of a Kubernetes version serves no groups."""
    if group_kinds(features_of({}, version)):
        return []
    return [
        FieldError(child(entry("workloads", index), "gang"), f"Kubernetes {version} has no groups of pods")
        for index, part in enumerate(workloads)
        if part.gang
    ]


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario and the files it names.

    Raises:
        ConfigurationError: all errors of the files.
    """
    path = Path(path)
    found = _read_document(path)
    errors: list[FieldError] = []
    objects: list[Object] = []
    for index, manifest in enumerate(found.manifests):
        objects += _objects_of(manifest, path.parent, entry("manifests", index), errors)
    steps = []
    for index, step in enumerate(found.steps):
        where = child(entry("steps", index), "apply")
        applied = () if step.apply is None else tuple(_objects_of(step.apply, path.parent, where, errors))
        steps.append((step, applied))
    groups = {entry("nodes", index): group for index, group in enumerate(found.nodes)}
    groups |= {
        child(entry("steps", index), "addNodes"): step.add_nodes
        for index, step in enumerate(found.steps)
        if step.add_nodes is not None
    }
    errors += group_faults(groups)
    errors += _name_faults(
        {entry("workloads", index): part for index, part in enumerate(found.workloads)}, "workload"
    )
    errors += gang_faults(found.workloads, found.kubernetes_version)
    if errors:
        raise ConfigurationError(errors, str(path))
    return Scenario(
        found.kubernetes_version,
        found.nodes,
        found.provisioners,
        tuple(objects),
        found.workloads,
        tuple(steps),
    )


def _read_document(path: Path) -> _File:
    """Read a file of one document.

    Raises:
        ConfigurationError: all errors of the file.
    """
    document = read(read_file(path))
    if document.errors:
        raise ConfigurationError(document.errors, str(path))
    if not isinstance(document.value, dict):
        raise ConfigurationError([FieldError("", f"must be a mapping, {was(document.value)}")], str(path))
    found, errors = decode(document.value, _File)
    if found is None or errors:
        raise ConfigurationError(errors, str(path))
    return found


def _name_faults(parts: Mapping[str, NodeGroup | WorkloadPart], what: str) -> list[FieldError]:
    """Return errors for invalid and repeated names; `parts` has them by their places."""
    faults: list[FieldError] = []
    seen: set[str] = set()
    for where, part in parts.items():
        problem = dns_subdomain(part.name)
        if problem:
            faults.append(FieldError(child(where, "name"), problem))
        if part.name in seen:
            faults.append(
                FieldError(child(where, "name"), f"is the name of another {what}, {was(part.name)}")
            )
        seen.add(part.name)
    return faults


def group_faults(groups: Mapping[str, NodeGroup]) -> list[FieldError]:
    """Return the errors of groups of nodes; `groups` has them by their places."""
    faults = _name_faults(groups, "group")
    for where, group in groups.items():
        if not group.zones:
            faults.append(FieldError(child(where, "zones"), "must name at least one zone"))
        amounts = {"cpu": group.cpu, "memory": group.memory, **group.resources}
        for field, amount in amounts.items():
            faults += _quantity_faults(amount, _under(where, field))
        for place, devices in enumerate(group.devices):
            capacity = child(entry(child(where, "devices"), place), "capacity")
            for field, amount in devices.capacity.items():
                faults += _quantity_faults(amount, child(capacity, field))
    return faults


def _quantity_faults(amount: str, where: str) -> list[FieldError]:
    try:
        canonical_quantity(amount)
    except ValueError:
        return [FieldError(where, f"must be a quantity, {was(amount)}")]
    return []


def _under(where: str, field: str) -> str:
    """Return the path of an amount: of a resource, or of the group itself."""
    if field in {"cpu", "memory"}:
        return child(where, field)
    return child(child(where, "resources"), field)


def _node(group: NodeGroup, name: str, place: int) -> Object:
    amounts = {"cpu": group.cpu, "memory": group.memory, "pods": str(group.pods), **group.resources}
    taints = [msgspec.to_builtins(taint) for taint in group.taints]
    zone, spec = group.zones[place % len(group.zones)], {"taints": taints} if taints else {}
    return ready_node(name, zone, group.labels, spec, amounts, amounts)


def _csi_node(group: NodeGroup, name: str) -> Object:
    drivers = []
    for driver in group.drivers:
        fields: Object = {"name": driver.name, "nodeID": name, "topologyKeys": list(driver.topology_keys)}
        if driver.limit is not None:
            fields["allocatable"] = {"count": driver.limit}
        drivers.append(fields)
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}
