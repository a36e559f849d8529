"""Requests of pods and allocatable resources of nodes: exact quantities, and the integers that scheduling computes with.

Upstream computes a pod's requests in several slightly different ways: for the fit of a pending pod, for a
bound pod, and for each score. `PodResources` contains all results, computed once for all pods with the same
resources.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from msgspec.structs import replace

from scheduler.errors import ObjectError
from scheduler.objects.caches import Remembered
from scheduler.objects.quantity import Quantity, as_integers, from_integer, parse_quantity
from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    is_pod_level_resource,
    is_scalar_resource_name,
)
from scheduler.objects.v1 import PodCondition, ResourceRequirements

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from scheduler.objects.meta import ResourceList
    from scheduler.objects.v1 import (
        Container,
        ContainerStatus,
        Node,
        NodeAllocatableResourceClaimStatus,
        Pod,
    )

    _Amounts = Callable[[Pod, Container, ContainerStatus | None], dict[str, Quantity]]

__all__ = ["PodResources", "node_allocatable", "pod_requests", "pod_resources"]

_NOTHING: Final[Mapping[str, Any]] = {}
_NOBODY: Final[tuple[Sequence[int], Sequence[Any]]] = (), ()

N = TypeVar("N", int, Quantity)


class _Kind(Enum):
    CONTAINER = "runs after all init containers"
    SIDECAR = "starts in its turn, and continues to run"
    INIT = "ends before the next one starts"


@dataclass(frozen=True, slots=True)
class PodRules:
    """The feature gates and changes of the emulated version that affect the requests of a pod.

    Attributes:
        pod_level: PodLevelResources: requests of the pod as a whole take precedence over the containers' sum.
        resizes: InPlacePodVerticalScaling: the allocated and actual resources in the status count too.
        pod_level_resizes: InPlacePodLevelResourcesVerticalScaling: so do those of the pod as a whole.
        as_a_whole: WholePodResize: the maximum is that of the pod's three totals, not of each container's requests.
        claims: DRANodeAllocatableResources: what devices of claims take of the node counts too.
    """

    pod_level: bool = True
    resizes: bool = True
    pod_level_resizes: bool = True
    as_a_whole: bool = False
    claims: bool = False

    @classmethod
    def of(cls, enabled: Callable[[str], bool]) -> PodRules:
        """Return the rules; `enabled` returns whether a gate or change is on."""
        return cls(
            pod_level=enabled("PodLevelResources"),
            resizes=enabled("InPlacePodVerticalScaling"),
            pod_level_resizes=enabled("InPlacePodLevelResourcesVerticalScaling"),
            as_a_whole=enabled("WholePodResize"),
            claims=enabled("DRANodeAllocatableResources"),
        )


DEFAULT_RULES: Final = PodRules()
"""The rules of Kubernetes 1.36."""


class ContainerRequests:
    """The requests of a pod's containers, parsed once for several totals: a pod may have thousands of containers.

    Args:
        pod: the pod.
        amounts: returns a container's requests, given its status; by default those of its spec.
        with_ended: whether the statuses of init containers that end count too.

    Raises:
        ValueError: a quantity is invalid.
    """

    __slots__ = ("_columns", "_kinds", "_totals")

    def __init__(self, pod: Pod, amounts: _Amounts | None = None, *, with_ended: bool = False) -> None:
        spec, status = pod.spec, pod.status
        statuses: dict[str, ContainerStatus] = {}  # container name -> its status
        if amounts is not None:
            statuses = {each.name: each for each in status.container_statuses}
            statuses.update((each.name, each) for each in status.init_container_statuses)
        kinds = [_Kind.CONTAINER] * len(spec.containers)
        kinds += [
            _Kind.SIDECAR if each.restart_policy == "Always" else _Kind.INIT for each in spec.init_containers
        ]
        # resource name -> the places of the containers that request it, and their requests
        columns: dict[str, tuple[list[int], list[Quantity]]] = {}
        for place, container in enumerate((*spec.containers, *spec.init_containers)):
            if amounts is None:
                asked = parsed(container.resources.requests)
            else:
                counts = with_ended or kinds[place] is not _Kind.INIT
                asked = amounts(pod, container, statuses.get(container.name) if counts else None)
            for name, quantity in asked.items():
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
    rules: PodRules = DEFAULT_RULES,
    use_status: bool = False,
    pod_level: bool = True,
    non_missing: Mapping[str, Quantity] = _NOTHING,
    containers: ContainerRequests | None = None,
    claims: Sequence[NodeAllocatableResourceClaimStatus] = (),
) -> dict[str, Quantity]:
    """Compute a pod's total requests, including its overhead.

    Containers run together; init containers run one after another before them, beside the sidecars (init
    containers that restart always) started so far, which continue to run.

    Args:
        pod: the pod.
        rules: the rules of the emulated version.
        use_status: use the allocated and actual resources of an in-place resize, if they are larger than the
            spec's and the rules allow it.
        pod_level: requests of the pod as a whole take precedence over the containers' sum, if the rules allow it.
        non_missing: default requests of each container for resources it does not request.
        containers: the requests of its containers by their spec, if they are parsed already.
        claims: what it takes of its node with the devices of its claims.

    Raises:
        ValueError: a quantity is invalid.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/component-helpers/resource/helpers.go, PodRequests; v1.37 with
        WholePodResize.
    """
    use_status = use_status and rules.resizes
    devices = _of_devices(pod, claims) if claims else _NO_DEVICES
    if use_status and rules.as_a_whole:
        requests = _most_of_resize(pod, rules, non_missing, devices)
    elif claims:
        requests = _with_devices(pod, _largest if use_status else None, non_missing, devices)
    else:
        if use_status or containers is None:
            containers = ContainerRequests(pod, _largest if use_status else None)
        requests = containers.total(non_missing)

    spec = pod.spec
    if pod_level and rules.pod_level and spec.resources is not None and asks_as_a_whole(pod):
        asked = parsed(spec.resources.requests)
        effective = asked
        if use_status and rules.pod_level_resizes and pod.status.resources is not None:
            actuated = pod.status.resources.requests
            effective = _effective(pod, asked, parsed(actuated), parsed(pod.status.allocated_resources))
        for name in effective if rules.as_a_whole else asked:
            if is_pod_level_resource(name):
                requests[name] = effective.get(name, Quantity(0))

    for name, quantity in parsed(spec.overhead).items():
        so_far = requests.get(name)
        requests[name] = quantity if so_far is None else so_far + quantity
    return requests


class _Devices(NamedTuple):
    """The resources that a pod takes of its node with the devices of its claims.

    Attributes:
        always: as long as the pod runs.
        by_container: name of a container -> as long as this container runs.
    """

    always: Mapping[str, Quantity]
    by_container: Mapping[str, Mapping[str, Quantity]]


_NO_DEVICES: Final = _Devices(_NOTHING, _NOTHING)


def _of_devices(pod: Pod, claims: Sequence[NodeAllocatableResourceClaimStatus]) -> _Devices:
    """Return what a pod takes with devices; a container that the pod does not have runs always.

    Source:
        kube-scheduler v1.37, component-helpers/resource/helpers.go, getDRANodeAllocatableResources.
    """
    always: dict[str, Quantity] = {}
    by_container: dict[str, dict[str, Quantity]] = {}
    names = [each.name for each in (*pod.spec.init_containers, *pod.spec.containers)]
    for claim in claims:
        for name, quantity in parsed(claim.resources).items():
            _add(always, name, quantity)
        for mapped in claim.mapping:
            _add(always, mapped.name, parse_quantity(mapped.quantity))
        known = [name for name in names if name in claim.containers]
        for overhead in claim.overhead:
            if overhead.per_pod is not None:
                _add(always, overhead.name, parse_quantity(overhead.per_pod))
            if overhead.per_container is None:
                continue
            of_each = parse_quantity(overhead.per_container)
            for name in known:
                _add(by_container.setdefault(name, {}), overhead.name, of_each)
            for _ in range(len(claim.containers) - len(known)):
                _add(always, overhead.name, of_each)
    return _Devices(always, by_container)


def _add(amounts: dict[str, Quantity], name: str, quantity: Quantity) -> None:
    so_far = amounts.get(name)
    amounts[name] = quantity if so_far is None else so_far + quantity


def _with_devices(
    pod: Pod,
    amounts: _Amounts | None,
    non_missing: Mapping[str, Quantity],
    devices: _Devices,
    *,
    with_ended: bool = False,
) -> dict[str, Quantity]:
    """Return the total of a pod's containers, as `ContainerRequests`, and what the pod takes with devices."""

    def increased(pod: Pod, container: Container, status: ContainerStatus | None) -> dict[str, Quantity]:
        asked = parsed(container.resources.requests) if amounts is None else amounts(pod, container, status)
        found = {**non_missing, **asked}
        for name, quantity in devices.by_container.get(container.name, _NOTHING).items():
            _add(found, name, quantity)
        return found

    if devices.by_container:
        total = ContainerRequests(pod, increased, with_ended=with_ended).total()
    else:
        total = ContainerRequests(pod, amounts, with_ended=with_ended).total(non_missing)
    for name, quantity in devices.always.items():
        _add(total, name, quantity)
    return total


def _most_of_resize(
    pod: Pod, rules: PodRules, non_missing: Mapping[str, Quantity], devices: _Devices
) -> dict[str, Quantity]:
    """Return the maximum of a pod's requested, actual and allocated totals, without overhead.

    The totals in the pod's own status replace those of its containers' statuses. The request of an infeasible resize does
    not count. What the pod takes with devices is a part of the actual total, and of the allocated one in its own status.

    Source:
        kube-scheduler v1.37, component-helpers/resource/helpers.go, AggregateContainerRequests.
    """
    status = pod.status
    actuated = {} if status.resources is None else parsed(status.resources.requests)
    allocated = parsed(status.allocated_resources)
    if not (rules.pod_level_resizes and actuated and allocated):
        actuated = ContainerRequests(pod, _actuated, with_ended=True).total(non_missing)
        allocated = _with_devices(pod, _allocated, non_missing, devices, with_ended=True)
    return _effective(pod, _with_devices(pod, None, non_missing, devices), actuated, allocated)


def _largest(pod: Pod, container: Container, status: ContainerStatus | None) -> dict[str, Quantity]:
    asked = parsed(container.resources.requests)
    if status is None or status.resources is None:
        return asked
    return _effective(pod, asked, parsed(status.resources.requests), parsed(status.allocated_resources))


def _allocated(pod: Pod, container: Container, status: ContainerStatus | None) -> dict[str, Quantity]:
    if status is not None and status.allocated_resources:
        return parsed(status.allocated_resources)
    return {} if resize_is_infeasible(pod) else parsed(container.resources.requests)


def _actuated(pod: Pod, container: Container, status: ContainerStatus | None) -> dict[str, Quantity]:
    if status is not None and status.resources is not None and status.resources.requests:
        return parsed(status.resources.requests)
    return _allocated(pod, container, status)


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
    return _resize_pends_because(pod) == _INFEASIBLE


def resize_is_deferred(pod: Pod) -> bool:
    """Return whether the kubelet reported that the node lacks the capacity for the pod's resize at the moment.

    Source:
        kube-scheduler v1.37, component-helpers/resource/helpers.go, IsPodResizeDeferred.
    """
    return _resize_pends_because(pod) == "Deferred"


_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


def _resize_pends_because(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == _PENDING:
            return condition.reason
    return ""


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
    limits = pod_requests(limits_as_requests(pod))
    if spec.resources is not None:
        whole = parsed(spec.resources.limits)
        limits.update((name, limit) for name, limit in whole.items() if is_pod_level_resource(name))
    for name, quantity in parsed(spec.overhead).items():
        if name in limits and not limits[name].is_zero:
            limits[name] += quantity
    return limits


def limits_as_requests(pod: Pod) -> Pod:
    """Return a pod whose containers request their limits, without overhead and amounts for the pod as a whole.

    Limits of containers add up by the rules of requests.
    """
    swapped = replace(
        pod.spec,
        containers=tuple(map(_limits_as_requests, pod.spec.containers)),
        init_containers=tuple(map(_limits_as_requests, pod.spec.init_containers)),
        overhead={},
        resources=None,
    )
    return replace(pod, spec=swapped)


def _limits_as_requests(container: Container) -> Container:
    return replace(container, resources=ResourceRequirements(requests=container.resources.limits))


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
        taken: the amounts it takes from its node; includes a resize in its status, and the devices of its claims.
        nonzero_milli_cpu: CPU as in `taken`, with a default for containers without a request.
        nonzero_memory_bytes: memory as in `taken`, with a default for containers without a request.
        fit_score: its addition to a node's non-zero requests in NodeResourcesFit's score.
        balanced_score: its addition to a node's requests in NodeResourcesBalancedAllocation's score.
        not_allocated: the part of `taken` that only its spec requests, and its node has not allocated to it.
    """

    requests: Mapping[str, int]
    taken: Mapping[str, int]
    nonzero_milli_cpu: int
    nonzero_memory_bytes: int
    fit_score: Mapping[str, int]
    balanced_score: Mapping[str, int]
    not_allocated: Mapping[str, int] = field(default_factory=dict)


def pod_resources(pod: Pod, rules: PodRules = DEFAULT_RULES) -> PodResources:
    """Compute a pod's requests in every form that scheduling needs; pods with the same resources share one result.

    Raises:
        ObjectError: a quantity is invalid.

    Source:
        kube-scheduler v1.36: `requests` plugins/noderesources/fit.go, computePodResourceRequest; `taken` and
        the non-zero values framework/types.go, PodInfo.CalculateResource; the scores
        plugins/noderesources/resource_allocation.go, calculatePodResourceRequest, with the feature gates that
        NewFit (none of them) and NewBalancedAllocation pass to it.
    """
    key = _what_is_written(pod, rules)
    found = _KNOWN.get(key)
    if found is None:
        try:
            found = _compute(pod, rules)
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
            name: quantity.milli_value() if name == CPU else quantity.value()
            for name, quantity in offered.items()
            if _is_accounted(name) or name == PODS
        }
        _OFFERED.keep(key, found, _WRITTEN_BYTES * len(key))
    return found


def _compute(pod: Pod, rules: PodRules) -> PodResources:
    containers = ContainerRequests(pod)  # parsed once: a pod may have thousands
    requests = pod_requests(pod, rules=rules, containers=containers)
    fit = pod_requests(pod, pod_level=False, non_missing=_NON_MISSING, containers=containers)

    whole = rules.pod_level and asks_as_a_whole(pod)
    resized = _has_resized(pod)
    settled = pod_requests(pod, rules=rules, use_status=True) if resized else requests
    claims = pod.status.node_allocatable_resource_claim_statuses if rules.claims else ()
    with_devices = pod_requests(pod, rules=rules, use_status=True, claims=claims) if claims else settled
    if whole or with_devices is not requests:
        missing = {
            name: least for name, least in _NON_MISSING.items() if not whole or name not in with_devices
        }
        nonzero = pod_requests(pod, rules=rules, use_status=True, non_missing=missing, claims=claims)
    else:
        nonzero = fit

    scored = _integers(settled)
    asked = scored if settled is requests else _integers(requests)
    taken = _integers(with_devices) if claims else scored
    allocated = taken
    if resized:
        without = pod_requests(_without_its_request(pod), rules=rules, use_status=True, claims=claims)
        allocated = _integers(without)
    accounted = set(filter(_is_accounted, asked.keys() | taken.keys()))
    return PodResources(
        requests={name: max(0, amount) for name, amount in asked.items() if name in accounted},
        taken={name: amount for name, amount in taken.items() if name in accounted},
        nonzero_milli_cpu=nonzero[CPU].milli_value() if CPU in nonzero else 0,
        nonzero_memory_bytes=nonzero[MEMORY].value() if MEMORY in nonzero else 0,
        fit_score=_integers(fit),
        balanced_score=scored,
        not_allocated={
            name: amount - allocated.get(name, 0)
            for name, amount in taken.items()
            if name in accounted and amount > allocated.get(name, 0)
        },
    )


def _without_its_request(pod: Pod) -> Pod:
    """Return a pod as if its resize were infeasible, so that its allocated and actual resources count alone."""
    conditions = (PodCondition(_PENDING, "True", _INFEASIBLE),)
    return replace(pod, status=replace(pod.status, conditions=conditions))


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
            if container.allocated_resources:
                return True
            continue
        requests = asked.get(container.name)
        if container.resources.requests != requests or container.allocated_resources != requests:
            return True
    return False


def _what_is_written(pod: Pod, rules: PodRules) -> Hashable:
    """Return everything that a pod's resources depend on."""
    status, spec = pod.status, pod.spec
    containers = tuple([tuple(container.resources.requests.items()) for container in spec.containers])
    stated = status.container_statuses or status.init_container_statuses or status.resources
    resized = stated and _has_resized(pod)
    claims = rules.claims and status.node_allocatable_resource_claim_statuses
    if not (resized or spec.init_containers or spec.overhead or spec.resources or claims):
        return containers
    return (
        containers,
        tuple(
            [(container.restart_policy, _items(container.resources)) for container in spec.init_containers]
        ),
        tuple(spec.overhead.items()),
        _items(spec.resources),
        _what_a_resize_did(pod) if resized else None,
        _what_claims_take(pod) if claims else None,
        rules if resized or spec.resources or claims else None,
    )


def _what_claims_take(pod: Pod) -> Hashable:
    status, spec = pod.status, pod.spec
    return (
        tuple([container.name for container in (*spec.containers, *spec.init_containers)]),
        tuple(
            [
                (claim.containers, tuple(claim.resources.items()), claim.mapping, claim.overhead)
                for claim in status.node_allocatable_resource_claim_statuses
            ]
        ),
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
    for at, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield f"spec.{at}[{index}].resources.requests", container.resources.requests
    yield "spec.overhead", spec.overhead
    if spec.resources is not None:
        yield "spec.resources.requests", spec.resources.requests
    for at, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for index, of_container in enumerate(statuses):
            if of_container.resources is not None:
                yield f"status.{at}[{index}].resources.requests", of_container.resources.requests
                yield f"status.{at}[{index}].allocatedResources", of_container.allocated_resources
    if status.resources is not None:
        yield "status.resources.requests", status.resources.requests
        yield "status.allocatedResources", status.allocated_resources
    for index, claim in enumerate(status.node_allocatable_resource_claim_statuses):
        path = f"status.nodeAllocatableResourceClaimStatuses[{index}]"
        yield f"{path}.resources", claim.resources
        yield f"{path}.mapping", {each.name: each.quantity for each in claim.mapping}
        for at in ("per_pod", "per_container"):
            of_each = {each.name: getattr(each, at) for each in claim.overhead}
            yield f"{path}.overhead", {name: text for name, text in of_each.items() if text is not None}


def _raise_fault(kind: str, key: str, lists: Iterator[tuple[str, ResourceList]]) -> NoReturn:
    """Raise an ObjectError for the first invalid quantity."""
    for path, resources in lists:
        for name, text in resources.items():
            try:
                parse_quantity(text)
            except ValueError as error:
                at = f"[{name}]" if "." in name or "/" in name else f".{name}"
                raise ObjectError(kind, key, path + at, str(error)) from error
    raise AssertionError(f"{kind} {key}: a quantity is invalid, but none was found")


def _is_accounted(name: str) -> bool:
    return name in _ACCOUNTED or is_scalar_resource_name(name)


def _integers(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    found = {name: quantity.value() for name, quantity in quantities.items()}
    if CPU in found:
        found[CPU] = quantities[CPU].milli_value()
    return found
