"""A cluster with random events: columns on one side, plain lists on the other.

Incremental state is compared with the plain lists after each event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.engine.state.cache import Cache
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

NAMESPACES = ("shop", "shop", "bank", "lab")
APPS = ("web", "db", "cache")
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"

KIND_OF_NAMESPACES = "v1/namespaces"
KIND_OF_SERVICES = "v1/services"
KIND_OF_REPLICA_SETS = "apps/v1/replicasets"

_CROWDED = 40
"""So many pods that no more come."""


def nothing_special(_random: Random) -> dict[str, Any]:
    return {}


def random_labels(random: Random) -> dict[str, str]:
    """Return labels of a pod: mostly an app, at times a tier, at times nothing."""
    labels = {"app": random.choice(APPS)} if random.random() < 0.9 else {}
    if random.random() < 0.5:
        labels["tier"] = random.choice(["front", "back", ""])
    return labels


class EventfulCluster:
    """A cache, the same cluster in plain lists, and what may happen to both.

    Args:
        random: decides everything.
        spec: fields of the spec of the next pod that is made, as `tests.support.builders.pod` takes them.

    Attributes:
        cache: the real one.
        nodes: name -> node.
        pods: uid -> pod on a node; the node may be gone, or not there yet.
        objects: kind -> `namespace/name` or name -> object.
    """

    def __init__(self, random: Random, spec: Callable[[Random], Mapping[str, Any]] = nothing_special) -> None:
        self.cache = Cache()
        self.nodes: dict[str, NodeObject] = {}
        self.pods: dict[str, PodInfo] = {}
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self._random = random
        self._spec = spec
        self._made = 0
        self._events: tuple[tuple[int, Callable[[], str]], ...] = (
            (3, self._node_comes),
            (1, self._node_goes),
            (3, self._node_changes),
            (8, self._pod_comes),
            (5, self._pod_goes),
            (3, self._pod_changes_labels),
            (2, self._pod_begins_to_end),
            (2, self._pod_is_assumed),
            (1, self._namespace_changes),
            (2, self._service_changes),
            (1, self._replica_set_changes),
        )
        for kind in (KIND_OF_NAMESPACES, KIND_OF_SERVICES, KIND_OF_REPLICA_SETS):
            self.cache.table.watch_kind(kind)
            self.objects[kind] = {}

    @property
    def snapshot(self) -> Snapshot:
        return self.cache.snapshot()

    def pods_on(self, node_name: str) -> list[PodInfo]:
        """Return the pods that count on a node."""
        return [each for each in self.pods.values() if each.node_name == node_name]

    def happens(self) -> str:
        """Let something happen, and return what, for messages."""
        weights, events = zip(*self._events, strict=True)
        (event,) = self._random.choices(events, weights)
        return event()

    def pending_pod(self, **fields: Any) -> PodInfo:
        """Return a pod that is on no node, of some namespace, with labels and what `spec` says."""
        self._made += 1
        given = {
            "namespace": self._random.choice(NAMESPACES),
            "labels": random_labels(self._random),
            **self._spec(self._random),
            **fields,
        }
        return pod(f"pending-{self._made}", **given)

    # Nodes.

    def _node(self, name: str) -> NodeObject:
        random = self._random
        labels = {}
        if random.random() < 0.85:
            labels[ZONE] = random.choice(["a", "b", "c", "d", ""])
        if random.random() < 0.7:
            labels["rack"] = random.choice(["1", "2", "3"])
        if random.random() < 0.6:
            labels["disk"] = random.choice(["ssd", "hdd"])
        taints = [random.choice(["spot:NoSchedule", "old:NoExecute", "slow:PreferNoSchedule"])]
        return node(name, labels=labels, taints=taints if random.random() < 0.3 else [])

    def _put_node(self, name: str, what: str) -> str:
        self.nodes[name] = self._node(name)
        self.cache.add_node(self.nodes[name])
        return f"{name} {what}: {dict(self.nodes[name].labels)} {self.nodes[name].taints}"

    def _node_comes(self) -> str:
        return self._put_node(f"node-{self._random.randrange(12)}", "comes or changes")

    def _node_changes(self) -> str:
        name = self._one_of(self.nodes)
        return self._node_comes() if name is None else self._put_node(name, "changes")

    def _node_goes(self) -> str:
        name = self._one_of(self.nodes)
        if name is None:
            return "no node to go"
        del self.nodes[name]
        self.cache.remove_node(name)
        return f"{name} goes"

    # Pods on nodes.

    def _place(self) -> str:
        """Return a node, seldom one that does not exist."""
        name = self._one_of(self.nodes)
        return name if name is not None and self._random.random() < 0.95 else "node-11"

    def _pod_comes(self) -> str:
        if len(self.pods) >= _CROWDED:
            return self._pod_goes()
        placed = self.pending_pod(node=self._place())
        self._put_pod(placed)
        return f"{placed} comes: {dict(placed.labels)}"

    def _pod_is_assumed(self) -> str:
        if len(self.pods) >= _CROWDED:
            return self._pod_goes()
        waiting = self.pending_pod()
        name = self._place()
        self.pods[waiting.uid] = self.cache.assume(waiting, name)
        return f"{waiting} is assumed on {name}: {dict(waiting.labels)}"

    def _pod_goes(self) -> str:
        uid = self._one_of(self.pods)
        if uid is None:
            return "no pod to go"
        gone = self.pods.pop(uid)
        self.cache.remove_pod(uid)
        return f"{gone} goes"

    def _pod_changes_labels(self) -> str:
        return self._pod_changes("gets labels", labels=random_labels(self._random))

    def _pod_begins_to_end(self) -> str:
        return self._pod_changes("begins to end", deletion_timestamp="2026-03-01T09:00:00Z")

    def _pod_changes(self, what: str, **metadata: Any) -> str:
        uid = self._one_of(self.pods)
        if uid is None:
            return "no pod to change"
        known = self.pods[uid]
        changed = msgspec.structs.replace(
            known.pod, metadata=msgspec.structs.replace(known.pod.metadata, **metadata)
        )
        self._put_pod(type(known)(changed, node_name=known.node_name))
        return f"{known} {what}: {metadata}"

    def _put_pod(self, placed: PodInfo) -> None:
        self.pods[placed.uid] = placed
        self.cache.add_pod(placed)

    # Objects of other kinds.

    def _namespace_changes(self) -> str:
        name = self._random.choice(NAMESPACES)
        labels = {"team": self._random.choice(["red", "blue"])} if self._random.random() < 0.8 else {}
        metadata = {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}
        return self._put_or_drop(KIND_OF_NAMESPACES, name, {"kind": "Namespace", "metadata": metadata})

    def _service_changes(self) -> str:
        selector = random_labels(self._random) if self._random.random() < 0.9 else None
        return self._put_or_drop(KIND_OF_SERVICES, *self._namespaced("Service", {"selector": selector}))

    def _replica_set_changes(self) -> str:
        selector = {"matchLabels": random_labels(self._random)}
        return self._put_or_drop(
            KIND_OF_REPLICA_SETS, *self._namespaced("ReplicaSet", {"selector": selector})
        )

    def _namespaced(self, kind: str, spec: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        namespace, name = self._random.choice(NAMESPACES), self._random.choice("xyz")
        metadata = {"namespace": namespace, "name": name}
        return f"{namespace}/{name}", {"kind": kind, "metadata": metadata, "spec": dict(spec)}

    def _put_or_drop(self, kind: str, key: str, found: dict[str, Any]) -> str:
        store = self.cache.table.watch_kind(kind)
        if key in self.objects[kind] and self._random.random() < 0.3:
            del self.objects[kind][key], store[key]
            return f"{kind} {key} goes"
        self.objects[kind][key] = store[key] = found
        return f"{kind} {key} comes or changes: {found.get('spec', found['metadata'])}"

    def _one_of(self, names: Iterable[str]) -> str | None:
        known = sorted(names)
        return self._random.choice(known) if known else None
