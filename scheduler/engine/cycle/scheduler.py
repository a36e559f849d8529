"""The scheduling loop: pops the next pod, decides, assumes the pod, and starts a separate binding task.

Nothing is awaited between the snapshot and the assumed pod, so nothing changes in between and no lock is needed.
Extenders, long searches for victims and groups are exceptions: a freeze defers changes meanwhile. If a plugin needs
more time than one turn of the event loop, its work runs in slices between other pods, and the pod is tried again. A
long attempt at a group pauses between its passes: other pods get as much time as it used since its last pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from scheduler.engine.cycle.time_slices import PausableAttempt, TimeSlices
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.runtime.budget import LONG_SECONDS, AttemptUsage
from scheduler.loop_work import loop_work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from scheduler.engine.cycle.attempt import AssumedPod
    from scheduler.engine.cycle.binding import BindingCycle
    from scheduler.engine.cycle.group_cycle import PodGroupCycle
    from scheduler.engine.cycle.long_attempts import LongAttempt, LongAttempts
    from scheduler.engine.cycle.pod_cycle import PodCycle
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.ports import CacheGate
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SHORTEST_SECONDS = 1e-6
_SLICES_AT_FIRST = 20
"""Maximum number of slices of uncounted affinity terms that run before the first attempt."""
_HOLDS_KEPT = 100
_BEGUN_AT_ONCE = 16
"""Number of bindings of a group that begin in one turn of the event loop."""
_FINISH_SECONDS = 10.0
"""Maximum time that `run` waits for bindings at its end; the next leader starts the others again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """A group with a running attempt.

    Attributes:
        members: the popped members.
        attempt: the attempt at them.
        key: the key of the group, or of the root of its tree.
        usage: the CPU time that the attempt used.
    """

    members: Sequence[QueuedPodInfo]
    attempt: PausableAttempt[Sequence[AssumedPod]]
    key: GroupKey
    usage: AttemptUsage = field(default_factory=AttemptUsage)


class Scheduler:
    """Places pending pods, one pod or one group at a time, while it runs.

    Args:
        pods: decides about one pod.
        groups: decides about a group.
        binding: executes the decisions.
        long: attempts that need more time than one turn of the event loop.
        counted_late: receives a pod on a node when the counting of its many affinity terms begins.

    Attributes:
        at_work: receives the first pod of an attempt at its start, and None at its end.
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
        self._time, self._observer = shared.time, shared.observer
        self._counted_late = counted_late
        self._slices = TimeSlices(shared.freeze, shared.time)
        self._pods, self._groups = pods, groups
        self._binding, self._long = binding, long
        self.at_work: Callable[[PodInfo | None], None] = lambda _: None
        self._stopping = self._is_over = False
        self._now = shared.clock.monotonic
        # (time, seconds, pod) of each call that held the event loop beyond the budget
        self._held: deque[tuple[float, float, PodInfo]] = deque(maxlen=_HOLDS_KEPT)
        # Groups with a paused attempt: the first continues next; only the first may have assumed members.
        self._paused: deque[_Group] = deque()
        self._due = 0.0  # when other pods will have had as much time as the last part of an attempt
        # pod uid -> number of running attempts; briefly two, when a pod returns from one and the next begins
        self._in_hand = defaultdict[str, int](int)

    def has_in_hand(self, uid: str) -> bool:
        """Return whether an attempt at a pod is running, which will bind or requeue the pod.

        After the end of `run` this is true for every pod, because the next leader handles it.
        """
        return self._is_over or uid in self._in_hand or uid in self._long

    def note_holder(self, seconds: float) -> None:
        """Pass to `at_work` the pod that held the event loop longest, beyond its budget, in the last `seconds`.

        Call it after the end of `run` if the lease was not renewed for this time: the attempt is the cause.
        """
        since = self._now() - seconds
        held = [(length, pod) for at, length, pod in self._held if at >= since]
        if held:
            _, pod = max(held, key=lambda each: each[0])
            logger.error("The lease was lost while an attempt held the loop", extra={"pod": pod.key})
            self.at_work(pod)

    def _note_hold(self, pod: PodInfo, usage: AttemptUsage) -> None:
        self._held.append((self._now(), usage.longest, pod))
        usage.longest = 0.0

    def stop(self) -> None:
        """Begin no more attempts; `run` returns after the running bindings, or after 10 seconds."""
        self._stopping = True
        self._bus.wake()

    async def run(self, cache_gate: CacheGate | None = None) -> None:
        """Place pods until `stop`, then finish the running bindings; no attempt begins while the cache is stale."""
        bindings: set[asyncio.Task[None]] = set()
        try:
            await self._catch_up()
            while not self._stopping:
                if cache_gate is not None and cache_gate.is_stale:
                    await cache_gate.wait()
                    continue
                self._work_the_cache()
                self._work_the_queue()
                long = self._long.again() if self._long.ready else None
                queued = self._queue.pop() if long is None else long.queued
                if queued is not None:
                    await self._try(queued, long, bindings)
                    # Watch events, bindings and the lease run between two pods.
                    await asyncio.sleep(0)
                elif not (self._long.has_work or self._paused):
                    await self._wait_for_work()
                    continue
                if self._long.has_work and (queued is None or self._may_advance(long)):
                    await self._advance_long()
                if self._paused and (queued is None or self._time.is_over(self._due)):
                    await self._go_on(bindings)
                    await asyncio.sleep(0)
            await _finish(bindings)
        finally:
            self._is_over = True
            self._long.close()
            for group in self._paused:
                group.attempt.close()
            for binding in bindings:
                binding.cancel()
            if bindings:
                await asyncio.wait(bindings)

    def _may_advance(self, tried: LongAttempt | None) -> bool:
        """Return whether long attempts may run a slice while pods wait: if due, and not right after one was tried."""
        return tried is None and self._long.is_due

    async def _try(
        self, queued: QueuedPodInfo, long: LongAttempt | None, bindings: set[asyncio.Task[None]]
    ) -> None:
        """Make an attempt at a pod, or begin an attempt at its group."""
        if self._profiles.group_of(queued.pod) is not None:
            members = await self._popped_with(queued)
            key = queued.group
            if not members or key is None:  # the pod waits for others of its group
                return
            for member in members:
                self._in_hand[member.pod.uid] += 1
            group = _Group(members, PausableAttempt(self._groups.schedule(members), ()), key)
            if self._paused and self._paused[0].attempt.holds:
                # Two groups with some assumed members may both fail for lack of capacity.
                self._paused.append(group)
                return
            self._paused.appendleft(group)
            await self._go_on(bindings)
            return
        self._in_hand[queued.pod.uid] += 1
        if self._paused:
            self._groups.note_tried(queued.pod.uid)
        if long is None:
            usage, attempt = AttemptUsage(LONG_SECONDS), self._pods.schedule(queued)
        else:
            usage, attempt = long.usage, self._pods.schedule(queued, began=long.attempt.began)
        assumed = await self._attempt(attempt, [queued], usage)
        if long is not None:
            self._long.settle(long)
        await self._settle([queued], assumed, bindings)

    async def _go_on(self, bindings: set[asyncio.Task[None]]) -> None:
        """Continue the attempt at the first group until its end or its next pause, which is as long as this part took."""
        group, began = self._paused.popleft(), self._now()
        try:
            assumed = await self._attempt(group.attempt, group.members, group.usage)
        except BaseException:
            group.attempt.close()  # it may be paused, if this task was cancelled at the end of a freeze
            raise
        if group.attempt.is_over:
            await self._end(group, is_placed=bool(assumed))
            await self._settle(group.members, assumed, bindings)
            return
        if group.attempt.holds:
            self._paused.appendleft(group)
        else:
            self._paused.append(group)
        now = self._now()
        self._due = now + (now - began)

    async def _end(self, group: _Group, *, is_placed: bool) -> None:
        """End the attempt at a group in the queue."""
        try:
            await self._in_slices(self._queue.end_group(group.key, is_placed=is_placed))
        except Exception:
            # A bug of this scheduler: the consistency checker finds the members that are still in flight.
            logger.exception("The attempt at a group could not be ended", extra={"group": group.key.key})
        self._bus.wake()

    async def _in_slices(self, work: Generator[None, None, T]) -> T:
        """Do work of the queue in time slices, and end the freeze that it may have begun."""
        try:
            return await self._slices.done(work)
        finally:
            if self._freeze.is_on:
                await self._freeze.end()

    async def _settle(
        self,
        members: Sequence[QueuedPodInfo],
        assumed: Sequence[AssumedPod],
        bindings: set[asyncio.Task[None]],
    ) -> None:
        """Start the bindings of an attempt's assumed pods."""
        for number, each in enumerate(assumed):
            if number and number % _BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)  # the bindings begin in one turn of the event loop
            name = f"bind {each.pod.key}"
            work = self._time.task(self._binding.run(each), name)
            binding = asyncio.create_task(work, name=name)
            bindings.add(binding)
            binding.add_done_callback(partial(self._bound, bindings, each.pod.uid))
        for uid in {member.pod.uid for member in members} - {each.pod.uid for each in assumed}:
            self._put_down(uid)

    async def _advance_long(self) -> None:
        """Run a slice of work of long attempts, and yield to the event loop."""
        long = self._long.first()
        try:
            self.at_work(long.pod)
            self._long.advance()
        except Exception:
            # A bug of this scheduler affects this attempt only.
            logger.exception("Long attempt failed", extra={"pod": long.pod.key})
            self._long.forget(long)
            self._rescue(long.queued)
        finally:
            self.at_work(None)
            if long.usage.longest:
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
        """Count affinity terms that were left before the start, up to a limit."""
        slices = 0
        while self._cache.is_behind and slices < _SLICES_AT_FIRST:
            self._work_the_cache()
            slices += 1
            await asyncio.sleep(0)

    @loop_work("event", lambda: "affinity terms of pods on nodes")
    def _work_the_cache(self) -> None:
        """Count a slice of the remaining affinity terms in the cache."""
        try:
            for pod in self._cache.work():
                self._observer.counted_late()
                self._counted_late(pod)
        except Exception:
            # A bug of this scheduler; the consistency checker recounts.
            logger.exception("The affinity terms of pods on nodes could not be counted")

    @loop_work("queue", lambda: "work of the queue")
    def _work_the_queue(self) -> None:
        """Run a slice of the queue's work."""
        try:
            self._queue.work(self._time.monotonic())
        except Exception:
            # A bug of this scheduler: some pods miss one event; they are tried again after five minutes.
            logger.exception("The work of the queue failed")

    async def _popped_with(self, first: QueuedPodInfo) -> Sequence[QueuedPodInfo]:
        """Pop the other members of a popped pod's group; after a failure requeue them, except the first."""
        try:
            return await self._in_slices(self._queue.pop_group(first))
        except Exception:
            # A bug of this scheduler: the first is tried as the only pending member of its group.
            logger.exception("The group could not be popped from the queue", extra={"pod": first.pod.key})
            for each in list(self._queue.pods()):
                uid = each.pod.uid
                is_ours = uid != first.pod.uid and not self.has_in_hand(uid)
                if is_ours and self._queue.place_of(uid) is Place.IN_FLIGHT:
                    self._rescue(each)
            return [first]

    async def _wait_for_work(self) -> None:
        now = self._time.monotonic()
        deadline = self._queue.next_deadline(now)
        if self._cache.is_behind:
            deadline = now
        seconds = None if deadline is None else max(0.0, deadline - now)
        # The time may have a resolution of microseconds: a shorter wait would end too early, again and again.
        await self._bus.wait_woken(max(seconds, _SHORTEST_SECONDS) if seconds else seconds)

    @loop_work("attempt", lambda members: f"attempt at pod {members[0].pod.key}")
    async def _attempt(
        self,
        attempt: Awaitable[Sequence[AssumedPod]],
        members: Sequence[QueuedPodInfo],
        usage: AttemptUsage,
    ) -> Sequence[AssumedPod]:
        """Run an attempt, or a part of it, within its budget, and end the freeze that it may have begun.

        The changes that the freeze deferred do not count against the budget.
        """
        pod = members[0].pod
        try:
            try:
                self.at_work(pod)
                return await self._budget.run_in_slices(attempt, usage)
            finally:
                self.at_work(None)
                if usage.longest:
                    self._note_hold(pod, usage)
                if self._freeze.is_on:
                    await self._freeze.end()
        except Exception:
            # A bug of this scheduler affects this attempt only.
            logger.exception("Scheduling cycle failed", extra={"pod": pod.key})
            for member in members:
                self._rescue(member)
            return ()

    def _rescue(self, member: QueuedPodInfo) -> None:
        try:
            self._binding.rescue(member)
        except Exception:
            logger.exception("Pod could not be requeued", extra={"pod": member.pod.key})


async def _finish(bindings: set[asyncio.Task[None]]) -> None:
    if not bindings:
        return
    _, left = await asyncio.wait(bindings, timeout=_FINISH_SECONDS)
    for binding in left:
        logger.warning("Binding cycle is abandoned", extra={"task": binding.get_name()})
        binding.cancel()
