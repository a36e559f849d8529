"""What one call of a guest is about, and what the guest says beside its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from scheduler.objects import protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


@dataclass(slots=True)
class Scene:
    """One pod's way through one guest.

    Attributes:
        pod: who is scheduled; None while a guest is built.
        snapshot: the cluster.
        node_name: which node the call is about.
        target: the pod that comes or goes, of addpod and removepod.
        filtered_nodes: gives the names of the feasible nodes, as JSON.
        statuses: gives node name -> code, as JSON.
        scores: gives node name -> score, as JSON.
        reason: what the guest said of its status.
        node_names: the nodes that its PreFilter left; None without.
        nominated_node_name: its PostFilter's.
        cluster_events: its enqueue's, as it wrote them.
        normalized_scores: its NormalizeScore's, as it wrote them; None without.
    """

    pod: PodInfo | None = None
    snapshot: Snapshot | None = None
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
    _pod_bytes: bytes | None = None

    def forget_answers(self) -> None:
        """Forget what the guest said in the call before."""
        self.reason = ""
        self.node_names = None
        self.nominated_node_name = ""
        self.cluster_events = b""
        self.normalized_scores = None

    def pod_bytes(self) -> bytes:
        """Return the pod as protobuf; nothing while there is none."""
        if self.pod is None:
            return b""
        if self._pod_bytes is None:
            self._pod_bytes = pod_bytes(self.pod)
        return self._pod_bytes


def pod_bytes(pod: PodInfo) -> bytes:
    """Return a pod as protobuf.

    Raises:
        LookupError: the whole object was not kept.
        ValueError: it cannot be written.
    """
    return protobuf.encode("v1", "Pod", pod.object)


class Nodes:
    """Nodes as protobuf; each is written once, until it changes."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[bytes, bytes]] = {}  # node name -> its JSON, its protobuf

    def one(self, snapshot: Snapshot, name: str) -> bytes:
        """Return a node; nothing if there is none of that name."""
        row = snapshot.row_of(name)
        return b"" if row is None else self._bytes_of(snapshot.nodes[row])

    def all(self, snapshot: Snapshot) -> bytes:
        """Return a NodeList of all."""
        if len(self._written) > 2 * snapshot.n_nodes + 16:
            self._written.clear()  # nodes come and go
        return protobuf.encode_list(map(self._bytes_of, snapshot.nodes))

    def images(self, snapshot: Snapshot, name: str) -> bytes:
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
        if known is not None and known[0] is node.raw:
            return known[1]
        written = protobuf.encode("v1", "Node", msgspec.json.decode(node.raw))
        self._written[node.name] = (node.raw, written)
        return written
