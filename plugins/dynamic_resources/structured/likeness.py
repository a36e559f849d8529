"""Which pools are alike to one question, so that a search in one ends as in the other.

A search looks at the devices that requests select, in order: which requests select each, whether it is taken or tainted, and
what constraints compare. A cluster of thousands of nodes with devices of their own has few combinations of that.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plugins.dynamic_resources.structured.constraints import attribute_of
from plugins.dynamic_resources.structured.taints import is_tainted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices, DeviceID
    from plugins.dynamic_resources.structured.pools import Pool, PoolDevice
    from plugins.dynamic_resources.structured.requests import Wanted


class Selection(NamedTuple):
    """What requests select in a pool.

    Attributes:
        kind: a number for each sort of pool; None where a search depends on more: on devices that several may have or
            that share counters, on a selector that fails, or on what is wrong with the pool.
        devices: those selected, in order; of a pool without a kind perhaps not all.
    """

    kind: int | None
    devices: tuple[DeviceID, ...]


class _Said(IntEnum):
    """What a request says of a device."""

    NO = 0
    YES = 1
    TAINTED = 2
    FAILED = 3


class Likeness:
    """Tells pools apart as far as a search can.

    Args:
        requests: all that are asked.
        attributes: those that constraints compare.
    """

    def __init__(self, requests: Iterable[Wanted], attributes: Iterable[str]) -> None:
        self._requests = tuple(requests)
        self._attributes = tuple(dict.fromkeys(attributes))
        self._kinds: dict[Hashable, int] = {}

    def selection(self, pool: Pool) -> Selection:
        """Return what requests select in a pool that gives devices."""
        devices: list[DeviceID] = []
        kind: list[Any] = []
        for device in pool.devices:
            said = [_said(wanted, pool, device) for wanted in self._requests]
            if not any(said):
                continue
            devices.append(device.id)
            if _Said.FAILED in said or device.takes or device.device.allow_multiple_allocations:
                return Selection(None, tuple(devices))
            kind += said
            if self._attributes:
                kind += [attribute_of(device, name) for name in self._attributes]
        return Selection(self._kinds.setdefault(tuple(kind), len(self._kinds)), tuple(devices))


NOTHING: Final = Selection(None, ())
"""What is selected in a pool that gives no devices."""


def likeness_of(selections: Sequence[Selection], allocated: AllocatedDevices) -> Hashable | None:
    """Return what a search in some pools depends on; None where that cannot be told in short."""
    found: list[Hashable] = []
    for kind, devices in selections:
        if kind is None:
            return None
        found.append(kind)
        if not allocated.whole.keys().isdisjoint(devices):
            found.append(tuple([device in allocated.whole for device in devices]))
    return tuple(found)


def _said(wanted: Wanted, pool: Pool, device: PoolDevice) -> _Said:
    selects = wanted.selects(pool, device)
    if not selects:
        return _Said.NO
    if selects is not True:
        return _Said.FAILED
    return (
        _Said.TAINTED if device.device.taints and is_tainted(device.device, wanted.tolerations) else _Said.YES
    )
