"""Groups of pods that are scheduled together: the content of group objects, and capabilities about groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

MOST_LEVELS: Final = 4
"""Maximum number of levels of a tree of groups, with that of the leaves."""
UNSCHEDULABLE: Final = "pod group is unschedulable"
"""Prefix of the message for pods that wait for others of their group."""
SAME_SCHEDULER: Final = (
    'all pods in a single pod group should have the same .spec.schedulerName set, got: "{}" and "{}"'
)
"""Message for members with different values."""


@dataclass(frozen=True)
class PodGroup:
    """The content of a group's object, independent of its kind; and, for the root of a tree, the groups below it.

    A group without groups below it is a tree of one leaf. Only leaves have pods.

    Attributes:
        key: key of the group.
        uid: UID of the object.
        min_count: minimum number of its pods that run together; 0 if each may run without the others. Of a composite group,
            minimum number of its children.
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
        why_no_preemption: why the group as a whole may not preempt; "" if it may.
        evicts_at_once: whether members that preempt one after another evict their victims even if too few members fit.
        is_composite: whether it consists of groups, and not of pods.
        children: the groups that it consists of, in the order in which they are tried; also groups without pods.
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
    why_no_preemption: str = ""
    evicts_at_once: bool = False
    is_composite: bool = False
    children: tuple[PodGroup, ...] = ()

    @cached_property
    def leaves(self) -> tuple[PodGroup, ...]:
        """The groups of pods in the tree, in the order in which they are tried; the group itself if it has pods."""
        if not self.is_composite:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves)

    @cached_property
    def leaf_keys(self) -> frozenset[GroupKey]:
        """The keys of `leaves`."""
        return frozenset(leaf.key for leaf in self.leaves)

    def has_quorum(self, counts: Mapping[GroupKey, int]) -> bool:
        """Return whether enough pods of enough groups in the tree are among some pods.

        Args:
            counts: leaf -> the number of these pods in it; without 0.

        Source:
            kube-scheduler v1.37, plugins/gangscheduling/gangscheduling.go, isCPGTreeReady and isPGReady.
        """
        if not self.is_composite:
            return counts.get(self.key, 0) >= max(self.min_count, 1)
        return sum(child.has_quorum(counts) for child in self.children) >= max(self.min_count, 1)

    def fewest(self, counts: Mapping[GroupKey, int]) -> int:
        """Return how many more pods `has_quorum` needs at least, if each group has enough children."""
        if not self.is_composite:
            return max(max(self.min_count, 1) - counts.get(self.key, 0), 0)
        missing = sorted(child.fewest(counts) for child in self.children)
        return sum(missing[: max(self.min_count, 1)])


@runtime_checkable
class PodGroupMembers(Protocol):
    """The known pods of groups: those on nodes, and the pending ones of this scheduler's profiles.

    Attributes:
        changes: changes with each pod of any group.
    """

    changes: int

    def count(self, key: GroupKey) -> int:
        """Return the number of a group's pods that have not ended."""
        ...

    def pending(self, key: GroupKey) -> Collection[str]:
        """Return the uids of the group's pods in the queue; one that is being bound may be among them."""
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

    def tree(self, key: GroupKey) -> PodGroup | None:
        """Return a group with all groups below it; None if it does not exist, or an object cannot be decoded."""
        ...

    def lineage(self, key: GroupKey) -> Sequence[PodGroup]:
        """Return a group and the groups above it, the highest last; the first ones if an object does not exist."""
        ...
