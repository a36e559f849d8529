"""The metrics of DynamicResources.

Source:
    kube-scheduler v1.36, metrics/metrics.go, InitMetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.framework import PluginMetrics


class ClaimMetrics:
    """Counts allocations of devices to pods."""

    def __init__(self, metrics: PluginMetrics) -> None:
        self._created = metrics.counter(
            "scheduler_resourceclaim_creates_total",
            "Number of ResourceClaims that were to be created for extended resources of pods.",
            "status",
        )
        self._allocated = metrics.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of devices with binding conditions that attempts used.",
            "profile driver status",
        )
        self._awaited_seconds = metrics.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time in seconds that PreBind waited for devices to be ready.",
            "profile driver status",
            bounds=[0.1 * 2**place for place in range(14)],
        )

    def claim_created(self, status: str) -> None:
        """Count a ResourceClaim that was to be created: "success" or "failure"."""
        self._created.add(status)

    def devices_awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Count a pod's wait for a device: until it was ready ("success"), "failed", "timeout" or "error"."""
        self._awaited_seconds.observe(seconds, profile, driver, status)

    def devices_allocated(self, profile: str, driver: str, status: str) -> None:
        """Count a device with binding conditions that an attempt used; statuses as in `devices_awaited`."""
        self._allocated.add(profile, driver, status)
