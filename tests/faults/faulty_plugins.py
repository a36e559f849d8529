"""Plugins that go wrong at random: one for each extension point, all of one mood."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from scheduler.framework import (
    SKIP,
    ActionType,
    BindPlugin,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Outcomes,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    QueueingHint,
    ReservePlugin,
    ScorePlugin,
    Sleep,
    Status,
    Wait,
    WaitingPods,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from random import Random
    from typing import Any

    from scheduler.framework import CycleState, Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot
    from tests.faults.stage import Stage

ON_PURPOSE = "on purpose"
"""Every failure and rejection here says so."""


class TroubleError(Exception):
    """What troubled plugins raise."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} {ON_PURPOSE}")


class Mood:
    """Decides when something goes wrong; never when it is calm.

    Args:
        stage: its plan says how often.
        random: of one daemon's plugins.
    """

    def __init__(self, stage: Stage, random: Random) -> None:
        self.random = random
        self._stage = stage
        self.drift = 0

    @property
    def is_calm(self) -> bool:
        return self._stage.is_calm

    def strikes(self) -> bool:
        """Say whether something goes wrong this time."""
        return not self.is_calm and self.random.random() < self._stage.plan.trouble_rate

    def one_of(self, *answers: Any) -> Any:
        return self.random.choice(answers)

    def reached(self, step: str, pod: PodInfo) -> None:
        """Tell those who wait for pods to come this far."""
        self._stage.reached(step, pod)


class Troubled:
    """What the plugins here share."""

    mood: ClassVar[Mood]

    def refusal(self, pod: PodInfo) -> Status | None:
        """Raise, fail, reject, or nothing of it."""
        if not self.mood.strikes():
            return None
        how = self.mood.one_of("raise", "fail", "reject", "reject", "reject for good")
        if how == "raise":
            raise TroubleError(f"{type(self).__name__} raises")
        if how == "fail":
            return Status.failed(f"failed {ON_PURPOSE}")
        return Status.unschedulable(f"rejected {ON_PURPOSE}", resolvable=how == "reject")


class TroubledPreEnqueue(Troubled, PreEnqueuePlugin):
    name = "TroubledPreEnqueue"
    api_version = 1

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        return self.refusal(pod)


class TroubledPreFilter(Troubled, PreFilterPlugin):
    """Narrows the nodes now and then, or rejects the pod."""

    name = "TroubledPreFilter"
    api_version = 1

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        names = [node.name for node in snapshot.nodes]
        if names and self.mood.strikes():
            return PreFilterResult(
                frozenset(self.mood.random.sample(names, self.mood.random.randint(1, len(names))))
            )
        return self.refusal(pod)


class TroubledFilter(Troubled, FilterPlugin):
    """Refuses some nodes; its hint fails now and then."""

    name = "TroubledFilter"
    api_version = 1

    def events(self) -> Sequence[EventWithHint]:
        return (EventWithHint(ClusterEvent(EventResource.WILDCARD, ActionType.ALL), self._hint),)

    def _hint(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        if self.mood.strikes():
            raise TroubleError("a hint fails")
        return QueueingHint.QUEUE

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        refused = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        if self.mood.strikes():
            if self.mood.one_of(True, False, False):
                raise TroubleError("a filter fails")
            count = self.mood.random.randint(1, len(rows))
            refused[self.mood.random.sample(rows.tolist(), count)] = True
        return Outcomes.reject(refused, f"node(s) were refused {ON_PURPOSE}")


class DriftingFilter(Troubled, FilterPlugin):
    """Refuses nodes by background data that change; its verdicts are kept per node until they do."""

    name = "DriftingFilter"
    api_version = 1
    refresh_seconds = 11.0

    def __init__(self) -> None:
        self._drift = 0

    def signature(self, pod: PodInfo) -> Hashable:
        return ()

    def version(self) -> int:
        return self._drift

    async def refresh(self) -> None:
        self._drift = 0 if self.mood.is_calm else self._drift + 1
        if self.mood.strikes():
            raise TroubleError("a refresh fails")

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        refused = np.array([self._refuses(node.name) for node in snapshot.nodes], dtype=np.bool_)
        return Outcomes.reject(refused, f"node(s) drifted away {ON_PURPOSE}")

    def _refuses(self, name: str) -> bool:
        return bool(self._drift) and (sum(name.encode()) + self._drift) % 4 == 0


class TroubledPostFilter(Troubled, PostFilterPlugin):
    """Nominates any node at all, as if room had been made there, or takes back what another plugin nominated.

    Only now and then: a nomination that ends wakes others, and two pods whose nominations end each time wake each other
    for ever, as with kube-scheduler, whose backoff ends early when nobody else waits.
    """

    name = "TroubledPostFilter"
    api_version = 1

    def __init__(self) -> None:
        self._nominated: set[str] = set()

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        if self.mood.strikes():
            if self.mood.one_of(True, False, False, False):
                raise TroubleError("a PostFilter plugin fails")
            if pod.uid in self._nominated:
                return PostFilterResult(Status.unschedulable("nothing more can be done"), "")
            self._nominated.add(pod.uid)
            name = snapshot.name_of(self.mood.random.randrange(snapshot.n_nodes))
            return PostFilterResult(Status.unschedulable(f"nominated {ON_PURPOSE}"), name)
        return PostFilterResult(Status.unschedulable("nothing can be done"))


class TroubledScore(Troubled, ScorePlugin):
    name = "TroubledScore"
    api_version = 1

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        if self.mood.strikes():
            if self.mood.one_of(True, False):
                raise TroubleError("a Score plugin fails")
            return np.full(snapshot.n_nodes, 101, dtype=np.int64)
        return np.array([self.mood.random.randint(0, 100) for _ in range(snapshot.n_nodes)], dtype=np.int64)


class TroubledReserve(Troubled, ReservePlugin):
    name = "TroubledReserve"
    api_version = 1

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return self.refusal(pod)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if self.mood.strikes():
            raise TroubleError("unreserve fails")


class TroubledPermit(Troubled, PermitPlugin):
    """Holds pods, and lets them go, rejects them, or forgets about them until their time is over."""

    name = "TroubledPermit"
    api_version = 1
    refresh_seconds = 2.0

    def __init__(self, *, waiting: WaitingPods) -> None:
        self._waiting = waiting

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        if any(self.mood.strikes() for _ in range(4)):
            self.mood.reached("held", pod)
            return Wait(self.mood.random.uniform(0.0, 30.0))
        return self.refusal(pod)

    async def refresh(self) -> None:
        for pod in list(self._waiting.waiting()):
            answer = "allow" if self.mood.is_calm else self.mood.one_of("allow", "reject", "", "", "")
            if answer == "allow":
                self._waiting.allow(pod.uid, self.name)
            elif answer == "reject":
                self._waiting.reject(pod.uid, self.name, f"rejected while waiting {ON_PURPOSE}")


class TroubledPreBind(Troubled, PreBindPlugin):
    """Takes its time."""

    name = "TroubledPreBind"
    api_version = 1

    def __init__(self, *, sleep: Sleep) -> None:
        self._sleep = sleep

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return (self.refusal(pod) or SKIP) if self.mood.one_of(True, False) else None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self.mood.reached("binding", pod)
        if self.mood.strikes():
            await self._sleep.sleep(self.mood.random.uniform(0.0, 20.0))
        return self.refusal(pod)


class TroubledBind(Troubled, BindPlugin):
    """Leaves most pods to the next binder."""

    name = "TroubledBind"
    api_version = 1

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return self.refusal(pod) or SKIP


class TroubledPostBind(Troubled, PostBindPlugin):
    name = "TroubledPostBind"
    api_version = 1

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if self.mood.strikes():
            raise TroubleError("a PostBind plugin fails")


class BrokenFromTheStart(FilterPlugin):
    name = "BrokenFromTheStart"
    api_version = 1

    def __init__(self) -> None:
        raise TroubleError("a plugin cannot be built")


TROUBLES = (
    TroubledPreEnqueue,
    TroubledPreFilter,
    TroubledFilter,
    DriftingFilter,
    TroubledPostFilter,
    TroubledScore,
    TroubledReserve,
    TroubledPermit,
    TroubledPreBind,
    TroubledBind,
    TroubledPostBind,
)
TROUBLES_OF_GROUPS = (TroubledReserve, TroubledPermit, TroubledPreBind, TroubledBind, TroubledPostBind)
"""Those after the choice: they part members of a group that were placed together."""
