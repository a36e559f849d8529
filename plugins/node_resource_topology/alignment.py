"""Whether a NUMA zone of a node holds each container of a pod, as the kubelet's policy single-numa-node requires.

Source:
    scheduler-plugins, pkg/noderesourcetopology/filter.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.node_resource_topology.requests import is_of_node

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from plugins.node_resource_topology.requests import Amounts, ZoneRequest
    from plugins.node_resource_topology.zone_table import ZoneTable
    from scheduler.snapshot import Bools, Int64s, Rows

ALIGNED: Final = -1
"""In `unaligned`: the node holds the pod."""
_NOTHING: Final[Mapping[str, Int64s]] = {}


def unaligned(
    table: ZoneTable, slots: Int64s, request: ZoneRequest, more: Mapping[str, Int64s] = _NOTHING
) -> Generator[None, None, Int64s]:
    """Return int64 (len(slots),): the place of the first container that no zone of the node holds, or ALIGNED.

    The place is 0 for a node that aligns the pod as a whole. The steps take one container each; the amounts are those
    when the work began.

    Args:
        table: the zones.
        slots: the nodes.
        request: the request of the pod.
        more: resource -> int64 (len(slots), width), what zones have in addition.
    """
    found = np.full(len(slots), ALIGNED, dtype=np.int64)
    as_a_whole = np.flatnonzero(table.aligns[slots] & ~table.by_container[slots])
    by_container = np.flatnonzero(table.aligns[slots] & table.by_container[slots])
    if as_a_whole.size:
        available = _available(table, slots, as_a_whole, [request.whole], more)
        _, fits = _lowest_zone(available, table.width, request, request.whole, len(as_a_whole))
        found[as_a_whole[~fits]] = 0
    if by_container.size:
        every = [container.amounts for container in request.containers]
        available = _available(table, slots, by_container, every, more)
        yield from _align_containers(found, by_container, available, table.width, request)
    return found


def _align_containers(
    found: Int64s, left: Int64s, available: dict[str, Int64s], width: int, request: ZoneRequest
) -> Generator[None, None, None]:
    """Write the places of containers into `found`; `available` has one row for each of the places in `left`."""
    for place, container in enumerate(request.containers):
        if place:
            yield
        zones, fits = _lowest_zone(available, width, request, container.amounts, len(left))
        if not fits.all():
            found[left[~fits]] = place
            left, zones = left[fits], zones[fits]
            available = {name: amounts[fits] for name, amounts in available.items()}
            if not left.size:
                return
        if container.is_init:
            continue  # it ends before the next container, or is not counted, as in scheduler-plugins
        every_row = np.arange(len(left))
        for name, amount in container.amounts:
            if name in available and request.takes_exclusively(name):
                there = available[name][every_row, zones]
                available[name][every_row, zones] = np.where(there < 0, there, there - amount)


def _available(
    table: ZoneTable, slots: Int64s, places: Rows, every: list[Amounts], more: Mapping[str, Int64s]
) -> dict[str, Int64s]:
    """Return resource -> int64 (len(places), width), a copy; without resources that no zone names."""
    found: dict[str, Int64s] = {}
    for name in dict.fromkeys(name for amounts in every for name, amount in amounts if amount):
        column = table.amounts(name)
        if column is not None:
            found[name] = column[slots[places]]
            if name in more:
                found[name] += more[name][places]
    return found


def _lowest_zone(
    available: Mapping[str, Int64s], width: int, request: ZoneRequest, amounts: Amounts, n_rows: int
) -> tuple[Int64s, Bools]:
    """Return int64 (n_rows,), the lowest zone that holds the amounts, which is the one the kubelet selects; and whether there is one."""
    suitable = np.ones((n_rows, width), dtype=np.bool_)
    for name, amount in amounts:
        if not amount:
            continue
        there = available.get(name)
        if there is None:  # no zone of any node names it
            if not is_of_node(name):
                suitable[:] = False
            continue
        suits = there >= (amount if request.takes_exclusively(name) else 0)
        if is_of_node(name):
            suits |= there.max(axis=1, keepdims=True) < 0
        suitable &= suits
    fits: Bools = suitable.max(axis=1)
    return suitable.argmax(axis=1), fits
