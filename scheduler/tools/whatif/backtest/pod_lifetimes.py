"""Lifetimes of the pods of a recording: when each arrived, how long it ran, and which pod replaced it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from scheduler.daemon.app.watches import NODE_KIND, POD_KIND
from scheduler.tools.whatif.simulation.object_versions import controller_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.backtest.recorded_history import RecordedChange, RecordedHistory

_SUCCESSION_SECONDS: Final = 60.0
"""Maximum time between the deletion of a pod and the arrival of its replacement, a pod of the same owner."""
_LINGERS_SECONDS: Final = 300.0
"""Maximum time that a pod takes to stop, or stays without its node."""
_STARTS_OVER: Final = "Job"


@dataclass(slots=True, kw_only=True)
class PodLifetime:
    """A recorded pod that the backtest places.

    Attributes:
        pod: as it arrived.
        came: arrival, in seconds since the beginning.
        ready: time at which its last scheduling gate was removed, in the same unit; infinity if never.
        asked: time of the Binding request; infinity if unknown.
        bound: time at which it was bound; infinity if never.
        node: its node; "" for none.
        leaves: time at which its deletion was requested or it was gone; infinity if it existed at the end.
        gone: time at which it was gone.
        is_cut: whether its node was the reason for its end (preemption, deleted node, drain), so that its full run time is
            unknown.
        heir: its replacement pod, if known.
        is_heir: whether it is a replacement pod itself.
    """

    pod: PodInfo
    came: float
    ready: float = inf
    asked: float = inf
    bound: float = inf
    node: str = ""
    leaves: float = inf
    gone: float = inf
    is_cut: bool = False
    heir: PodLifetime | None = None
    is_heir: bool = False

    @property
    def is_there(self) -> bool:
        """Whether it was on a node at the beginning."""
        return bool(self.pod.node_name)

    @property
    def waited(self) -> float:
        """Seconds until it was bound; infinity if never."""
        return self.bound - min(self.ready, self.bound) if self.bound < inf else inf

    @property
    def binding_seconds(self) -> float | None:
        """Time from the Binding request to the observed binding; None if unknown."""
        return self.bound - self.asked if self.asked <= self.bound < inf else None

    @property
    def last(self) -> PodLifetime:
        """Return the last of its replacement pods; itself if it was not replaced."""
        life = self
        while life.heir is not None:
            life = life.heir
        return life

    @property
    def runs(self) -> float:
        """Seconds from its binding until it ends by itself; infinity if it existed at the end, or if unknown."""
        last = self.last
        if last.is_cut:
            return inf
        return last.gone - (last.bound if starts_over(self.pod) and last.bound < inf else self.bound)

    @property
    def stops_in(self) -> float:
        """Seconds from the deletion request to the end; 0 if it ends by itself."""
        last = self.last
        return last.gone - last.leaves if last.gone < inf else 0.0


def starts_over(pod: PodInfo) -> bool:
    """Return whether the replacement of a pod starts the work again."""
    owner = controller_of(pod)
    return owner is not None and owner.kind == _STARTS_OVER


def lifetimes_of(history: RecordedHistory, scheduler_names: Collection[str]) -> dict[str, PodLifetime]:
    """Return uid -> pods of these scheduler names, in the order of arrival.

    Pods that were bound when they were first seen are included only if that was at the beginning.
    """
    reader = _Lifetimes(history, scheduler_names)
    for happening in history.there:
        reader.take(happening)
    for happening in history.happenings:
        reader.take(happening)
    _find_heirs(reader.lives.values())
    return reader.lives


class _Lifetimes:
    def __init__(self, history: RecordedHistory, scheduler_names: Collection[str]) -> None:
        self.lives: dict[str, PodLifetime] = {}
        self._names = scheduler_names
        self._preempted, self._asked = history.preempted, history.asked
        self._uids: dict[str, str] = {}  # key -> uid, of existing pods
        self._last: dict[str, PodInfo] = {}

    def take(self, happening: RecordedChange) -> None:
        if happening.kind == NODE_KIND:
            if happening.obj is None:
                self._node_gone(happening.key, happening.at)
        elif happening.kind == POD_KIND:
            if happening.obj is None:
                self._leave(happening.key, happening.at)
            else:
                self._see(happening.obj, happening.at)

    def _node_gone(self, name: str, at: float) -> None:
        for uid in self._uids.values():  # once for each node
            life = self.lives[uid]
            if life.node == name:
                life.leaves, life.is_cut = min(life.leaves, at), True

    def _see(self, pod: PodInfo, at: float) -> None:
        life = self.lives.get(pod.uid)
        if life is None:
            if pod.scheduler_name not in self._names or (pod.node_name and at > 0.0):
                return
            life = self.lives[pod.uid] = PodLifetime(pod=pod, came=at)
        self._uids[pod.key] = pod.uid
        self._last[pod.uid] = pod
        if not pod.pod.spec.scheduling_gates:
            life.ready = min(life.ready, at)
        if pod.node_name and life.bound == inf:
            life.bound, life.node = at, pod.node_name
            life.asked = self._asked.get(pod.uid, inf)
        if pod.is_terminating:
            life.leaves = min(life.leaves, at)

    def _leave(self, key: str, at: float) -> None:
        uid = self._uids.pop(key, "")
        life = self.lives.get(uid)
        if life is None:
            return
        pod = self._last.pop(uid)
        life.gone, life.leaves = at, min(life.leaves, self._preempted.get(uid, at))
        if life.bound < inf and (uid in self._preempted or is_disrupted(pod)):
            life.is_cut = True


def is_disrupted(pod: PodInfo) -> bool:
    """Return whether a pod has the condition DisruptionTarget."""
    return any(
        each.type == "DisruptionTarget" and each.status == "True" for each in pod.pod.status.conditions
    )


def takes_pods(node: NodeObject) -> bool:
    """Return whether a node is neither cordoned nor tainted NoExecute."""
    return not node.unschedulable and all(taint.effect != "NoExecute" for taint in node.taints)


def _find_heirs(lives: Iterable[PodLifetime]) -> None:
    """Find the replacement of each pod whose end its node caused: the next pod of the same owner."""
    by_owner: dict[tuple[str, str], list[PodLifetime]] = {}
    for life in lives:
        owner = controller_of(life.pod)
        if owner is not None:
            by_owner.setdefault((life.pod.namespace, owner.uid), []).append(life)
    for of_one in by_owner.values():
        free = [life for life in of_one if not life.is_there]
        for life in sorted((each for each in of_one if each.is_cut), key=lambda each: each.leaves):
            latest = min(life.gone, life.leaves + _LINGERS_SECONDS) + _SUCCESSION_SECONDS
            heir = next(
                (each for each in free if each is not life and life.leaves <= each.came <= latest),
                None,
            )
            if heir is not None:
                free.remove(heir)
                life.heir, heir.is_heir = heir, True
