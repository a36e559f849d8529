"""Conditions that a device has to meet before a pod may be bound to the node that uses it.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, isClaimReadyForBinding, isClaimTimeout and
    listBindingConditionsStatus.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.objects.dynamic_resources import (
        AllocatedDeviceStatus,
        DeviceRequestAllocationResult,
        ResourceClaim,
    )


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
