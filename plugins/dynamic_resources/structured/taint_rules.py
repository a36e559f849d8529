"""The taints that DeviceTaintRules add to devices.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go, applyPatches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.errors import ObjectError
from scheduler.objects.dynamic_resources import DeviceTaintRule, DeviceTaintSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugins.dynamic_resources.structured.pools import PoolID
    from scheduler.objects.dynamic_resources import DeviceTaint, ResourceSliceSpec
    from scheduler.snapshot import Objects

    Place = tuple[str | None, str | None]
    """Driver and pool; None for any."""

_ALL: Final = DeviceTaintSelector()


class TaintRules:
    """All DeviceTaintRules, by the drivers and pools that they select.

    Args:
        rules: the result of `objects("resource.k8s.io/v1/devicetaintrules")`.
        need_selectors: whether a rule without a selector selects no device, not all.

    Source:
        kube-scheduler v1.37.1, https://github.com/kubernetes/kubernetes/pull/141648, for rules without a selector.
    """

    def __init__(self, rules: Objects, *, need_selectors: bool) -> None:
        self._objects = rules
        self._without_selector = None if need_selectors else _ALL
        self._seen = 0
        self._known: dict[str, tuple[DeviceTaintSelector, DeviceTaint]] = {}  # by the names of rules
        self._at: dict[Place, dict[str, None]] = {}  # -> the names of the rules

    @property
    def is_current(self) -> bool:
        """Whether all changes of the store are read."""
        return self._objects.changes == self._seen

    def read(self) -> set[Place]:
        """Read the changes of the store; return the drivers and pools that changed rules select or selected."""
        objects, places = self._objects, set()
        changed: Iterable[str] | None = objects.changed_since(self._seen)
        self._seen = objects.changes
        for name in {*self._known, *objects} if changed is None else changed:
            before, now = self._known.pop(name, None), self._rule(name)
            if now is not None:
                self._known[name] = now
            if before == now:
                continue
            if before is not None:
                place = _place(before[0])
                places.add(place)
                del self._at[place][name]
                if not self._at[place]:
                    del self._at[place]
            if now is not None:
                place = _place(now[0])
                places.add(place)
                self._at.setdefault(place, {})[name] = None
        return places

    def applied(self, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        """Return a slice with the taints of its devices, each device's own taints first, then by the names of rules."""
        names = sorted(
            name for place in places_of(spec.driver, spec.pool.name) for name in self._at.get(place, ())
        )
        if not names:
            return spec
        rules = [self._known[name] for name in names]
        devices = []
        for device in spec.devices:
            more = tuple(taint for selector, taint in rules if selector.device in {None, device.name})
            devices.append(msgspec.structs.replace(device, taints=device.taints + more) if more else device)
        return msgspec.structs.replace(spec, devices=tuple(devices))

    def _rule(self, name: str) -> tuple[DeviceTaintSelector, DeviceTaint] | None:
        try:
            found = self._objects.typed(DeviceTaintRule, name)
        except ObjectError:
            return None
        selector = None if found is None else found.spec.device_selector or self._without_selector
        return None if found is None or selector is None else (selector, found.spec.taint)


def affected(places: set[Place], pools: Mapping[PoolID, Iterable[str]]) -> Iterable[str]:
    """Yield the names of the slices of pools that are at some drivers and pools."""
    for pool, names in pools.items():
        if not places.isdisjoint(places_of(pool.driver, pool.pool)):
            yield from names


def places_of(driver: str, pool: str) -> tuple[Place, ...]:
    """Return the selections that contain a pool."""
    return (driver, pool), (driver, None), (None, pool), (None, None)


def _place(selector: DeviceTaintSelector) -> Place:
    return selector.driver, selector.pool
