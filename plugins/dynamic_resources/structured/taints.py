"""Taints of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.objects.dynamic_resources import Device, DeviceTaint, DeviceToleration

_REFUSING: Final = frozenset({"NoSchedule", "NoExecute"})


def is_tainted(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Return whether a taint excludes a device for a request with these tolerations."""
    return refusing_taint(device, tolerations) is not None


def refusing_taint(device: Device, tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """Return the first taint that excludes a device.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
        allocator_incubating.go, taintPreventsAllocation.
    """
    for taint in device.taints:
        if taint.effect in _REFUSING and not any(each.tolerates(taint) for each in tolerations):
            return taint
    return None
