"""What is left of the counters that devices of a pool share.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating,
    allocator_incubating.go, checkAvailableCounters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.pools import Counters, Pool, PoolDevice


class AvailableCounters:
    """What allocated devices leave of each pool's counters, computed on the first request for a pool.

    As upstream, pools are identified by their names without their drivers: of two pools with one name, the counters of the
    first that is requested count for both.
    """

    def __init__(self, allocated: AllocatedDevices) -> None:
        self._allocated = allocated
        self._seen = allocated.changes
        self._known: dict[str, Counters] = {}  # name of a pool -> what is left

    def of(self, pool: Pool) -> Counters:
        """Return what is left; it may be negative."""
        if self._allocated.changes != self._seen:
            self._forget()
        name = pool.id.pool
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._computed(pool)
        return known

    def _forget(self) -> None:
        """Forget the pools with devices that were allocated or released."""
        changed = self._allocated.changed_since(self._seen)
        self._seen = self._allocated.changes
        if changed is None:
            self._known.clear()
        else:
            for pool in changed:
                self._known.pop(pool.pool, None)

    def _computed(self, pool: Pool) -> Counters:
        left = dict(pool.counters)
        for device in (*pool.devices, *pool.others):
            if device.takes and self._allocated.is_allocated(device.id):
                for place, amount in device.takes.items():
                    left[place] -= amount
        return left


class TakenCounters:
    """What the devices that a search has allocated so far consume in addition."""

    def __init__(self, available: AvailableCounters) -> None:
        self._available = available
        self._taken: dict[str, Counters] = {}  # name of a pool -> amounts

    def take(self, pool: Pool, device: PoolDevice) -> bool:
        """Count what a device consumes; return False, and count nothing, if that is more than is left."""
        available = self._available.of(pool)
        taken = self._taken.setdefault(pool.id.pool, {})
        for place, amount in device.takes.items():
            taken[place] = taken.get(place, 0) + amount
        if all(taken.get(place, 0) <= amount for place, amount in available.items()):
            return True
        self.give_back(pool, device)
        return False

    def give_back(self, pool: Pool, device: PoolDevice) -> None:
        """Stop counting a device."""
        taken = self._taken[pool.id.pool]
        for place, amount in device.takes.items():
            taken[place] -= amount
