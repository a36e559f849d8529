"""Preemption: capabilities for plugins that preempt, and their reports for explanations.

Such a plugin simulates the removal of pods, calls the extenders, and starts the eviction in the background:
eviction needs requests to the API server, which do not belong into a scheduling cycle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


class VictimLimit(ABC):
    """An additional condition, beside Filter, for a pod on a node after the removal of victims.

    The plugin's `add_pods` and `remove_pods` have updated the state.
    """

    @abstractmethod
    def refusal(self, state: CycleState, row: int) -> Status | None:
        """Return why the pod does not fit although all removable pods of the node are removed; None if it fits."""

    @abstractmethod
    def allows(self, state: CycleState, row: int) -> bool:
        """Return whether the pods added back to the node may run beside the pod."""


@runtime_checkable
class PreemptionDryRun(Protocol):
    """Finds the victims on each of some nodes, without changing anything."""

    def dry_run(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        removable: Mapping[int, Sequence[PodInfo]],
        nominated: Mapping[int, Sequence[PodInfo]],
        limit: VictimLimit | None = None,
    ) -> Mapping[int, Status | tuple[PodInfo, ...]]:
        """Remove all removable pods, then add back, one after another, each one that fits beside the pod.

        Args:
            state: the data of PreFilter; unchanged afterwards.
            pod: the preemptor.
            snapshot: the cluster.
            removable: row -> pods of that node, in the order in which they are added back.
            nominated: row -> other nominated pods of equal or higher priority.
            limit: an additional condition, if any.

        Returns:
            Row -> the pods that stay removed, in the given order, or why the pod does not fit without all of
            them.
        """
        ...

    def steps(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        removable: Mapping[int, Sequence[PodInfo]],
        nominated: Mapping[int, Sequence[PodInfo]],
        limit: VictimLimit | None = None,
        has_time: Callable[[], bool] = lambda: True,
        together: Mapping[str, Sequence[PodInfo]] = MappingProxyType({}),
    ) -> Generator[None, None, Mapping[int, Status | tuple[PodInfo, ...]]]:
        """Do the same in time slices, for `SlicedWork`; rows that were not tried in time are missing.

        `together` has for the uid of a removable pod all pods that leave with it. Those of the same node are removed and
        added with it; those of other nodes stay.
        """
        ...

    def kind(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """Return a key of the pods with equal results for equal arguments, each result valid until the node changes.

        None if the results depend on more than the node and its pods.
        """
        ...


@runtime_checkable
class VictimReview(Protocol):
    """Lets extenders exclude nodes and victims before any pod is evicted."""

    async def review(
        self, pod: PodInfo, snapshot: Snapshot, victims: Mapping[int, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[int, tuple[Sequence[PodInfo], int]]:
        """Return the remaining part of row -> (victims, number of violated disruption budgets).

        Raises:
            SchedulerError: a required extender failed.
        """
        ...


@runtime_checkable
class NominatedPods(Protocol):
    """The pending pods with a nominated node, of any priority."""

    def pods(self) -> Iterator[PodInfo]:
        """Yield the pods; nothing may change until the last one is taken."""
        ...


@dataclass(slots=True)
class Evaluation:
    """The result of a search for victims, for metrics.

    Attributes:
        code: the result; a success if there are victims.
        violations: how many of the victims violate a disruption budget.
        group_units: how many groups leave as a whole, and how many pods of other groups leave.
    """

    code: Code = Code.UNSCHEDULABLE
    violations: int = 0
    group_units: int = 0


@dataclass(frozen=True, slots=True)
class Protected:
    """Why a pod may not be preempted now.

    Attributes:
        pod: `namespace/name` of the pod, or of the first pod of a group that leaves as a whole.
        until: the end of the protection, in seconds since 1970; infinite if only a change of settings ends it.
        by: what protects the pod, as in "PriorityClass batch".
        kind: the kind of protection, for metrics.
    """

    pod: str
    until: float
    by: str
    kind: str


EVICTIONS_SECONDS: Final = 3600.0
"""The time for which an eviction counts."""
MOST_EVICTIONS: Final = 10_000
"""The number of evictions that count; the oldest are forgotten first."""


class RecentEvictions:
    """The pods that preemption evicted in the last hour. Times are seconds of the monotonic clock.

    Attributes:
        count: the number of evictions so far; it only grows.
    """

    IN_ALL: Final = ("all", "")
    """The key of all evictions."""

    def __init__(self) -> None:
        self.count = 0
        # Time, `namespace/name`, uid of the controller.
        self._evictions: deque[tuple[float, str, str]] = deque()
        self._times: dict[tuple[str, str], deque[float]] = {}  # see `by_pod`, `by_controller` and `IN_ALL`

    @staticmethod
    def by_pod(pod: PodInfo) -> tuple[str, str]:
        """Return the key of the evictions of pods of one name."""
        return "pod", pod.key

    @staticmethod
    def by_controller(pod: PodInfo) -> tuple[str, str]:
        """Return the key of the evictions of pods of one controller; pods without one have none in common."""
        owners = pod.pod.metadata.owner_references
        return "controller", next((owner.uid for owner in owners if owner.controller), pod.uid)

    def note(self, pods: Iterable[PodInfo], at: float) -> None:
        """Count evicted pods."""
        self.resume([(at, self.by_pod(pod)[1], self.by_controller(pod)[1]) for pod in pods])

    def resume(self, evictions: Iterable[tuple[float, str, str]]) -> None:
        """Count evictions that `kept` returned."""
        for each in evictions:
            self.count += 1
            self._evictions.append(each)
            for key in self._keys(each):
                self._times.setdefault(key, deque()).append(each[0])
        while len(self._evictions) > MOST_EVICTIONS:
            self._forget_oldest()

    def __len__(self) -> int:
        return len(self._evictions)

    def kept(self) -> list[tuple[float, str, str]]:
        """Return the evictions that count, the oldest first: time, `namespace/name` of the pod, and uid of its controller."""
        return list(self._evictions)

    def take_back(self) -> None:
        """Do not count the last noted eviction, which was not carried out."""
        self.count += 1
        eviction = self._evictions.pop()
        for key in self._keys(eviction):
            times = self._times[key]
            times.pop()
            if not times:
                del self._times[key]

    def allowed_at(self, key: tuple[str, str], limit: int, number: int, now: float) -> float:
        """Return when a number of further evictions stays within a limit for each hour.

        Returns:
            0.0 if that is now, infinity if it never is.
        """
        while self._evictions and self._evictions[0][0] <= now - EVICTIONS_SECONDS:
            self._forget_oldest()
        times, left = self._times.get(key, ()), limit - number
        if left < 0:
            return inf
        return 0.0 if len(times) <= left else times[len(times) - left - 1] + EVICTIONS_SECONDS

    def _forget_oldest(self) -> None:
        for key in self._keys(self._evictions.popleft()):
            times = self._times[key]
            times.popleft()
            if not times:
                del self._times[key]

    def _keys(self, eviction: tuple[float, str, str]) -> tuple[tuple[str, str], ...]:
        return ("pod", eviction[1]), ("controller", eviction[2]), self.IN_ALL


@runtime_checkable
class Preemptions(Protocol):
    """Runs preemptions in the background.

    Attributes:
        recent: the evictions of the last hour.
        may_wait: whether a pod can be tried again later; not if only the present moment is evaluated.
    """

    @property
    def recent(self) -> RecentEvictions: ...

    @property
    def may_wait(self) -> bool: ...

    def attempted(self) -> None:
        """Count an attempt to preempt for a pod."""
        ...

    def attempted_for_group(self, code: Code) -> None:
        """Count an attempt to preempt for a group that is preempted for as one entity, and its result."""
        ...

    def evaluation(self, preemptor: str) -> AbstractContextManager[Evaluation]:
        """Measure the search for victims in the block, and its result; not if it raises.

        Args:
            preemptor: "pod" or "podgroup".
        """
        ...

    def start(
        self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str, quota: str = ""
    ) -> None:
        """Start to evict pods from a node for another pod; pods that are already terminating are skipped.

        The preemptor must not be tried before the evictions are done: see `is_running`. If they fail, the
        preemptor is tried again at once.

        Args:
            preemptor: the preempting pod.
            node_name: the node.
            victims: the pods to evict from that node.
            plugin: the preempting plugin.
            quota: the key of the queue or quota that the preemptor counts in, for users; "" for none.
        """
        ...

    def is_running(self, uid: str) -> bool:
        """Return whether pods are still being evicted for this pod, or for its group."""
        ...

    def is_for_group(self, uid: str) -> bool:
        """Return whether the running preemption is for the pod's group."""
        ...


REPORT: Final = "Preemption"
"""Key of a plugin's `PreemptionReport` in the cycle state."""


@dataclass(frozen=True, slots=True)
class PreemptionReport:
    """The result of a search for victims, for explanations.

    Attributes:
        candidates: row -> (the victims, most important first; the number of them that violate a disruption
            budget).
        nominated: the rows of the best candidates, of which one was chosen.
        protected: row -> the protected pod there whose protection ends first.
        named: the candidates with `namespace/name` of the victims, so that attempts can share these; empty if not known.
    """

    candidates: Mapping[int, tuple[Sequence[PodInfo], int]]
    nominated: Sequence[int]
    protected: Mapping[int, Protected] = field(default_factory=dict)
    named: Mapping[int, tuple[Sequence[str], int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreemptionSummary:
    """A `PreemptionReport` with the pods' names, so that it can be kept without the pods.

    Attributes:
        candidates: row -> (`namespace/name` of the victims; the number of violations).
        nominated: the rows of the best candidates.
        protected: as of `PreemptionReport`.
    """

    candidates: Mapping[int, tuple[Sequence[str], int]]
    nominated: Sequence[int]
    protected: Mapping[int, Protected] = field(default_factory=dict)


def preemption_summary(state: CycleState) -> PreemptionSummary | None:
    """Return the result of a cycle's search for victims; None if there was none."""
    found = state.read(REPORT, object) if REPORT in state else None
    if isinstance(found, PreemptionReport):
        candidates = found.named or {
            row: ([victim.key for victim in victims], broken)
            for row, (victims, broken) in found.candidates.items()
        }
        return PreemptionSummary(candidates, found.nominated, found.protected)
    return found if isinstance(found, PreemptionSummary) else None
