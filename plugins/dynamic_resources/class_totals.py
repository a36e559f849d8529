"""How many devices of a class the nodes have: what scores of extended resources that devices stand for are made of.

Source:
    kube-scheduler v1.36, plugins/noderesources/resource_allocation.go, calculateDRAResourceTotals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from plugins.dynamic_resources.cel import CELError, Subject, selector
from plugins.dynamic_resources.structured import DeviceID
from scheduler.objects.dynamic_resources import ResourceSlice
from scheduler.objects.selectors import SelectorError, parse_node_term
from scheduler.snapshot import nodes_of_any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plugins.dynamic_resources.devices import Devices
    from scheduler.objects.dynamic_resources import Device, DeviceClass
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import NodeSelector
    from scheduler.snapshot import Int64s, Rows, Snapshot


class Totals(NamedTuple):
    """The devices behind one extended resource.

    Attributes:
        capacity: int64 (n_nodes,), how many a node can use.
        taken: the same, those that claims hold.
    """

    capacity: Int64s
    taken: Int64s


class ClassTotals:
    """Counts devices for NodeResourcesFit and NodeResourcesBalancedAllocation."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    @property
    def behind(self) -> Mapping[str, DeviceClass]:
        """The device classes by the extended resources that they stand for."""
        return self._devices.classes.behind

    def wanted_by(self, pod: PodInfo) -> bool:
        """Say whether a pod asks for a resource that a device class stands for."""
        behind = self.behind
        return bool(behind) and any(
            amount and name in behind for name, amount in pod.resources.requests.items()
        )

    def of(self, snapshot: Snapshot, resource: str) -> Totals | None:
        """Count the devices behind a resource; None where no class stands for it.

        A node for which a device cannot be judged has none.
        """
        device_class = self.behind.get(resource)
        if device_class is None:
            return None
        capacity, taken = (np.zeros(snapshot.n_nodes, dtype=np.int64) for _ in range(2))
        failed = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        allocated, slices = self._devices.allocated, self._devices.slices
        for name in slices:
            published = slices.typed(ResourceSlice, name)
            assert published is not None, "it is there"
            driver, pool = published.spec.driver, published.spec.pool.name
            try:
                for rows, devices in _shown(published, snapshot):
                    found = [each for each in devices if _matches(each, driver, device_class, rows, failed)]
                    capacity[rows] += len(found)
                    taken[rows] += sum(
                        allocated.is_allocated(DeviceID(driver, pool, each.name)) for each in found
                    )
            except SelectorError:
                failed[:] = True
        capacity[failed] = taken[failed] = 0
        return Totals(capacity, taken)


def _shown(published: ResourceSlice, snapshot: Snapshot) -> Iterator[tuple[Rows, Sequence[Device]]]:
    """Yield rows and the devices of a slice that they can use.

    Raises:
        SelectorError: a node selector that is none.
    """
    spec = published.spec
    if not spec.per_device_node_selection:
        is_anywhere = not (spec.node_name or spec.node_selector)
        yield (
            _rows(snapshot, spec.node_name, spec.node_selector, everywhere=spec.all_nodes or is_anywhere),
            spec.devices,
        )
        return
    for device in spec.devices:
        yield (
            _rows(snapshot, device.node_name, device.node_selector, everywhere=device.all_nodes),
            (device,),
        )


def _rows(
    snapshot: Snapshot, node_name: str, node_selector: NodeSelector | None, *, everywhere: bool
) -> Rows:
    if everywhere:
        return snapshot.all_rows
    if node_name:
        row = snapshot.row_of(node_name)
        return np.array([] if row is None else [row], dtype=np.intp)
    if node_selector is None:
        return np.array([], dtype=np.intp)
    rules = [parse_node_term(term) for term in node_selector.node_selector_terms if not term.is_empty]
    return np.flatnonzero(nodes_of_any(snapshot, rules))


def _matches(
    device: Device,
    driver: str,
    device_class: DeviceClass,
    rows: Rows,
    failed: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> bool:
    """Say whether a device is of a class; where that cannot be told, note the rows that would use it."""
    # Scores know nothing of devices that several claims may share.
    subject = Subject(driver, msgspec.structs.replace(device, allow_multiple_allocations=False))
    for each in device_class.spec.selectors:
        if each.cel is None:
            continue
        compiled = selector(each.cel.expression)
        try:
            if isinstance(compiled, CELError):
                raise compiled
            if not compiled.matches(subject):
                return False
        except CELError:
            failed[rows] = True
            return False
    return True
