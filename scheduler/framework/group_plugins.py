"""Plugins for pod groups: readers of group objects, and preemption for groups."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from scheduler.framework.interface import Plugin

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Snapshot

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

    async def fits_without(self, pods: Sequence[PodInfo]) -> frozenset[str] | None:
        """Return the names of the nodes of the group's members, or None if too few members fit."""
        ...


class PodGroupPostFilterPlugin(Plugin):
    """Preempts pods for a whole group if too few of its members fit; the first such plugin of a profile is called.

    Source:
        kube-scheduler v1.36, framework/interface.go, PodGroupPostFilterPlugin, which only DefaultPreemption
        implements.
    """

    @abstractmethod
    async def post_filter_group(
        self, group: PodGroup, members: Sequence[PodInfo], dry_runs: GroupDryRuns
    ) -> Sequence[PodInfo] | Status:
        """Return the pods to evict so that the group fits, or why that is impossible; evicts no pod itself.

        Args:
            group: the preempting group.
            members: those of its pods that were tried.
            dry_runs: the cluster, and whether the group fits without some pods.
        """


class PodGroupPlugin(Plugin):
    """Reads the objects of some kinds of groups, so that their pods are scheduled as groups, and reports the results.

    Attributes:
        group_kinds: the kinds of group objects.
        waiting: message for a member that fits while too few others do.
    """

    group_kinds: ClassVar[frozenset[str]] = frozenset()
    waiting: ClassVar[str] = "waiting for minCount pods from a gang to be scheduled"

    @abstractmethod
    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return the group of an object; None if the object does not exist.

        Raises:
            ObjectError: the object cannot be decoded.
        """

    @abstractmethod
    def attempted(self, group: PodGroup, status: Status) -> None:
        """Handle the result of an attempt at a group: a success, a rejection or an error."""
