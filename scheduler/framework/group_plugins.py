"""The plugins of groups: who reads their objects, and who makes room for them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from scheduler.framework.interface import Plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework.pod_groups import FitsWithout, PodGroup
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Snapshot


class PodGroupPostFilterPlugin(Plugin):
    """Tries to make room for a whole group, too few of whose members fit; the first of a profile is asked.

    Source:
        kube-scheduler v1.36, framework/interface.go, PodGroupPostFilterPlugin, which is DefaultPreemption's alone there.
    """

    @abstractmethod
    async def post_filter_group(
        self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot, fits_without: FitsWithout
    ) -> Sequence[PodInfo] | Status:
        """Return the pods that have to leave so that the group fits, or why nothing can be done; makes nobody leave.

        Args:
            group: whose room is to be made.
            members: those of its pods that were tried.
            snapshot: the cluster; good until something is awaited.
            fits_without: tells which pods' leaving would be enough.
        """


class PodGroupPlugin(Plugin):
    """Reads the objects of some kinds of groups, so that their pods are scheduled as groups, and tells what came of it.

    Attributes:
        group_kinds: which.
        waiting: what is said of a member that fits while too few others do.
    """

    group_kinds: ClassVar[frozenset[str]] = frozenset()
    waiting: ClassVar[str] = "waiting for minCount pods from a gang to be scheduled"

    @abstractmethod
    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return what the object of a group says; None if there is none.

        Raises:
            ObjectError: the object cannot be understood.
        """

    @abstractmethod
    def attempted(self, group: PodGroup, status: Status) -> None:
        """Take note of what an attempt at a group came to: a success, a rejection or an error."""
