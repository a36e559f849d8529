"""A pod's total requests and limits, as exact quantities, by the rules of the Kubernetes API."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from scheduler.objects.quantity import Quantity, as_integers, from_integer, parse_quantity
from scheduler.objects.resource_names import is_pod_level_resource
from scheduler.objects.v1 import ResourceRequirements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.objects.meta import ResourceList
    from scheduler.objects.v1 import Container, ContainerStatus, Pod

_NOTHING: Final[Mapping[str, Any]] = {}
_NOBODY: Final[tuple[Sequence[int], Sequence[Any]]] = (), ()

N = TypeVar("N", int, Quantity)


class _Kind(Enum):
    CONTAINER = "runs after all init containers"
    SIDECAR = "starts in its turn, and continues to run"
    INIT = "ends before the next one starts"


class ContainerRequests:
    """The requests of a pod's containers, parsed once for several totals: a pod may have thousands of containers.

    Args:
        pod: the pod.
        use_status: use the allocated and actual resources of an in-place resize, if they are larger than the
            spec's.

    Raises:
        ValueError: a quantity is invalid.
    """

    __slots__ = ("_columns", "_kinds", "_totals")

    def __init__(self, pod: Pod, *, use_status: bool = False) -> None:
        spec, status = pod.spec, pod.status
        statuses: dict[str, ContainerStatus] = {}  # container name -> its status
        if use_status:
            statuses = {each.name: each for each in status.container_statuses}
            statuses.update((each.name, each) for each in status.init_container_statuses)
        kinds = [_Kind.CONTAINER] * len(spec.containers)
        kinds += [
            _Kind.SIDECAR if each.restart_policy == "Always" else _Kind.INIT for each in spec.init_containers
        ]
        # resource name -> the places of the containers that request it, and their requests
        columns: dict[str, tuple[list[int], list[Quantity]]] = {}
        for place, container in enumerate((*spec.containers, *spec.init_containers)):
            found = statuses.get(container.name) if statuses and kinds[place] is not _Kind.INIT else None
            for name, quantity in _one_container(pod, container, found).items():
                column = columns.get(name)
                if column is None:
                    columns[name] = [place], [quantity]
                else:
                    column[0].append(place)
                    column[1].append(quantity)
        self._kinds = kinds
        self._columns = columns
        self._totals: dict[str, Quantity] | None = None

    def total(self, non_missing: Mapping[str, Quantity] = _NOTHING) -> dict[str, Quantity]:
        """Return what the node needs at most at once, without overhead.

        Args:
            non_missing: default requests of each container for resources it does not request.
        """
        kinds, columns = self._kinds, self._columns
        if self._totals is None:
            self._totals = {name: self._most_at_once(*column) for name, column in columns.items()}
        totals = self._totals.copy()
        for name, default in non_missing.items():
            places, quantities = columns.get(name, _NOBODY)
            if len(places) < len(kinds):
                filled = [default] * len(kinds)
                for place, quantity in zip(places, quantities, strict=True):
                    filled[place] = quantity
                totals[name] = self._most_at_once(range(len(kinds)), filled)
        return totals

    def _most_at_once(self, places: Sequence[int], quantities: Sequence[Quantity]) -> Quantity:
        if len(places) == 1:
            return quantities[0]
        kinds = self._kinds if len(places) == len(self._kinds) else [self._kinds[place] for place in places]
        integers = as_integers(quantities)
        if integers is None:
            return _most(kinds, quantities, _larger)
        numbers, exponent = integers
        return from_integer(_most(kinds, numbers, max), exponent)


def _most(kinds: Sequence[_Kind], amounts: Sequence[N], larger: Callable[[N, N], N]) -> N:
    """Return the larger of what runs in the end and what runs before; integers and quantities have the same rule."""
    is_container, is_sidecar = _Kind.CONTAINER, _Kind.SIDECAR
    running: N | None = None
    sidecars: N | None = None
    before: N | None = None
    for kind, amount in zip(kinds, amounts, strict=True):
        if kind is is_container:
            running = amount if running is None else running + amount
            continue
        if kind is is_sidecar:
            running = amount if running is None else running + amount
            now = sidecars = amount if sidecars is None else sidecars + amount
        else:
            now = amount if sidecars is None else amount + sidecars
        before = now if before is None else larger(before, now)
    if running is None or before is None:
        most = before if running is None else running
        assert most is not None, "a container requests it"
        return most
    return larger(running, before)


def pod_requests(
    pod: Pod,
    *,
    use_status: bool = False,
    pod_level: bool = True,
    non_missing: Mapping[str, Quantity] = _NOTHING,
    containers: ContainerRequests | None = None,
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
        containers: the requests of its containers with the same `use_status`, if they are parsed already.

    Raises:
        ValueError: a quantity is invalid.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/resource/helpers.go, PodRequests.
    """
    if containers is None:
        containers = ContainerRequests(pod, use_status=use_status)
    requests = containers.total(non_missing)

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

    for name, quantity in parsed(spec.overhead).items():
        so_far = requests.get(name)
        requests[name] = quantity if so_far is None else so_far + quantity
    return requests


def _one_container(pod: Pod, container: Container, status: ContainerStatus | None) -> dict[str, Quantity]:
    asked = parsed(container.resources.requests)
    if status is not None and status.resources is not None:
        actuated = parsed(status.resources.requests)
        asked = _effective(pod, asked, actuated, parsed(status.allocated_resources))
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


def _larger(most: Quantity, other: Quantity) -> Quantity:
    """Return the larger one, the first if both are equal; a comparison changes the form of the other."""
    return other.in_form_of(most) if most < other else most


def _maximum(most: dict[str, Quantity], other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        so_far = most.get(name)
        most[name] = quantity if so_far is None else _larger(so_far, quantity)


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
