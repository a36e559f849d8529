"""The loop: takes the next pod, decides, assumes, and leaves the rest to a binding task of its own.

From the snapshot to the assumed pod nothing is awaited, so nothing can change in between and no lock is needed.
Extenders are the exception, room that is looked for for long, and groups: meanwhile a freeze keeps changes out. Where a
plugin needs more time than a turn, its work is done in slices between other pods, and the pod is tried again. An attempt
at a group that takes long rests between two of its passes: other pods get as much time as it took since it rested last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from scheduler.cycle.turns import InUnits, Turns
from scheduler.queue.places import Place
from scheduler.runtime.budget import LONG_SECONDS, Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.cycle.attempt import AssumedPod
    from scheduler.cycle.binding import BindingCycle
    from scheduler.cycle.group_cycle import PodGroupCycle
    from scheduler.cycle.long_attempts import LongAttempt, LongAttempts
    from scheduler.cycle.pod_cycle import PodCycle
    from scheduler.cycle.shared import Shared
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

logger = logging.getLogger(__name__)

_SHORTEST_SECONDS = 1e-6
_SLICES_AT_FIRST = 20
"""So many slices of what is left to be counted of pods on nodes are done before the first attempt."""
_HOLDS_KEPT = 100
_BEGUN_AT_ONCE = 16
"""So many bindings of a group begin in one turn of the loop."""
_FINISH_SECONDS = 10.0
"""How long `run` waits for bindings when it is to stop; whoever schedules next begins the others anew."""


class Picture(Protocol):
    """What is known of the cluster, as a whole."""

    @property
    def is_behind(self) -> bool:
        """Whether to `wait` before anything is decided by it."""
        ...

    async def wait(self) -> None:
        """Wait for a moment."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """A group that is tried.

    Attributes:
        members: those that were popped.
        attempt: at them.
        key: names the group.
        usage: what the attempt has used.
        late: members that were popped while the attempt rested; they are tried once it has ended.
    """

    members: Sequence[QueuedPodInfo]
    attempt: InUnits[Sequence[AssumedPod]]
    key: GroupKey
    usage: Usage = field(default_factory=Usage)
    late: list[QueuedPodInfo] = field(default_factory=list)


class Scheduler:
    """Places pending pods, one after another or a group at a time, for as long as it runs.

    Args:
        pods: decides about one.
        groups: decides about a group.
        binding: carries the decisions out.
        long: attempts that need more time than a turn.
        counted_late: is told of a pod on a node whose affinity terms begin to be counted, since it has very many.

    Attributes:
        at_work: told of the pod that an attempt begins with, and of None when it has ended.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        pods: PodCycle,
        groups: PodGroupCycle,
        binding: BindingCycle,
        long: LongAttempts,
        counted_late: Callable[[PodInfo], None] = lambda _: None,
    ) -> None:
        self._profiles, self._queue, self._cache = shared.profiles, shared.queue, shared.cache
        self._bus, self._freeze, self._budget = shared.bus, shared.freeze, shared.budget
        self._steps, self._observer = shared.steps, shared.observer
        self._counted_late = counted_late
        self._turns = Turns(shared.freeze, shared.clock, shared.steps)
        self._pods, self._groups = pods, groups
        self._binding, self._long = binding, long
        self.at_work: Callable[[PodInfo | None], None] = lambda _: None
        self._stopping = self._is_over = False
        self._now = shared.clock.monotonic
        # when the loop was held beyond the budget, for how long, and at which pod
        self._held: deque[tuple[float, float, PodInfo]] = deque(maxlen=_HOLDS_KEPT)
        # Groups whose attempt rests: the first goes on next; it alone may hold room for its members.
        self._resting: deque[_Group] = deque()
        self._due = 0.0  # when others will have had as much time as the last unit of one took
        # pod uid -> attempts under way; for a moment two, when a pod comes back from one and the next begins
        self._in_hand = Counter[str]()

    def has_in_hand(self, uid: str) -> bool:
        """Say whether an attempt at a pod is under way: somebody is at work who will bring it back, or bind it.

        Once `run` is over, that is the next leader, of every pod.
        """
        return self._is_over or uid in self._in_hand or uid in self._long

    def note_holder(self, seconds: float) -> None:
        """Tell `at_work` again of the pod whose attempt held the loop longest, and beyond its budget, in the last seconds.

        To be called when the lease could not be renewed for so long, after `run` has ended: the attempt is why.
        """
        since = self._now() - seconds
        held = [(length, pod) for at, length, pod in self._held if at >= since]
        if held:
            _, pod = max(held, key=lambda each: each[0])
            logger.error("The lease was lost while an attempt held the loop", extra={"pod": pod.key})
            self.at_work(pod)

    def _note_hold(self, pod: PodInfo, usage: Usage) -> None:
        if usage.longest:
            self._held.append((self._now(), usage.longest, pod))
            usage.longest = 0.0

    def stop(self) -> None:
        """Begin no more attempts; `run` returns when the bindings under way have ended, or after 10 seconds."""
        self._steps.end()
        self._stopping = True
        self._bus.wake()

    async def run(self, picture: Picture | None = None) -> None:
        """Place pods until `stop`, then finish the bindings under way; none is begun with while the picture is behind."""
        bindings: set[asyncio.Task[None]] = set()
        try:
            await self._catch_up()
            while not self._stopping:
                if picture is not None and self._steps.observed(picture.is_behind):
                    await self._steps.outside("picture", picture.wait, type(None))
                    continue
                self._work_the_cache()
                self._work_the_queue()
                long = self._long.again() if self._long.ready else None
                queued = self._queue.pop() if long is None else long.queued
                if queued is not None:
                    await self._try(queued, long, bindings)
                    # Watch events, bindings and the lease get their turn between two pods.
                    await asyncio.sleep(0)
                elif not (self._long.has_work or self._resting):
                    await self._wait_for_work()
                    continue
                if self._long.has_work and (queued is None or self._may_advance(long)):
                    await self._advance_long()
                if self._resting and (queued is None or self._steps.observed(self._now() >= self._due)):
                    await self._go_on(bindings)
                    await asyncio.sleep(0)
            await _finish(bindings)
        finally:
            self._is_over = True
            self._long.close()
            for group in self._resting:
                group.attempt.close()
            for binding in bindings:
                binding.cancel()
            if bindings:
                await asyncio.wait(bindings)

    def _may_advance(self, tried: LongAttempt | None) -> bool:
        """Whether long attempts may have a slice while pods wait: in their turn, and not right after one of them was tried."""
        return tried is None and self._steps.observed(self._long.is_due)

    async def _try(
        self, queued: QueuedPodInfo, long: LongAttempt | None, bindings: set[asyncio.Task[None]]
    ) -> None:
        """Make an attempt at a pod, or begin one at its group."""
        key = self._profiles.group_of(queued.pod)
        if key is not None:
            members = await self._popped_with(queued)
            self._in_hand.update(member.pod.uid for member in members)
            rests = next((each for each in self._resting if each.key == key), None)
            if rests is not None:
                # Of two attempts at one group each would lack the other's members.
                rests.late.extend(members)
                return
            group = _Group(members, InUnits(self._groups.schedule(members), ()), key)
            if self._resting and self._resting[0].attempt.holds:
                # Of two that hold room for some of their members both may fail for want of it.
                self._resting.append(group)
                return
            self._resting.appendleft(group)
            await self._go_on(bindings)
            return
        self._in_hand[queued.pod.uid] += 1
        self._groups.note_tried(queued.pod.uid)
        if long is None:
            usage, attempt = Usage(LONG_SECONDS), self._pods.schedule(queued)
        else:
            usage, attempt = long.usage, self._pods.schedule(queued, began=long.attempt.began)
        try:
            assumed = await self._budget.in_stretches(self._attempt(attempt, [queued]), usage)
        finally:
            self._note_hold(queued.pod, usage)
        if long is not None:
            self._long.settle(long)
        await self._settle([queued], assumed, bindings)

    async def _go_on(self, bindings: set[asyncio.Task[None]]) -> None:
        """Go on with the first group until its attempt rests, which gives others as much time as it took, or has ended."""
        group, began = self._resting.popleft(), self._now()
        try:
            attempt = self._attempt(group.attempt, group.members)
            assumed = await self._budget.in_stretches(attempt, group.usage)
        except BaseException:
            group.attempt.close()  # it rests, if this was cancelled at the end of a freeze
            raise
        finally:
            self._note_hold(group.members[0].pod, group.usage)
        if group.attempt.is_over:
            await self._settle(group.members, assumed, bindings)
            self._try_late(group.late)
            return
        if group.attempt.holds:
            self._resting.appendleft(group)
        else:
            self._resting.append(group)
        now = self._now()
        self._due = now + (now - began)

    def _try_late(self, late: Sequence[QueuedPodInfo]) -> None:
        """Have members tried, with all others of their group that wait."""
        for member in late:
            uid = member.pod.uid
            if self._queue.place_of(uid) is Place.IN_FLIGHT:
                self._queue.add_unschedulable(member)
                self._bus.activate((uid,))
            self._put_down(uid)

    async def _settle(
        self,
        members: Sequence[QueuedPodInfo],
        assumed: Sequence[AssumedPod],
        bindings: set[asyncio.Task[None]],
    ) -> None:
        """Begin to carry out what an attempt came to."""
        for number, each in enumerate(assumed):
            if number and number % _BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)  # they begin in one turn of the loop
            name = f"bind {each.pod.key}"
            work = self._steps.task(self._binding.run(each), name)
            binding = asyncio.create_task(work, name=name)
            bindings.add(binding)
            binding.add_done_callback(partial(self._bound, bindings, each.pod.uid))
        for uid in {member.pod.uid for member in members} - {each.pod.uid for each in assumed}:
            self._put_down(uid)

    async def _advance_long(self) -> None:
        """Do a slice of the work of long attempts, after which the others have their turn."""
        long = self._long.first()
        try:
            self.at_work(long.pod)
            self._long.advance()
        except Exception:
            # A mistake of ours costs this attempt only.
            logger.exception("Long attempt broke", extra={"pod": long.pod.key})
            self._long.forget(long)
            self._rescue(long.queued)
        finally:
            self.at_work(None)
            self._note_hold(long.pod, long.usage)
        await asyncio.sleep(0)

    def _bound(self, bindings: set[asyncio.Task[None]], uid: str, binding: asyncio.Task[None]) -> None:
        bindings.discard(binding)
        self._put_down(uid)

    def _put_down(self, uid: str) -> None:
        self._in_hand[uid] -= 1
        if not self._in_hand[uid]:
            del self._in_hand[uid]

    async def _catch_up(self) -> None:
        """Let the cache count what was left before there was somebody to go on with it, or the first part of it."""
        slices = 0
        while self._cache.is_behind and slices < _SLICES_AT_FIRST:
            self._work_the_cache()
            slices += 1
            await asyncio.sleep(0)

    def _work_the_cache(self) -> None:
        """Let the cache count a slice of what is left."""
        try:
            for pod in self._cache.work():
                self._observer.counted_late()
                self._counted_late(pod)
        except Exception:
            # A mistake of ours: the comparison of what is known with what there is counts anew.
            logger.exception("The affinity terms of pods on nodes could not be counted")

    def _work_the_queue(self) -> None:
        """Let the queue do a slice of what it has to do."""
        try:
            self._queue.work(self._steps.clock.monotonic())
        except Exception:
            # A mistake of ours costs what one event meant for some pods; they are tried again in five minutes.
            logger.exception("The queue could not do its work")

    async def _popped_with(self, first: QueuedPodInfo) -> Sequence[QueuedPodInfo]:
        """Take out the group of a pod that was popped; if that breaks, all it took out come back but the first."""
        try:
            return await self._turns.done(self._queue.pop_group(first))
        except Exception:
            # A mistake of ours: the first is tried by itself, as one of a group of which no other waits.
            logger.exception("The group could not be taken out of the queue", extra={"pod": first.pod.key})
            for each in list(self._queue.pods()):
                uid = each.pod.uid
                is_ours = uid != first.pod.uid and not self.has_in_hand(uid)
                if is_ours and self._queue.place_of(uid) is Place.IN_FLIGHT:
                    self._rescue(each)
            return [first]
        finally:
            await self._end_freeze()

    async def _wait_for_work(self) -> None:
        now = self._steps.clock.monotonic()
        deadline = self._queue.next_deadline(now)
        if self._cache.is_behind:
            deadline = now
        seconds = None if deadline is None else max(0.0, deadline - now)
        # Steps may count time in microseconds: in less it would be too early still, and again.
        await self._bus.wait_woken(max(seconds, _SHORTEST_SECONDS) if seconds else seconds)

    async def _attempt(
        self, attempt: Awaitable[Sequence[AssumedPod]], members: Sequence[QueuedPodInfo]
    ) -> Sequence[AssumedPod]:
        """Make an attempt, or a unit of one, and end the freeze that it may have begun."""
        try:
            try:
                self.at_work(members[0].pod)
                return await attempt
            finally:
                self.at_work(None)
                await self._end_freeze()
        except Exception:
            # A mistake of ours costs this attempt only.
            logger.exception("Scheduling cycle broke", extra={"pod": members[0].pod.key})
            for member in members:
                self._rescue(member)
            return ()

    async def _end_freeze(self) -> None:
        if self._freeze.is_on:
            self._budget.end()  # what had to wait is not the attempt's, whatever that has spent
            await self._freeze.end()

    def _rescue(self, member: QueuedPodInfo) -> None:
        try:
            self._binding.rescue(member)
        except Exception:
            logger.exception("Pod could not be brought back", extra={"pod": member.pod.key})


async def _finish(bindings: set[asyncio.Task[None]]) -> None:
    if not bindings:
        return
    _, left = await asyncio.wait(bindings, timeout=_FINISH_SECONDS)
    for binding in left:
        logger.warning("Binding cycle is abandoned", extra={"task": binding.get_name()})
        binding.cancel()
