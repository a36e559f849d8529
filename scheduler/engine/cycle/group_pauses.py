"""Pauses attempts at groups, so that other pods are placed, and checks whether an attempt can continue afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from scheduler.engine.cycle.time_slices import TimeSlices, pause_attempt
from scheduler.engine.queue.quarantine import is_changed_pod
from scheduler.engine.runtime.budget import OverBudgetError
from scheduler.engine.state.cache import PodState
from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from scheduler.engine.cycle.attempt import Attempt
    from scheduler.engine.cycle.event_bus import EventBus
    from scheduler.engine.cycle.preemption import GroupPreemptions
    from scheduler.engine.cycle.shared import Shared

BUDGET_SECONDS: Final = 30.0
"""CPU time of an attempt after which no further member is tried and the group is quarantined."""
_UNIT_SECONDS: Final = 0.05
"""An attempt that ran for this long pauses after its next pass."""
_PASS_SECONDS: Final = 0.05
"""An attempt that ran for this long pauses within a pass; placed members stay assumed."""


class ChangedError(SchedulerError):
    """A change during a pause makes the attempt invalid: it must start again."""


@dataclass(slots=True)
class _UnderWay:
    """An attempt that may pause.

    Attributes:
        attempts: the attempts at the members.
        uids: the uids of the members, until the decision.
        began: its start, or the end of its last pause; seconds of the monotonic clock.
        nodes: the result of `nodes` at its start.
        pauses: the number of pauses.
        changes: the number of pauses in which nodes or their pods changed.
        dry_run_seconds: the time after which a dry run pauses.
        holds: the uids of the assumed members during a pause.
        is_given_up: whether another pod needs the capacity of its members.
        seen: the uids of members that were assumed during pauses.
        has_released: whether any of these is not assumed any more.
        tried: the uids of pods that were tried meanwhile, in order.
    """

    attempts: Sequence[Attempt] = ()
    uids: Collection[str] = ()
    began: float = inf
    nodes: int = 0
    pauses: int = 0
    changes: int = 0
    dry_run_seconds: float = 0.0
    holds: Collection[str] = ()
    is_given_up: bool = False
    seen: set[str] = field(default_factory=set)
    has_released: bool = False
    tried: dict[str, None] = field(default_factory=dict)


class GroupPauses:
    """Yields to the event loop within attempts at groups, and pauses them.

    While an attempt yields to the event loop, the cluster is frozen. During a pause other attempts run, also at other
    groups, and the cluster changes.

    Args:
        preemptions: preemptions held for an attempt; during a pause they are not held.

    Attributes:
        yield_to_loop: yields to the event loop at the end of a time slice.
    """

    def __init__(self, shared: Shared, preemptions: GroupPreemptions) -> None:
        self._freeze, self._cache, self._queue = shared.freeze, shared.cache, shared.queue
        self._time, self._profiles, self._preemptions = shared.time, shared.profiles, preemptions
        self._now, self._budget = shared.time.stopwatch, shared.budget
        self._slices = TimeSlices(shared.freeze, shared.time)
        self._under_way = _UnderWay()
        self._holding: dict[int, _UnderWay] = {}
        self.yield_to_loop = self._slices.yield_to_loop

    def begin(self) -> None:
        """Begin an attempt, without pauses at first."""
        self._slices.begin()
        self._under_way = _UnderWay()

    def may_pause(self, attempts: Sequence[Attempt]) -> None:
        """Allow pauses from now on; `attempts` are the attempts at the members."""
        mine = self._under_way
        mine.attempts, mine.uids = attempts, frozenset(attempt.queued.pod.uid for attempt in attempts)
        mine.began, mine.is_given_up, mine.nodes = self._now(), False, self.nodes()

    def end(self) -> None:
        """Record that the members are decided."""
        self._under_way.uids = ()

    @property
    def count(self) -> int:
        """The number of pauses of the attempt."""
        return self._under_way.pauses

    @property
    def changes(self) -> int:
        """The number of pauses of the attempt in which nodes or their pods changed."""
        return self._under_way.changes

    @property
    def has_same_nodes(self) -> bool:
        """Whether no node has changed since the attempt began."""
        return self._under_way.nodes == self.nodes()

    def is_there(self, uid: str) -> bool:
        """Return whether a member is still to be placed or bound."""
        return self._queue.newest(uid) is not None

    def check(self) -> None:
        """Check whether the next member may be tried.

        Raises:
            OverBudgetError: the attempt exceeded its budget.
            ChangedError: another pod needs the capacity of its members.
        """
        if self._under_way.is_given_up:
            raise ChangedError
        usage = self._budget.usage
        if usage is not None and self._time.measured(usage.seconds > BUDGET_SECONDS):
            raise OverBudgetError(
                f"the attempt at the pod group used more than {BUDGET_SECONDS:g}s of the processor"
            )

    async def pause(self, is_bound_to_nodes: bool) -> None:
        """Pause between two passes if the attempt ran for long; no member may be assumed.

        Args:
            is_bound_to_nodes: whether the attempt identifies nodes by their rows.

        Raises:
            ChangedError: the members or the nodes changed.
        """
        if self._time.has_elapsed(self._under_way.began, _UNIT_SECONDS):
            await self._pause(holds=False, is_bound_to_nodes=is_bound_to_nodes)

    async def pause_within(self, kept: Iterable[str], *, is_bound_to_nodes: bool) -> None:
        """Pause within a pass if the attempt ran for long.

        Members that the pass placed stay assumed, as members that wait at Permit, so that no other pod gets their
        capacity. The binding cycle checks changed nodes again.

        Args:
            kept: the uids of the assumed members.
            is_bound_to_nodes: whether the attempt identifies nodes by their rows.

        Raises:
            ChangedError: the members or the nodes changed, or another pod needs the capacity of its members.
        """
        mine = self._under_way
        if not self._time.has_elapsed(mine.began, _PASS_SECONDS):
            return
        mine.holds = frozenset(kept)
        mine.seen.update(kept)
        self._holding[id(mine)] = mine
        try:
            await self._pause(holds=True, is_bound_to_nodes=is_bound_to_nodes)
        finally:
            del self._holding[id(mine)]
            mine.holds = ()
        if mine.is_given_up:
            raise ChangedError

    def is_due_in_dry_run(self) -> bool:
        """Return whether a dry run must pause now; see `pause_dry_run`."""
        mine = self._under_way
        return self._time.has_elapsed(mine.began, max(_PASS_SECONDS, mine.dry_run_seconds))

    async def pause_dry_run(
        self,
        restore: Callable[[], Awaitable[None]],
        repeat: Callable[[frozenset[str] | None], Awaitable[None]],
        *,
        is_bound_to_nodes: bool,
    ) -> None:
        """Pause within a dry run: other pods are tried on the cluster as it is.

        After a restoration that takes long, the dry run pauses later, so that it makes progress in half of its time.

        Args:
            restore: undoes the dry run in the cache.
            repeat: repeats the dry run up to this point. It is called with the names of the nodes that changed, or
                whose pods changed; None if all may have.
            is_bound_to_nodes: whether the attempt identifies nodes by their rows.

        Raises:
            ChangedError: the members or the nodes changed; `repeat` is not called.
        """
        mine, began = self._under_way, self._now()
        await restore()
        seconds, end = self._now() - began, self._cache.table.changes.end
        await self._pause(holds=False, is_bound_to_nodes=is_bound_to_nodes)
        await repeat(self._changed_since(end))
        seconds += self._now() - mine.began
        mine.began, mine.dry_run_seconds = self._now(), max(_PASS_SECONDS - seconds, seconds)

    def _changed_since(self, end: int) -> frozenset[str] | None:
        """Return the names of the nodes with changes after this position of the change log; None if it is too old."""
        table = self._cache.table
        rows = table.changes.since(end)
        return (
            None if rows is None else frozenset(table.nodes[row].name for row in rows if row < table.n_nodes)
        )

    async def rest_at_the_end(self) -> None:
        """Pause after the members are decided, if the attempt ran for long; no member may be assumed."""
        if self._time.has_elapsed(self._under_way.began, _UNIT_SECONDS):
            await self._go_to_rest(holds=False)

    def released(self, uid: str) -> None:
        """Record that a member is not assumed any more."""
        mine = self._under_way
        mine.has_released = mine.has_released or uid in mine.seen

    def note_tried(self, uid: str) -> None:
        """Record that a pod is tried during a pause with assumed members: it may lack their capacity."""
        for attempt in self._holding.values():
            attempt.tried[uid] = None

    async def activate_tried(self, bus: EventBus) -> None:
        """Requeue pods that were tried while released members were assumed.

        Other pods are not requeued, because two groups that need the same capacity would requeue each other without end.
        """
        mine = self._under_way
        if mine.has_released:
            for uid in mine.tried:
                await self.yield_to_loop()
                bus.activate((uid,))
        mine.has_released = False
        mine.tried.clear()

    def let_go(self, uid: str) -> bool:
        """Abort the attempt that assumed a pod, because another pod needs its capacity; False if there is none."""
        for attempt in (self._under_way, *self._holding.values()):
            if uid in attempt.uids and self._cache.state_of(uid) is PodState.ASSUMED:
                attempt.is_given_up = True
                return True
        return False

    async def _pause(self, *, holds: bool, is_bound_to_nodes: bool) -> None:
        mine = self._under_way
        nodes = self.nodes()
        await self._go_to_rest(holds=holds)
        if is_bound_to_nodes and nodes != self.nodes():
            raise ChangedError
        if not all(self._is_as_it_was(attempt, mine.holds) for attempt in mine.attempts):
            raise ChangedError

    async def _go_to_rest(self, *, holds: bool) -> None:
        mine, changes = self._under_way, (self._cache.table.changes.end, self.nodes())
        # Read now, because this snapshot's nodes become invalid with a change of nodes.
        _ = self._cache.snapshot().names
        with self._preemptions.not_held():
            await pause_attempt(holds=holds)
        self._freeze.begin()
        self._slices.begin()
        mine.began, mine.pauses, self._under_way = self._now(), mine.pauses + 1, mine
        mine.changes += changes != (self._cache.table.changes.end, self.nodes())

    def nodes(self) -> int:
        """Return a value that changes with nodes."""
        return self._cache.table.node_changes.end

    def _is_as_it_was(self, attempt: Attempt, kept: Collection[str]) -> bool:
        """Return whether a member is still to be placed, and unchanged since the start of its attempt."""
        pod = attempt.queued.pod
        newest = self._queue.newest(pod.uid)
        return (
            newest is not None
            and not newest.is_terminating
            and not is_changed_pod(pod, newest)
            and self._cache.state_of(pod.uid) is (PodState.ASSUMED if pod.uid in kept else PodState.OUTSIDE)
            and self._profiles.frameworks.get(pod.scheduler_name) is attempt.framework
        )
