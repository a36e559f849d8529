"""Counts the devices of one class by node, for the scores of extended resources that device classes provide.

Source:
    kube-scheduler v1.36, plugins/noderesources/resource_allocation.go, calculateDRAResourceTotals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from plugins.dynamic_resources.cel import CELError, is_clear, selector
from plugins.dynamic_resources.structured.allocated import DeviceID, PoolID
from plugins.dynamic_resources.structured.pools import PoolDevice
from plugins.dynamic_resources.structured.requests import EVALUATIONS_OF_A_STEP, evaluations
from scheduler.errors import ObjectError
from scheduler.objects.dynamic_resources import ResourceSlice
from scheduler.objects.selectors import SelectorError, parse_node_term
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Generator

    from plugins.dynamic_resources.structured import AllocatedDevices
    from scheduler.objects.dynamic_resources import Device, DeviceClass, ResourceSliceSpec
    from scheduler.objects.selectors import NodeSelector
    from scheduler.snapshot import Bools, Int64s, Objects, Rows, Snapshot

_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)


class Totals(NamedTuple):
    """The devices behind one extended resource.

    Attributes:
        capacity: int64 (n_nodes,), how many devices a node can use.
        taken: int64 (n_nodes,), how many of them are allocated to claims.
    """

    capacity: Int64s
    taken: Int64s


@dataclass(slots=True, eq=False)
class _Place:
    """Devices of a slice that are available on the same nodes.

    Attributes:
        where: the rule for these nodes.
        is_everywhere: whether all nodes can use the devices.
        devices: the devices that belong to the class.
        has_failed: whether a device of the slice could not be evaluated.
        rows: the rows of these nodes.
        taken: how many of the devices are allocated to claims.
    """

    where: ResourceSliceSpec | Device
    is_everywhere: bool
    devices: list[DeviceID]
    has_failed: bool
    rows: Rows
    taken: int = 0


class Counted:
    """The devices of one class, counted by node; only what has changed is counted again.

    Args:
        device_class: the class.
        slices: all ResourceSlices.

    Attributes:
        device_class: the class.
    """

    def __init__(self, device_class: DeviceClass, slices: Objects) -> None:
        self.device_class = device_class
        self._slices = slices
        self._compiled = [
            selector(each.cel.expression) for each in device_class.spec.selectors if each.cel is not None
        ]
        self._seen = -1
        self._unread: dict[str, None] = {}
        self._places: dict[str, list[_Place]] = {}  # name of a slice -> the places of its devices
        # The generations of nodes and claims that were counted last:
        self._layout: tuple[object, int, int] | None = None
        self._changes = 0
        self._by_pool: dict[PoolID, list[_Place]] = {}
        self._capacity: Int64s = np.zeros(0, dtype=np.int64)
        self._taken: Int64s = self._capacity
        self._failed: Bools = np.zeros(0, dtype=np.bool_)

    def reading(self) -> Generator[None, None, None]:
        """Evaluate the devices of slices that have changed, one slice after another."""
        slices = self._slices
        while self._unread or self._seen != slices.changes:
            if self._seen != slices.changes:
                changed = None if self._seen < 0 else slices.changed_since(self._seen)
                self._seen = slices.changes
                self._unread |= dict.fromkeys((*self._places, *slices) if changed is None else changed)
                self._layout = None
            key, _ = self._unread.popitem()
            self._places.pop(key, None)
            try:
                published = slices.typed(ResourceSlice, key)
            except ObjectError:
                continue  # an invalid slice counts as absent
            if published is not None:
                self._places[key] = yield from self._read(published)
            yield

    def _read(self, published: ResourceSlice) -> Generator[None, None, list[_Place]]:
        spec = published.spec
        places: list[_Place] = []
        if not spec.per_device_node_selection:
            is_anywhere = not (spec.node_name or spec.node_selector)
            places.append(_Place(spec, spec.all_nodes or is_anywhere, [], False, _NO_ROWS))
        most = evaluations.count + EVALUATIONS_OF_A_STEP
        for device in spec.devices:
            verdict = self._verdict(published, device)
            if spec.per_device_node_selection:
                places.append(_Place(device, device.all_nodes, [], False, _NO_ROWS))
            if isinstance(verdict, CELError):
                places[-1].has_failed = True
            elif verdict:
                places[-1].devices.append(DeviceID(spec.driver, spec.pool.name, device.name))
            if evaluations.count >= most:
                yield
                most = evaluations.count + EVALUATIONS_OF_A_STEP
        return [place for place in places if place.devices or place.has_failed or place.where.node_selector]

    def _verdict(self, published: ResourceSlice, device: Device) -> bool | CELError:
        """Return whether a device belongs to the class, or the error if that cannot be evaluated."""
        spec = published.spec
        # Scores do not consider that several claims may share a device.
        unshared = msgspec.structs.replace(device, allow_multiple_allocations=False)
        name = DeviceID(spec.driver, spec.pool.name, device.name)
        subject = PoolDevice(name, unshared, spec, {}, is_clear(device), None)
        for compiled in self._compiled:
            verdict = evaluations.verdict(subject, compiled)
            if verdict is not True:
                return verdict
        return True

    def totals(self, snapshot: Snapshot, allocated: AllocatedDevices) -> Totals:
        """Return how many devices each node has, and how many of them are allocated."""
        log = snapshot.node_changes
        layout = (log, -1 if log is None else log.end, snapshot.n_nodes)
        changed = allocated.changed_since(self._changes)
        if log is None or layout != self._layout or changed is None:
            self._lay_out(snapshot, allocated)
            self._layout = layout
        else:
            for pool in changed:
                for place in self._by_pool.get(pool, ()):
                    before, place.taken = place.taken, _taken(place, allocated)
                    self._taken[place.rows] += place.taken - before
        self._changes = allocated.changes
        capacity, taken = self._capacity.copy(), self._taken.copy()
        capacity[self._failed] = taken[self._failed] = 0
        return Totals(capacity, taken)

    def _lay_out(self, snapshot: Snapshot, allocated: AllocatedDevices) -> None:
        """Find out which nodes can use the devices."""
        self._capacity, self._taken = (np.zeros(snapshot.n_nodes, dtype=np.int64) for _ in range(2))
        self._failed = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        self._by_pool = {}
        selected: dict[NodeSelector, Rows] = {}
        for places in self._places.values():
            for place in places:
                try:
                    place.rows = _rows(snapshot, place, selected)
                except SelectorError:
                    self._failed[:] = True
                    continue
                place.taken = _taken(place, allocated)
                self._capacity[place.rows] += len(place.devices)
                self._taken[place.rows] += place.taken
                if place.has_failed:
                    self._failed[place.rows] = True
                if place.devices:
                    first = place.devices[0]
                    self._by_pool.setdefault(PoolID(first.driver, first.pool), []).append(place)


def _taken(place: _Place, allocated: AllocatedDevices) -> int:
    return sum(map(allocated.is_allocated, place.devices))


def _rows(snapshot: Snapshot, place: _Place, selected: dict[NodeSelector, Rows]) -> Rows:
    """Return the rows of the nodes that can use some devices; `selected` caches the rows of each selector.

    Raises:
        SelectorError: the node selector is invalid.
    """
    where = place.where
    if place.is_everywhere:
        return snapshot.all_rows
    if where.node_name:
        row = snapshot.row_of(where.node_name)
        return _NO_ROWS if row is None else np.array([row], dtype=np.intp)
    if where.node_selector is None:
        return _NO_ROWS
    found = selected.get(where.node_selector)
    if found is None:
        terms = where.node_selector.node_selector_terms
        rules = [parse_node_term(term) for term in terms if not term.is_empty]
        found = selected[where.node_selector] = np.flatnonzero(nodes_of_any(snapshot, rules))
    return found
