"""One pass over the members of a group: each is placed after the members before it, and all can be undone.

The pass over a composite group consists of the passes over its children.

Source:
    kube-scheduler v1.36, schedule_one_podgroup.go, podGroupSchedulingDefaultAlgorithm.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from scheduler.engine.cycle.binding import of_one_node
from scheduler.engine.cycle.scheduling import DecisionOptions
from scheduler.framework.pod_groups import UNSCHEDULABLE
from scheduler.framework.sliced_work import MAX_RESTARTS, TOO_MANY_RESTARTS, NeedsTime
from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from scheduler.engine.cycle.attempt import AssumedPod, Attempt, Decision
    from scheduler.engine.cycle.group_pauses import GroupPauses
    from scheduler.engine.cycle.pod_cycle import PodCycle
    from scheduler.engine.cycle.scheduling import ChooseNode
    from scheduler.engine.state.cache import Cache
    from scheduler.engine.state.nominator import Nominator
    from scheduler.framework.group_plugins import Placement, PodGroupPlugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.preemption import Protected
    from scheduler.framework.reasons import Cause, GroupCause
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

WAITING: Final = "pod group is waiting for preemption to complete"
_TRIES: Final = 2
"""Number of tries for each member on average, after which a dry run does not pause any more."""
_UNSCHEDULABLE: Final = Status.unschedulable(UNSCHEDULABLE)
_NO_ROOM: Final = Status.unschedulable()
"""The result of preemption for a group of which too few members fit, while its tree is placed."""
_ASKED_TO_WAIT: Final = "one or more plugins asked to wait and no plugin rejected pod"
_NOT_ASKED: Final[Mapping[str, float]] = MappingProxyType({})
"""The result of Permit that is asked only after the search."""


@dataclass(slots=True)
class Member:
    """The result of a pass for one member.

    Attributes:
        attempt: the attempt at the member.
        decision: the decision.
        snapshot: the snapshot of the decision.
        status: the reason if the member was not assumed; else a success.
        assumed: the assumed pod, if it was assumed; it stays set after the pass is undone.
        permitted: the result of the Permit plugins.
        expected: the node where it fits after the victims are gone.
    """

    attempt: Attempt
    decision: Decision
    snapshot: Snapshot
    status: Status = SUCCESS
    assumed: AssumedPod | None = None
    permitted: Status | Mapping[str, float] = SUCCESS
    expected: str = ""

    @property
    def needs_room(self) -> bool:
        """Whether pods must be evicted before the member fits."""
        return not self.decision.node_name

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why the member has no node; empty if it has one."""
        if self.assumed is not None and not self.needs_room:
            return ()
        return self.status.causes or self.decision.causes

    @property
    def refused_by(self) -> frozenset[str]:
        """The plugins that rejected the member; empty if it was assumed."""
        if self.assumed is not None:
            return frozenset()
        return frozenset({self.status.plugin} - {""}) or self.decision.diagnosis.unschedulable_plugins


@dataclass(slots=True)
class SeenPlacement:
    """The results for one placement of a group.

    Attributes:
        placement: the placement.
        room: upper bound of the members it can hold, calculated with the smallest request of all members.
        total: its score, or its score if it held all members; None if it is not known.
        fits: the number of members that found a node there; None if it was not tried.
    """

    placement: Placement
    room: int
    total: int | None = None
    fits: int | None = None


@dataclass(slots=True)
class Pass:
    """The result of a pass.

    Attributes:
        group: the pod group.
        plugin: the plugin of the group's kind.
        attempts: the attempts at all its members, in the order in which they are tried.
        members: the tried members, in order.
        parts: the passes over the children of a composite group, in order; without those that were not tried.
        error: the error that ended the pass; else a success.
        refusal: the reason if the group as a whole is not placed.
        is_refused: whether the group is not placed because a group above it is not.
        is_taken_back: whether the pass is undone.
        places: the sets of nodes in which the members may be placed together, most promising first; None for all nodes.
        placements: the results for all placements, most promising first; None if there is no choice.
        refused_elsewhere: the plugins that rejected members in other placements.
        searched: the number of decisions in the search for other orders.
        victims: the pods to evict so that the group fits.
        protected: the protection that ends first of those that kept pods from being victims; None if there is none.
        room: the result of preemption; None if preemption is not needed.
        expected: uid -> the node where a member fits after the victims are gone.
        causes: why members have no node, the cause of most members first; set after the pass, see `PodGroupCycle`.
        placed_before: the number of members that were on nodes before the pass.
        is_in_one_shard: whether only the nodes of one of several replicas were tried.
    """

    group: PodGroup
    plugin: PodGroupPlugin
    attempts: Sequence[Attempt] = ()
    members: list[Member] = field(default_factory=list)
    parts: list[Pass] = field(default_factory=list)
    error: Status = SUCCESS
    refusal: Status = _UNSCHEDULABLE
    is_refused: bool = False
    is_taken_back: bool = False
    places: Sequence[Rows | None] = (None,)
    placements: Sequence[SeenPlacement] | None = None
    refused_elsewhere: frozenset[str] = frozenset()
    searched: int = 0
    victims: Sequence[PodInfo] = ()
    protected: Protected | None = None
    room: Status | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    causes: Sequence[GroupCause] = ()
    placed_before: int = 0
    is_in_one_shard: bool = False

    @property
    def leaves(self) -> Iterator[Pass]:
        """The passes over the groups of pods; the pass itself if the group has pods."""
        if not self.group.is_composite:
            yield self
        for part in self.parts:
            yield from part.leaves

    @property
    def kept(self) -> list[Member]:
        """The assumed members, without those of children of which too few fit."""
        if self.group.is_composite:
            return [member for part in self.parts if part.has_enough for member in part.kept]
        return [member for member in self.members if member.assumed is not None]

    @property
    def assumed(self) -> list[AssumedPod]:
        """The assumed members."""
        return [member.assumed for member in self.kept if member.assumed is not None]

    @property
    def has_enough(self) -> bool:
        """Whether enough members of an entity fit, or are on nodes."""
        return self.error.is_success and not self.too_few()

    @property
    def is_enough(self) -> bool:
        """Whether enough members fit, so that no member waits for others of the group."""
        if not self.error.is_success or self.is_refused:
            return False
        if self.group.is_entity:
            return self.has_enough and bool(self.kept)
        return any(
            isinstance(member.permitted, Status) or self.plugin.name not in member.permitted
            for member in self.kept
        )

    @property
    def needs_room(self) -> bool:
        """Whether pods must be evicted before the group fits."""
        return any(member.needs_room for member in self.kept)

    @property
    def is_placed(self) -> bool:
        """Whether enough members are assumed on nodes where they can be bound at once."""
        return self.is_enough and not self.needs_room

    @property
    def refused_by(self) -> frozenset[str]:
        """The plugins that rejected members."""
        elsewhere = (part.refused_elsewhere for part in self.parts)
        return frozenset[str]().union(*(member.refused_by for member in self.members), *elsewhere)

    @property
    def failure(self) -> Status:
        """The status of the group after an error, of one of its members or of a plugin for placements."""
        if self.group.is_composite or self.is_refused or not self.members:
            return self.error
        return Status.failed(f"failed to schedule other pod from a pod group: {self.error.message}")

    def too_few(self) -> str:
        """Return why too few members of an entity fit; "" if enough do."""
        if self.group.is_composite:
            fitting, tried = sum(part.has_enough for part in self.parts), len(self.parts)
            return self.plugin.too_few(self.group, fitting, len(self.group.children) - tried)
        placed = self.placed_before + len(self.kept)
        return self.plugin.too_few(self.group, placed, len(self.attempts) - len(self.members))

    def end(self, room: Status | None, attempts_of: Callable[[PodGroup], Sequence[Attempt]]) -> None:
        """Record the result of preemption for all groups of the tree; a group is not placed if one above it is not.

        Args:
            room: the result of preemption; None if the group is placed.
            attempts_of: returns the attempts at the members of a group in the tree.

        Source:
            kube-scheduler v1.37, schedule_one_podgroup.go, completeCompositePodGroupAlgorithmResultMap.
        """
        self.room = room
        tried = {part.group.key for part in self.parts}
        for child in self.group.children:
            if child.key not in tried:
                self.parts.append(Pass(child, self.plugin, attempts_of(child), is_refused=True))
        # The root is not placed either if all its pods are already on nodes.
        has_failed = self.is_refused or not self.has_enough or room is not None
        for part in self.parts:
            if has_failed and (part.is_refused or part.has_enough):
                part.is_refused, part.refusal = True, self.refusal
            if not self.error.is_success and part.error.is_success:
                part.is_refused, part.error = True, self.failure
            part.expected = self.expected
            part.end(room, attempts_of)

    def waits(self) -> str:
        """Return the reason why a member that fits is not placed."""
        if self.group.is_entity:
            return self.refusal.message if self.room is None else self.result(self.room)[0].message
        if self.is_enough:
            return f"{UNSCHEDULABLE}, {WAITING}"
        return f"{UNSCHEDULABLE}, {self.plugin.waiting}, {_ASKED_TO_WAIT}"

    def status_of(self, member: Member) -> Status:
        """Return the status of a member if the group is not placed."""
        if self.group.is_composite:
            key = member.attempt.queued.pod.group
            return next(leaf for leaf in self.leaves if leaf.group.key == key).status_of(member)
        if member.assumed is None or (self.is_enough and member.needs_room):
            return member.status
        return Status.unschedulable(self.waits())

    def statuses(self) -> list[Status]:
        """Return `status_of` each member, in order; for many members this is much faster than single calls."""
        if self.group.is_composite:
            return [status for part in self.parts for status in part.statuses()]
        is_enough, waits = self.is_enough, Status.unschedulable(self.waits())
        return [
            member.status if member.assumed is None or (is_enough and member.needs_room) else waits
            for member in self.members
        ]

    def rejectors(self, member: Member) -> frozenset[str]:
        """Return the plugins whose events may requeue a member."""
        status = self.status_of(member)
        if status is not member.status:
            return frozenset({self.plugin.name})
        return frozenset({status.plugin} - {""}) or frozenset(member.decision.diagnosis.unschedulable_plugins)

    def result(self, room: Status) -> tuple[Status, str]:
        """Return the status of the group after preemption with the result `room`, and the metric's result label."""
        if not self.error.is_success:
            return self.failure, "error"
        if self.group.is_entity and room.code is Code.ERROR:
            return room, "error"
        reasons = [self.refusal.message]
        if self.is_enough:
            reasons.append(WAITING)
        if room.message:
            reasons.append(room.message)
        return Status.unschedulable(*reasons), "waiting_on_preemption" if room.is_success else "unschedulable"

    def outcome(self) -> tuple[Status, str]:
        """Return the status of the group after `end`, which may differ from that of its tree, and the metric's label."""
        if self.room is None and not self.is_refused and (self.has_enough or not self.group.is_entity):
            return SUCCESS, "scheduled"
        return self.result(_NO_ROOM if self.room is None else self.room)


class AbsentPods(Protocol):
    """Pods that the cache does not count during a dry run."""

    async def count(self) -> None:
        """Count the pods that still exist."""
        ...

    async def leave_out(self) -> None:
        """Stop counting the pods that still exist."""
        ...


@dataclass(frozen=True, slots=True)
class PassOptions:
    """Options of a pass over the members of a group.

    Attributes:
        within: the rows of the allowed nodes; None means all nodes.
        choose: chooses one of the feasible nodes, instead of Score.
        may_preempt: whether PostFilter runs if no node is feasible.
        is_trial: whether this is a dry run without extenders and PostFilter, because the snapshot lacks some pods.
        remembers_rows: whether the caller identifies nodes by their rows.
        gives_up: whether the pass ends when too few members are left for the group.
        nodes: uid -> name of the only allowed node. Members without one are not tried, and the pass ends when a
            member does not fit. None means any node.
        absent: the pods that the snapshot lacks in a dry run; without them it does not pause.
        root: the root of the tree, for a pass over a part of it: members of other parts may be assumed.
    """

    within: Rows | None = None
    choose: ChooseNode | None = None
    may_preempt: bool = True
    is_trial: bool = False
    remembers_rows: bool = False
    gives_up: bool = False
    nodes: Mapping[str, str] | None = None
    absent: AbsentPods | None = None
    root: PodGroup | None = None


EVERYWHERE: Final = PassOptions()


class GroupPasses:
    """Runs passes.

    Args:
        pods: decides about each member.
        pauses: yields to the event loop, and pauses the attempt.

    Attributes:
        yield_to_loop: yields to the event loop at the end of a time slice.
        pause: see `GroupPauses.pause`.
    """

    def __init__(
        self,
        pods: PodCycle,
        cache: Cache,
        nominator: Nominator,
        pauses: GroupPauses,
    ) -> None:
        self._pods = pods
        self._cache, self._nominator = cache, nominator
        self._pauses = pauses
        self.yield_to_loop, self.pause = pauses.yield_to_loop, pauses.pause
        self._kept: dict[str, AssumedPod] = {}  # pod uid -> assumed pod of a pass, until it is undone

    @asynccontextmanager
    async def undone_if_broken(self) -> AsyncIterator[None]:
        """Undo all passes in the block if it raises."""
        self._kept.clear()
        try:
            yield
        except Exception:
            await self.take_all_back()
            raise
        finally:
            self._kept.clear()

    async def run(
        self,
        group: PodGroup,
        plugin: PodGroupPlugin,
        attempts: Sequence[Attempt],
        options: PassOptions = EVERYWHERE,
    ) -> Pass:
        """Try members in order; members that fit stay assumed and reserved until the pass is undone.

        Args:
            group: the pod group.
            plugin: the plugin of the group's kind.
            attempts: one attempt for each member.
            options: the options of the pass.

        Raises:
            OverBudgetError: no further member may be tried.
        """
        placed = len(self._cache.groups.placed(group.key))
        tried = Pass(group, plugin, attempts, placed_before=placed)
        needed = max(1, group.min_count - placed)
        is_bound = options.remembers_rows or options.within is not None
        nodes = options.nodes
        if nodes is not None:
            attempts = [each for each in attempts if each.queued.pod.uid in nodes]
        left, tries_left, n_kept = deque(attempts), _TRIES * len(attempts), 0

        async def yield_to_loop() -> None:
            nonlocal n_kept
            await self.yield_to_loop()
            self._pauses.check()
            if not options.is_trial:
                await self._pauses.pause_within(self._kept, is_bound_to_nodes=is_bound)
            elif options.absent is not None and tries_left > len(left) and self._pauses.is_due_in_dry_run():
                left.extendleft(reversed(await self._pause_dry_run(tried, options.absent, is_bound)))
                n_kept = len(tried.kept)

        while left:
            if options.gives_up and n_kept + len(left) < needed:
                break
            attempt, tries_left = left.popleft(), tries_left - 1
            await yield_to_loop()
            if not await self._try(tried, attempt, yield_to_loop, options):
                break
            is_kept = tried.members[-1].assumed is not None
            n_kept += is_kept
            if nodes is not None and not is_kept:
                break
        if group.is_entity and (too_few := tried.too_few()):
            tried.refusal = Status.unschedulable(*(() if tried.members else (UNSCHEDULABLE,)), too_few)
        return tried

    async def _pause_dry_run(self, tried: Pass, absent: AbsentPods, is_bound: bool) -> Sequence[Attempt]:
        """Pause within a dry run; return the attempts at members that must be tried again, because their nodes changed."""
        again: list[Attempt] = []

        async def restore() -> None:
            for assumed in reversed(tried.assumed):
                await self.yield_to_loop()
                self.take_back_one(assumed)
            await absent.count()

        async def repeat(changed: frozenset[str] | None) -> None:
            await absent.leave_out()
            members, tried.members = tried.members, []
            for member in members:
                if member.assumed is not None:
                    await self.yield_to_loop()
                    if not self._keeps_again(tried, member, changed):
                        again.append(member.attempt)
                        continue
                tried.members.append(member)

        await self._pauses.pause_dry_run(restore, repeat, is_bound_to_nodes=is_bound)
        return again

    def _keeps_again(self, tried: Pass, member: Member, changed: frozenset[str] | None) -> bool:
        """Assume a member on its node again after a pause; return false if it must be tried again."""
        node_name, pod = member.decision.node_name, member.decision.pod
        if changed is None or node_name in changed or self._cache.table.row_of(node_name) is None:
            return False
        if changed and (pod.claims or pod.pod.spec.resource_claims):
            return False  # another pod may have its volumes or devices
        try:
            self._keep(member, tried.group)
        except NeedsTime:
            return False
        return member.assumed is not None

    async def _try(
        self,
        tried: Pass,
        attempt: Attempt,
        yield_to_loop: Callable[[], Awaitable[None]],
        options: PassOptions,
    ) -> bool:
        """Decide about a member, with additional time for plugins; return whether to continue with the next member."""
        within = options.within
        if options.nodes is not None:
            row = self._cache.table.row_of(options.nodes[attempt.queued.pod.uid])
            within = np.array([] if row is None else [row], dtype=np.intp)
        how = DecisionOptions(
            tried.group,
            options.root or tried.group,
            within,
            options.choose,
            may_preempt=options.may_preempt and not options.is_trial,
            asks_extenders=not options.is_trial,
        )
        for _ in range(MAX_RESTARTS):
            try:
                decision, snapshot = await self._pods.decide(attempt, how)
                return self._take_in(tried, attempt, decision, snapshot)
            except NeedsTime as needs:
                await self._pods.give_time(needs, yield_to_loop)
        raise RuntimeError(TOO_MANY_RESTARTS)

    def _take_in(self, tried: Pass, attempt: Attempt, decision: Decision, snapshot: Snapshot) -> bool:
        """Record the decision about a member, and assume it if it fits; return whether to continue."""
        member = Member(attempt, decision, snapshot, decision.status)
        if decision.node_name or decision.nominated_node_name:
            self._keep(member, tried.group)
        tried.members.append(member)
        if decision.status.code is Code.ERROR:
            tried.error = decision.status
            return False
        return True

    def _keep(self, member: Member, group: PodGroup) -> None:
        """Assume a member, if Reserve and Permit accept it; for an entity Permit is asked after the search."""
        pod = member.decision.pod
        assumed = member.assumed = self._pods.assume(member.attempt, member.decision)
        self._kept[pod.uid] = assumed
        try:
            status = self._pods.reserve(assumed)
        except NeedsTime:
            self.take_back_one(assumed)
            raise
        if not status.is_success:
            member.permitted = status
        else:
            member.permitted = _NOT_ASKED if group.is_entity else self._pods.permit(assumed)
        if isinstance(member.permitted, Status) and not member.permitted.is_success:
            self.take_back_one(assumed)
            member.assumed = None
            status = member.permitted
            if status.is_rejected:
                status = of_one_node(status)
            member.status = status

    async def take_back(self, tried: Pass) -> None:
        """Undo a pass."""
        if tried.is_taken_back:
            return
        tried.is_taken_back = True
        for part in reversed(tried.parts):
            await self.take_back(part)
        for member in () if tried.parts else reversed(tried.members):
            if member.assumed is not None:
                await self.yield_to_loop()
                self.take_back_one(member.assumed)

    def leave(self, uid: str) -> None:
        """Leave it to the caller to undo the assumption of a member."""
        self._kept.pop(uid, None)

    async def take_all_back(self) -> None:
        """Undo all passes that are not undone yet."""
        for assumed in reversed(list(self._kept.values())):
            await self.yield_to_loop()
            self.take_back_one(assumed)

    def take_back_one(self, assumed: AssumedPod) -> None:
        """Undo the assumption of one member."""
        self._undo(assumed)
        self._kept.pop(assumed.pod.uid, None)

    def _undo(self, assumed: AssumedPod) -> None:
        assumed.attempt.framework.run_unreserve(
            assumed.state, assumed.pod, assumed.node_name, goes_on=True, of_quotas=bool(assumed.is_passed_on)
        )
        self._cache.forget(assumed.pod.uid)
        self._pauses.released(assumed.pod.uid)
        if assumed.nominated and self._pauses.is_there(assumed.pod.uid):
            self._nominator.add(assumed.attempt.queued.pod, assumed.nominated)
