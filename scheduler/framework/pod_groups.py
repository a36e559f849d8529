"""Groups of pods that are scheduled together: the content of group objects, and capabilities about groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

UNSCHEDULABLE: Final = "pod group is unschedulable"
"""Prefix of the message for pods that wait for others of their group."""
SAME_SCHEDULER: Final = (
    'all pods in a single pod group should have the same .spec.schedulerName set, got: "{}" and "{}"'
)
"""Message for members with different values."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The content of a group's object, independent of its kind.

    Attributes:
        key: key of the group.
        uid: UID of the object.
        min_count: minimum number of its pods that run together; 0 if each may run without the others.
        topology_key: label for which all its nodes must have the same value; "" for none.
        leaves_whole: whether preempting one of its pods preempts all.
        priority: priority of the whole group, as the API server's admission resolved it; None if the pods'
            own priorities apply.
        preempts_as_one: whether preemption is for the group as a whole instead of for one member after
            another.
        wait_seconds: how long a member that is ready to be bound waits for enough others; None for no limit
            of its own.
        releases: whether bound members are deleted when too many of the others cannot be bound.
        highest_priority: requested priority where admission does not check it: it lowers the priority of the
            pods, and never raises it. None for no limit.
        is_entity: whether the group is decided as in Kubernetes 1.37: its members are checked first, their number
            decides whether enough fit instead of Permit, and no member preempts on its own.
        preemption_policy: the policy that all its pods must have; "" if they only must have the same.
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
    is_entity: bool = False
    preemption_policy: str = ""


@runtime_checkable
class PodGroupMembers(Protocol):
    """The known pods of groups: those on nodes, and the pending ones of this scheduler's profiles."""

    def count(self, key: GroupKey) -> int:
        """Return the number of a group's pods that have not ended."""
        ...

    def placed(self, key: GroupKey) -> Collection[PodInfo]:
        """Return the group's pods that are on nodes, or assumed on one."""
        ...


@runtime_checkable
class PodGroupObjects(Protocol):
    """The objects of groups, of all active kinds."""

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return the group of an object; None if it does not exist, or cannot be decoded."""
        ...
