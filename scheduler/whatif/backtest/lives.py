"""What the pods of a recording wanted: when each came, how long it ran once it was placed, and who came in its place."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from scheduler.app.watches import NODE_KIND, POD_KIND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from scheduler.objects.meta import OwnerReference
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.whatif.backtest.history import Happening, History

_SUCCESSION_SECONDS: Final = 60.0
"""So long after a pod is gone a pod of the same owner may come in its place."""
_LINGERS_SECONDS: Final = 300.0
"""So long a pod may take to go, or stay without its node."""
_STARTS_OVER: Final = "Job"


@dataclass(slots=True, kw_only=True)
class Life:
    """A pod that the backtest places.

    Attributes:
        pod: as it came.
        came: seconds since the beginning.
        ready: likewise, when it was gated no more; infinity if it never was.
        asked: likewise, when it was asked to bind it; infinity if that is not known.
        bound: likewise, when it was bound; infinity if it never was.
        node: where; "" nowhere.
        leaves: when it was asked to go, or was gone; infinity if it was there at the end.
        gone: when it was gone.
        is_cut: whether it was made to go by where it was, so that how long it would have run is not known: for another pod,
            with its node, or by who empties nodes.
        heir: who came in its place then, as far as that is known.
        is_heir: whether it is such a one itself.
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
    heir: Life | None = None
    is_heir: bool = False

    @property
    def is_there(self) -> bool:
        """Whether it was on a node before the first moment."""
        return bool(self.pod.node_name)

    @property
    def waited(self) -> float:
        """Seconds until it was bound; infinity if it never was."""
        return self.bound - min(self.ready, self.bound) if self.bound < inf else inf

    @property
    def binding_seconds(self) -> float | None:
        """How long it took until its Binding was seen; None if that is not known."""
        return self.bound - self.asked if self.asked <= self.bound < inf else None

    @property
    def last(self) -> Life:
        """The last of those who came in its place; itself if nobody did."""
        life = self
        while life.heir is not None:
            life = life.heir
        return life

    @property
    def runs(self) -> float:
        """Seconds from its binding until it goes by itself; infinity if it was there at the end, or that is not known."""
        last = self.last
        if last.is_cut:
            return inf
        return last.gone - (last.bound if starts_over(self.pod) and last.bound < inf else self.bound)

    @property
    def stops_in(self) -> float:
        """Seconds that it takes to go once it is asked to; 0 if it ends by itself."""
        last = self.last
        return last.gone - last.leaves if last.gone < inf else 0.0


def controller_of(pod: PodInfo) -> OwnerReference | None:
    """Return who makes another in a pod's place, None if nobody does."""
    return next((owner for owner in pod.pod.metadata.owner_references if owner.controller), None)


def starts_over(pod: PodInfo) -> bool:
    """Say whether a pod's work begins again in the one that comes in its place."""
    owner = controller_of(pod)
    return owner is not None and owner.kind == _STARTS_OVER


def lives_of(history: History, scheduler_names: Collection[str]) -> dict[str, Life]:
    """Return uid -> the pods that are placed by one of these names, in the order they came.

    Those that were bound when they were seen first are among them if that was at the beginning.
    """
    reader = _Lives(history, scheduler_names)
    for happening in history.there:
        reader.take(happening)
    for happening in history.happenings:
        reader.take(happening)
    _find_heirs(reader.lives.values())
    return reader.lives


class _Lives:
    def __init__(self, history: History, scheduler_names: Collection[str]) -> None:
        self.lives: dict[str, Life] = {}
        self._names = scheduler_names
        self._preempted, self._asked = history.preempted, history.asked
        self._uids: dict[str, str] = {}  # key -> uid, of those that are there
        self._last: dict[str, PodInfo] = {}

    def take(self, happening: Happening) -> None:
        if happening.kind == NODE_KIND:
            if happening.obj is None:
                self._node_gone(happening.key, happening.at)
        elif happening.kind == POD_KIND:
            if happening.obj is None:
                self._leave(happening.key, happening.at)
            else:
                self._see(happening.obj, happening.at)

    def _node_gone(self, name: str, at: float) -> None:
        for uid in self._uids.values():  # once for a node
            life = self.lives[uid]
            if life.node == name:
                life.leaves, life.is_cut = min(life.leaves, at), True

    def _see(self, pod: PodInfo, at: float) -> None:
        life = self.lives.get(pod.uid)
        if life is None:
            if pod.scheduler_name not in self._names or (pod.node_name and at > 0.0):
                return
            life = self.lives[pod.uid] = Life(pod=pod, came=at)
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
    """Say whether Kubernetes says of a pod that it was made to go."""
    return any(
        each.type == "DisruptionTarget" and each.status == "True" for each in pod.pod.status.conditions
    )


def takes_pods(node: NodeObject) -> bool:
    """Say whether a node is neither cordoned nor tainted so that its pods have to go."""
    return not node.unschedulable and all(taint.effect != "NoExecute" for taint in node.taints)


def _find_heirs(lives: Iterable[Life]) -> None:
    """Find who came in the place of those that were made to go: each time the first of the same owner."""
    by_owner: dict[tuple[str, str], list[Life]] = {}
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
