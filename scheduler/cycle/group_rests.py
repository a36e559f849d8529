"""When an attempt at a group rests, so that other pods are placed, and whether it can go on afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from scheduler.cycle.turns import Turns, rest
from scheduler.errors import SchedulerError
from scheduler.queue.put_aside import is_another
from scheduler.runtime.budget import OverBudgetError
from scheduler.state.pod_states import PodState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from scheduler.cycle.attempt import Attempt
    from scheduler.cycle.event_bus import EventBus
    from scheduler.cycle.preemption import GroupPreemptions
    from scheduler.cycle.shared import Shared

BUDGET_SECONDS: Final = 30.0
"""When an attempt has used so much of the processor, no further member is tried, and the group is put aside."""
_UNIT_SECONDS: Final = 0.05
"""An attempt that was at work for so long rests after its next pass."""
_PASS_SECONDS: Final = 0.05
"""An attempt that was at work for so long rests within a pass, those members assumed that were placed."""


class ChangedError(SchedulerError):
    """While an attempt rested, something changed that it cannot go on with: it is to begin anew."""


@dataclass(slots=True)
class _UnderWay:
    """An attempt that may rest.

    Attributes:
        attempts: at the members.
        uids: of those, until it is known what becomes of them.
        began: when it began, or went on after its last rest; seconds of the monotonic clock.
        nodes: what differs once nodes have changed, as it was when it began.
        rests: how often it has rested.
        holds: the uids of the members, while it rests with some of them assumed.
        is_given_up: whether room of its members was given to another pod.
        seen: the uids of members that were assumed while it rested.
        has_released: whether some of those are not any more.
        tried: the uids of pods that were tried meanwhile, in this order.
    """

    attempts: Sequence[Attempt] = ()
    uids: Collection[str] = ()
    began: float = inf
    nodes: tuple[int, int] = (0, 0)
    rests: int = 0
    holds: Collection[str] = ()
    is_given_up: bool = False
    seen: set[str] = field(default_factory=set)
    has_released: bool = False
    tried: dict[str, None] = field(default_factory=dict)


class GroupRests:
    """Gives way within the attempts at groups, and lets them rest.

    In a turn of the event loop that an attempt gives to others the cluster stays as it is. While an attempt rests other
    attempts are made, also at other groups, and the cluster changes.

    Args:
        preemptions: what is held of them for an attempt is not held while it rests.

    Attributes:
        give_way: lets others have a turn, if it is time.
    """

    def __init__(self, shared: Shared, preemptions: GroupPreemptions) -> None:
        self._freeze, self._cache, self._queue = shared.freeze, shared.cache, shared.queue
        self._steps, self._profiles, self._preemptions = shared.steps, shared.profiles, preemptions
        self._now, self._budget = shared.clock.monotonic, shared.budget
        self._turns = Turns(shared.freeze, shared.clock, shared.steps)
        self._under_way = _UnderWay()
        self._holding: dict[int, _UnderWay] = {}
        self.give_way = self._turns.give_way

    def begin(self) -> None:
        """Begin an attempt; it does not rest yet."""
        self._turns.begin()
        self._under_way = _UnderWay()

    def may_rest(self, attempts: Sequence[Attempt]) -> None:
        """Let the attempt rest from now on; `attempts` are those at its members."""
        mine = self._under_way
        mine.attempts, mine.uids = attempts, frozenset(attempt.queued.pod.uid for attempt in attempts)
        mine.began, mine.is_given_up, mine.nodes = self._now(), False, self._nodes()

    def end(self) -> None:
        """Say that it is known what becomes of the members."""
        self._under_way.uids = ()

    @property
    def count(self) -> int:
        """How often the attempt has rested."""
        return self._under_way.rests

    @property
    def has_same_nodes(self) -> bool:
        """Whether no node has changed since the attempt began."""
        return self._under_way.nodes == self._nodes()

    def is_there(self, uid: str) -> bool:
        """Whether a member is still to be placed, or on its way."""
        return self._queue.newest(uid) is not None

    def check(self) -> None:
        """Look whether the next member may be tried.

        Raises:
            OverBudgetError: the attempt has used more than it may.
            ChangedError: another pod needs room of its members.
        """
        if self._under_way.is_given_up:
            raise ChangedError
        usage = self._budget.usage
        if usage is not None and self._steps.observed(usage.seconds > BUDGET_SECONDS):
            raise OverBudgetError(
                f"the attempt at the pod group used more than {BUDGET_SECONDS:g}s of the processor"
            )

    async def rest(self, is_bound_to_nodes: bool) -> None:
        """Let other pods be placed between two passes, if the attempt was at work for long; nothing of it may be assumed.

        Args:
            is_bound_to_nodes: whether it remembers nodes by their rows.

        Raises:
            ChangedError: the members or the nodes are others now.
        """
        if self._steps.observed(self._now() - self._under_way.began >= _UNIT_SECONDS):
            await self._rest(holds=False, is_bound_to_nodes=is_bound_to_nodes)

    async def rest_within(self, kept: Iterable[str], *, is_bound_to_nodes: bool) -> None:
        """Rest likewise within a pass.

        The members that the pass has placed stay assumed, as members that wait at Permit do, so that their room is not
        given to others. The binding cycle looks again at nodes that others changed.

        Args:
            kept: the uids of those members.
            is_bound_to_nodes: whether it remembers nodes by their rows.

        Raises:
            ChangedError: the members or the nodes are others now, or another pod needs room of its members.
        """
        mine = self._under_way
        if not self._steps.observed(self._now() - mine.began >= _PASS_SECONDS):
            return
        mine.holds = frozenset(kept)
        mine.seen.update(kept)
        self._holding[id(mine)] = mine
        try:
            await self._rest(holds=True, is_bound_to_nodes=is_bound_to_nodes)
        finally:
            del self._holding[id(mine)]
            mine.holds = ()
        if mine.is_given_up:
            raise ChangedError

    async def rest_at_the_end(self) -> None:
        """Rest likewise once it is known what becomes of the members; nothing of the attempt may be assumed."""
        if self._steps.observed(self._now() - self._under_way.began >= _UNIT_SECONDS):
            await self._go_to_rest(holds=False)

    def released(self, uid: str) -> None:
        """Note that a member is assumed no more."""
        mine = self._under_way
        mine.has_released = mine.has_released or uid in mine.seen

    def note_tried(self, uid: str) -> None:
        """Note that a pod is tried while an attempt rests with members assumed: it may miss their room."""
        for attempt in self._holding.values():
            attempt.tried[uid] = None

    async def activate_tried(self, bus: EventBus) -> None:
        """Have pods tried again that were tried while members were assumed that are not any more.

        Nobody else: of two groups that wait for the same room each would wake the other again and again.
        """
        mine = self._under_way
        if mine.has_released:
            for uid in mine.tried:
                await self.give_way()
                bus.activate((uid,))
        mine.has_released = False
        mine.tried.clear()

    def let_go(self, uid: str) -> bool:
        """Give up the attempt that has a pod assumed, for another pod that needs its room; False if there is none."""
        for attempt in (self._under_way, *self._holding.values()):
            if uid in attempt.uids and self._cache.state_of(uid) is PodState.ASSUMED:
                attempt.is_given_up = True
                return True
        return False

    async def _rest(self, *, holds: bool, is_bound_to_nodes: bool) -> None:
        mine = self._under_way
        nodes = self._nodes()
        await self._go_to_rest(holds=holds)
        if is_bound_to_nodes and nodes != self._nodes():
            raise ChangedError
        if not all(self._is_as_it_was(attempt, mine.holds) for attempt in mine.attempts):
            raise ChangedError

    async def _go_to_rest(self, *, holds: bool) -> None:
        mine = self._under_way
        _ = self._cache.snapshot().names  # once nodes have changed, those of this snapshot cannot be read
        with self._preemptions.not_held():
            await rest(holds=holds)
        self._freeze.begin()
        self._turns.begin()
        mine.began, mine.rests, self._under_way = self._now(), mine.rests + 1, mine

    def _nodes(self) -> tuple[int, int]:
        """Return what differs once nodes have changed: that the last row went is no change of a row."""
        return self._cache.table.n_nodes, self._cache.table.node_changes.end

    def _is_as_it_was(self, attempt: Attempt, kept: Collection[str]) -> bool:
        """Whether a member is still to be placed, and as it was when the attempt at it began."""
        pod = attempt.queued.pod
        newest = self._queue.newest(pod.uid)
        return (
            newest is not None
            and not newest.is_terminating
            and not is_another(pod, newest)
            and self._cache.state_of(pod.uid) is (PodState.ASSUMED if pod.uid in kept else PodState.OUTSIDE)
            and self._profiles.frameworks.get(pod.scheduler_name) is attempt.framework
        )
