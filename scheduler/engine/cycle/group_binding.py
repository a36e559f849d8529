"""Binds the members of a group together: no member is bound before enough of them can be bound.

PreBind of a member may fail after minutes, so members wait before their Bindings until the group's minimum has passed
PreBind. A Binding that fails leaves the group partly bound: it is retried at once, or the group is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from scheduler.errors import ApiError
from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from typing import Any

    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.ports import PodWriter
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

logger = logging.getLogger(__name__)


class GroupRelease:
    """Releases groups that could not be bound completely: deletes their bound members.

    Args:
        spawn: starts a task that ends with the daemon.
    """

    def __init__(
        self,
        writer: PodWriter,
        reporter: Reporter,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._writer = writer
        self._reporter = reporter
        self._spawn = spawn

    def give_back(self, pod: PodInfo, group: PodGroup, why: str) -> None:
        """Start to delete a bound member."""
        self._spawn(self._delete(pod, group, why), f"release of {pod.key}")

    async def _delete(self, pod: PodInfo, group: PodGroup, why: str) -> None:
        try:
            await self._writer.delete_pod(pod)
        except ApiError as error:
            level = logging.DEBUG if error.status in {404, 409} else logging.WARNING
            extra = {"pod": pod.key, "podgroup": group.key.key, "error": str(error)}
            logger.log(level, "Member of a partly bound group could not be deleted", extra=extra)
        else:
            self._reporter.released(pod, group, why)


class GroupBinding:
    """The joint binding of the members of one attempt, and of later attempts that begin before its result.

    Args:
        group: the pod group, or the root of a tree.
        uids: uid of a member to bind -> its group.
        placed_before: group -> the number of members that earlier attempts placed on nodes or assumed.
        release: deletes members of a released group.
        why_few: the reason if there are too few members.
    """

    def __init__(
        self,
        group: PodGroup,
        uids: Mapping[str, GroupKey],
        placed_before: Mapping[GroupKey, int],
        release: GroupRelease,
        why_few: str = "plugins rejected too many members",
    ) -> None:
        self.group = group
        self._placed_before = sum(placed_before.values())
        self._coming: dict[str, GroupKey] = {}  # members that may still be bound
        # uid of a member past PreBind -> (its group, whether it still exists)
        self._ready: dict[str, tuple[GroupKey, Callable[[], bool]]] = {}
        # group -> the number of these members, and of those that were placed before
        self._coming_counts, self._ready_counts = Counter(placed_before), Counter(placed_before)
        self._leaves = {leaf.key: leaf for leaf in group.leaves}
        self._bound: list[PodInfo] = []
        self._released = ""  # the reason for the release of the group
        self._decided = asyncio.Event()
        self._in_turn = asyncio.Lock()
        self._status = SUCCESS
        self._release = release
        self._add(uids)
        if group.fewest(placed_before) <= 1:
            self._decided.set()
        elif not group.has_quorum(self._coming_counts):
            self._give_up(why_few)

    @property
    def n_bound(self) -> int:
        """The number of bound members, including members of earlier attempts."""
        return self._placed_before + len(self._bound)

    @property
    def is_given_up(self) -> bool:
        """Whether no member will be bound; they may still be assumed on their nodes."""
        return not self._status.is_success

    def joined_by(self, uids: Mapping[str, GroupKey]) -> bool:
        """Add members of a later attempt; return False if the result is already known."""
        if self._decided.is_set():
            return False
        self._add(uids)
        return True

    def _add(self, uids: Mapping[str, GroupKey]) -> None:
        self._coming_counts.update(key for uid, key in uids.items() if uid not in self._coming)
        self._coming |= uids

    async def wait_ready(self, pod: PodInfo, is_there: Callable[[], bool]) -> Status:
        """Wait until a member past PreBind may be bound; return a failure if too few other members are ready in time.

        Args:
            pod: the member.
            is_there: returns whether the member is still to be bound; others do not count.
        """
        key = pod.group
        assert key is not None
        self._ready_counts[key] += pod.uid not in self._ready
        self._ready[pod.uid] = key, is_there
        # Only a group that has enough members now can be the one that was missing.
        is_enough = self._leaves[key].fewest(self._ready_counts) == 0
        if not self._decided.is_set() and is_enough and self.group.has_quorum(self._ready_counts):
            self._go_on_with_those_left()
        try:
            async with asyncio.timeout(self.group.wait_seconds):
                await self._decided.wait()
        except TimeoutError:
            if not self._decided.is_set():
                message = f"pod group {self.group.key.name} is not bound, because too few members were ready in time"
                self._status = Status.failed(message)
                self._decided.set()
        async with self._in_turn:  # all wake up in one turn of the event loop, and continue in one turn each
            await asyncio.sleep(0)
        return self._status

    def bound(self, pod: PodInfo) -> None:
        """Record that a member is bound."""
        self._bound.append(pod)
        if self._released:
            self._release.give_back(pod, self.group, self._released)

    def lost(self, pod: PodInfo, why: str) -> bool:
        """Record that a member cannot be bound; return whether the group is partly bound now."""
        self._remove((pod.uid,))
        is_enough = self.group.has_quorum(self._coming_counts)
        if not self._decided.is_set():
            if not is_enough:
                self._give_up(f"pod {pod.name}: {why}")
            return False
        others = bool(self._placed_before or self._coming)
        is_partly_bound = others and self._status.is_success and not is_enough
        if is_partly_bound and self.group.releases and not self._released:
            self._released = f"its pod {pod.name} cannot be bound: {why}"
            for member in self._bound:
                self._release.give_back(member, self.group, self._released)
        return is_partly_bound

    def _go_on_with_those_left(self) -> None:
        gone = [uid for uid, (_, is_there) in self._ready.items() if not is_there()]
        for uid in gone:
            key, _ = self._ready.pop(uid)
            self._ready_counts[key] -= 1
        self._remove(gone)
        if not self.group.has_quorum(self._coming_counts):
            self._give_up("other members were deleted")
        elif self.group.has_quorum(self._ready_counts):
            self._decided.set()

    def _remove(self, uids: Iterable[str]) -> None:
        for uid in uids:
            key = self._coming.pop(uid, None)
            if key is not None:
                self._coming_counts[key] -= 1

    def _give_up(self, why: str) -> None:
        """Decide that no member is bound."""
        message = f"pod group {self.group.key.name} is not bound, because too few members can be bound: {why}"
        self._status = Status.failed(message)
        self._decided.set()
