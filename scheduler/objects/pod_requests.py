"""A pod's total requests, as exact quantities, by the rules of the Kubernetes API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.objects.quantity import Quantity, parse_quantity
from scheduler.objects.resource_names import is_pod_level_resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.meta import ResourceList
    from scheduler.objects.v1 import Container, ContainerStatus, Pod

_NOTHING: Final[Mapping[str, Any]] = {}


def pod_requests(
    pod: Pod,
    *,
    use_status: bool = False,
    pod_level: bool = True,
    non_missing: Mapping[str, Quantity] | None = None,
) -> dict[str, Quantity]:
    """Compute a pod's total requests, including its overhead.

    Containers run together; init containers run one after another before them, beside the sidecars (init
    containers that restart always) started so far, which continue to run.

    Args:
        pod: the pod.
        use_status: use the allocated and actual resources of an in-place resize, if they are larger than the
            spec's.
        pod_level: requests of the pod as a whole take precedence over the containers' sum.
        non_missing: default requests of each container for resources it does not request.

    Raises:
        ValueError: a quantity is invalid.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/resource/helpers.go, PodRequests.
    """
    requests = _container_requests(pod, use_status, non_missing or _NOTHING)

    spec = pod.spec
    if pod_level and spec.resources is not None and asks_as_a_whole(pod):
        asked = parsed(spec.resources.requests)
        effective = asked
        if use_status and pod.status.resources is not None:
            actuated = pod.status.resources.requests
            effective = _effective(pod, asked, parsed(actuated), parsed(pod.status.allocated_resources))
        for name in asked:
            if is_pod_level_resource(name):
                requests[name] = effective.get(name, Quantity(0))

    if spec.overhead:
        _add(requests, parsed(spec.overhead))
    return requests


def _container_requests(
    pod: Pod, use_status: bool, non_missing: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    statuses: dict[str, ContainerStatus] = {}  # container name -> its status
    if use_status:
        statuses = {status.name: status for status in pod.status.container_statuses}
        statuses.update((status.name, status) for status in pod.status.init_container_statuses)

    requests: dict[str, Quantity] = {}
    for container in pod.spec.containers:
        _add(requests, _one_container(pod, container, statuses.get(container.name), non_missing))

    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            asked = _one_container(pod, container, statuses.get(container.name), non_missing)
            _add(requests, asked)
            _add(sidecars, asked)
            _maximum(peak, sidecars)
        else:
            running = _one_container(pod, container, None, non_missing)
            _add(running, sidecars)
            _maximum(peak, running)
    _maximum(requests, peak)
    return requests


def _one_container(
    pod: Pod, container: Container, status: ContainerStatus | None, non_missing: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    asked = parsed(container.resources.requests)
    if status is not None and status.resources is not None:
        actuated = parsed(status.resources.requests)
        asked = _effective(pod, asked, actuated, parsed(status.allocated_resources))
    for name, quantity in non_missing.items():
        asked.setdefault(name, quantity)
    return asked


def _effective(
    pod: Pod, asked: dict[str, Quantity], actuated: dict[str, Quantity], allocated: dict[str, Quantity]
) -> dict[str, Quantity]:
    """Return the maximum of requested, actual and allocated resources, without the request of an infeasible resize."""
    most = {} if resize_is_infeasible(pod) else dict(asked)
    _maximum(most, actuated)
    _maximum(most, allocated)
    return most


def asks_as_a_whole(pod: Pod) -> bool:
    """Return whether the pod itself, not only its containers, has a request of a supported resource.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/resource/helpers.go, IsPodLevelRequestsSet.
    """
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level_resource, resources.requests))


def resize_is_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet reported that the pod's resize is infeasible."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def parsed(resources: ResourceList) -> dict[str, Quantity]:
    """Parse every quantity of a list."""
    return {name: parse_quantity(text) for name, text in resources.items()}


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    if not total:
        total.update(more)
        return
    for name, quantity in more.items():
        so_far = total.get(name)
        total[name] = quantity if so_far is None else so_far + quantity


def _maximum(most: dict[str, Quantity], other: Mapping[str, Quantity]) -> None:
    if not most:
        most.update(other)
        return
    for name, quantity in other.items():
        so_far = most.get(name)
        if so_far is None:
            most[name] = quantity
        elif quantity > so_far:
            most[name] = quantity.in_form_of(so_far)
