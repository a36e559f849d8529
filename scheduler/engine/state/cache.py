"""The nodes, and the pods counted on them: assumed, confirmed by the API server, forgotten, expired.

OUTSIDE --assume--> ASSUMED --the watch shows it on a node--> CONFIRMED --deleted or ended--> OUTSIDE
   |                   |                                          ^
   |                   +--its binding failed--> OUTSIDE           |
   +--the watch shows it on a node, bound by whomever-------------+

Another scheduler may be filling the node, or deleted pods still use its capacity. A pause only changes the choice among
feasible nodes: if no other node can run the pod, a paused node does.

Every change is applied to the columns at once. A pod may arrive before its node; it is counted once both are present.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.engine.state.pod_groups import PodGroups
from scheduler.objects.pod import NO_LABELS
from scheduler.snapshot import ClusterTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

logger = logging.getLogger(__name__)


class PodState(Enum):
    """The state of a pod in the cache."""

    __hash__ = object.__hash__  # there is one object per member, and Enum's own is a Python call

    OUTSIDE = "outside"
    """Unknown to the cache."""
    ASSUMED = "assumed"
    """Counted on the chosen node, but not yet confirmed by the API server."""
    CONFIRMED = "confirmed"
    """Counted on the node that the API server reports."""


MOVES: dict[PodState, frozenset[PodState]] = {
    PodState.OUTSIDE: frozenset({PodState.ASSUMED, PodState.CONFIRMED}),
    PodState.ASSUMED: frozenset({PodState.CONFIRMED, PodState.OUTSIDE}),
    PodState.CONFIRMED: frozenset({PodState.CONFIRMED, PodState.OUTSIDE}),
}


_NONE: Mapping[int, str] = MappingProxyType({})


@dataclass(slots=True)
class _Pause:
    until: float  # on the monotonic clock
    seconds: float
    why: str
    is_over: bool = False

    def holds(self, at: float) -> bool:
        return at < self.until and not self.is_over


class NodePauses:
    """The paused nodes, with duration and reason.

    A node that rejects a pod again, at most the longest pause after its last pause, is paused twice as long as before.
    Rejections during a pause do not lengthen it: these pods were bound before, or had no other node.

    Args:
        initial_seconds: the first pause; 0 disables pauses.
        max_seconds: the longest pause.
    """

    def __init__(self, *, initial_seconds: float = 5.0, max_seconds: float = 60.0) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._pauses: dict[str, _Pause] = {}  # node name -> its last pause, kept for a while after its end

    def configure(self, *, initial_seconds: float, max_seconds: float) -> None:
        """Change the duration of pauses that begin from now on; 0 ends the current ones."""
        self._initial_seconds, self._max_seconds = initial_seconds, max_seconds
        if not initial_seconds:
            self._pauses.clear()

    def rejected(self, node_name: str, why: str, *, at: float) -> float:
        """Record that a node's kubelet rejected a pod; return for how many more seconds the node is paused."""
        if not self._initial_seconds:
            return 0.0
        last = self._remembered(at).get(node_name)
        if last is not None and last.holds(at):
            return last.until - at
        seconds = self._initial_seconds if last is None else min(2 * last.seconds, self._max_seconds)
        self._pauses[node_name] = _Pause(at + seconds, seconds, why)
        return seconds

    def end(self, node_name: str) -> None:
        """End a node's pause because the node changed; another rejection soon after still doubles the pause."""
        pause = self._pauses.get(node_name)
        if pause is not None:
            pause.is_over = True

    def forget(self, node_name: str) -> None:
        """Forget a deleted node."""
        self._pauses.pop(node_name, None)

    def kept(self) -> list[tuple[str, float, float, str, bool]]:
        """Return the remembered pauses: node, end time, duration, reason, and whether it was ended early."""
        return [
            (name, pause.until, pause.seconds, pause.why, pause.is_over)
            for name, pause in self._pauses.items()
        ]

    def resume(self, name: str, until: float, seconds: float, why: str, is_over: bool) -> None:
        """Restore a pause that `kept` returned."""
        self._pauses[name] = _Pause(until, seconds, why, is_over)

    def names(self) -> list[str]:
        """Return the nodes with a remembered pause."""
        return list(self._pauses)

    def rows(self, snapshot: Snapshot, *, at: float) -> Mapping[int, str]:
        """Return row -> reason of the nodes of a snapshot that are paused now."""
        if not self._pauses:
            return _NONE
        paused = {
            snapshot.row_of(name): pause.why
            for name, pause in self._remembered(at).items()
            if pause.holds(at)
        }
        return {row: why for row, why in paused.items() if row is not None}

    def paused(self, *, at: float) -> int:
        """Return the number of nodes that are paused now."""
        return sum(pause.holds(at) for pause in self._pauses.values())

    def _remembered(self, at: float) -> Mapping[str, _Pause]:
        """Drop pauses that are too old to count, and return the rest."""
        for name in [name for name, pause in self._pauses.items() if at >= pause.until + self._max_seconds]:
            del self._pauses[name]
        return self._pauses


class Cache:
    """The state of the cluster; decisions use its `snapshot`.

    Args:
        in_slices: whether the affinity terms of pods with very many terms are left for `work`.

    Attributes:
        table: the columns.
        pauses: the nodes to avoid for a while.
        groups: group membership; the cache adds and removes its pods.
        deferred_resizes: uids of the pods on nodes whose resize waits for capacity of the node.
        copied_labels: the labels of a node that the API server adds to the pods that are bound to it.
    """

    def __init__(self, *, in_slices: bool = False) -> None:
        self.groups = PodGroups()
        self.table = ClusterTable(in_slices=in_slices)
        self.pauses = NodePauses()
        self.deferred_resizes: set[str] = set()
        self.copied_labels: Collection[str] = ()
        self._pods: dict[str, PodInfo] = {}  # pod uid -> pod, on a node or assumed to be
        self._assumed: set[str] = set()  # uids of the pods in ASSUMED; the other ones are CONFIRMED
        self._placed: set[str] = set()  # uids of the pods that this scheduler placed
        # node name -> number of the last change that this scheduler did not make
        self._node_generations: dict[str, int] = {}
        self._changes = itertools.count(1)
        # name of an unknown node -> pod uid -> pod
        self._pods_of_unknown_nodes: dict[str, dict[str, PodInfo]] = {}

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is; valid until the next change here."""
        return self.table.snapshot()

    @property
    def is_behind(self) -> bool:
        """Whether some affinity terms of the pods here are left for `work`."""
        return self.table.is_behind

    def work(self) -> Sequence[PodInfo]:
        """Count remaining terms for one slice; return the pods whose terms it begins to count."""
        return self.table.work()

    # Nodes.

    def add_node(self, node: NodeObject) -> bool:
        """Add a node, or its newer version; return whether anything changed: false for a heartbeat."""
        if self.table.row_of(node.name) is not None:
            if not self.table.update_node(node):
                return False
            self._next_generation(node.name)
            return True
        row = self.table.add_node(node)
        self._node_generations[node.name] = next(self._changes)
        for pod in self._pods_of_unknown_nodes.pop(node.name, {}).values():
            self.table.add_pod(row, pod)
        return True

    def remove_node(self, node_name: str) -> None:
        """Remove a node; the pods on it are kept until they are removed themselves."""
        row = self.table.row_of(node_name)
        if row is None:
            return
        pods = dict(self.table.pods_on(row))
        if pods:
            self._pods_of_unknown_nodes[node_name] = pods
        self.table.remove_node(node_name)
        self.pauses.forget(node_name)
        del self._node_generations[node_name]

    def node_generation(self, node_name: str) -> int:
        """Return the node's generation: it changes with the node, and when another client adds or changes a pod there."""
        return self._node_generations.get(node_name, 0)

    def _next_generation(self, node_name: str) -> None:
        if node_name in self._node_generations:
            self._node_generations[node_name] = next(self._changes)

    # Pods.

    def state_of(self, uid: str) -> PodState:
        """Return the state of a pod in the cache."""
        if uid in self._assumed:
            return PodState.ASSUMED
        return PodState.CONFIRMED if uid in self._pods else PodState.OUTSIDE

    def pod(self, uid: str) -> PodInfo | None:
        """Return a pod that is counted on a node."""
        return self._pods.get(uid)

    def assume(self, pod: PodInfo, node_name: str) -> PodInfo:
        """Count a pod on the node chosen for it, and return the pod with that node.

        It is counted with the labels that the Binding will add. Without them its confirmation would count as a change of the
        node, whose cached results would be dropped.

        Raises:
            AssertionError: it is already counted.
        """
        placed = pod.placed_on(node_name)
        added = self._added_labels(pod, node_name)
        self._put(pod.placed_on(node_name, added) if added else placed, PodState.ASSUMED)
        self._placed.add(pod.uid)
        return placed

    def _added_labels(self, pod: PodInfo, node_name: str) -> Mapping[str, str]:
        """Return the labels of a node that a pod lacks, and gets with its Binding."""
        row = self.table.row_of(node_name)
        labels, own = NO_LABELS if row is None else self.table.nodes[row].labels, pod.labels
        return {
            key: labels[key] for key in self.copied_labels if key in labels and own.get(key) != labels[key]
        }

    def replace(self, pod: PodInfo) -> None:
        """Count another version of an assumed pod on its node; implements `AssumedPods`.

        Raises:
            AssertionError: the pod is not assumed there.
        """
        assert self.state_of(pod.uid) is PodState.ASSUMED, f"pod {pod.key} is not assumed"
        known = self._pods[pod.uid]
        assert known.node_name == pod.node_name, f"pod {pod.key} is assumed on {known.node_name}"
        self._uncount(known)
        self._pods[pod.uid] = pod
        self._count(pod)

    def placed_by_us(self) -> Collection[str]:
        """Return the uids of the pods that are where this scheduler placed them."""
        return self._placed

    def note_placed_by_us(self, uids: Iterable[str]) -> None:
        """Record pods that an earlier process of this scheduler placed."""
        self._placed.update(uid for uid in uids if uid in self._pods)

    def was_assumed(self, uid: str) -> bool:
        """Return whether this scheduler placed the pod where it is."""
        return uid in self._placed

    def forget(self, uid: str) -> PodInfo | None:
        """Stop counting an assumed pod; if it was confirmed meanwhile, keep it and return None."""
        if self.state_of(uid) is not PodState.ASSUMED:
            self._placed.discard(uid)  # another client bound it too
            return None
        return self._take(uid)

    def add_pod(self, pod: PodInfo) -> None:
        """Count a pod where the API server reports it: an assumed pod, a known one, or a new one."""
        known = self._pods.get(pod.uid)
        if known is None:
            self._next_generation(pod.node_name)
            self._put(pod, PodState.CONFIRMED)
        elif known.node_name == pod.node_name and known.takes_the_same_as(pod):
            self._replace(known, pod)
        else:
            if known.node_name != pod.node_name:
                self._placed.discard(pod.uid)
                logger.warning(
                    "Pod is on another node than expected",
                    extra={"pod": pod.key, "expected": known.node_name, "node": pod.node_name},
                )
            if known.node_name != pod.node_name or known.resources != pod.resources:
                self._next_generation(pod.node_name)
            self._uncount(known)
            self._put(pod, PodState.CONFIRMED)

    def _replace(self, known: PodInfo, pod: PodInfo) -> None:
        """Store another version of a counted pod; the confirmation of an assumed pod invalidates nothing."""
        has_changed = bool(pod.annotations) and pod.annotations != known.annotations
        # Preemption ranks victims by their start.
        has_started = pod.pod.status.start_time != known.pod.status.start_time
        invalidates = has_changed or has_started or pod.uid not in self._assumed
        self._pods[pod.uid] = pod
        self._assumed.discard(pod.uid)
        if known.group != pod.group:
            self.groups.drop_placed(known)
        self.groups.note_placed(pod)
        self._note_resize(pod)
        row = self.table.row_of(pod.node_name)
        if row is None:
            self._pods_of_unknown_nodes[pod.node_name][pod.uid] = pod
        else:
            self.table.replace_pod(row, pod, invalidates=invalidates)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Stop counting a pod that was deleted or has ended, and return it; None if it was not counted."""
        return self._take(uid) if uid in self._pods else None

    @asynccontextmanager
    async def without(
        self, pods: Iterable[PodInfo], yield_to_loop: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Exclude counted pods for a simulation; no pod may be added, changed or removed meanwhile.

        They are on no node, and stay members of their groups.

        Args:
            pods: the pods; those that are no longer counted are ignored.
            yield_to_loop: awaited after each pod.
        """
        left_out: deque[PodInfo] = deque()
        try:
            for pod in [self._pods[pod.uid] for pod in pods if pod.uid in self._pods]:
                self.groups.leave_out(pod)
                self._take_off_node(pod)
                left_out.append(pod)
                await yield_to_loop()
            yield
        finally:
            try:
                while left_out:
                    self._count(left_out.popleft())
                    await yield_to_loop()
            finally:  # cancelled or not
                for pod in left_out:
                    self._count(pod)

    def pods(self) -> Collection[PodInfo]:
        """Return every counted pod, also on unknown nodes; the cache must not change during the iteration."""
        return self._pods.values()

    def assumed(self) -> Collection[PodInfo]:
        """Return the pods in ASSUMED."""
        return [self._pods[uid] for uid in self._assumed]

    def pods_of_unknown_nodes(self) -> Mapping[str, Collection[PodInfo]]:
        """Return name of an unknown node -> the pods on it."""
        return {name: pods.values() for name, pods in self._pods_of_unknown_nodes.items()}

    def is_on_its_node(self, pod: PodInfo) -> bool:
        """Return whether a counted pod is on the node that it names."""
        row = self.table.row_of(pod.node_name)
        there = self._pods_of_unknown_nodes.get(pod.node_name, {}) if row is None else self.table.pods_on(row)
        return there.get(pod.uid) is pod

    def recount(self) -> None:
        """Insert every pod again on the node that it names, and recount everything; repairs an inconsistent cache."""
        self._pods_of_unknown_nodes = {}
        self.table.start_over()
        self._assumed &= self._pods.keys()
        for pod in self._pods.values():
            self._count(pod)

    def counts(self) -> dict[str, int]:
        """Return the numbers of `nodes`, `pods`, and `assumed_pods` among them."""
        return {
            "nodes": self.table.n_nodes,
            "pods": len(self._pods),
            "assumed_pods": len(self._assumed),
        }

    def check(self) -> None:
        """Assert the invariant: each pod is counted once, on the node it names.

        Raises:
            AssertionError: it does not hold.
        """
        assert all(self._pods_of_unknown_nodes.values()), "a node we do not know is kept without pods"
        counted = {uid: pod for pods in self._pods_of_unknown_nodes.values() for uid, pod in pods.items()}
        for row in range(self.table.n_nodes):
            name = self.table.nodes[row].name
            assert name not in self._pods_of_unknown_nodes, f"node {name} is here, and pods wait for it"
            for uid, pod in self.table.pods_on(row).items():
                assert uid not in counted, f"pod {pod.key} is counted twice"
                assert pod.node_name == name, f"pod {pod.key} is counted on {name}"
                counted[uid] = pod
        assert counted == self._pods, f"counted {sorted(counted)}, known {sorted(self._pods)}"
        assert self._assumed <= set(self._pods)
        assert self._placed <= set(self._pods)
        waiting = {uid for uid, pod in self._pods.items() if pod.has_deferred_resize}
        assert self.deferred_resizes == waiting, f"deferred resizes {self.deferred_resizes}, known {waiting}"
        self.groups.check()

    def _put(self, pod: PodInfo, state: PodState) -> None:
        start = self.state_of(pod.uid)
        assert state in MOVES[start], f"pod {pod.key}: {start.value} -> {state.value}"
        self._pods[pod.uid] = pod
        if state is PodState.ASSUMED:
            self._assumed.add(pod.uid)
        else:
            self._assumed.discard(pod.uid)
        self._count(pod)

    def _note_resize(self, pod: PodInfo) -> None:
        if pod.has_deferred_resize:
            self.deferred_resizes.add(pod.uid)
        else:
            self.deferred_resizes.discard(pod.uid)

    def _count(self, pod: PodInfo) -> None:
        self.groups.note_placed(pod)
        self._note_resize(pod)
        row = self.table.row_of(pod.node_name)
        if row is None:
            self._pods_of_unknown_nodes.setdefault(pod.node_name, {})[pod.uid] = pod
        else:
            self.table.add_pod(row, pod)

    def _take(self, uid: str) -> PodInfo:
        pod = self._pods.pop(uid)
        self._assumed.discard(uid)
        self._placed.discard(uid)
        self.deferred_resizes.discard(uid)
        self._uncount(pod)
        return pod

    def _uncount(self, pod: PodInfo) -> None:
        self.groups.drop_placed(pod)
        self._take_off_node(pod)

    def _take_off_node(self, pod: PodInfo) -> None:
        row = self.table.row_of(pod.node_name)
        if row is not None:
            self.table.remove_pod(row, pod.uid)
            return
        pods = self._pods_of_unknown_nodes[pod.node_name]
        del pods[pod.uid]
        if not pods:
            del self._pods_of_unknown_nodes[pod.node_name]
