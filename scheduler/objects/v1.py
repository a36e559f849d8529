"""Pods and nodes of the API, with the fields that scheduling reads; taints, tolerations and host ports."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

import msgspec

from scheduler.objects.meta import ApiStruct, ObjectMeta, ResourceList
from scheduler.objects.pod_affinity import PodAffinity
from scheduler.objects.selectors import LabelSelector, NodeAffinity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(ApiStruct, frozen=True):
    """v1.Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(ApiStruct, frozen=True):
    """v1.Toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Tolerations:
    """The tolerations of a pod, indexed by what they cover: the cost does not depend on their number."""

    __slots__ = ("_above", "_below", "_covered")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        # Key, effect and value, each "" or None if the toleration covers any.
        self._covered: set[tuple[str, str, str | None]] = set()
        # Key and effect, each "" if the toleration covers any -> the numbers above or below which it covers values.
        self._above: dict[tuple[str, str], int] = {}
        self._below: dict[tuple[str, str], int] = {}
        for each in tolerations:
            if each.operator in {"", "Equal"}:
                self._covered.add((each.key, each.effect, each.value))
            elif each.operator == "Exists":
                self._covered.add((each.key, each.effect, None))
            elif each.operator in {"Gt", "Lt"} and (number := _int64(each.value)) is not None:
                place = each.key, each.effect
                if each.operator == "Gt":
                    self._above[place] = min(number, self._above.get(place, number))
                else:
                    self._below[place] = max(number, self._below.get(place, number))

    def cover(self, taint: Taint, *, compares: bool) -> bool:
        """Return whether a toleration covers a taint.

        An empty effect covers every effect, an empty key every key.

        Args:
            taint: the taint.
            compares: whether the operators Lt and Gt compare values; otherwise they cover nothing.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/api/core/v1/toleration.go, ToleratesTaint.
        """
        if self._covered:
            ways = product((taint.key, ""), (taint.effect, ""), (taint.value, None))
            if not self._covered.isdisjoint(ways):
                return True
        return compares and bool(self._above or self._below) and self._covers_number(taint)

    def _covers_number(self, taint: Taint) -> bool:
        number = _int64(taint.value)
        return number is not None and any(
            number > self._above.get(place, number) or number < self._below.get(place, number)
            for place in product((taint.key, ""), (taint.effect, ""))
        )


_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_LONGEST_INT64 = 20


def _int64(text: str) -> int | None:
    """Parse an integer in canonical form; None for any other text, or if it exceeds int64.

    Source:
        kube-scheduler v1.36, apimachinery, pkg/api/validate/content/decimal_int.go, IsDecimalInteger.
    """
    if len(text) > _LONGEST_INT64 or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


class PersistentVolumeClaimVolumeSource(ApiStruct, frozen=True):
    """v1.PersistentVolumeClaimVolumeSource: a claim in the pod's namespace."""

    claim_name: str = ""


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """v1.EphemeralVolumeSource: a claim that is created for the pod; its requests are read from the claim."""


class CSIVolumeSource(ApiStruct, frozen=True):
    """v1.CSIVolumeSource: a volume that a driver creates for the pod, without a claim."""

    driver: str = ""


class CSIPersistentVolumeSource(ApiStruct, frozen=True):
    """v1.CSIPersistentVolumeSource: the driver's name of the volume."""

    driver: str = ""
    volume_handle: str = ""


class ImageVolumeSource(ApiStruct, frozen=True):
    """v1.ImageVolumeSource: an image mounted as a volume."""

    reference: str = ""


# Sources of single machines, stores and clouds; CSI drivers serve most of them now.
class GCEPersistentDiskVolumeSource(ApiStruct, frozen=True):
    """v1.GCEPersistentDiskVolumeSource."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(ApiStruct, frozen=True):
    """v1.AWSElasticBlockStoreVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSIVolumeSource(ApiStruct, frozen=True):
    """v1.ISCSIVolumeSource."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(ApiStruct, frozen=True, gc=True, weakref=True):
    """v1.RBDVolumeSource."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(ApiStruct, frozen=True):
    """v1.AzureDiskVolumeSource."""

    data_disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class AzureFileVolumeSource(ApiStruct, frozen=True):
    """v1.AzureFileVolumeSource and v1.AzureFilePersistentVolumeSource; only the type is read."""


class CinderVolumeSource(ApiStruct, frozen=True):
    """v1.CinderVolumeSource and v1.CinderPersistentVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolumeSource(ApiStruct, frozen=True):
    """v1.PortworxVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereVirtualDiskVolumeSource(ApiStruct, frozen=True):
    """v1.VsphereVirtualDiskVolumeSource; only the type is read."""


DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
HONOR = "Honor"
IGNORE = "Ignore"


class TopologySpreadConstraint(ApiStruct, frozen=True, gc=True, weakref=True):
    """v1.TopologySpreadConstraint; None for an absent pointer of the API."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


# Pods.
class ContainerClaim(ApiStruct, frozen=True):
    """v1.ResourceClaim: a claim of the pod, by its name there, that a container uses."""

    name: str = ""


class ResourceRequirements(ApiStruct, frozen=True):
    """v1.ResourceRequirements; quantities as written, parsed by `objects.resources`."""

    requests: ResourceList = msgspec.field(default_factory=dict)
    limits: ResourceList = msgspec.field(default_factory=dict)
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(ApiStruct, frozen=True):
    """v1.ContainerPort; a `host_port` of 0 needs no port of the node."""

    host_ip: str = msgspec.field(default="", name="hostIP")
    host_port: int = 0
    protocol: str = ""


class ContainerRestartRule(ApiStruct, frozen=True):
    """v1.ContainerRestartRule, without its exit codes."""

    action: str = ""


class Container(ApiStruct, frozen=True):
    """v1.Container; a `restart_policy` of Always on an init container makes it a sidecar."""

    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class PodSchedulingGate(ApiStruct, frozen=True):
    """v1.PodSchedulingGate."""

    name: str = ""


class Affinity(ApiStruct, frozen=True, gc=True, weakref=True):
    """v1.Affinity, with the fields that scheduling reads."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Volume(ApiStruct, frozen=True):
    """v1.Volume, with the sources that scheduling reads; all are None for any other source."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None


class PodResourceClaim(ApiStruct, frozen=True):
    """v1.PodResourceClaim: the name of a claim, or of a template for one."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(ApiStruct, frozen=True):
    """v1.PodSchedulingGroup: the PodGroup that a pod belongs to, in its own namespace."""

    pod_group_name: str = ""


class WorkloadReference(ApiStruct, frozen=True):
    """v1.WorkloadReference of 1.35: the group of a Workload that a pod belongs to, in its own namespace."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(ApiStruct, frozen=True):
    """v1.PodSpec, with the fields that scheduling reads."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    host_users: bool = True
    scheduler_name: str = "default-scheduler"
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    termination_grace_period_seconds: int = 30
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class PodCondition(ApiStruct, frozen=True):
    """v1.PodCondition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class ContainerStatus(ApiStruct, frozen=True):
    """v1.ContainerStatus: the allocated and actual resources of an in-place resize."""

    name: str = ""
    allocated_resources: ResourceList = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(ApiStruct, frozen=True):
    """v1.PodResourceClaimStatus: the claim created for one of the pod's claims; without a name, none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiStruct, frozen=True):
    """v1.ContainerExtendedResourceRequest: the request of a claim for a container's extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True):
    """v1.PodExtendedResourceClaimStatus: the claim created for the pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class NodeAllocatableMappedResources(ApiStruct, frozen=True):
    """v1.NodeAllocatableMappedResources: how much of a node's resource the devices of a claim are."""

    name: str = ""
    quantity: str | int | float = 0


class NodeAllocatableOverheadResources(ApiStruct, frozen=True):
    """v1.NodeAllocatableOverheadResources: what a pod and its containers with a claim take of a node's resource besides."""

    name: str = ""
    per_pod: str | int | float | None = None
    per_container: str | int | float | None = None


class NodeAllocatableResourceClaimStatus(ApiStruct, frozen=True):
    """v1.NodeAllocatableResourceClaimStatus: what a pod takes of its node's resources with the devices of a claim.

    Kubernetes 1.36 has `resources`, later versions `mapping` and `overhead`.
    """

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = msgspec.field(default_factory=dict)
    mapping: tuple[NodeAllocatableMappedResources, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResources, ...] = ()


class PodStatus(ApiStruct, frozen=True):
    """v1.PodStatus, with the fields that scheduling reads."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: ResourceList = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    start_time: str = ""
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(ApiStruct, frozen=True):
    """v1.Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Nodes.
class NodePodPreemptionPolicy(ApiStruct, frozen=True):
    """v1.NodePodPreemptionPolicy."""

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(ApiStruct, frozen=True):
    """v1.NodeSpec, with the fields that scheduling reads."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: NodePodPreemptionPolicy | None = None


class NodeCondition(ApiStruct, frozen=True):
    """v1.NodeCondition."""

    type: str = ""
    status: str = ""


class NodeAddress(ApiStruct, frozen=True):
    """v1.NodeAddress."""

    type: str = ""
    address: str = ""


class NodeStatus(ApiStruct, frozen=True):
    """v1.NodeStatus, with the fields that scheduling reads."""

    allocatable: ResourceList = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(ApiStruct, frozen=True):
    """v1.Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - the address of a pod without a host IP; nothing listens here


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A port of a node; a struct, because a pod may have thousands, and these are smaller than tuples.

    Attributes:
        ip: the node's address; ALL_ADDRESSES for all of them.
        protocol: "TCP", "UDP" or "SCTP".
        port: 1 to 65535.
    """

    ip: str
    protocol: str
    port: int


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports that a pod holds while it runs: those of sidecars too, but not of init containers.

    Source:
        kube-scheduler v1.36, pkg/scheduler/util/utils.go, GetHostPorts.
    """
    spec = pod.spec
    containers = spec.containers
    if spec.init_containers:
        sidecars = tuple(
            container for container in spec.init_containers if container.restart_policy == "Always"
        )
        containers = sidecars + containers
    if not any(container.ports for container in containers):
        return ()
    return tuple(
        HostPort(port.host_ip or ALL_ADDRESSES, port.protocol or "TCP", port.host_port)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    )


def conflicts_with(wanted: Iterable[HostPort]) -> Callable[[Iterable[HostPort]], bool]:
    """Return a function that returns whether one of the wanted ports conflicts with one of the used ports.

    Two ports conflict if two pods on one node cannot use both. A pod may have thousands of ports, so the wanted ones are
    looked up and not compared; `scheduler.snapshot.port_index` looks up those in use on all nodes.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
    """
    same = set(wanted)
    on_all = {(port.protocol, port.port) for port in same if port.ip == ALL_ADDRESSES}
    on_any = {(port.protocol, port.port) for port in same}

    def conflict(used: Iterable[HostPort]) -> bool:
        return any(
            (port.protocol, port.port) in on_any
            if port.ip == ALL_ADDRESSES
            else port in same or (port.protocol, port.port) in on_all
            for port in used
        )

    return conflict
