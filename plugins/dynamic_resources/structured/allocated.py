"""Which devices are taken, kept up to date claim by claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scheduler.objects.dynamic_resources import AllocationResult


class DeviceID(NamedTuple):
    """The name of a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class AllocatedDevices:
    """What claims hold, those whose allocation is in flight included. The plugin keeps one, and tells it of each claim.

    Source:
        kube-scheduler v1.36, plugins/dynamicresources/allocateddevices.go and dra_manager.go, GatherAllocatedState.
    """

    def set(self, claim: str, allocation: AllocationResult | None) -> None:
        """Say what a claim holds from now on, None for nothing; `claim` is whatever names it, always the same way."""
        raise NotImplementedError

    def is_allocated(self, device: DeviceID) -> bool:
        """Say whether a device, or a share of it, is held; for admin access does not count."""
        raise NotImplementedError
