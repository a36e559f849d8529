"""Builds the allocation in the status of a claim.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go, Allocate and createNodeSelector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.dynamic_resources.structured.errors import AllocationError
from scheduler.objects.dynamic_resources import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from scheduler.objects.selectors import METADATA_NAME, NodeSelector, NodeSelectorTerm, SelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plugins.dynamic_resources.structured.requests import WantedDevices
    from plugins.dynamic_resources.structured.search import AllocatedRequest
    from scheduler.objects.dynamic_resources import OpaqueDeviceConfiguration, ResourceClaim


def allocation_result(
    claim: ResourceClaim,
    given: Sequence[AllocatedRequest],
    chosen: Sequence[WantedDevices],
    node_name: str,
    new_share_id: Callable[[], str],
) -> AllocationResult:
    """Return the allocation for the status of a claim.

    Args:
        claim: the claim.
        given: its devices.
        chosen: the chosen alternative of each of its requests.
        node_name: the node for its devices.
        new_share_id: creates the id of a share.

    Raises:
        AllocationError: a slice has a node selector with several terms, which is not supported.
    """
    try:
        selector = _node_selector(given, node_name)
    except ValueError as error:
        name = claim.metadata.name
        raise AllocationError(f"create NodeSelector for claim {name}: {error}") from error
    config = (*_class_configuration(chosen), *_claim_configuration(claim, chosen))
    results = tuple(_result(each, new_share_id) for each in given)
    return AllocationResult(DeviceAllocationResult(results, config), selector)


def _result(given: AllocatedRequest, new_share_id: Callable[[], str]) -> DeviceRequestAllocationResult:
    wanted, device, (driver, pool, name) = given.wanted, given.device, given.candidate.device.id
    return DeviceRequestAllocationResult(
        request=wanted.name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=wanted.admin_access,
        tolerations=wanted.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=new_share_id() if device.allow_multiple_allocations else None,
        consumed_capacity={capacity: each.written for capacity, each in given.consumed.items()},
    )


def _class_configuration(chosen: Sequence[WantedDevices]) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the configuration of each class once, for all requests of the class."""
    requests: dict[str, list[str]] = {}  # class -> names of requests
    configurations: dict[str, tuple[OpaqueDeviceConfiguration | None, ...]] = {}
    for wanted in chosen:
        device_class = wanted.device_class
        if device_class is not None:
            name = device_class.metadata.name
            requests.setdefault(name, []).append(wanted.name)
            configurations[name] = tuple(each.opaque for each in device_class.spec.config)
    for name, opaques in configurations.items():
        for opaque in opaques:
            yield DeviceAllocationConfiguration("FromClass", tuple(requests[name]), opaque)


def _claim_configuration(
    claim: ResourceClaim, chosen: Sequence[WantedDevices]
) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the configurations of a claim for all requests, or for one: once for each request."""
    for config in claim.spec.devices.config:
        times = (
            sum(not wanted.names.isdisjoint(config.requests) for wanted in chosen) if config.requests else 1
        )
        for _ in range(times):
            yield DeviceAllocationConfiguration("FromClaim", config.requests, config.opaque)


def _node_selector(given: Sequence[AllocatedRequest], node_name: str) -> NodeSelector | None:
    """Return the selector of the nodes that can use all devices together; None for all nodes.

    Raises:
        ValueError: a selector has several terms.
    """
    fields: list[SelectorRequirement] = []
    labels: list[SelectorRequirement] = []
    for each in given:
        device, spec = each.device, each.candidate.device.spec
        placed = device if spec.per_device_node_selection else spec
        if placed.node_name or device.binds_to_node:
            only = SelectorRequirement(METADATA_NAME, "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        terms = placed.node_selector.node_selector_terms if placed.node_selector is not None else ()
        if len(terms) > 1:
            raise ValueError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(labels, term.match_expressions)
    if not (fields or labels):
        return None
    return NodeSelector((NodeSelectorTerm(match_expressions=tuple(labels), match_fields=tuple(fields)),))


def _add_new(known: list[SelectorRequirement], requirements: Sequence[SelectorRequirement]) -> None:
    """Add requirements that are not there yet; the order of values does not matter."""
    for new in requirements:
        if not any(
            (each.key, each.operator, frozenset(each.values))
            == (new.key, new.operator, frozenset(new.values))
            for each in known
        ):
            known.append(new)
