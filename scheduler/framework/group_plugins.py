"""Plugins for pod groups: readers of group objects, placements, and preemption for groups.

These extension points run for groups, before and after their members are tried:

    PlacementGenerate  the sets of nodes to try
    PlacementScore     which of the sets that fit the group is best

Source:
    kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go, PlacementGeneratePlugin and
    PlacementScorePlugin.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from scheduler.framework.interface import Plugin

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.preemption import Protected
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Rows, Snapshot

MAX_PLACEMENT_SCORE = 100
"""The best score a placement can have from one plugin after `normalize_placement_scores`; the worst is 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Nodes on which the members of a group may run together.

    Attributes:
        name: name for people, such as the name of a rack.
        rows: the nodes, ascending.
    """

    name: str
    rows: Rows


class PlacementGeneratePlugin(Plugin):
    """Generates the placements of a group; a profile has at most one."""

    @abstractmethod
    def generate_placements(
        self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Sequence[Placement] | Status | None:
        """Return the placements to try, in any order; None for all nodes together, a status if none can be determined."""


class PlacementScorePlugin(Plugin):
    """Scores placements that fit a group."""

    @abstractmethod
    def score_placement(
        self, group: PodGroup, placement: Placement, assigned: Sequence[PodInfo], snapshot: Snapshot
    ) -> int:
        """Score the assignment of these members to nodes of a placement; the snapshot does not include the assignment.

        Without `normalize_placement_scores` the score must be in [0, 100].
        """

    def foresee(
        self, group: PodGroup, placement: Placement, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> int | None:
        """Return the result of `score_placement` if all members were assigned; None if it depends on their nodes.

        If every plugin of a profile can predict it, placements are tried best first, and only as many as
        necessary.
        """
        return None

    def normalize_placement_scores(self, group: PodGroup, scores: Sequence[int]) -> Sequence[int]:
        """Bring the scores of all placements into [0, 100]. The default returns them unchanged."""
        return scores


T = TypeVar("T")


class GroupDryRuns(Protocol):
    """Simulates the group of the current cycle on the cluster without some pods.

    Other pods are placed meanwhile: after each await the cluster may have changed.
    """

    def snapshot(self) -> Snapshot:
        """Return the cluster; valid until the next await."""
        ...

    async def done(self, work: Generator[None, None, T]) -> T:
        """Run slow work in time slices, and return its result; a snapshot is valid until its next step."""
        ...

    @property
    def refusal(self) -> Status:
        """Why too few members fitted in the last result of `fits_without`."""
        ...

    async def fits_without(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        """Return the names of the nodes of the group's members, or None if too few members fit."""
        ...

    async def stays_without(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        """Return the last result of `fits_without` if each member fits on its node in it; else None."""
        ...

    def note_protected(self, protected: Protected) -> None:
        """Record the protection that ends first of those that kept pods from being victims, for explanations."""
        ...


class PodGroupPostFilterPlugin(Plugin):
    """Preempts pods for a whole group if too few of its members fit; the first success ends the point.

    A profile without `podGroupPostFilter` has these plugins in the order of `postFilter`. Before Kubernetes 1.37 only the
    first one is called.

    Source:
        kube-scheduler v1.37, framework/interface.go, PodGroupPostFilterPlugin, which only DefaultPreemption
        implements.
    """

    @abstractmethod
    async def post_filter_group(
        self, group: PodGroup, members: Sequence[PodInfo], dry_runs: GroupDryRuns
    ) -> Sequence[PodInfo] | Status:
        """Return the pods to evict so that the group fits, or why that is impossible; evicts no pod itself.

        A success means that the victims of an earlier preemption are still terminating: the nominations stay.

        Args:
            group: the preempting group.
            members: those of its pods that were tried.
            dry_runs: the cluster, and whether the group fits without some pods.
        """


class PodGroupPlugin(Plugin):
    """Reads the objects of some kinds of groups, so that their pods are scheduled as groups, and reports the results.

    Attributes:
        group_kinds: the kinds of group objects.
        are_entities: whether its groups are decided as in Kubernetes 1.37, see `PodGroup.is_entity`; then the pods of a
            group wait in the queue as one entity.
        composite_kinds: the kinds of the objects of composite groups, to which no pod refers.
        waiting: message for a member that fits while too few others do.
    """

    group_kinds: ClassVar[frozenset[str]] = frozenset()
    are_entities = False
    composite_kinds: ClassVar[frozenset[str]] = frozenset()
    waiting: ClassVar[str] = "waiting for minCount pods from a gang to be scheduled"

    @abstractmethod
    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return the group of an object; None if the object does not exist.

        Raises:
            ObjectError: the object cannot be decoded.
        """

    @abstractmethod
    def attempted(self, group: PodGroup, status: Status) -> None:
        """Handle the result of an attempt at a group with pods: a success, a rejection or an error."""

    # Of groups in trees; a plugin without composite groups has trees of one leaf.

    def root_key(self, key: GroupKey) -> GroupKey:
        """Return the root of a group's tree, or the highest known group: all groups of a tree are tried together."""
        return key

    def leaf_keys(self, key: GroupKey) -> Sequence[GroupKey]:
        """Return the groups of pods in a group's tree, with the group itself, whether or not all objects exist."""
        return (key,)

    def tree(self, key: GroupKey) -> PodGroup | None:
        """Return a group with all groups below it; None if the object does not exist.

        Raises:
            ObjectError: an object cannot be decoded, or the tree has too many levels.
        """
        return self.pod_group(key)

    def lineage(self, key: GroupKey) -> Sequence[PodGroup]:
        """Return a group and the groups above it, the highest last; the first ones if an object does not exist.

        Raises:
            ObjectError: an object cannot be decoded.
        """
        group = self.pod_group(key)
        return () if group is None else (group,)

    # Of groups that are entities.

    def fault(self, group: PodGroup, pod: PodInfo, first: PodInfo) -> str:
        """Return why a pending or placed pod may not belong to a group; "" if it may.

        Args:
            group: the group, or the root of its tree.
            pod: one of its pods.
            first: the pending pod that is tried first.
        """
        return ""

    def too_few(self, group: PodGroup, placed: int, left: int) -> str:
        """Return why the number of members on nodes, or assumed there, is too low; "" if it is high enough.

        The members of a composite group are its children.

        Args:
            group: the group.
            placed: the number of these members.
            left: the number of members still to be tried.
        """
        return ""

    def failed_before(self, key: GroupKey, status: Status) -> None:
        """Handle an error that was found before a member was tried."""
