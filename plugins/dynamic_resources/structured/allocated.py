"""The allocated devices, updated claim by claim, with amounts as whole numbers of billionths."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from scheduler.objects.dynamic_resources import AllocationResult, DeviceRequestAllocationResult


@lru_cache(maxsize=4096)
def amount_of(quantity: str | float) -> int:
    """Convert a written quantity to a number of billionths; see `Quantity.nanos`."""
    return parse_quantity(quantity).nanos


_REMEMBERED_CHANGES = 4096


class PoolID(NamedTuple):
    """The name of a pool in the cluster; pools are ordered by it."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """The name of a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class AllocatedDevices:
    """What claims hold, including allocations in flight. The plugin keeps one instance and passes each claim to it.

    Attributes:
        whole: device -> how many claims hold all of it.
        shares: device -> how many shares of it are held.
        consumed: device -> capacity -> the amount that shares consume, see `amounts`; admin access does not count.
        changes: how many devices were allocated or released so far.

    Source:
        kube-scheduler v1.36, plugins/dynamicresources/allocateddevices.go and dra_manager.go, GatherAllocatedState.
    """

    def __init__(self) -> None:
        self.whole: dict[DeviceID, int] = {}
        self.shares: dict[DeviceID, int] = {}
        self.consumed: dict[DeviceID, dict[str, int]] = {}
        self.changes = 0
        self._by_claim: dict[str, AllocationResult] = {}
        self._log: deque[PoolID] = deque(maxlen=_REMEMBERED_CHANGES)  # the pools of the last changes

    def set(self, claim: str, allocation: AllocationResult | None) -> None:
        """Set what a claim holds, None for nothing; `claim` is a stable name of the claim."""
        before = self._by_claim.get(claim)
        if before == allocation:
            return
        if before is not None:
            del self._by_claim[claim]
            for result in _held(before):
                self._remove(result)
        if allocation is not None:
            self._by_claim[claim] = allocation
            for result in _held(allocation):
                self._add(result)

    def is_allocated(self, device: DeviceID) -> bool:
        """Return whether a device, or a share of it, is held."""
        return device in self.whole or device in self.shares

    def is_changed_since(self, changes: int) -> bool:
        """Return whether anything was allocated or released since the count of changes was `changes`."""
        return self.changes != changes

    def changed_since(self, changes: int) -> frozenset[PoolID] | None:
        """Return the pools with changes since that count; None if the log does not reach back that far."""
        missed = self.changes - changes
        if missed > len(self._log):
            return None
        return frozenset(self._log[-place] for place in range(1, missed + 1))

    def _add(self, result: DeviceRequestAllocationResult) -> None:
        device = self._changed(result)
        if result.share_id is None:
            self.whole[device] = self.whole.get(device, 0) + 1
            return
        self.shares[device] = self.shares.get(device, 0) + 1
        if result.consumed_capacity:
            consumed = self.consumed.setdefault(device, {})
            for name, quantity in result.consumed_capacity.items():
                consumed[name] = consumed.get(name, 0) + amount_of(quantity)

    def _remove(self, result: DeviceRequestAllocationResult) -> None:
        device = self._changed(result)
        held = self.whole if result.share_id is None else self.shares
        held[device] -= 1
        if not held[device]:
            del held[device]
        if result.share_id is not None and result.consumed_capacity:
            consumed = self.consumed.get(device, {})
            for name, quantity in result.consumed_capacity.items():
                consumed[name] = consumed.get(name, 0) - amount_of(quantity)
            if not any(consumed.values()):
                self.consumed.pop(device, None)

    def _changed(self, result: DeviceRequestAllocationResult) -> DeviceID:
        self.changes += 1
        self._log.append(PoolID(result.driver, result.pool))
        return DeviceID(result.driver, result.pool, result.device)


def _held(allocation: AllocationResult) -> list[DeviceRequestAllocationResult]:
    return [result for result in allocation.devices.results if not result.admin_access]
