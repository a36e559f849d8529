"""One node of a snapshot, for rules that look at nodes one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.taints import Taint
    from scheduler.snapshot.snapshot import Snapshot


class NodeInfo:
    """A node with the pods on it, as upstream's NodeInfo; valid as long as its snapshot.

    Attributes:
        row: its place in the snapshot's arrays.
    """

    __slots__ = ("_node", "_snapshot", "row")

    def __init__(self, snapshot: Snapshot, row: int) -> None:
        self._snapshot = snapshot
        self._node: NodeObject = snapshot.nodes[row]
        self.row = row

    @property
    def snapshot(self) -> Snapshot:
        """The cluster that the node is part of."""
        return self._snapshot

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self._node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self._node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self._node.taints

    @property
    def unschedulable(self) -> bool:
        return self._node.unschedulable

    @property
    def object(self) -> Mapping[str, Any]:
        """The whole Node as the API server sent it."""
        return self._node.object

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Resource -> what its pods may ask for in all: cpu in milli, bytes, or a count."""
        return self._node.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Resource -> what the pods on it ask for: cpu in milli, bytes, or a count; zeros are left out."""
        return self._snapshot.requested_on(self.row)

    @property
    def nonzero_requested(self) -> Sequence[int]:
        """The same for cpu and memory, where a container that asks for none counts with 100 milli and 200 MiB."""
        return self._snapshot.nonzero_requested_on(self.row)

    @property
    def pods(self) -> Collection[PodInfo]:
        """The pods on it, assumed ones included."""
        return self._snapshot.pods_on(self.row)

    def __repr__(self) -> str:
        return f"NodeInfo({self.name})"
