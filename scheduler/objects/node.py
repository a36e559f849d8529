"""A node with what scheduling computes from it once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.images import node_images
from scheduler.objects.resources import node_allocatable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.taints import Taint
    from scheduler.objects.v1 import Node


class NodeObject:
    """A node, with what scheduling computes from it. Immutable: an update is a new NodeObject.

    Attributes:
        node: the decoded object.
        raw: its JSON as the API server sent it.
    """

    __slots__ = ("__dict__", "node", "raw")

    def __init__(self, node: Node, raw: bytes) -> None:
        self.node = node
        self.raw = raw

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.node.spec.taints

    @property
    def unschedulable(self) -> bool:
        return self.node.spec.unschedulable

    @property
    def declared_features(self) -> frozenset[str]:
        """The names of the features that the node says it has."""
        return frozenset(self.node.status.declared_features)

    @cached_property
    def allocatable(self) -> Mapping[str, int]:
        """Resource name -> what pods may ask for in all: cpu in milli, bytes, or a count."""
        return node_allocatable(self.node)

    @cached_property
    def images(self) -> Mapping[str, int]:
        """The names of the container images on it -> size in bytes.

        Raises:
            ObjectError: the list cannot be read.
        """
        return node_images(self.name, self.raw)

    @cached_property
    def object(self) -> Mapping[str, Any]:
        """The whole object as the API server sent it."""
        return msgspec.json.decode(self.raw)  # type: ignore[no-any-return]

    def is_heartbeat_of(self, earlier: NodeObject) -> bool:
        """Whether nothing happened since an earlier version: conditions were confirmed, with the time of it."""
        try:
            return _without_heartbeat(self.raw) == _without_heartbeat(earlier.raw)
        except (msgspec.DecodeError, RecursionError):
            return False  # written in an odd way; taken for a change

    def __repr__(self) -> str:
        return f"NodeObject({self.name})"


def _without_heartbeat(raw: bytes) -> object:
    """Return a node in parts that can be compared, without what a heartbeat changes."""
    parts = _PARTS.decode(raw)
    metadata = {name: part for name, part in parts.metadata.items() if name not in _CHANGES_ALWAYS}
    status = {name: part for name, part in parts.status.items() if name != "conditions"}
    conditions = [
        {name: value for name, value in condition.items() if name != "lastHeartbeatTime"}
        for condition in _CONDITIONS.decode(parts.status.get("conditions", b"[]"))
    ]
    return parts.spec, metadata, status, conditions


class _Parts(msgspec.Struct):
    metadata: dict[str, msgspec.Raw] = {}
    spec: msgspec.Raw = msgspec.Raw()
    status: dict[str, msgspec.Raw] = {}


_CHANGES_ALWAYS = frozenset({"resourceVersion", "managedFields"})
_PARTS = msgspec.json.Decoder(_Parts)
_CONDITIONS = msgspec.json.Decoder(list[dict[str, Any]])
