"""Preemption: what a plugin that makes room may ask of its surroundings, and what it leaves for explanations.

It tries what would happen if pods were gone, asks the extenders, and hands the rest over: making pods go takes
requests to the API server, which is nobody's business within a cycle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


class VictimLimit(ABC):
    """What must hold beside Filter for a pod to come to a node whose pods have left.

    The state is the one that the plugin's `add_pods` and `remove_pods` were told of the pods in.
    """

    @abstractmethod
    def refusal(self, state: CycleState, row: int) -> Status | None:
        """Return why the pod may not come though all removable pods of the node have left; None if it may."""

    @abstractmethod
    def allows(self, state: CycleState, row: int) -> bool:
        """Say whether the pods that were given back to the node may be there beside the pod."""


@runtime_checkable
class PreemptionDryRun(Protocol):
    """Finds the pods that must go from each of some nodes; nothing is changed by it."""

    def dry_run(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        removable: Mapping[int, Sequence[PodInfo]],
        nominated: Mapping[int, Sequence[PodInfo]],
        limit: VictimLimit | None = None,
    ) -> Mapping[int, Status | tuple[PodInfo, ...]]:
        """Take all removable pods away, then give back, one after another, each that the pod fits beside.

        Args:
            state: what PreFilter wrote; it stays as it is.
            pod: the pod to make room for.
            snapshot: the cluster.
            removable: row -> pods of that node, in the order in which they are to be given back.
            nominated: row -> other pods of equal or higher priority that are expected there soon.
            limit: what must hold beside Filter, if anything.

        Returns:
            Row -> the pods that had to stay away, in the order given, or why the pod does not fit even without all.
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
    ) -> Generator[None, None, Mapping[int, Status | tuple[PodInfo, ...]]]:
        """Do the same in steps, for `LongWork`; when there is no time left, rows are missing that were not tried."""
        ...


@runtime_checkable
class VictimReview(Protocol):
    """Lets extenders take nodes and victims back before any pod has to go."""

    async def review(
        self, pod: PodInfo, snapshot: Snapshot, victims: Mapping[int, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[int, tuple[Sequence[PodInfo], int]]:
        """Return what is left of row -> (victims, how many disruption budgets that breaks).

        Raises:
            SchedulerError: an extender that is needed failed.
        """
        ...


@runtime_checkable
class NominatedPods(Protocol):
    """The pending pods that are expected on some node soon, of any priority."""

    def pods(self) -> Iterator[PodInfo]:
        """Yield them; nothing may change until the last was taken."""
        ...


@runtime_checkable
class Preemptions(Protocol):
    """Carries preemptions out, in the background."""

    def attempted(self) -> None:
        """Count that room was looked for."""
        ...

    def start(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo], plugin: str) -> None:
        """Begin to make pods leave a node for another pod; those that are leaving already are left alone.

        The preemptor must not be tried before that is done: see `is_running`. If it fails, the preemptor is tried
        again at once.

        Args:
            preemptor: the pod that needs the room.
            node_name: where.
            victims: the pods on that node that have to leave.
            plugin: who wants it.
        """
        ...

    def is_running(self, uid: str) -> bool:
        """Whether pods are still being told to leave for this pod, or for its group."""
        ...

    def is_for_group(self, uid: str) -> bool:
        """Whether that is for its group."""
        ...


REPORT: Final = "Preemption"
"""Where in the cycle state the `PreemptionReport` of a plugin is."""


@dataclass(frozen=True, slots=True)
class PreemptionReport:
    """What a search for room found, for explanations.

    Attributes:
        candidates: row -> (the pods that would have to leave, most important first; how many of them break a
            disruption budget).
        nominated: the rows of the best candidates, of which one was chosen.
    """

    candidates: Mapping[int, tuple[Sequence[PodInfo], int]]
    nominated: Sequence[int]


@dataclass(frozen=True, slots=True)
class Room:
    """The same by the names of the pods: what is remembered of it holds none of them.

    Attributes:
        candidates: row -> (`namespace/name` of the pods; as there).
        nominated: as there.
    """

    candidates: Mapping[int, tuple[Sequence[str], int]]
    nominated: Sequence[int]


def room_in(state: CycleState) -> Room | None:
    """Return what a search for room found in a cycle, now or long ago; None if there was none."""
    found = state.read(REPORT, object) if REPORT in state else None
    if isinstance(found, PreemptionReport):
        candidates = {
            row: ([victim.key for victim in victims], broken)
            for row, (victims, broken) in found.candidates.items()
        }
        return Room(candidates, found.nominated)
    return found if isinstance(found, Room) else None
