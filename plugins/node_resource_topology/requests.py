"""The requests of a pod for NUMA zones: each container, and the pod as a whole.

Source:
    scheduler-plugins, pkg/util/resource.go, GetPodEffectiveRequest; pkg/noderesourcetopology/resourcerequests/exclusive.go
    and numaresources.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.framework import Reason
from scheduler.objects.pod_defaults import qos_class_of
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_hugepage_resource_name,
    is_native_resource,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from scheduler.objects.meta import ResourceList
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Container

Amounts = tuple[tuple[str, int], ...]
"""(resource, milliCPU, bytes or a count), by name; also zeros."""

GUARANTEED: Final = "Guaranteed"
_BEST_EFFORT: Final = "BestEffort"
_STORAGE: Final = "storage"

UNALIGNED_POD: Final = Reason("cannot align pod", "UnalignedPod")
UNALIGNED_CONTAINER: Final = Reason("cannot align container", "UnalignedContainer")
UNALIGNED_INIT_CONTAINER: Final = Reason("cannot align init container", "UnalignedInitContainer")
UNALIGNED_SIDECAR: Final = Reason("cannot align sidecar container", "UnalignedSidecar")


class ContainerRequest(NamedTuple):
    """The request of one container.

    Attributes:
        amounts: what it requests.
        reason: the reason for a node where no zone holds it.
        is_init: whether it runs before the others, so that they can use the same resources.
    """

    amounts: Amounts
    reason: Reason
    is_init: bool


class ZoneRequest(NamedTuple):
    """The request of a pod. Pods with equal requests get the same results.

    Attributes:
        is_guaranteed: whether it has the quality of service class Guaranteed, so that it gets cpu and memory for itself.
        containers: its containers, in the order in which the kubelet aligns them: init containers and sidecars first.
        whole: what the pod requests as a whole.
    """

    is_guaranteed: bool
    containers: tuple[ContainerRequest, ...]
    whole: Amounts

    def every_amount(self) -> Iterator[tuple[str, int]]:
        """Yield what each container requests, and then what the pod as a whole requests."""
        for container in self.containers:
            yield from container.amounts
        yield from self.whole

    def takes_exclusively(self, resource: str) -> bool:
        """Return whether a zone must have as much of a resource as is requested; else the zone must only have the resource."""
        return self.is_guaranteed or not _is_of_zones(resource)


def is_concerned(pod: PodInfo) -> bool:
    """Return whether NUMA zones matter to a pod: it requests cpu, memory or a device, or limits cpu or memory."""
    spec = pod.pod.spec
    for container in (*spec.containers, *spec.init_containers):
        if any(map(_is_device, container.resources.requests)):
            return True
    return qos_class_of(spec) != _BEST_EFFORT


def zone_request(pod: PodInfo) -> ZoneRequest:
    """Return what a pod requests of zones, by container and as a whole."""
    spec = pod.pod.spec
    containers = [
        ContainerRequest(
            _amounts(each),
            UNALIGNED_SIDECAR if _is_sidecar(each) else UNALIGNED_INIT_CONTAINER,
            is_init=True,
        )
        for each in spec.init_containers
    ]
    containers += [
        ContainerRequest(_amounts(each), UNALIGNED_CONTAINER, is_init=False) for each in spec.containers
    ]
    whole = tuple(sorted(whole_request(pod).items()))
    return ZoneRequest(qos_class_of(spec) == GUARANTEED, tuple(containers), whole)


def whole_request(pod: PodInfo) -> dict[str, int]:
    """Return what a pod requests as a whole: resource -> milliCPU, bytes or a count.

    It is the sum of its containers, at least the largest init container, and the overhead. Sidecars count as init
    containers, and requests of the pod itself do not count, as in scheduler-plugins.
    """
    spec = pod.pod.spec
    total: dict[str, int] = {}
    for container in spec.containers:
        for name, amount in _amounts(container):
            total[name] = total.get(name, 0) + amount
    for container in spec.init_containers:
        for name, amount in _amounts(container):
            total[name] = max(total.get(name, 0), amount)
    for name, amount in _read(spec.overhead):
        total[name] = total.get(name, 0) + amount
    return total


def takes_exclusive_resources(pod: PodInfo, of_zones: Collection[str]) -> bool:
    """Return whether a running pod has resources of a node for itself; see `exclusive_requests`."""
    return any(True for _ in exclusive_requests(pod, of_zones))


def exclusive_requests(pod: PodInfo, of_zones: Collection[str]) -> Iterator[tuple[str, Amounts]]:
    """Yield the containers of a running pod that have resources of a node for themselves, each with these resources.

    Args:
        pod: the pod.
        of_zones: the resources that the zones of the node name.

    Source:
        scheduler-plugins, pkg/noderesourcetopology/resourcerequests/exclusive.go, IsExclusive.
    """
    spec = pod.pod.spec
    is_guaranteed = qos_class_of(spec) == GUARANTEED
    for container in (*spec.containers, *filter(_is_sidecar, spec.init_containers)):
        exclusive = tuple(
            (name, amount)
            for name, amount in _amounts(container)
            if (_is_exclusive_amount(name, amount) and is_guaranteed)
            or (not is_native_resource(name) and name in of_zones)
        )
        if exclusive:
            yield container.name, exclusive


def _is_exclusive_amount(resource: str, amount: int) -> bool:
    """Return whether a container of a Guaranteed pod has an amount for itself: of cpus only whole ones."""
    return amount > 0 and (amount % 1000 == 0 if resource == CPU else _is_of_zones(resource))


def is_of_node(resource: str) -> bool:
    """Return whether a node may have a resource outside of its zones: storage, and devices without a NUMA affinity."""
    return resource in {EPHEMERAL_STORAGE, _STORAGE} or not is_native_resource(resource)


def is_of_every_node(resource: str) -> bool:
    """Return whether every node has a resource."""
    return resource in {CPU, MEMORY, EPHEMERAL_STORAGE}


def _is_of_zones(resource: str) -> bool:
    """Return whether a resource always belongs to zones: cpu, memory and huge pages."""
    return resource in {CPU, MEMORY} or is_hugepage_resource_name(resource)


def _is_device(resource: str) -> bool:
    return not is_native_resource(resource)


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _amounts(container: Container) -> Amounts:
    return _read(container.resources.requests)


def _read(amounts: ResourceList) -> Amounts:
    quantities = [(name, parse_quantity(amount)) for name, amount in sorted(amounts.items())]
    return tuple(
        [(name, found.milli_value() if name == CPU else found.value()) for name, found in quantities]
    )
