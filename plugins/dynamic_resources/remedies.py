"""Proposes remedies for pods that are rejected because of their ResourceClaims.

The scheduler evaluates the pod without the claims; which smaller request a node could satisfy is found with the allocator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from plugins.dynamic_resources.pod_claims import present_claims
from plugins.dynamic_resources.pod_devices import places_of
from plugins.dynamic_resources.structured import AllocationError, Allocator, InvalidPoolsError, OutOfTimeError
from scheduler.framework import Change, Remedy
from scheduler.framework.sliced_work import NeedsTime
from scheduler.objects.label_index import asked_of, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plugins.dynamic_resources.devices import Devices
    from plugins.dynamic_resources.pod_claims import HeldClaim
    from plugins.dynamic_resources.structured import Inventory
    from plugins.work_in_steps import PluginWork
    from scheduler.objects.dynamic_resources import DeviceRequest, ResourceClaim
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

_MOST_NODES: Final = 4
"""The number of nodes on which smaller requests are tried."""
_MOST_FEWER: Final = 8
"""The number of smaller counts of one request that are tried."""


def without_resource_claims(
    pod: PodInfo, unwanted: Sequence[HeldClaim], held: Sequence[HeldClaim]
) -> PodInfo:
    """Return a pod as if it did not use some of its claims; `held` are its claims, as found for it."""
    named = dict(zip((id(each) for each in held), present_claims(pod), strict=False))
    left_out = [named[id(each)] for each in unwanted if id(each) in named]
    return pod.with_spec(
        resource_claims=tuple(each for each in pod.pod.spec.resource_claims if each not in left_out)
    )


def missing_classes(
    pod: PodInfo, held: Sequence[HeldClaim], missing: Callable[[ResourceClaim], str]
) -> Iterator[Remedy]:
    """Yield the remedy that the missing DeviceClasses existed; `missing` returns the class that a claim lacks, or ""."""
    lacking = {id(each): (each, name) for each in held if (name := missing(each.claim))}
    if not lacking:
        return
    names = list(dict.fromkeys(name for _, name in lacking.values()))
    relaxed = without_resource_claims(pod, [each for each, _ in lacking.values()], held)
    text = f"the DeviceClass{'es' if len(names) > 1 else ''} {' and '.join(names)} existed"
    yield Remedy(relaxed, lambda fitting: Change(int(fitting[0]), text, relaxed))


def devices_elsewhere(pod: PodInfo, held: Sequence[HeldClaim], snapshot: Snapshot) -> Iterator[Remedy]:
    """Yield the remedy that claims which have devices already had them on another node."""
    bound = [each for each in held if places_of(each.claim.status.allocation) is not None]
    if not bound:
        return

    def change(fitting: Rows) -> Change | None:
        row = int(fitting[0])
        node = snapshot.node_info(row)
        elsewhere = [each for each in bound if not _is_reached(each.claim, node)]
        clauses = [
            f"claim {each.claim.metadata.name} had its devices on {node.name} (now on nodes with "
            f"{asked_of(places_of(each.claim.status.allocation) or ())})"
            for each in elsewhere
        ]
        if not clauses:
            return None
        return Change(row, " and ".join(clauses), without_resource_claims(pod, elsewhere, held))

    yield Remedy(without_resource_claims(pod, bound, held), change)


def _is_reached(claim: ResourceClaim, node: NodeInfo) -> bool:
    rules = places_of(claim.status.allocation)
    return rules is None or any(rule.matches(node.name, node.labels) for rule in rules)


class SmallerRequests:
    """Searches the smallest change of claims after which a node can allocate their devices.

    Args:
        devices: the devices of the cluster.
        inventory: the devices in its slices.
        work: limits the time of one search.
    """

    def __init__(self, devices: Devices, inventory: Inventory, work: PluginWork) -> None:
        self._devices, self._inventory, self._work = devices, inventory, work

    def first(
        self, claims_on: Callable[[NodeInfo], Sequence[ResourceClaim]], snapshot: Snapshot, rows: Rows
    ) -> tuple[int, str] | None:
        """Return the first of some nodes where a smaller request would be satisfied, and the clause; None if there is none.

        Args:
            claims_on: returns the claims for which a node has to allocate devices.
            snapshot: the cluster.
            rows: the nodes.
        """
        self._work.begin()
        try:
            for row in rows[:_MOST_NODES].tolist():
                node = snapshot.node_info(row)
                for text, claims in _smaller(claims_on(node)):
                    if self._can_allocate(node, claims):
                        return row, text
        except NeedsTime as error:
            error.steps.close()
        return None

    def _can_allocate(self, node: NodeInfo, claims: Sequence[ResourceClaim]) -> bool:
        device_class, inventory = self._devices.classes.get, self._inventory
        self._work.done(self._devices.following())
        self._work.done(inventory.refreshing())
        self._work.done(inventory.questions.asked(claims, device_class, inventory.dropped, inventory.size))
        allocator = Allocator(inventory, self._devices.allocated, device_class, work=self._work)
        try:
            return allocator.allocate(node, claims) is not None
        except (AllocationError, InvalidPoolsError, OutOfTimeError):
            return False


def _smaller(claims: Sequence[ResourceClaim]) -> Iterator[tuple[str, Sequence[ResourceClaim]]]:
    """Yield changes of one request, each with the claims as they then are: fewer devices, and then no selectors."""
    for place, claim in enumerate(claims):
        for number, request in enumerate(claim.spec.devices.requests):
            exact = request.exactly
            if exact is None:
                continue
            where = f"request {request.name} of claim {claim.metadata.name}"
            for count in range(exact.count - 1, max(0, exact.count - 1 - _MOST_FEWER), -1):
                many = f"{count} device{'' if count == 1 else 's'} or fewer"
                smaller = replace(request, exactly=replace(exact, count=count))
                yield f"{where} were for {many} (now {exact.count})", _with(claims, place, number, smaller)
    for place, claim in enumerate(claims):
        for number, request in enumerate(claim.spec.devices.requests):
            exact = request.exactly
            if exact is None or not exact.selectors:
                continue
            written = some_of([each.cel.expression for each in exact.selectors if each.cel is not None])
            text = (
                f"request {request.name} of claim {claim.metadata.name} did not have the selector {written}"
            )
            without = replace(request, exactly=replace(exact, selectors=()))
            yield text, _with(claims, place, number, without)


def _with(
    claims: Sequence[ResourceClaim], place: int, number: int, request: DeviceRequest
) -> Sequence[ResourceClaim]:
    """Return claims, one of which has another request."""
    claim = claims[place]
    requests = [*claim.spec.devices.requests]
    requests[number] = request
    devices = replace(claim.spec.devices, requests=tuple(requests))
    changed = replace(claim, spec=replace(claim.spec, devices=devices))
    return [*claims[:place], changed, *claims[place + 1 :]]
