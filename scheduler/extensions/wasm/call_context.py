"""Input and output of one call of a guest."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Protocol

import msgspec

from scheduler.objects import protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo


class UnfinishedError(Exception):
    """A host function needs more time than a call on the event loop has."""


class SeenImage(Protocol):
    """One image in the cluster, as `ImageState`."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def num_nodes(self) -> int: ...


class SeenNodes(Protocol):
    """The part of `Snapshot` that a guest can read."""

    @property
    def nodes(self) -> Sequence[NodeObject]: ...

    def row_of(self, node_name: str) -> int | None:
        """Return a node's row; None if there is no such node."""
        ...

    def image(self, name: str) -> SeenImage:
        """Return the size of a container image, and the number of nodes that have it."""
        ...


@dataclass(frozen=True)
class _Image:
    size_bytes: int = 0
    num_nodes: int = 0


class CopiedNodes:
    """A copy of a snapshot's nodes, for a call in another thread."""

    def __init__(self, seen: SeenNodes) -> None:
        self.nodes: Sequence[NodeObject] = tuple(seen.nodes)

    def row_of(self, node_name: str) -> int | None:
        return self._rows.get(node_name)

    def image(self, name: str) -> _Image:
        return self._images.get(name, _Image())

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {node.name: row for row, node in enumerate(self.nodes)}

    @cached_property
    def _images(self) -> dict[str, _Image]:
        counts = Counter(image for node in self.nodes for image in node.images)
        sizes: dict[str, int] = {}
        for node in self.nodes:
            for image, size in node.images.items():
                sizes.setdefault(image, size)
        return {image: _Image(sizes[image], count) for image, count in counts.items()}


def at_once(function: Callable[[], bytes]) -> bytes:
    """Call a function in the current thread."""
    return function()


Answers = tuple[str, tuple[str, ...] | None, str, bytes, bytes | None]
"""A guest's output beside its result, in the order of the attributes of `CallContext`, from `reason` on."""


@dataclass(slots=True)
class CallContext:
    """Input and output of the calls of one guest for one pod.

    Attributes:
        pod: the scheduled pod; None while a guest is built.
        snapshot: the cluster.
        node_name: the node of the call.
        target: the pod that is added or removed, for addpod and removepod.
        filtered_nodes: returns the names of the feasible nodes, as JSON.
        statuses: returns node name -> code, as JSON.
        scores: returns node name -> score, as JSON.
        reason: the reason of the guest's status.
        node_names: the nodes that its PreFilter leaves; None if it does not restrict them.
        nominated_node_name: the node that its PostFilter nominates.
        cluster_events: the output of its enqueue.
        normalized_scores: the output of its NormalizeScore; None if there is none.
        in_loop: calls a function of the daemon and returns its result; from another thread it has the event loop call it.
        until: when host functions raise UnfinishedError, by `time.perf_counter`.
    """

    pod: PodInfo | None = None
    snapshot: SeenNodes | None = None
    node_name: str = ""
    target: PodInfo | None = None
    filtered_nodes: Callable[[], bytes] = lambda: b"[]"
    statuses: Callable[[], bytes] = lambda: b"{}"
    scores: Callable[[], bytes] = lambda: b"{}"
    reason: str = ""
    node_names: tuple[str, ...] | None = None
    nominated_node_name: str = ""
    cluster_events: bytes = b""
    normalized_scores: bytes | None = None
    in_loop: Callable[[Callable[[], bytes]], bytes] = at_once
    until: float = inf
    _pod_bytes: bytes | None = None

    @property
    def answers(self) -> Answers:
        """The guest's output of the last call."""
        return (
            self.reason,
            self.node_names,
            self.nominated_node_name,
            self.cluster_events,
            self.normalized_scores,
        )

    @answers.setter
    def answers(self, values: Answers) -> None:
        (
            self.reason,
            self.node_names,
            self.nominated_node_name,
            self.cluster_events,
            self.normalized_scores,
        ) = values

    def forget_answers(self) -> None:
        """Reset the output of the previous call."""
        self.answers = ("", None, "", b"", None)

    def copied(self) -> CallContext:
        """Return a copy for a call in another thread, which does not change with the cluster."""
        filtered_nodes, statuses, scores = self.filtered_nodes(), self.statuses(), self.scores()
        return replace(
            self,
            snapshot=None if self.snapshot is None else CopiedNodes(self.snapshot),
            filtered_nodes=lambda: filtered_nodes,
            statuses=lambda: statuses,
            scores=lambda: scores,
            until=inf,
        )

    def pod_bytes(self) -> bytes:
        """Return the pod as protobuf; empty if there is none."""
        if self.pod is None:
            return b""
        if self._pod_bytes is None:
            self._pod_bytes = pod_bytes(self.pod)
        return self._pod_bytes


def pod_bytes(pod: PodInfo) -> bytes:
    """Return a pod as protobuf.

    Raises:
        LookupError: the whole object was not kept.
        ValueError: it cannot be encoded.
    """
    return protobuf.encode("v1", "Pod", pod.object)


_NODES_BETWEEN_LOOKS = 16
"""Nodes that are encoded between two checks of the time."""


class NodeMessages:
    """Nodes as protobuf; each is encoded once, until it changes."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[NodeObject, bytes]] = {}  # node name -> the node, its protobuf

    def one(self, snapshot: SeenNodes, name: str) -> bytes:
        """Return a node; empty if there is none of that name."""
        row = snapshot.row_of(name)
        return b"" if row is None else self._bytes_of(snapshot.nodes[row])

    def all(self, snapshot: SeenNodes, until: float = inf) -> bytes:
        """Return a NodeList of all nodes.

        Raises:
            UnfinishedError: the time `until` has passed before all nodes are encoded; encoded nodes are kept.
        """
        nodes = snapshot.nodes
        if len(self._written) > 2 * len(nodes) + 16:
            self._written.clear()  # to drop deleted nodes
        written = []
        for node in nodes:
            written.append(self._bytes_of(node))
            if len(written) % _NODES_BETWEEN_LOOKS == 0 and time.perf_counter() > until:
                raise UnfinishedError(f"{len(nodes)} nodes take too long to write")
        return protobuf.encode_list(written)

    def images(self, snapshot: SeenNodes, name: str) -> bytes:
        """Return the images on a node, JSON of name -> size and number of nodes; null if there is no such node."""
        row = snapshot.row_of(name)
        if row is None:
            return b"null"
        states = {image: snapshot.image(image) for image in snapshot.nodes[row].images}
        return msgspec.json.encode(
            {
                image: {"Size": state.size_bytes, "NumNodes": state.num_nodes}
                for image, state in states.items()
            }
        )

    def _bytes_of(self, node: NodeObject) -> bytes:
        known = self._written.get(node.name)
        if known is not None and known[0] is node:
            return known[1]
        written = protobuf.encode("v1", "Node", msgspec.json.decode(node.raw))
        self._written[node.name] = (node, written)
        return written
