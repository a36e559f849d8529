"""The members of a group on their way to their nodes: none is bound before enough of them can be, and what if one cannot.

PreBind of a member may fail after minutes; until so many are past it as the group takes at least, the others wait before
their Bindings. A Binding that fails leaves the group partly bound: it is tried again at once, or the group is given back.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from scheduler.errors import ApiError
from scheduler.framework.status import SUCCESS, Status
from scheduler.steps import UNHEARD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from typing import Any

    from scheduler.cycle.reporting import Reporter
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.steps import Steps

logger = logging.getLogger(__name__)


class PodDelete(Protocol):
    """Deletes pods."""

    async def delete_pod(self, pod: PodInfo) -> object:
        """Delete a pod gracefully, if it is still this pod; raises ApiError."""
        ...


class GroupRelease:
    """Gives groups back that could not be bound as wholes: deletes those members that were.

    Args:
        spawn: begins a task that ends with the daemon.
    """

    def __init__(
        self,
        writer: PodDelete,
        reporter: Reporter,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        steps: Steps = UNHEARD,
    ) -> None:
        self._steps = steps
        self._writer = writer
        self._reporter = reporter
        self._spawn = spawn

    def give_back(self, pod: PodInfo, group: PodGroup, why: str) -> None:
        """Begin to delete a member that is bound."""
        self._spawn(self._delete(pod, group, why), f"release of {pod.key}")

    async def _delete(self, pod: PodInfo, group: PodGroup, why: str) -> None:
        try:
            ask = partial(self._writer.delete_pod, pod)
            await self._steps.outside(f"delete {pod.key}", ask, object)
        except ApiError as error:
            level = logging.DEBUG if error.status in {404, 409} else logging.WARNING
            extra = {"pod": pod.key, "podgroup": group.key.key, "error": str(error)}
            logger.log(level, "Member of a group could not be given back", extra=extra)
        else:
            self._reporter.released(pod, group, why)


class GroupBinding:
    """What the bindings of one attempt at a group know of each other, and of later ones that begin before it is decided.

    Args:
        group: which.
        uids: of the members that are to be bound.
        placed_before: how many members are on nodes, or on their way there, since earlier attempts.
        release: gives members back.
        why_few: why there might be too few of them.
    """

    def __init__(
        self,
        group: PodGroup,
        uids: Collection[str],
        placed_before: int,
        release: GroupRelease,
        why_few: str = "a plugin let too few go on",
    ) -> None:
        self.group = group
        self._placed_before = placed_before
        self._coming = set(uids)  # those that may still be bound
        self._needed = group.min_count - placed_before  # so many are past PreBind before the first is bound
        self._ready: dict[
            str, Callable[[], bool]
        ] = {}  # uid of one past PreBind -> whether it is still there
        self._bound: list[PodInfo] = []
        self._released = ""  # why the group was given back
        self._decided = asyncio.Event()
        self._in_turn = asyncio.Lock()
        self._status = SUCCESS
        self._release = release
        if self._needed <= 1:
            self._decided.set()
        elif len(self._coming) < self._needed:
            self._give_up(why_few)

    @property
    def n_bound(self) -> int:
        """How many members are bound, as far as is known here."""
        return self._placed_before + len(self._bound)

    @property
    def is_given_up(self) -> bool:
        """Whether no member will be bound, though they may still be counted on their nodes."""
        return not self._status.is_success

    def joined_by(self, uids: Collection[str]) -> bool:
        """Count members of a later attempt in; False if it was decided without them."""
        if self._decided.is_set():
            return False
        self._coming.update(uids)
        return True

    async def wait_ready(self, pod: PodInfo, is_there: Callable[[], bool]) -> Status:
        """Wait until a member that is past PreBind may be bound; a failure if too few others will be, or not in time.

        Args:
            pod: the member.
            is_there: whether it is still to be bound; who is gone counts no more.
        """
        self._ready[pod.uid] = is_there
        if not self._decided.is_set() and len(self._ready) >= self._needed:
            self._go_on_with_those_left()
        try:
            async with asyncio.timeout(self.group.wait_seconds):
                await self._decided.wait()
        except TimeoutError:
            if not self._decided.is_set():
                told = f"pod group {self.group.key.name} is not bound, since too few of it could be in time"
                self._status = Status.failed(told)
                self._decided.set()
        async with self._in_turn:  # all are woken in one turn of the loop, and go on in one each
            await asyncio.sleep(0)
        return self._status

    def bound(self, pod: PodInfo) -> None:
        """Take note that a member is bound."""
        self._bound.append(pod)
        if self._released:
            self._release.give_back(pod, self.group, self._released)

    def lost(self, pod: PodInfo, why: str) -> bool:
        """Take note that a member is not bound after all; whether the group is partly bound now."""
        self._coming.discard(pod.uid)
        if not self._decided.is_set():
            if len(self._coming) < self._needed:
                self._give_up(f"pod {pod.name}: {why}")
            return False
        others = bool(self._placed_before or self._coming)
        is_partly_bound = others and self._status.is_success and len(self._coming) < self._needed
        if is_partly_bound and self.group.releases and not self._released:
            self._released = f"pod {pod.name} of it cannot be bound: {why}"
            for member in self._bound:
                self._release.give_back(member, self.group, self._released)
        return is_partly_bound

    def _go_on_with_those_left(self) -> None:
        gone = {uid for uid, is_there in self._ready.items() if not is_there()}
        for uid in gone:
            del self._ready[uid]
        self._coming -= gone
        if len(self._coming) < self._needed:
            self._give_up("others are gone")
        elif len(self._ready) >= self._needed:
            self._decided.set()

    def _give_up(self, why: str) -> None:
        """Have nobody bound."""
        told = f"pod group {self.group.key.name} is not bound, since too few of it can be: {why}"
        self._status = Status.failed(told)
        self._decided.set()
