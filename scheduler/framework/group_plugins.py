"""Plugins for pod groups: readers of group objects, and preemption for groups."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from scheduler.framework.interface import Plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework.pod_groups import GroupDryRuns, PodGroup
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey


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
