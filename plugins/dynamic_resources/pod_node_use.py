"""What a pod takes of its node's own resources with the devices of its claims: whether it fits, and what its status says.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/nodeallocatabledynamicresources.go; the same in v1.37 with
    `node_overheads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from plugins.dynamic_resources.pod_claims import present_claims
from plugins.dynamic_resources.reason_codes import INVALID_CLAIM, POD_LEVEL_TOO_SMALL
from plugins.dynamic_resources.structured import DeviceID, UsedDevice, is_mapped, node_use_of
from plugins.insufficient import insufficient
from scheduler.framework import Code, Outcome, Reason
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_hugepage_resource_name,
    is_pod_level_resource,
)
from scheduler.objects.resources import limits_as_requests, parsed, pod_requests
from scheduler.objects.v1 import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plugins.dynamic_resources.devices import Devices
    from plugins.dynamic_resources.pod_claims import HeldClaim
    from plugins.dynamic_resources.structured import Inventory, NodeUse
    from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.quantity import Quantity
    from scheduler.objects.resources import PodRules
    from scheduler.objects.v1 import Pod
    from scheduler.snapshot import Rows, Snapshot

Statuses = tuple[NodeAllocatableResourceClaimStatus, ...]
Uses = dict[int, "NodeUse | None"]
"""Index of a claim of the pod -> what its devices take of the node; None for nothing."""

_REFUSED: Final = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
_COMPARED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class PodNodeUse:
    """One attempt at a pod.

    Args:
        pod: the pod.
        held: its claims, the last of which may be one for extended resources.
        settled: what devices take that the claims have already.
        rules: the rules of the emulated version about requests.
        has_overheads: whether devices may take something for each pod and container, see `DeviceFeatures`.
    """

    def __init__(
        self,
        pod: PodInfo,
        held: Sequence[HeldClaim],
        settled: Uses,
        rules: PodRules,
        *,
        has_overheads: bool,
    ) -> None:
        self._pod = pod.pod
        self._claims = [each.claim for each in held]
        self._settled = settled
        self._rules = rules
        self._has_overheads = has_overheads
        self._known: dict[tuple[tuple[int, NodeUse], ...], tuple[Outcome | None, dict[str, int]]] = {}
        self._containers = self._containers_by_claim(pod)

    @property
    def is_settled(self) -> bool:
        """Whether devices that claims have already take something."""
        return any(use is not None for use in self._settled.values())

    def statuses(self, uses: Uses) -> Statuses:
        """Return what the pod's status says, in the order of the claims' names.

        Args:
            uses: what the devices of the claims take that got some in this attempt.
        """
        return self._statuses(self._merged(uses))

    def refuse(self, snapshot: Snapshot, rows: Rows, uses: Uses) -> Iterator[tuple[Rows, Outcome]]:
        """Yield rows where the pod does not fit with what its devices take, with the reason.

        Args:
            snapshot: the cluster.
            rows: the rows, in all of which the claims get devices that take the same.
            uses: as of `statuses`.
        """
        merged = self._merged(uses)
        if not merged or not rows.size:
            return
        if merged not in self._known:
            self._known[merged] = self._wanted(merged)
        outcome, wanted = self._known[merged]
        if outcome is not None:
            yield rows, outcome
            return
        short: np.ndarray[tuple[int], np.dtype[np.int64]] = np.zeros(len(rows), dtype=np.int64)
        hopeless = np.zeros(len(rows), dtype=np.bool_)
        resources = sorted(wanted, key=lambda name: (name not in _COMPARED, name))
        for place, resource in enumerate(resources):
            allocatable, amount = snapshot.allocatable[resource][rows], wanted[resource]
            lacks = amount > allocatable - snapshot.requested[resource][rows]
            short |= lacks.astype(np.int64) << place
            hopeless |= lacks & (amount > allocatable)
        for lacking in np.unique(short[short > 0]).tolist():
            reasons = tuple(
                insufficient(resource) for place, resource in enumerate(resources) if lacking >> place & 1
            )
            for is_hopeless, code in ((False, Code.UNSCHEDULABLE), (True, _REFUSED)):
                found = rows[(short == lacking) & (hopeless == is_hopeless)]
                if found.size:
                    yield found, Outcome(code, reasons)

    def _merged(self, uses: Uses) -> tuple[tuple[int, NodeUse], ...]:
        found = sorted({**self._settled, **uses}.items())
        return tuple((place, use) for place, use in found if use is not None)

    def _wanted(self, uses: tuple[tuple[int, NodeUse], ...]) -> tuple[Outcome | None, dict[str, int]]:
        """Return why no node fits, or the amounts that a node must have free."""
        for place, use in uses:
            if use.problem:
                return Outcome(Code.ERROR, (f"claim {self._claims[place].key}, {use.problem}",)), {}
        statuses = self._statuses(uses)
        if not self._has_overheads:
            for status in statuses:
                if not status.containers:
                    problem = "node-allocatable resource claim not referenced by any container within the pod"
                    reason = Reason(f"claim {status.resource_claim_name}: {problem}", INVALID_CLAIM)
                    return Outcome(_REFUSED, (reason,)), {}
        uncovered = next(_uncovered(self._pod, statuses, self._rules, has_limits=self._has_overheads), "")
        if uncovered:
            return Outcome(_REFUSED, (Reason(uncovered, POD_LEVEL_TOO_SMALL),)), {}
        total = pod_requests(self._pod, rules=self._rules, claims=statuses)
        amounts = {
            name: quantity.milli_value() if name == CPU else quantity.value()
            for name, quantity in total.items()
            if name in _COMPARED or is_hugepage_resource_name(name)
        }
        return None, {name: amount for name, amount in amounts.items() if amount > 0 or name not in _COMPARED}

    def _statuses(self, uses: tuple[tuple[int, NodeUse], ...]) -> Statuses:
        found = {
            self._claims[place].metadata.uid: self._status(place, use)
            for place, use in uses
            if use.mapping or use.overhead
        }
        return tuple(sorted(found.values(), key=lambda each: each.resource_claim_name))

    def _status(self, place: int, use: NodeUse) -> NodeAllocatableResourceClaimStatus:
        metadata = self._claims[place].metadata
        containers = tuple(self._containers.get(metadata.uid, ()))
        if not self._has_overheads:
            return NodeAllocatableResourceClaimStatus(metadata.name, containers, dict(use.mapping))
        return NodeAllocatableResourceClaimStatus(
            metadata.name,
            containers,
            mapping=tuple(NodeAllocatableMappedResources(*each) for each in use.mapping),
            overhead=tuple(NodeAllocatableOverheadResources(*each) for each in use.overhead),
        )

    def _containers_by_claim(self, pod: PodInfo) -> dict[str, list[str]]:
        """Return uid of a claim -> the names of the containers that use it, one for each use."""
        spec = self._pod.spec
        names = [each.name for each in present_claims(pod)]
        own = self._claims[: len(names)]  # without the one for extended resources
        uids = {name: claim.metadata.uid for name, claim in zip(names, own, strict=True)}
        found: dict[str, list[str]] = {}
        for container in (*spec.init_containers, *spec.containers):
            for used in container.resources.claims:
                if used.name in uids:
                    found.setdefault(uids[used.name], []).append(container.name)
        return found


class NodeUses:
    """The amounts that the devices of claims take of nodes.

    Args:
        devices: the devices of the cluster and their claims.
        inventory: the devices in its slices.
        rules: the rules of the emulated version about requests.

    Attributes:
        rules: these rules.
    """

    def __init__(self, devices: Devices, inventory: Inventory, rules: PodRules) -> None:
        self.rules = rules
        self._devices = devices
        self._inventory = inventory
        self._features = inventory.features

    def of(
        self, pod: PodInfo, held: Sequence[HeldClaim], shared: Mapping[int, AllocationResult]
    ) -> PodNodeUse:
        """Return what a pod takes of its node, as far as its claims have devices already.

        Args:
            pod: the pod.
            held: its claims, as of `PodNodeUse`.
            shared: index of a claim -> its devices, which another pod of the group has got for it.
        """
        has_overheads = self._features.node_overheads
        settled = dict(shared)
        for place, each in enumerate(held):
            allocation = each.claim.status.allocation
            if has_overheads and allocation is not None:
                settled.setdefault(place, allocation)
        uses = {place: self._use_of(allocation) for place, allocation in settled.items()}
        return PodNodeUse(pod, held, uses, self.rules, has_overheads=has_overheads)

    def statuses(self, node_use: PodNodeUse, given: Mapping[int, AllocationResult]) -> Statuses:
        """Return what the status of a pod says once Reserve has given devices to its claims."""
        return node_use.statuses({place: self._use_of(each) for place, each in given.items()})

    def other_users(
        self,
        pod: PodInfo,
        held: Sequence[HeldClaim],
        shared: Mapping[int, AllocationResult],
        is_reserved: Callable[[ResourceClaim], bool],
    ) -> Iterator[tuple[int, Sequence[str] | None]]:
        """Yield the claims that a pod may not share, with the pods that use them; see `PodDevices.other_users`.

        Args:
            pod: the pod.
            held: its claims, as of `PodNodeUse`.
            shared: as of `of`.
            is_reserved: returns whether a claim is reserved for the pod.

        Source:
            kube-scheduler v1.36, as of this module, validateNodeAllocatableDRAClaimSharing; the same in v1.37, with
            `node_overheads`.
        """
        for place, each in enumerate(held):
            claim = each.claim
            if self._features.node_overheads:
                allocation = shared.get(place, claim.status.allocation)
                if self._is_of_others(pod, claim, allocation, is_reserved):
                    yield place, None
                continue
            users = claim.status.reserved_for if claim.status.allocation is not None else ()
            others = [user.uid for user in users if user.resource == "pods" and user.uid != pod.uid]
            if others:
                yield place, others

    def _is_of_others(
        self,
        pod: PodInfo,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        is_reserved: Callable[[ResourceClaim], bool],
    ) -> bool:
        """Return whether other pods use a claim with a device that itself is a part of a resource of the node."""
        if allocation is None or not any(is_mapped(each.device) for each in self._published(allocation)):
            return False
        known = self._devices.in_flight.get(claim.metadata.uid)
        return (bool(claim.status.reserved_for) and not is_reserved(claim)) or (
            known is not None and not known.pods <= {pod.uid}
        )

    def _use_of(self, allocation: AllocationResult) -> NodeUse | None:
        return node_use_of(self._published(allocation), self._features)

    def _published(self, allocation: AllocationResult) -> list[UsedDevice]:
        """Return the devices of an allocation; one that is not published any more takes nothing."""
        found = []
        for each in allocation.devices.results:
            device = self._inventory.device(DeviceID(each.driver, each.pool, each.device))
            if device is not None:
                found.append(UsedDevice(each.device, device, each.consumed_capacity))
        return found


def _uncovered(pod: Pod, statuses: Statuses, rules: PodRules, *, has_limits: bool) -> Iterator[str]:
    """Yield the resources whose amount for the pod as a whole is less than what its containers and devices take.

    Source:
        kube-scheduler v1.36, as of this module, validatePodLevelRequestsCoverDRA; v1.37 (`has_limits`),
        validatePodLevelResourcesCoverDRA.
    """
    whole = pod.spec.resources
    if whole is None or not rules.pod_level or (has_limits and not statuses):
        return
    alone = replace(pod, spec=replace(pod.spec, overhead={}, resources=None))
    together = pod_requests(alone, rules=rules, claims=statuses) if whole.requests else {}
    for name, request in sorted(parsed(whole.requests).items()):
        if is_pod_level_resource(name) and name in together and together[name] > request:
            yield (
                f"pod level request for {name} is insufficient to cover the aggregated container and "
                "node-allocatable DRA requests"
            )
    if has_limits:
        yield from _uncovered_limits(pod, parsed(whole.limits), statuses, rules)


def _uncovered_limits(
    pod: Pod, limits: Mapping[str, Quantity], statuses: Statuses, rules: PodRules
) -> Iterator[str]:
    """Yield the limits of a pod as a whole that are less than what its containers and devices may use."""
    if not limits:
        return
    for name, total in sorted(pod_requests(limits_as_requests(pod), rules=rules, claims=statuses).items()):
        if is_hugepage_resource_name(name) and name in limits and total > limits[name]:
            yield (
                f"pod level limit for {name} is insufficient to cover the aggregated container and "
                "node-allocatable DRA limits"
            )
    for container in pod.spec.containers:
        taken = _of_container(statuses, container.name)
        for name, limit in sorted(parsed(container.resources.limits).items()):
            if is_hugepage_resource_name(name) or name not in limits:
                continue
            if sum(taken.get(name, ()), limit) > limits[name]:
                yield (
                    f"pod level limit for {name} is insufficient to cover the limit and DRA overhead for "
                    f"container {container.name}"
                )


def _of_container(statuses: Statuses, container: str) -> dict[str, list[Quantity]]:
    """Return what a container may use of the devices of its claims.

    Source:
        kube-scheduler v1.37, component-helpers/resource/helpers.go, GetContainerDRAAllocations.
    """
    found: dict[str, list[Quantity]] = {}
    for status in statuses:
        if container not in status.containers:
            continue
        amounts = [(each.name, each.quantity) for each in status.mapping]
        for each in status.overhead:
            amounts += [(each.name, text) for text in (each.per_pod, each.per_container) if text is not None]
        for name, text in amounts:
            found.setdefault(name, []).append(parse_quantity(text))
    return found
