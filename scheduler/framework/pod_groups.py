"""Groups of pods that are scheduled as one: what an object says of a group, and what plugins may ask about groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

UNSCHEDULABLE: Final = "pod group is unschedulable"
"""What pods are told that wait for others of their group begins with it."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What the object of a group says, whichever kind it is of.

    Attributes:
        key: of the group.
        uid: of the object.
        min_count: so many of its pods run, or none; 0 if each may run without the others.
        topology_key: the label of which all its nodes must have the same value; "" for none.
        leaves_whole: whether preempting one of its pods preempts all.
        priority: of the whole group, as the API server's admission resolved it for the object; None where its pods' priority
            counts.
        preempts_as_one: whether room is made for the group as a whole, not for one member after another.
        wait_seconds: how long a member that is ready to be bound waits for enough others to be; None is as long as those take.
        releases: whether members that are bound are deleted when too many of the others cannot be.
        highest_priority: what the object asks for where no admission checks that: it lowers the priority of the pods, and
            never raises it. None for no limit.
    """

    key: GroupKey
    uid: str
    min_count: int = 0
    topology_key: str = ""
    leaves_whole: bool = False
    priority: int | None = None
    preempts_as_one: bool = True
    wait_seconds: float | None = None
    releases: bool = False
    highest_priority: int | None = None


@runtime_checkable
class PodGroupMembers(Protocol):
    """The pods of groups, as far as they are known: those on nodes, and the pending ones of our profiles."""

    def count(self, key: GroupKey) -> int:
        """Return how many pods of a group there are that have not ended."""
        ...

    def placed(self, key: GroupKey) -> Collection[PodInfo]:
        """Return those that are on nodes, or that a node was chosen for."""
        ...


@runtime_checkable
class WorkloadFeatures(Protocol):
    """Which parts of the scheduling of groups are switched on."""

    @property
    def topology_aware_workload_scheduling(self) -> bool:
        """Whether groups keep to one domain of their topology constraint."""
        ...

    @property
    def workload_aware_preemption(self) -> bool:
        """Whether groups preempt, and are preempted, as wholes."""
        ...


@runtime_checkable
class PodGroupObjects(Protocol):
    """What the objects of groups say, of all kinds that are in force."""

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return what the object of a group says; None if there is none, or it cannot be understood."""
        ...


FitsWithout: TypeAlias = "Callable[[Sequence[PodInfo]], Awaitable[frozenset[str] | None]]"
"""Tries the group whose cycle it is on the cluster without some pods: the names of the nodes where its members would go,
or None if too few would go anywhere."""
