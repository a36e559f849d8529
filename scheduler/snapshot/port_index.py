"""The host ports in use, by port: which nodes have a conflict with a pod is looked up, not compared node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.objects.v1 import ALL_ADDRESSES, HostPort

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from scheduler.snapshot.arrays import Bools

_SOME = ""
"""The address of an additional entry of each port with another address than ALL_ADDRESSES."""


class PortIndex:
    """The rows of the pods that hold each host port.

    The rows of a port are the bits of an integer, so a lookup of a port costs the same on one node and on all. Ports of
    the same pods share the integer: it may be long, and a pod may have thousands of ports.
    """

    __slots__ = ("_again", "_rows", "_sizes")

    def __init__(self) -> None:
        self._rows: dict[HostPort, int] = {}  # port -> a bit for each row
        self._again: dict[tuple[int, HostPort], int] = {}  # row and port -> holders beyond the first
        self._sizes: dict[int, int] = {}  # row -> number of entries

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: int, ports: Collection[HostPort]) -> None:
        """Add the host ports of a pod to a row; linear in the ports."""
        rows, again, bit = self._rows, self._again, 1 << row
        # By identity: the hash of a long integer is slow. The integers from before this call exist until its end, or are
        # not looked up any more.
        changed: dict[int, int] = {}
        entries = _entries(ports)
        self._sizes[row] = self._sizes.get(row, 0) + len(entries)
        for port in entries:
            held = rows.get(port)
            if held is None:
                rows[port] = bit
            elif held >> row & 1:
                again[row, port] = again.get((row, port), 0) + 1
            else:
                rows[port] = changed.get(id(held)) or changed.setdefault(id(held), held | bit)

    def remove(self, row: int, ports: Collection[HostPort]) -> None:
        """Remove the host ports of a pod from a row; linear in the ports."""
        rows, again, bit = self._rows, self._again, 1 << row
        changed: dict[int, int] = {}  # by identity, as in `add`
        entries = _entries(ports)
        self._sizes[row] -= len(entries)
        if not self._sizes[row]:
            del self._sizes[row]
        for port in entries:
            more = again.pop((row, port), 0) if again else 0
            if more > 1:
                again[row, port] = more - 1
            elif not more:
                held = rows[port]
                if held == bit:
                    del rows[port]
                else:
                    rows[port] = changed.get(id(held)) or changed.setdefault(id(held), held ^ bit)

    def conflicts(self, wanted: Collection[HostPort], n_nodes: int) -> Bools:
        """Return bool (n_nodes,), the rows where one of the wanted ports conflicts with a port in use.

        Linear in the wanted ports, and in the rows.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
        """
        get, found = self._rows.get, 0
        if self._rows:
            for each in wanted:
                found |= get(each, 0)
                other = _SOME if each.ip == ALL_ADDRESSES else ALL_ADDRESSES
                found |= get(HostPort(other, each.protocol, each.port), 0)
        if not found:
            return np.zeros(n_nodes, dtype=np.bool_)
        octets = np.frombuffer(found.to_bytes((n_nodes + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(octets, count=n_nodes, bitorder="little").view(np.bool_)

    def on(self, row: int, ports: Collection[HostPort]) -> tuple[int, dict[HostPort, int]]:
        """Return the number of entries of a row, and the number of holders that some ports have there."""
        held = {port: self._rows.get(port, 0) >> row & 1 for port in _entries(ports)}
        return self._sizes.get(row, 0), {
            port: is_held and 1 + self._again.get((row, port), 0) for port, is_held in held.items()
        }


def _entries(ports: Collection[HostPort]) -> Sequence[HostPort]:
    return [
        *ports,
        *[HostPort(_SOME, each.protocol, each.port) for each in ports if each.ip != ALL_ADDRESSES],
    ]
