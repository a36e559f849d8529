"""The ResourceClaims of a pod, why the pod waits for them, and conditions of their devices before it is bound.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go, and
    plugins/dynamicresources/dynamicresources.go, foreachPodResourceClaim.
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, isClaimReadyForBinding, isClaimTimeout and
    listBindingConditionsStatus.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plugins.dynamic_resources.reason_codes import (
    CLAIM_NOT_FOUND,
    CLAIM_OF_OTHER_POD,
    CLAIM_TERMINATING,
    INVALID_CLAIM,
)
from scheduler.errors import SchedulerError
from scheduler.framework import Reason
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import ResourceClaim, ResourceClaimConsumerReference
from scheduler.objects.pod_group import POD_GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from plugins.pod_groups.objects import PodGroupObject
    from scheduler.objects.dynamic_resources import AllocatedDeviceStatus, DeviceRequestAllocationResult
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodResourceClaim
    from scheduler.snapshot import Objects

CLAIMS: Final = "resource.k8s.io/v1/resourceclaims"
_SCHEDULING: Final = "scheduling.k8s.io"


class HeldClaim(NamedTuple):
    """A claim in the version that was read.

    Attributes:
        claim: the fields that decisions use.
        obj: the whole object, the base of a write.
    """

    claim: ResourceClaim
    obj: Mapping[str, Any]

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> HeldClaim:
        """Return a claim from a response of the API server.

        Raises:
            ObjectError: the object is not a valid claim.
        """
        return cls(typed_object(obj, ResourceClaim), obj)


def find_claims(pod: PodInfo, claims: Objects, *, of_groups: bool = False) -> list[HeldClaim] | str:
    """Return the claims of a pod in the order of its spec, or upstream's message why the pod has to wait.

    A claim that the controller found unnecessary is left out.

    Args:
        pod: the pod.
        claims: all ResourceClaims.
        of_groups: whether a claim may have been created for the pod's PodGroup.
    """
    found = []
    generated: Mapping[str, str | None] | None = None
    for wanted in pod.pod.spec.resource_claims:
        if generated is None and wanted.resource_claim_name is None:
            generated = _generated_names(pod)
        name = _claim_name(pod, wanted, generated or {})
        if name is None:
            continue
        if isinstance(name, _Missing):
            return name.words
        key = f"{pod.namespace}/{name}"
        claim = claims.typed(ResourceClaim, key)
        if claim is None:
            return Reason(f'could not find ResourceClaim "{key}"', CLAIM_NOT_FOUND)
        if claim.metadata.deletion_timestamp:
            return Reason(f'resourceclaim "{name}" is being deleted', CLAIM_TERMINATING)
        if wanted.resource_claim_name is None:
            fault = _owner_fault(claim, pod, _own_group(pod) if of_groups else "")
            if fault:
                return Reason(
                    f"ResourceClaim {key} was not created for Pod {pod.key} ({fault})", CLAIM_OF_OTHER_POD
                )
        found.append(HeldClaim(claim, claims[key]))
    return found


def _owner_fault(claim: ResourceClaim, pod: PodInfo, group: str) -> str:
    """Return why a claim was not created for a pod or for its PodGroup; "" if it was."""
    owner = next((each for each in claim.metadata.owner_references if each.controller), None)
    if owner is not None and owner.uid == pod.uid:
        return ""
    if not group:
        return "Pod is not owner"
    # The pod does not have the UID of its PodGroup.
    is_its_group = (
        owner is not None
        and owner.kind == "PodGroup"
        and owner.name == group
        and owner.api_version.startswith(f"{_SCHEDULING}/")
    )
    return "" if is_its_group else f"neither Pod nor PodGroup {group} is the owner"


def _own_group(pod: PodInfo) -> str:
    """Return the name of a pod's PodGroup of Kubernetes' own kind; "" without one."""
    return pod.group.name if pod.group is not None and pod.group.kind == POD_GROUPS else ""


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Return whether a claim's `reservedFor` lists a consumer."""
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def is_reserved_for_group_of(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Return whether a claim's `reservedFor` lists the PodGroup of a pod.

    Source:
        kube-scheduler v1.36, resourceclaim.go, IsReservedForPod.
    """
    group = _own_group(pod)
    return bool(group) and any(
        (each.api_group, each.resource, each.name) == (_SCHEDULING, "podgroups", group)
        for each in claim.status.reserved_for
    )


def consumer_of(pod: PodInfo) -> ResourceClaimConsumerReference:
    """Return how a claim names a pod that uses it."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def group_consumers(
    pod: PodInfo, group: PodGroupObject
) -> Mapping[int, ResourceClaimConsumerReference] | str:
    """Return which of a pod's claims are reserved for its PodGroup, by their indexes in `find_claims`; or upstream's error.

    A claim of the pod belongs to the group if it equals one of the group's `resourceClaims`.

    Source:
        kube-scheduler v1.36, resourceclaim.go, BindTo. There a claim that the controller found unnecessary moves the
        consumers of the claims after it.
    """
    metadata, of_group = group.metadata, group.spec.resource_claims
    for each in of_group if pod.pod.spec.resource_claims else ():
        if each.resource_claim_name is None and each.resource_claim_template_name is None:
            key = f"{metadata.namespace}/{metadata.name}"
            return Reason(
                f"PodGroup {key} claim {each.name}: none of the supported fields are set", INVALID_CLAIM
            )
    consumer = ResourceClaimConsumerReference(_SCHEDULING, "podgroups", metadata.name, metadata.uid)
    return {place: consumer for place, wanted in enumerate(present_claims(pod)) if wanted in of_group}


def present_claims(pod: PodInfo) -> list[PodResourceClaim]:
    """Return how a pod's spec names the claims of `find_claims`, in the same order."""
    generated = _generated_names(pod)
    return [
        wanted
        for wanted in pod.pod.spec.resource_claims
        if wanted.resource_claim_name is not None or generated.get(wanted.name) is not None
    ]


def reserved_group_claim(pod: PodInfo, group: PodGroupObject, claims: Objects) -> ResourceClaim | None:
    """Return the first allocated claim of a pod's PodGroup that is reserved for the pod or the group.

    Raises:
        GroupClaimError: a claim before it cannot be found.

    Source:
        kube-scheduler v1.36, dynamicresources.go, unreservePodGroupClaims, and resourceclaim.go, NameFromPodGroup and
        IsForPodGroup.
    """
    for name, is_created in _names_of_group_claims(group):
        key = f"{group.metadata.namespace}/{name}"
        claim = claims.typed(ResourceClaim, key)
        if claim is None:
            raise GroupClaimError(f'could not find ResourceClaim "{key}"')
        owner = next((each for each in claim.metadata.owner_references if each.controller), None)
        is_foreign = is_created and (owner is None or owner.uid != group.metadata.uid)
        is_reserved = is_reserved_for(claim, pod.uid) or is_reserved_for_group_of(claim, pod)
        if not is_foreign and claim.status.allocation is not None and is_reserved:
            return claim
    return None


def _names_of_group_claims(group: PodGroupObject) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether the controller created it) of each claim of a PodGroup; GroupClaimError if it has no name yet."""
    key = f"{group.metadata.namespace}/{group.metadata.name}"
    made = {each.name: each.resource_claim_name for each in reversed(group.status.resource_claim_statuses)}
    for wanted in group.spec.resource_claims:
        if wanted.resource_claim_name is not None:
            yield wanted.resource_claim_name, False
        elif wanted.resource_claim_template_name is None:
            raise GroupClaimError(
                f"PodGroup {key}, spec.resourceClaim {wanted.name}: none of the supported fields are set"
            )
        elif wanted.name not in made:
            raise GroupClaimError(f"PodGroup {key}: ResourceClaim not created yet")
        else:
            name = made[wanted.name]
            if name is not None:
                yield name, True


class GroupClaimError(SchedulerError):
    """A claim of a PodGroup cannot be found."""


class _Missing(NamedTuple):
    words: Reason


def _generated_names(pod: PodInfo) -> Mapping[str, str | None]:
    """Return the names of the claims that the controller created, by their names in the pod; the first of a name counts."""
    return {each.name: each.resource_claim_name for each in reversed(pod.pod.status.resource_claim_statuses)}


def _claim_name(
    pod: PodInfo, wanted: PodResourceClaim, generated: Mapping[str, str | None]
) -> str | _Missing | None:
    if wanted.resource_claim_name is not None:
        return wanted.resource_claim_name
    if wanted.resource_claim_template_name is None:
        return _Missing(
            Reason(
                f'pod "{pod.key}", spec.resourceClaim "{wanted.name}": none of the supported fields are set',
                INVALID_CLAIM,
            )
        )
    if wanted.name in generated:
        return generated[wanted.name]
    return _Missing(Reason(f'pod "{pod.key}": ResourceClaim not created yet', CLAIM_NOT_FOUND))


class DeviceBindingError(SchedulerError):
    """A device will not become ready."""


def waits_for_conditions(claim: ResourceClaim) -> bool:
    """Return whether a claim has a device with binding conditions."""
    return any(device.binding_conditions for device in devices_of(claim))


def is_ready(claim: ResourceClaim) -> bool:
    """Return whether all devices of a claim are ready; a claim without an allocation is not ready.

    Raises:
        DeviceBindingError: a driver reports that a device failed.
    """
    if claim.status.allocation is None:
        return False
    for device in devices_of(claim):
        if not device.binding_conditions:
            continue
        status = _status_of(claim, device)
        if status is None:
            return False
        conditions = {condition.type: condition for condition in reversed(status.conditions)}
        for name in device.binding_failure_conditions:
            condition = conditions.get(name)
            if condition is not None and condition.status == "True":
                message = json.dumps(condition.message, ensure_ascii=False)
                raise DeviceBindingError(
                    f"device binding failed: claim={claim.metadata.name}, "
                    f"reason={condition.reason}, message={message}"
                )
        if not all(
            name in conditions and conditions[name].status == "True" for name in device.binding_conditions
        ):
            return False
    return True


def deadline_of(claim: ResourceClaim, timeout_seconds: float) -> datetime | None:
    """Return the deadline for the devices of a claim to be ready; None if no device has binding conditions."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp or not waits_for_conditions(claim):
        return None
    return datetime.fromisoformat(allocation.allocation_timestamp) + timedelta(seconds=timeout_seconds)


def devices_of(claim: ResourceClaim) -> Iterable[DeviceRequestAllocationResult]:
    """Return the devices that are allocated to a claim."""
    return () if claim.status.allocation is None else claim.status.allocation.devices.results


def drivers_with_conditions(claim: ResourceClaim) -> Iterator[str]:
    """Yield the driver of each device of a claim that has binding conditions."""
    return (device.driver for device in devices_of(claim) if device.binding_conditions)


def _status_of(claim: ResourceClaim, device: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    wanted = (device.driver, device.pool, device.device)
    return next(
        (each for each in claim.status.devices if (each.driver, each.pool, each.device) == wanted), None
    )
