"""Extended resources that device classes provide: the scheduler creates one more claim for the pod.

A node whose device plugin has the resource provides it directly. On any other node the pod needs a claim with a
request for each container that requests the resource. The claim differs from node to node and is written once a
node is chosen.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/extendeddynamicresources.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from plugins.dynamic_resources.pod_claims import HeldClaim
from scheduler.objects.dynamic_resources import (
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from scheduler.objects.meta import ObjectMeta, OwnerReference
from scheduler.objects.quantity import Quantity, parse_quantity
from scheduler.objects.resource_names import is_dra_extended_resource_name
from scheduler.objects.v1 import ContainerExtendedResourceRequest
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugins.dynamic_resources.devices import DeviceClasses, Devices
    from scheduler.objects.dynamic_resources import DeviceClass
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Objects, Rows, Snapshot

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that were created for extended resources."""

_UNWRITTEN = "<extended-resources>"


class NodeClaim(NamedTuple):
    """The devices that a pod needs on nodes that lack some of its extended resources.

    Attributes:
        claim: the claim, with a request for each container's share.
        sharings: how containers share each resource.
    """

    claim: ResourceClaim
    sharings: tuple[_Sharing, ...]

    @property
    def mappings(self) -> tuple[ContainerExtendedResourceRequest, ...]:
        """The request that provides each resource of each container.

        There may be many more mappings than containers. Only a claim that is small enough gets devices, so build them then.
        """
        return tuple(mapping for sharing in self.sharings for mapping in sharing.mappings())


def is_written(claim: ResourceClaim) -> bool:
    """Return whether a claim for extended resources exists in the API server."""
    return claim.metadata.name != _UNWRITTEN


def wants_devices(pod: PodInfo, classes: DeviceClasses) -> bool:
    """Return whether a pod requests an extended resource that a device class provides."""
    behind = classes.behind
    return bool(behind) and any(
        amount and name in behind and is_dra_extended_resource_name(name)
        for name, amount in pod.resources.requests.items()
    )


def special_claim(pod: PodInfo, devices: Devices) -> HeldClaim | None:
    """Return the claim for a pod's extended resources: one of an earlier attempt, or one that is not written yet.

    None if no device class provides any of them.
    """
    if not wants_devices(pod, devices.classes):
        return None
    return _written_before(pod, devices.claims) or HeldClaim(_unwritten(pod), {})


@dataclass(slots=True)
class ExtendedResources:
    """A pod's extended resources in one attempt.

    Attributes:
        pod: the pod.
        classes: the device classes that provide the resources.
        amounts: the amount of each resource that the pod requests.
    """

    pod: PodInfo
    classes: Mapping[str, DeviceClass]
    amounts: Mapping[str, int]
    _claims: dict[frozenset[str], NodeClaim] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: PodInfo, classes: DeviceClasses) -> ExtendedResources:
        amounts = {
            name: amount
            for name, amount in pod.resources.requests.items()
            if amount and is_dra_extended_resource_name(name)
        }
        return cls(pod, classes.behind, amounts)

    def lacking(self, snapshot: Snapshot, rows: Rows) -> Bools:
        """Return (n_nodes,), where a resource is provided neither by the node nor by a device class."""
        lacks = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        for name in self.amounts.keys() - self.classes.keys():
            # Usually none: NodeResourcesFit has rejected such nodes, unless it ignores the resource.
            empty = rows[snapshot.allocatable[name][rows] == 0]
            lacks[[row for row in empty.tolist() if name not in snapshot.nodes[row].allocatable]] = True
        return lacks

    def groups(self, snapshot: Snapshot, rows: Rows) -> list[tuple[frozenset[str], Rows]]:
        """Return which resources devices have to provide, and on which rows."""
        found = [(frozenset[str](), rows)]
        for name in self.amounts.keys() & self.classes.keys():
            split = []
            for names, group in found:
                lacks = snapshot.allocatable[name][group] == 0
                split += [(names | {name}, group[lacks]), (names, group[~lacks])]
            found = [(names, group) for names, group in split if group.size]
        return found

    def needed_on(self, allocatable: Mapping[str, int]) -> frozenset[str]:
        """Return which resources devices have to provide on one node."""
        return frozenset(
            name for name in self.amounts if name in self.classes and not allocatable.get(name, 0)
        )

    def claim_for(self, names: frozenset[str], special: ResourceClaim) -> NodeClaim:
        """Return the claim for nodes where devices have to provide these resources."""
        found = self._claims.get(names)
        if found is None:
            sharings = _sharings(self.pod, names)
            requests = [
                request
                for name, sharing in sharings.items()
                for request in sharing.requests(self.classes[name].metadata.name)
            ]
            requests.sort(key=lambda request: request.name)
            devices = msgspec.structs.replace(special.spec.devices, requests=tuple(requests))
            claim = msgspec.structs.replace(special, spec=ResourceClaimSpec(devices))
            found = self._claims[names] = NodeClaim(claim, tuple(sharings.values()))
        return found


def _written_before(pod: PodInfo, claims: Objects) -> HeldClaim | None:
    for key, claim in claims.indexed(_BY_OWNER, (pod.namespace, pod.uid, pod.name)).items():
        return HeldClaim(claim, claims[key])
    return None


def _owners(claim: ResourceClaim) -> Iterator[tuple[str, str, str]]:
    """Yield namespace, uid and name of the pod that a claim for extended resources belongs to; owners share its namespace."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
        for owner in claim.metadata.owner_references:
            if owner.controller:
                yield claim.metadata.namespace, owner.uid, owner.name


_BY_OWNER: Final = Index(ResourceClaim, _owners)


def _unwritten(pod: PodInfo) -> ResourceClaim:
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
    return ResourceClaim(
        metadata=ObjectMeta(
            name=_UNWRITTEN,
            namespace=pod.namespace,
            uid=f"{pod.uid}/{_UNWRITTEN}",
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=(owner,),
        )
    )


# The requests of such a claim. Containers that run one after another use the same devices.


class _Ask(NamedTuple):
    """The request of one container for a resource.

    Attributes:
        place: index of the container among all containers, init containers first.
        container: its name.
        request: the name of a request of its own.
        amount: how many devices it needs.
    """

    place: int
    container: str
    request: str
    amount: int


class _Sharing:
    """The shares of containers in the devices of one resource.

    A container that keeps running has a request of its own. An init container that ends before the next one starts first
    uses the requests of the long-running containers after it. All such init containers share the largest request for
    what these lack.

    Attributes:
        lasting: the requests of long-running containers, in the order of the containers.
        brief: the requests of the other containers, in the same order.
    """

    def __init__(self, resource: str) -> None:
        self.lasting: list[_Ask] = []
        self.brief: list[_Ask] = []
        self._resource = resource

    def requests(self, class_name: str) -> Iterator[DeviceRequest]:
        """Yield the requests of all containers, for devices of a class."""
        largest = self._largest()
        for ask in self.lasting if largest is None else (largest, *self.lasting):
            yield DeviceRequest(
                name=ask.request,
                exactly=ExactDeviceRequest(
                    device_class_name=class_name, allocation_mode="ExactCount", count=ask.amount
                ),
            )

    def mappings(self) -> Iterator[ContainerExtendedResourceRequest]:
        """Yield which container uses which request."""
        for ask in self.lasting:
            yield self._mapping(ask, ask)
        largest = self._largest()
        for ask, first, lack in self._lacks():
            at_hand = 0
            for other in islice(self.lasting, first, None):
                at_hand += other.amount
                yield self._mapping(ask, other)
                if at_hand >= ask.amount:
                    break
            if lack:
                assert largest is not None, "it is at least as large"
                yield self._mapping(ask, largest)

    def _mapping(self, ask: _Ask, used: _Ask) -> ContainerExtendedResourceRequest:
        return ContainerExtendedResourceRequest(ask.container, self._resource, used.request)

    def _largest(self) -> _Ask | None:
        """Return the first of the largest requests of containers that end, with the amount that it needs."""
        largest, most = None, 0
        for ask, _, lack in self._lacks():
            if lack > most:
                largest, most = ask, lack
        return largest and largest._replace(amount=most)

    def _lacks(self) -> Iterator[tuple[_Ask, int, int]]:
        """Yield (request of a container that ends, index of the next long-running container, number of devices lacking)."""
        first, at_hand = 0, sum(ask.amount for ask in self.lasting)
        for ask in self.brief:
            while first < len(self.lasting) and self.lasting[first].place < ask.place:
                at_hand -= self.lasting[first].amount
                first += 1
            yield ask, first, max(0, ask.amount - at_hand)


def _sharings(pod: PodInfo, names: frozenset[str]) -> dict[str, _Sharing]:
    """Return how the pod's containers share each resource, in the order of the names."""
    spec = pod.pod.spec
    found = {name: _Sharing(name) for name in sorted(names)}
    for place, container in enumerate((*spec.init_containers, *spec.containers)):
        written = container.resources.requests
        if names.isdisjoint(written):
            continue
        ends = place < len(spec.init_containers) and container.restart_policy != "Always"
        for number, name in enumerate(sorted(written)):
            amount = _whole(written[name]) if name in names else 0
            if amount:
                asks = found[name].brief if ends else found[name].lasting
                asks.append(_Ask(place, container.name, f"container-{place}-request-{number}", amount))
    return found


def _whole(written: str | float) -> int:
    """Return an amount, 0 if it is not a whole number."""
    quantity = parse_quantity(written)
    amount = quantity.value()
    return amount if Quantity(amount) == quantity else 0
