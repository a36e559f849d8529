"""A pod's limits, as exact quantities, for metrics; scheduling does not use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.objects.pod_requests import parsed, pod_requests
from scheduler.objects.resource_names import is_pod_level_resource
from scheduler.objects.v1 import ResourceRequirements

if TYPE_CHECKING:
    from scheduler.objects.quantity import Quantity
    from scheduler.objects.v1 import Container, Pod


def pod_limits(pod: Pod) -> dict[str, Quantity]:
    """Compute a pod's total limits, with its overhead for each resource with a limit.

    If some containers have no limit, the total is the sum of the others', as upstream.

    Raises:
        ValueError: a quantity is invalid.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/resource/helpers.go, PodLimits.
    """
    spec = pod.spec
    # Limits of containers add up by the rules of requests.
    swapped = replace(
        spec,
        containers=tuple(map(_limits_as_requests, spec.containers)),
        init_containers=tuple(map(_limits_as_requests, spec.init_containers)),
        overhead={},
        resources=None,
    )
    limits = pod_requests(replace(pod, spec=swapped))
    if spec.resources is not None:
        whole = parsed(spec.resources.limits)
        limits.update((name, limit) for name, limit in whole.items() if is_pod_level_resource(name))
    for name, quantity in parsed(spec.overhead).items():
        if name in limits and not limits[name].is_zero:
            limits[name] += quantity
    return limits


def _limits_as_requests(container: Container) -> Container:
    return replace(container, resources=ResourceRequirements(requests=container.resources.limits))
