"""Looks over the daemon's shoulder: each choice is judged at the moment it is made, by slow and obvious rules.

What a daemon may rest on is what its watches have told it, what it found when it began, and its own choices, which it
must never forget. So a node counts as full if what is known to be there, what this daemon has bound there, what an
earlier one had bound there, and what is being bound there now leave no room. What others did, a foreign scheduler or a
daemon that led while this one stood by, and no watch has told yet, is nobody's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from scheduler.engine.sharding.shards import is_passed_on
from scheduler.framework import PostBindPlugin, QuotaUsage, ReservePlugin
from scheduler.objects.decode import decode_pod
from tests.reference.taints import covers

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from scheduler.framework import CycleState, Plugin
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.faults.daemon_runs import Life
    from tests.faults.event_log import PodRecord
    from tests.faults.stage import Judge, Stage


class Ledger:
    """The choices of one daemon.

    Attributes:
        held: uid -> (pod, node) of the choices that are being carried out.
        passed_on: the same of pods that other replicas bind. They count while the daemon counts them, and so do pods that the
            API server shows to be passed on, by an earlier owner of their bucket.
    """

    def __init__(self, stage: Stage, life: Life) -> None:
        self.held: dict[str, tuple[PodInfo, str]] = {}
        self.passed_on: dict[str, tuple[PodInfo, str]] = {}
        self._stage = stage
        self._life = life
        # uid -> (seconds, node) of every choice to be bound here
        self._chosen: dict[str, list[tuple[float, str]]] = {}
        self._as_chosen: dict[str, PodInfo] = {}  # uid -> the pod at its last choice
        self._decoded: dict[tuple[str, str], PodInfo] = {}  # (uid, resourceVersion) -> pod

    def within_quotas(self, pod: PodInfo, node_name: str) -> None:
        """Judge a choice that quotas allow, at the daemon that checks them: the one that passes a pod on, not the one that binds it.

        Quotas may change in between.
        """
        if pod.group is None and not self._life.is_waiting_for_extender and node_name in self._life.nodes:
            self._ask(self._stage.quota_judges, pod, node_name)
        self.passed_on[pod.uid] = pod, node_name

    def over_quotas(self, pod: PodInfo) -> None:
        """Such a choice was taken back."""
        self.passed_on.pop(pod.uid, None)

    def reserved(self, pod: PodInfo, node_name: str) -> None:
        """Judge a choice, and remember it."""
        if pod.uid in self.held:
            self._stage.find(f"{pod.key} is reserved twice", pod.uid)
        self._stage.story.tell("witness", f"reserve {pod.key} {pod.uid[:8]} on {node_name}")
        self.held[pod.uid] = (pod, node_name)
        self.passed_on.pop(pod.uid, None)
        if pod.group is None:  # of a group, many ways are tried before one is chosen
            self.chosen(pod, node_name)

    def chosen(self, pod: PodInfo, node_name: str, *, is_to_be_judged: bool = True) -> None:
        """Judge what has been reserved and is to be carried out."""
        # While an extender is waited for, the cluster is kept as it was: what watches bring meanwhile counts later. A
        # group keeps it as it was too; whether something came is for its judge to say.
        if is_to_be_judged and (pod.group is not None or not self._life.is_waiting_for_extender):
            self._judge(pod, node_name)
        if pod.uid not in self.passed_on:
            # Nobody but the watch tells a daemon that another one bound its pod.
            self._chosen.setdefault(pod.uid, []).append((self._stage.now, node_name))
        self._as_chosen[pod.uid] = pod
        self._stage.reached("assumed", pod)

    def released(self, pod: PodInfo) -> None:
        """The choice was taken back."""
        if self.held.pop(pod.uid, None) is not None:
            self._stage.story.tell("witness", f"unreserve {pod.key} {pod.uid[:8]}")
        self._stage.story.catch_up()
        record = self._stage.story.pods.get(pod.uid)
        if record is not None and record.gone_at is not None:
            # The pod does not exist, so the daemon cannot find out whether a Binding without an answer took effect.
            self._chosen.pop(pod.uid, None)

    def bound(self, pod: PodInfo) -> None:
        """The choice was carried out."""
        self.held.pop(pod.uid, None)
        self._stage.story.tell("witness", f"bound {pod.key} {pod.uid[:8]} on {pod.node_name}")
        self._stage.reached("bound", pod)

    def knows(self, record: PodRecord) -> bool:
        """Whether the daemon has to know of a binding: its own, or one from before it began."""
        bound_at, node = record.nodes[0]
        chosen = self._chosen.get(record.uid, ())
        own = any(record.came_back_at <= at <= bound_at and name == node for at, name in chosen)
        return own or bound_at < self._life.began_at

    def there(self, node_name: str) -> Mapping[str, PodInfo]:
        """Return the pods that a daemon has to know to be on a node: uid -> pod."""
        return {pod.uid: pod for pod in self._there(node_name)}

    def bound_and_not_shown(self) -> Iterator[tuple[PodInfo, str]]:
        """Yield the pods with their nodes that this daemon has bound and that no watch has shown on a node.

        They may have ended since: a kubelet may reject a pod at once. The daemon cannot know that either.
        """
        self._stage.story.catch_up()
        for pod in self._life.pods.values():
            record = self._stage.story.pods.get(pod.uid)
            if not pod.node_name and record is not None and record.nodes and self.knows(record):
                yield pod, record.nodes[0][1]

    def _judge(self, pod: PodInfo, node_name: str) -> None:
        node = self._life.nodes.get(node_name)
        if node is None:
            self._stage.find(f"{pod.key} goes to {node_name}, which is not known", pod.uid)
            return
        others = dict(self.there(node_name))
        others.pop(pod.uid, None)
        for problem in problems(pod, node, others.values()):
            there = ", ".join(f"{other.key} {other.uid[:8]}" for other in others.values())
            self._stage.find(f"{pod.key} goes to {node_name}: {problem}; there: {there}", pod.uid)
        self._ask(self._stage.judges, pod, node_name)

    def _ask(self, judges: Sequence[Judge], pod: PodInfo, node_name: str) -> None:
        if judges:
            there_by_node = {name: self.there(name) for name in self._life.nodes}
            for judge in judges:
                judge(self._life, pod, node_name, there_by_node)

    def _there(self, node_name: str) -> Iterator[PodInfo]:
        known = self._life.pods
        by_uid = {pod.uid: pod for pod in known.values()}
        for pod in known.values():
            if pod.node_name == node_name and not pod.is_terminal:
                yield pod
        cache = self._life.daemon.parts.cache
        shown = [(pod, pod.pod.status.nominated_node_name) for pod in known.values() if is_passed_on(pod)]
        passed_on = [
            (counted, where)  # as it was when it was passed on: it may have been resized since
            for pod, where in (*self.passed_on.values(), *shown)
            if (counted := cache.pod(pod.uid)) is not None and counted.node_name == where
        ]
        for pod, where in (*self.held.values(), *passed_on):
            seen = by_uid.get(pod.uid)
            if where != node_name or self._was_undone(pod.uid, where):
                continue
            if seen is not None and not (seen.is_terminating or seen.node_name):
                yield pod
        for pod in self._bound_by_us(node_name):
            if self._stage.is_odd(pod) and pod.uid not in by_uid:
                continue
            # It may have been resized since: the daemon knows it as its watch shows it on the node, or as it was chosen.
            seen = by_uid.get(pod.uid)
            yield seen if seen is not None and seen.node_name else self._as_chosen.get(pod.uid, pod)

    def _was_undone(self, uid: str, node_name: str) -> bool:
        """Whether a choice was carried out, and a server that was restored has forgotten it."""
        restores, chosen = self._stage.restores, self._chosen.get(uid)
        is_from_before = bool(restores and chosen) and chosen[-1][0] <= restores[-1]
        return is_from_before and node_name in self._stage.story.pods[uid].lost_nodes

    def _bound_by_us(self, node_name: str) -> Iterator[PodInfo]:
        """Yield what is on the node by a choice this daemon knows of, whether a watch has told it yet or not."""
        self._stage.story.catch_up()
        for found in self._stage.store.list("pods"):
            uid = found["metadata"]["uid"]
            if found["spec"].get("nodeName") != node_name or uid in self._stage.story.foreign:
                continue
            pod = self._decode(found)
            if self.knows(self._stage.story.pods[uid]) and not pod.is_terminal:
                yield pod

    def _decode(self, found: Mapping[str, object]) -> PodInfo:
        metadata = found["metadata"]
        key = (metadata["uid"], metadata["resourceVersion"])  # type: ignore[index]
        if key not in self._decoded:
            self._decoded[key] = decode_pod(msgspec.json.encode(found))
        return self._decoded[key]


def problems(pod: PodInfo, node: NodeObject, others: Iterable[PodInfo]) -> Iterator[str]:
    """Yield why a pod may not be on a node, beside others there."""
    yield from _lacks(pod, node, others)
    yield from _refusals(pod, node)


def _lacks(pod: PodInfo, node: NodeObject, others: Iterable[PodInfo]) -> Iterator[str]:
    others = list(others)
    for resource, amount in pod.resources.requests.items():
        used = sum(other.resources.taken.get(resource, 0) for other in others)
        offered = node.allocatable.get(resource, 0)
        if amount and used + amount > offered:
            yield f"{resource} {used} + {amount} > {offered}"
    if len(others) + 1 > node.allocatable.get("pods", 0):
        yield f"{len(others)} pods + 1 > {node.allocatable.get('pods', 0)}"
    taken = {port for other in others for port in other.host_ports}
    for port in set(pod.host_ports) & taken:
        yield f"{port} is taken"


def _refusals(pod: PodInfo, node: NodeObject) -> Iterator[str]:
    if node.unschedulable:
        yield "it is cordoned"
    for taint in node.taints:
        if taint.effect in {"NoSchedule", "NoExecute"} and not any(
            covers(toleration, taint) for toleration in pod.tolerations
        ):
            yield f"{taint.key}:{taint.effect} is not tolerated"
    for key, value in pod.pod.spec.node_selector.items():
        if node.labels.get(key) != value:
            yield f"{key} is {node.labels.get(key)}, not {value}"


class Witness(ReservePlugin, PostBindPlugin):
    """Tells the ledger. Comes last in the profile, so that what it is told of has passed all others."""

    name = "Witness"
    api_version = 1
    ledger: ClassVar[Ledger]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.ledger.reserved(pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.ledger.released(pod)

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.ledger.bound(pod)


class QuotaWitness(ReservePlugin):
    """Tells the ledger what quotas allow; runs where quotas are enforced."""

    name = "QuotaWitness"
    api_version = 1
    ledger: ClassVar[Ledger]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.ledger.within_quotas(pod, node_name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.ledger.over_quotas(pod)

    def quota_usages(
        self, plugins: Sequence[QuotaWitness], pending: Sequence[PodInfo]
    ) -> Generator[None, None, Sequence[QuotaUsage]]:
        yield from ()
        return ()


WITNESSES = (QuotaWitness, Witness)
"""In the order in which they come in a profile."""


def witnesses(ledger: Any) -> dict[str, type[Plugin]]:
    """Return plugins by name that tell a ledger."""
    return {each.name: type(each.__name__, (each,), {"ledger": ledger}) for each in WITNESSES}
