"""Requests of pods and allocatable resources of nodes, as the integers that scheduling computes with.

Upstream computes a pod's requests in several slightly different ways: for the fit of a pending pod, for a
bound pod, and for each score. `PodResources` contains all results, computed once for all pods with the same
resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from scheduler.errors import ObjectError
from scheduler.objects.pod_requests import (
    ContainerRequests,
    asks_as_a_whole,
    parsed,
    pod_requests,
    resize_is_infeasible,
)
from scheduler.objects.quantity import Quantity, parse_quantity
from scheduler.objects.remembered import Remembered
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_scalar_resource_name

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from scheduler.objects.meta import ResourceList
    from scheduler.objects.v1 import Node, Pod, ResourceRequirements

__all__ = ["PodResources", "node_allocatable", "pod_requests", "pod_resources"]

_NON_MISSING: Final[Mapping[str, Quantity]] = {CPU: Quantity(100, -3), MEMORY: Quantity(200 * 1024 * 1024)}
"""Default requests in scores for containers without requests."""
_ACCOUNTED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})

_KNOWN: Remembered[Hashable, PodResources] = Remembered()  # by the containers' resources
_OFFERED: Remembered[Hashable, Mapping[str, int]] = Remembered()  # by the node's allocatable
_WRITTEN_BYTES = 32
"""Approximate length of a resource name with its amount."""


@dataclass(frozen=True, slots=True)
class PodResources:
    """A pod's requests: resource name -> milliCPU, bytes or a count. A missing name is 0.

    Attributes:
        requests: the free amounts that the pod needs on a node (NodeResourcesFit's Filter).
        taken: the amounts it takes from its node; includes a resize in its status.
        nonzero_milli_cpu: CPU as in `taken`, with a default for containers without a request.
        nonzero_memory_bytes: memory as in `taken`, with a default for containers without a request.
        fit_score: its addition to a node's non-zero requests in NodeResourcesFit's score.
        balanced_score: its addition to a node's requests in NodeResourcesBalancedAllocation's score.
    """

    requests: Mapping[str, int]
    taken: Mapping[str, int]
    nonzero_milli_cpu: int
    nonzero_memory_bytes: int
    fit_score: Mapping[str, int]
    balanced_score: Mapping[str, int]


def pod_resources(pod: Pod) -> PodResources:
    """Compute a pod's requests in every form that scheduling needs; pods with the same resources share one result.

    Raises:
        ObjectError: a quantity is invalid.

    Source:
        kube-scheduler v1.36: `requests` plugins/noderesources/fit.go, computePodResourceRequest; `taken` and
        the non-zero values framework/types.go, PodInfo.CalculateResource; the scores
        plugins/noderesources/resource_allocation.go, calculatePodResourceRequest, with the feature gates that
        NewFit (none of them) and NewBalancedAllocation pass to it.
    """
    key = _what_is_written(pod)
    found = _KNOWN.get(key)
    if found is None:
        try:
            found = _compute(pod)
        except ValueError:
            _raise_fault("Pod", f"{pod.metadata.namespace}/{pod.metadata.name}", _resource_lists(pod))
        _KNOWN.keep(key, found, _WRITTEN_BYTES * sum([len(listed) for _, listed in _resource_lists(pod)]))
    return found


def node_allocatable(node: Node) -> Mapping[str, int]:
    """Compute a node's allocatable resources: resource name -> milliCPU, bytes or a count, including `pods`.

    Nodes with equal values share one result.

    Raises:
        ObjectError: a quantity is invalid.

    Source:
        kube-scheduler v1.36, framework/types.go, Resource.Add.
    """
    allocatable = node.status.allocatable
    key = tuple(allocatable.items())
    found = _OFFERED.get(key)
    if found is None:
        try:
            offered = parsed(allocatable)
        except ValueError:
            _raise_fault("Node", node.metadata.name, iter([("status.allocatable", allocatable)]))
        found = {
            name: _integer(name, quantity)
            for name, quantity in offered.items()
            if _is_accounted(name) or name == PODS
        }
        _OFFERED.keep(key, found, _WRITTEN_BYTES * len(key))
    return found


def _compute(pod: Pod) -> PodResources:
    containers = ContainerRequests(pod)  # parsed once: a pod may have thousands
    requests = pod_requests(pod, containers=containers)
    fit = pod_requests(pod, pod_level=False, non_missing=_NON_MISSING, containers=containers)

    whole = asks_as_a_whole(pod)
    settled = pod_requests(pod, use_status=True) if _has_resized(pod) else requests
    if whole or settled is not requests:
        missing = {name: least for name, least in _NON_MISSING.items() if not whole or name not in settled}
        nonzero = pod_requests(pod, use_status=True, non_missing=missing)
    else:
        nonzero = fit

    scored = _integers(settled)
    asked = scored if settled is requests else _integers(requests)
    accounted = set(filter(_is_accounted, asked.keys() | scored.keys()))
    return PodResources(
        requests={name: max(0, amount) for name, amount in asked.items() if name in accounted},
        taken={name: amount for name, amount in scored.items() if name in accounted},
        nonzero_milli_cpu=nonzero[CPU].milli_value() if CPU in nonzero else 0,
        nonzero_memory_bytes=nonzero[MEMORY].value() if MEMORY in nonzero else 0,
        fit_score=_integers(fit),
        balanced_score=scored,
    )


def _has_resized(pod: Pod) -> bool:
    """Return whether the status has other resources than the spec."""
    status, spec = pod.status, pod.spec
    if status.resources is not None:
        return True
    asked = {
        container.name: container.resources.requests
        for container in (*spec.containers, *spec.init_containers)
    }
    for container in (*status.container_statuses, *status.init_container_statuses):
        if container.resources is None:
            continue
        requests = asked.get(container.name)
        if container.resources.requests != requests or container.allocated_resources != requests:
            return True
    return False


def _what_is_written(pod: Pod) -> Hashable:
    """Return everything that a pod's resources depend on."""
    status, spec = pod.status, pod.spec
    containers = tuple([tuple(container.resources.requests.items()) for container in spec.containers])
    stated = status.container_statuses or status.init_container_statuses or status.resources
    resized = stated and _has_resized(pod)
    if not (resized or spec.init_containers or spec.overhead or spec.resources):
        return containers
    return (
        containers,
        tuple(
            [(container.restart_policy, _items(container.resources)) for container in spec.init_containers]
        ),
        tuple(spec.overhead.items()),
        _items(spec.resources),
        _what_a_resize_did(pod) if resized else None,
    )


def _what_a_resize_did(pod: Pod) -> Hashable:
    status, spec = pod.status, pod.spec
    return (
        tuple([container.name for container in (*spec.containers, *spec.init_containers)]),
        tuple(
            [
                (container.name, _items(container.resources), tuple(container.allocated_resources.items()))
                for container in (*status.container_statuses, *status.init_container_statuses)
            ]
        ),
        _items(status.resources),
        tuple(status.allocated_resources.items()),
        resize_is_infeasible(pod),
    )


def _items(resources: ResourceRequirements | None) -> Hashable:
    return None if resources is None else tuple(resources.requests.items())


def _resource_lists(pod: Pod) -> Iterator[tuple[str, ResourceList]]:
    """Yield every list that a pod's requests are computed from, with its path."""
    spec, status = pod.spec, pod.status
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield f"spec.{field}[{index}].resources.requests", container.resources.requests
    yield "spec.overhead", spec.overhead
    if spec.resources is not None:
        yield "spec.resources.requests", spec.resources.requests
    for field, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for index, of_container in enumerate(statuses):
            if of_container.resources is not None:
                yield f"status.{field}[{index}].resources.requests", of_container.resources.requests
                yield f"status.{field}[{index}].allocatedResources", of_container.allocated_resources
    if status.resources is not None:
        yield "status.resources.requests", status.resources.requests
        yield "status.allocatedResources", status.allocated_resources


def _raise_fault(kind: str, key: str, lists: Iterator[tuple[str, ResourceList]]) -> NoReturn:
    """Raise an ObjectError for the first invalid quantity."""
    for path, resources in lists:
        for name, text in resources.items():
            try:
                parse_quantity(text)
            except ValueError as error:
                field = f"[{name}]" if "." in name or "/" in name else f".{name}"
                raise ObjectError(kind, key, path + field, str(error)) from error
    raise AssertionError(f"{kind} {key}: a quantity is invalid, but none was found")


def _is_accounted(name: str) -> bool:
    return name in _ACCOUNTED or is_scalar_resource_name(name)


def _integers(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    found = {name: quantity.value() for name, quantity in quantities.items()}
    if CPU in found:
        found[CPU] = quantities[CPU].milli_value()
    return found


def _integer(name: str, quantity: Quantity) -> int:
    return quantity.milli_value() if name == CPU else quantity.value()
