"""Extended resources that devices stand for: one more claim of the pod, made by the scheduler.

A node that has the resource from a device plugin gives that. On any other node the pod needs a claim with a request
for each container that asks, which differs from node to node and is written once one of them is chosen.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/extendeddynamicresources.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from plugins.dynamic_resources.device_classes import DeviceClasses
    from plugins.dynamic_resources.devices import Devices
    from scheduler.objects.dynamic_resources import DeviceClass
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Container
    from scheduler.snapshot import Bools, Objects, Rows, Snapshot

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that were made for extended resources."""

_UNWRITTEN = "<extended-resources>"


class NodeClaim(NamedTuple):
    """What a pod needs on nodes that lack some of its extended resources.

    Attributes:
        claim: with a request for each container's share.
        mappings: which request stands for which container's resource.
    """

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def is_written(claim: ResourceClaim) -> bool:
    """Say whether a claim for extended resources is known to the API server."""
    return claim.metadata.name != _UNWRITTEN


def wants_devices(pod: PodInfo, classes: DeviceClasses) -> bool:
    """Say whether a pod asks for an extended resource that a device class stands for."""
    behind = classes.behind
    return bool(behind) and any(
        amount and name in behind and is_dra_extended_resource_name(name)
        for name, amount in pod.resources.requests.items()
    )


def special_claim(pod: PodInfo, devices: Devices) -> HeldClaim | None:
    """Return the claim for a pod's extended resources: one of an earlier attempt, or one that is not written yet.

    None where no device class stands for any of them.
    """
    if not wants_devices(pod, devices.classes):
        return None
    return _written_before(pod, devices.claims) or HeldClaim(_unwritten(pod), {})


@dataclass(slots=True)
class ExtendedResources:
    """A pod's extended resources in one attempt.

    Attributes:
        pod: which.
        classes: those behind them.
        amounts: of each that the pod asks for.
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
        """Return (n_nodes,), where a resource is that neither the node has nor a device class stands for."""
        lacks = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        for name in self.amounts.keys() - self.classes.keys():
            # Few nodes, as a rule none: NodeResourcesFit refused those before, unless it ignores the resource.
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
            requests, mappings = _requests_and_mappings(self.pod, names, self.classes)
            devices = msgspec.structs.replace(special.spec.devices, requests=requests)
            claim = msgspec.structs.replace(special, spec=ResourceClaimSpec(devices))
            found = self._claims[names] = NodeClaim(claim, mappings)
        return found


def _written_before(pod: PodInfo, claims: Objects) -> HeldClaim | None:
    for key, claim in claims.indexed(_BY_OWNER, (pod.namespace, pod.uid, pod.name)).items():
        return HeldClaim(claim, claims[key])
    return None


def _owners(claim: ResourceClaim) -> Iterator[tuple[str, str, str]]:
    """Yield namespace, uid and name of the pod whose extended resources a claim is for: an owner is of the same namespace."""
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


class _Share(NamedTuple):
    """What one container adds to the claim: a request, if those of others do not suffice, and who uses which."""

    request: DeviceRequest | None = None
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


def _requests_and_mappings(
    pod: PodInfo, names: Iterable[str], classes: Mapping[str, DeviceClass]
) -> tuple[tuple[DeviceRequest, ...], tuple[ContainerExtendedResourceRequest, ...]]:
    spec = pod.pod.spec
    containers = (*spec.init_containers, *spec.containers)
    passing = [
        index for index, each in enumerate(spec.init_containers) if each.restart_policy != "Always"
    ]  # those that end before the next begins
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for name in sorted(names):
        class_name = classes[name].metadata.name
        lasting = [
            _Share() if index in passing else _share(index, each, name, class_name, ())
            for index, each in enumerate(containers)
        ]
        lasting_requests = [share.request for share in lasting]
        brief = [
            _share(index, containers[index], name, class_name, lasting_requests[index:]) for index in passing
        ]
        largest = max(
            (share.request for share in brief if share.request is not None), key=_count, default=None
        )
        requests += [request for request in (largest, *lasting_requests) if request is not None]
        mappings += [mapping for share in lasting for mapping in share.mappings]
        mappings += [_using(largest, share, mapping) for share in brief for mapping in share.mappings]
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


def _using(
    largest: DeviceRequest | None, share: _Share, mapping: ContainerExtendedResourceRequest
) -> ContainerExtendedResourceRequest:
    """Let a container that ends early use the largest request of all such instead of its own."""
    if largest is None or share.request is None or mapping.request_name != share.request.name:
        return mapping
    return msgspec.structs.replace(mapping, request_name=largest.name)


def _share(
    index: int, container: Container, name: str, class_name: str, reusable: Sequence[DeviceRequest | None]
) -> _Share:
    """Return what a container needs; `reusable` are the requests of others that it may use first."""
    requests = container.resources.requests
    wanted = _whole(requests[name]) if name in requests else 0
    if not wanted:
        return _Share()
    at_hand = 0
    mappings = []
    for request in reusable:
        if request is None:
            continue
        at_hand += _count(request)
        mappings.append(ContainerExtendedResourceRequest(container.name, name, request.name))
        if at_hand >= wanted:
            return _Share(None, tuple(mappings))
    own = f"container-{index}-request-{sorted(requests).index(name)}"
    exactly = ExactDeviceRequest(
        device_class_name=class_name, allocation_mode="ExactCount", count=wanted - at_hand
    )
    mappings.append(ContainerExtendedResourceRequest(container.name, name, own))
    return _Share(DeviceRequest(name=own, exactly=exactly), tuple(mappings))


def _count(request: DeviceRequest) -> int:
    assert request.exactly is not None, "requests for extended resources are exact"
    return request.exactly.count


def _whole(written: str | float) -> int:
    """Return an amount, 0 if it is no whole one."""
    quantity = parse_quantity(written)
    amount = quantity.value()
    return amount if Quantity(amount) == quantity else 0
