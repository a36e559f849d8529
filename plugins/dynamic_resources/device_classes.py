"""DeviceClasses by name, and by the extended resource that each provides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.dynamic_resources import DeviceClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.snapshot import Objects

DEVICE_CLASSES: Final = "resource.k8s.io/v1/deviceclasses"

_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class DeviceClasses:
    """The device classes of a cluster in their current state.

    If several classes have the same `extendedResourceName`, the newest one counts, and of those created at the same
    time the first by name. Every class also provides a resource named after it.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache, which
        processes events: there a class that arrives too late to count has no implicit name either, and an update keeps
        the old entries of a class.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._behind: dict[str, DeviceClass] = {}  # extended resource -> class
        self._changes = 0

    def get(self, name: str) -> DeviceClass | None:
        """Return a class by its name."""
        return self._objects.typed(DeviceClass, name)

    @property
    def behind(self) -> Mapping[str, DeviceClass]:
        """The classes by the extended resources that they provide."""
        if self._changes != self._objects.changes:
            self._changes = self._objects.changes
            self._behind = self._read()
        return self._behind

    def _read(self) -> dict[str, DeviceClass]:
        classes = [self._objects.typed(DeviceClass, name) for name in sorted(self._objects, reverse=True)]
        known = [each for each in classes if each is not None]
        known.sort(key=lambda each: each.metadata.creation_timestamp)  # stable: later ones count
        explicit = {
            each.spec.extended_resource_name: each for each in known if each.spec.extended_resource_name
        }
        return {**explicit, **{_IMPLICIT + each.metadata.name: each for each in known}}
