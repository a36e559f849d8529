"""How many devices of a class the nodes have, for the scores of extended resources that device classes provide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.dynamic_resources.counted_devices import Counted
from plugins.pod_work import UNLIMITED, PluginWork

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugins.dynamic_resources.counted_devices import Totals
    from plugins.dynamic_resources.devices import Devices
    from scheduler.framework import TimeSlice
    from scheduler.objects.dynamic_resources import DeviceClass
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

_NONE: frozenset[str] = frozenset()


class ClassTotals:
    """Counts devices for NodeResourcesFit and NodeResourcesBalancedAllocation.

    Args:
        devices: the devices of the cluster.
        time_slice: the time slice of one call.
    """

    def __init__(self, devices: Devices, time_slice: TimeSlice = UNLIMITED) -> None:
        self._devices = devices
        self._work = PluginWork(time_slice)

    @property
    def behind(self) -> Mapping[str, DeviceClass]:
        """The device classes, by the extended resources that they provide."""
        return self._devices.classes.behind

    def wanted_by(self, pod: PodInfo) -> frozenset[str]:
        """Return the resources that a pod requests and that device classes provide."""
        behind = self.behind
        if not behind:
            return _NONE
        return frozenset(name for name, amount in pod.resources.requests.items() if amount and name in behind)

    def of(self, snapshot: Snapshot, resource: str) -> Totals | None:
        """Count the devices of a resource; None if no class provides it.

        A node counts no devices if a device of it cannot be evaluated.

        Raises:
            NeedsTime: devices have to be evaluated, and that takes longer than one time slice.
        """
        device_class = self.behind.get(resource)
        if device_class is None:
            return None
        counts = self._devices.counts
        counted = counts.get(device_class.metadata.name)
        if counted is None or counted.device_class is not device_class:
            counted = counts[device_class.metadata.name] = Counted(device_class, self._devices.slices)
        self._work.begin()
        self._work.done(self._devices.following())
        self._work.done(counted.reading())
        return counted.totals(snapshot, self._devices.allocated)
