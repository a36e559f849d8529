"""A group's scheduling cycle: its members are tried together, and are placed or requeued together.

Source:
    kube-scheduler v1.36, schedule_one_podgroup.go. Unlike there, no pod is evicted before the whole group fits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import numpy as np

from scheduler.engine.cycle.group_binding import GroupBinding
from scheduler.engine.cycle.group_pass import EVERYWHERE, GroupPasses, Pass, PassOptions
from scheduler.engine.cycle.group_pauses import ChangedError, GroupPauses
from scheduler.engine.cycle.group_preemption import GroupPreemption
from scheduler.engine.cycle.group_search import GroupPlacements, GroupSearch, Members
from scheduler.engine.runtime.budget import OverBudgetError
from scheduler.engine.sharding.shards import WAITS_FOR_NODES
from scheduler.engine.state.cache import PodState
from scheduler.errors import ObjectError
from scheduler.framework.pod_groups import SAME_SCHEDULER
from scheduler.framework.reasons import WAITING_FOR_GROUP, Cause, GroupCause, causes_by_number
from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from random import Random

    from scheduler.engine.cycle.attempt import AssumedPod, Attempt
    from scheduler.engine.cycle.binding import BindingCycle
    from scheduler.engine.cycle.failure import FailureHandler
    from scheduler.engine.cycle.group_binding import GroupRelease
    from scheduler.engine.cycle.group_explanation import GroupLog
    from scheduler.engine.cycle.group_pass import Member
    from scheduler.engine.cycle.pod_cycle import PodCycle
    from scheduler.engine.cycle.preemption import GroupPreemptions, Preemption
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.sharding.shards import Shards
    from scheduler.framework.group_plugins import PodGroupPlugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod_group import GroupKey

_MOST_RESTARTS: Final = 3
"""Maximum number of restarts of an attempt because its members or the nodes changed during a pause."""
_EXPLORED: Final = 32
"""Maximum number of placements that `explore` tries to count the members that fit, the most promising ones first."""


_ENTITY: Final = PassOptions(may_preempt=False, gives_up=True)
"""The first pass over an entity: only the whole group preempts."""


class PodGroupCycle:
    """Places pod groups, and trees of groups.

    Args:
        pods: decides about each member.
        binding: undoes assumptions that Permit rejects in the end.
        failures: requeues members.
        preemptions: carries out preemptions, after a dry run showed that they suffice.
        random: breaks ties between placements.
        release: deletes bound members if their group cannot be bound.
        attempts: stores the decisions.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        pods: PodCycle,
        binding: BindingCycle,
        failures: FailureHandler,
        preemptions: GroupPreemptions,
        random: Random,
        release: GroupRelease,
        attempts: GroupLog,
    ) -> None:
        self._shared = shared
        self._freeze, self._cache = shared.freeze, shared.cache
        self._clock, self._observer = shared.clock, shared.observer
        self._pods, self._binding, self._failures = pods, binding, failures
        self._preemptions, self._release, self._attempts = preemptions, release, attempts
        self._under_way: WeakValueDictionary[str, GroupBinding] = WeakValueDictionary()  # by member's uid
        self._pauses = GroupPauses(shared, preemptions)
        self._passes = GroupPasses(pods, shared.cache, shared.nominator, self._pauses)
        self._queue, self._bus = shared.queue, shared.bus
        self._other_orders = GroupSearch(self._passes, shared.cache)
        self._placements = GroupPlacements(
            self._passes, shared.cache, random, clock=shared.clock, observer=shared.observer
        )
        self._room = GroupPreemption(
            shared.cache,
            self._placements,
            self._passes,
            self._pauses,
            preemptions,
            clock=shared.clock,
            observer=shared.observer,
        )

    async def schedule(self, members: Sequence[QueuedPodInfo]) -> Sequence[AssumedPod]:
        """Run the scheduling cycle of a group, up to Permit; the caller ends the freeze, also at each pause.

        Args:
            members: the pods of the group to place, in the order of the attempts.

        Returns:
            The assumed pods for the binding cycle; all other members are requeued.
        """
        self._pauses.begin()
        # Another group may have been tried in the meantime.
        assumed = await self._scheduled(await self._newest(members))
        await self._pauses.activate_tried(self._bus)
        return assumed

    async def _scheduled(self, members: Sequence[QueuedPodInfo]) -> Sequence[AssumedPod]:
        for _ in range(_MOST_RESTARTS + 1):
            try:
                async with self._passes.undone_if_broken():
                    return await self._schedule(members)
            except ChangedError:
                await self._pauses.activate_tried(self._bus)
                members = await self._newest(members)
        attempts = await self._begin(members)
        message = "the nodes or the pods of the pod group changed again and again while it was tried"
        await self._fail_all(attempts, Status.failed(message))
        return ()

    def note_tried(self, uid: str) -> None:
        """Record that another pod is tried while a paused attempt has assumed pods."""
        self._pauses.note_tried(uid)

    def let_go(self, uid: str) -> bool:
        """Abort the attempt that assumed a pod, because another pod needs its capacity; False if there is none."""
        return self._pauses.let_go(uid)

    async def _newest(self, members: Sequence[QueuedPodInfo]) -> Sequence[QueuedPodInfo]:
        """Return the newest versions of the members that still exist; the attempts at other members end.

        A pod whose labels or annotations name another group now is tried again with that group.
        """
        found = []
        for queued in members:
            await self._pauses.yield_to_loop()
            newest = self._queue.newest(queued.pod.uid)
            if newest is None:
                self._queue.done(queued.pod.uid)
                continue
            if newest.group != queued.pod.group:
                self._queue.add_unschedulable(queued)
                self._bus.activate((queued.pod.uid,))
                continue
            queued.pod = newest
            found.append(queued)
        return found

    async def _begin(self, members: Sequence[QueuedPodInfo]) -> list[Attempt]:
        """Begin attempts at the members that are to be placed."""
        attempts = []
        for queued in members:
            await self._pauses.yield_to_loop()
            attempt = self._pods.begin(queued)
            if attempt is not None:
                attempts.append(attempt)
        return attempts

    async def _schedule(self, members: Sequence[QueuedPodInfo]) -> Sequence[AssumedPod]:
        began = self._clock.monotonic()
        attempts = await self._begin(members)
        if not attempts:
            return ()
        self._freeze.begin()
        profile = attempts[0].framework.profile
        found = await self._valid_group_of(attempts)
        if isinstance(found, Status):
            await self._fail_before(attempts, found, began)
            return ()
        group, plugin = found
        attempts = self._in_tree(group, attempts)
        self._pauses.may_pause(attempts)
        try:
            tried, room = await self._decide(group, plugin, attempts)
        except OverBudgetError as error:
            await self._passes.take_all_back()
            failed = Status.failed(str(error), error)
            await self._fail_all(attempts, failed)
            for each in group.leaves:
                plugin.attempted(each, failed)
            seconds = self._clock.monotonic() - began
            self._attempts.note(Pass(group, plugin, error=failed), failed, "error", seconds=seconds)
            self._observer.group_attempted(profile, "error", seconds)
            return ()
        self._pauses.end()
        shards = self._shared.profiles.shards
        if shards is not None and self._is_to_wait(shards, tried):
            await self._passes.take_back(tried)
            waits = Status.unschedulable(WAITS_FOR_NODES)
            await self._fail_all(attempts, waits)
            seconds = self._clock.monotonic() - began
            self._attempts.note(Pass(group, plugin), waits, "unschedulable", seconds=seconds)
            self._observer.group_attempted(profile, "unschedulable", seconds)
            return ()
        tried.end(room, Members(group, attempts).of)
        await self._count_causes(tried)
        await self._note_members(tried, room)
        self._observer.group_decided(self._clock.monotonic() - began)
        assumed: Sequence[AssumedPod] = ()
        if room is None:
            assumed, status, result = await self._placed(tried), SUCCESS, "scheduled"
        else:
            status, result = tried.result(room)
        # The log reads the attempt's snapshot, which becomes invalid at the next pause.
        self._attempts.note(tried, status, result, seconds=self._clock.monotonic() - began)
        if room is not None:
            await self._bring_all_back(tried, room)
        for leaf in tried.leaves:
            plugin.attempted(leaf.group, leaf.outcome()[0])
        self._observer.group_attempted(profile, result, self._clock.monotonic() - began)
        if shards is not None:
            shards.tried(group.key.key)
        return assumed

    async def _note_members(self, tried: Pass, room: Status | None) -> None:
        may_pause = _keeps_nothing(tried, room)
        for member in tried.members:
            await self._pauses.yield_to_loop()
            if may_pause:
                await self._pauses.rest_at_the_end()
            self._pods.note(member.attempt, member.decision, member.snapshot)

    def _is_to_wait(self, shards: Shards, tried: Pass) -> bool:
        """Return whether a gang waits for a replica with all nodes, because one replica is to bind all members that it needs."""
        if not (tried.is_placed and any(_needs_others(part) for part in tried.leaves)):
            return False
        return self._shared.time.measured(shards.is_to_wait(tried.group.key.key))

    async def explore(self, members: Sequence[QueuedPodInfo]) -> Pass | Status:
        """Evaluate a group now, without changes except those of `preemptions`.

        Placements that the decision does not need are tried as well.

        Returns:
            A pass over the members, whose `room` is the result for the whole group; or the error in its object.
        """
        self._pauses.begin()
        attempts = await self._begin(members)
        found = await self._valid_group_of(attempts)
        if isinstance(found, Status):
            return found
        try:
            tried, room = await self._decide(*found, attempts)
        except OverBudgetError as error:
            await self._passes.take_all_back()
            return Status.failed(str(error), error)
        tried.end(room, Members(tried.group, attempts).of)
        await self._count_causes(tried)
        await self._passes.take_back(tried)
        for seen in (tried.placements or ())[:_EXPLORED]:
            if seen.fits is None:
                trial = await self._placements.run_within(
                    *found, attempts, PassOptions(is_trial=True, within=seen.placement.rows)
                )
                seen.fits = len(trial.kept)
                await self._passes.take_back(trial)
        return tried

    async def _decide(
        self, group: PodGroup, plugin: PodGroupPlugin, attempts: Sequence[Attempt]
    ) -> tuple[Pass, Status | None]:
        """Decide about a group.

        Returns:
            A pass over its members, and the result of preemption. None means that preemption is not needed: the members
            are assumed on their nodes.
        """
        options = _ENTITY if group.is_entity else EVERYWHERE
        found = await self._in_one_shard(group, plugin, attempts, options)
        if found is not None:
            return found, None
        tried, held = await self._first(self._placements.run(group, plugin, attempts, options))
        pauses = self._pauses.count
        found = tried if tried.is_placed else await self._search(tried, attempts)
        if found is None and tried.is_enough and pauses != self._pauses.count:
            # Other pods were placed meanwhile.
            tried, held = await self._first(self._passes.run(group, plugin, attempts, options))
            found = tried if tried.is_placed else None
        if found is not None:
            return found, None
        kept = {member.decision.pod.uid for member in tried.kept} if tried.is_enough else set[str]()
        for preemption in held:
            if group.evicts_at_once or preemption[0].uid in kept:
                self._preemptions.start(*preemption)
        if not tried.error.is_success:
            return tried, tried.error
        if tried.is_enough:  # the whole group fits after these victims are gone
            tried.victims = [pod for _, _, victims, *_ in held for pod in victims]
            return tried, SUCCESS
        if not group.preempts_as_one:
            return tried, Status.unschedulable()
        return tried, await self._room.make(tried, attempts)

    async def _in_one_shard(
        self, group: PodGroup, plugin: PodGroupPlugin, attempts: Sequence[Attempt], options: PassOptions
    ) -> Pass | None:
        """Return a pass that places the group on the nodes of its replica; None without one, or if one replica has all nodes.

        A group without one is tried on all nodes. Then other replicas bind its members on their nodes.
        """
        shards = self._shared.profiles.shards
        if shards is None:
            return None
        preferred = shards.preferred(attempts[0].queued.pod, self._cache.snapshot())
        within = replace(options, within=np.flatnonzero(preferred), may_preempt=False)
        tried, _ = await self._first(self._placements.run(group, plugin, attempts, within))
        tried.is_in_one_shard = True
        return tried if tried.is_placed else None

    async def _first(self, run: Awaitable[Pass]) -> tuple[Pass, Sequence[Preemption]]:
        """Return a pass, undone unless it places the group, and the preemptions that plugins requested."""
        with self._preemptions.held() as held:
            tried = await run
        if not tried.is_placed:
            await self._passes.take_back(tried)
        return tried, held

    async def _search(self, tried: Pass, attempts: Sequence[Attempt]) -> Pass | None:
        """Search for a pass in another order that places enough members; return None without one or after an error.

        The members of a tree are tried in one order.
        """
        if not tried.error.is_success or tried.group.is_composite:
            return None
        found, decisions = None, 0
        for rows in tried.places:
            await self._pauses.pause(rows is not None)
            found, spent = await self._other_orders.run(tried, attempts, PassOptions(within=rows))
            decisions += spent
            if found is not None:
                break
        if decisions:
            self._observer.group_searched("found" if found else "not_found", decisions)
        tried.searched = decisions
        if found is not None:
            found.searched, found.placements = decisions, tried.placements
        return found

    async def _placed(self, tried: Pass) -> Sequence[AssumedPod]:
        """Return the members to bind; members without a node are requeued separately."""
        assumed = []
        wakers = await self._wakers(tried)
        placed = []
        for leaf in tried.leaves:
            if leaf.outcome()[0].is_success:
                placed += leaf.members
            elif tried.is_in_one_shard:
                await self._try_again(leaf.attempts)
            else:
                await self._bring_back(leaf, wakers, may_pause=False)
        if tried.is_in_one_shard:
            await self._try_again([member.attempt for member in placed if member.assumed is None])
            placed = [member for member in placed if member.assumed is not None]
        for member in placed:
            await self._pauses.yield_to_loop()
            if member.assumed is None:
                self._fail(member, member.status, wakers, tried.causes)
                continue
            if not isinstance(member.permitted, Status):  # it may have waited for members after it
                member.permitted = self._pods.permit(member.assumed)
            if isinstance(member.permitted, Status) and not member.permitted.is_success:
                self._passes.leave(member.assumed.pod.uid)
                self._binding.undo(member.assumed, member.permitted)
                continue
            self._pods.hold(member.assumed, member.permitted)
            assumed.append(member.assumed)
        binding = self._binding_of(tried.group, assumed)
        return [replace(each, group=binding) for each in assumed]

    async def _try_again(self, attempts: Sequence[Attempt]) -> None:
        """Requeue members that are to be tried at once on the nodes of all replicas, without a report."""
        for attempt in attempts:
            await self._pauses.yield_to_loop()
            self._queue.add_unschedulable(attempt.queued)
        self._bus.activate([attempt.queued.pod.uid for attempt in attempts])

    def _binding_of(self, group: PodGroup, assumed: Sequence[AssumedPod]) -> GroupBinding:
        """Return the joint binding of members; they join the binding of earlier attempts that still wait."""
        uids = {each.pod.uid: each.pod.group for each in assumed if each.pod.group is not None}
        placed: Counter[GroupKey] = Counter()
        before: list[GroupBinding] = []
        for leaf in group.leaves:
            others = [pod.uid for pod in self._cache.groups.placed(leaf.key) if pod.uid not in uids]
            # A member that another scheduler has bound stays on its node, also if its own binding was given up.
            waiting = [uid for uid in others if self._cache.state_of(uid) is PodState.ASSUMED]
            found = [each for each in map(self._under_way.get, waiting) if each is not None]
            placed[leaf.key] = len(others) - sum(each.is_given_up for each in found)
            before += found
        binding = next((each for each in before if each.joined_by(uids)), None)
        if binding is None:
            is_going_back = any(each.is_given_up for each in before)
            why_few = ("other members are being requeued",) if is_going_back else ()
            binding = GroupBinding(group, uids, placed, self._release, *why_few)
        self._under_way.update(dict.fromkeys(uids, binding))
        return binding

    def _in_tree(self, root: PodGroup, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts at pods of a tree; the pods of groups that left it are tried again."""
        found = []
        for attempt in attempts:
            if attempt.queued.pod.group in root.leaf_keys:
                found.append(attempt)
            else:
                self._queue.add_unschedulable(attempt.queued)
                self._bus.activate((attempt.queued.pod.uid,))
        return found

    async def _fail_before(self, attempts: Sequence[Attempt], status: Status, began: float) -> None:
        """Requeue all members because of an error that was found before any of them was tried."""
        if _has_lost_its_object(attempts[0]):
            for attempt in attempts:  # they wait for it without a message, as before their first attempt
                await self._pauses.yield_to_loop()
                self._queue.add_unschedulable(attempt.queued)
            return
        await self._fail_all(attempts, status)
        groups = attempts[0].framework.groups
        for key in dict.fromkeys(attempt.queued.pod.group for attempt in attempts):
            if key is not None and key.kind in groups:
                groups[key.kind].failed_before(key, status)
        profile = attempts[0].framework.profile
        self._observer.group_attempted(profile, "error", self._clock.monotonic() - began)

    async def _fail_all(self, attempts: Sequence[Attempt], status: Status) -> None:
        """Requeue all members with the same status."""
        for attempt in attempts:
            await self._pauses.yield_to_loop()
            await self._pauses.rest_at_the_end()
            self._failures.handle(attempt, status)

    async def _bring_all_back(self, tried: Pass, room: Status) -> None:
        """Requeue the members of all groups of a tree; `room` is the result of preemption."""
        wakers, may_pause = await self._wakers(tried), _keeps_nothing(tried, room)
        for leaf in tried.leaves:
            await self._bring_back(leaf, wakers, may_pause=may_pause)

    async def _bring_back(self, tried: Pass, wakers: frozenset[str], *, may_pause: bool) -> None:
        """Requeue all members of a group, each with its own reason.

        Args:
            tried: the pass with the result of each member.
            wakers: the plugins whose events may help the group.
            may_pause: whether no capacity is kept for its tree.
        """
        waits = (Cause(WAITING_FOR_GROUP, tried.plugin.name),)
        failed, _ = tried.outcome()
        if failed.code is Code.ERROR:
            for attempt, member in zip_longest(tried.attempts, tried.members):
                await self._pauses.yield_to_loop()
                await self._pauses.rest_at_the_end()
                is_own = member is not None and not (member.status.is_success or member.status.is_rejected)
                status = member.status if is_own else failed
                self._failures.handle(attempt, status)
            return
        for attempt in tried.attempts[len(tried.members) :]:
            await self._pauses.yield_to_loop()
            self._failures.handle(
                attempt,
                tried.refusal,
                nominated_node_name=tried.expected.get(attempt.queued.pod.uid, ""),
                unschedulable_plugins=wakers,
                causes=tried.refusal.causes or waits,
                group_causes=tried.causes,
            )
        is_enough = tried.is_enough
        for member, status in zip(tried.members, tried.statuses(), strict=True):
            await self._pauses.yield_to_loop()
            if may_pause:
                await self._pauses.rest_at_the_end()
            if status is member.status:
                self._fail(member, status, wakers, tried.causes)
                continue
            assert member.assumed is not None
            self._failures.handle(  # it waits for the other members of its group
                member.attempt,
                status,
                nominated_node_name=member.assumed.node_name if is_enough else member.expected,
                unschedulable_plugins=wakers,
                causes=waits,
                group_causes=tried.causes,
            )

    async def _wakers(self, tried: Pass) -> frozenset[str]:
        """Return the plugins whose events may help a group, through any of its members.

        Resources that one member needs may become free on the node of another member, or in another placement.
        """
        found = {*tried.refused_elsewhere, tried.plugin.name}
        for part in tried.parts:
            found |= await self._wakers(part)
        for member in () if tried.parts else tried.members:
            await self._pauses.yield_to_loop()
            found |= member.refused_by
        return frozenset(found)

    def _fail(
        self,
        member: Member,
        status: Status,
        wakers: frozenset[str],
        group_causes: Sequence[GroupCause] = (),
    ) -> None:
        """Requeue a member without a node."""
        diagnosis = member.decision.diagnosis
        plugins = frozenset({status.plugin} - {""}) or diagnosis.unschedulable_plugins
        self._failures.handle(
            member.attempt,
            status,
            nominated_node_name=member.expected or member.decision.nominated_node_name,
            unschedulable_plugins=plugins | wakers if plugins else plugins,
            pending_plugins=diagnosis.pending_plugins,
            causes=member.causes,
            group_causes=group_causes,
        )

    async def _count_causes(self, tried: Pass) -> None:
        """Set the causes of a pass that was ended, and of the passes over the groups below it."""
        for part in tried.parts:
            await self._count_causes(part)
        members: Counter[tuple[str, str]] = Counter()
        for member in tried.members:
            if member.assumed is None or not member.decision.node_name:
                await self._pauses.yield_to_loop()
                members.update({(cause.code, cause.plugin) for cause in member.causes})
        if not tried.members:  # none was tried
            members.update(
                {(cause.code, cause.plugin): len(tried.attempts) for cause in tried.refusal.causes}
            )
        found = [GroupCause(*cause) for cause in causes_by_number(members)]
        lacking = () if tried.room is None else tried.room.causes  # concerns all members
        tried.causes = [*found, *(GroupCause(*cause[:2], len(tried.attempts)) for cause in lacking)]

    async def _valid_group_of(self, attempts: Sequence[Attempt]) -> tuple[PodGroup, PodGroupPlugin] | Status:
        """Return the same as `_group_of`, or an error if a pod may not belong to its group."""
        found = self._group_of(attempts)
        if isinstance(found, Status) or not found[0].is_entity:
            return found
        group, plugin = found
        pending = [attempt.queued.pod for attempt in attempts]
        placed = (pod for leaf in group.leaves for pod in self._cache.groups.placed(leaf.key))
        for pod in (*pending, *placed):
            await self._pauses.yield_to_loop()
            fault = plugin.fault(group, pod, pending[0])
            if fault:
                return Status.failed(fault)
        return found

    def _group_of(self, attempts: Sequence[Attempt]) -> tuple[PodGroup, PodGroupPlugin] | Status:
        """Return the group of attempts, the root of its tree, and the plugin that reads its object; or an error."""
        key = attempts[0].queued.pod.group
        assert key is not None
        plugin = attempts[0].framework.groups[key.kind]
        names = list(dict.fromkeys(attempt.queued.pod.scheduler_name for attempt in attempts))
        if len(names) > 1 and not plugin.are_entities:  # entities are checked pod by pod
            return Status.failed(SAME_SCHEDULER.format(names[1], names[0]))
        try:
            root = plugin.root_key(key)
            group = plugin.tree(root)
        except ObjectError as error:
            return Status.failed(f"failed to get podGroup {key.key}: {error}", error)
        if group is None:
            return Status.failed(root.not_found)
        return group, plugin


def _has_lost_its_object(attempt: Attempt) -> bool:
    """Return whether the object of an entity was deleted after it was queued.

    Source:
        kube-scheduler v1.37, backend/queue/scheduling_queue.go, DeletePodGroup, which moves the pods to
        incompletePodGroupPods at once.
    """
    key = attempt.queued.pod.group
    plugin = None if key is None else attempt.framework.groups[key.kind]
    if key is None or plugin is None or not plugin.are_entities:
        return False
    try:
        return plugin.tree(plugin.root_key(key)) is None
    except ObjectError:
        return False


def _needs_others(tried: Pass) -> bool:
    """Return whether a group needs several more members, some of which other replicas would bind."""
    needed = tried.group.min_count - tried.placed_before
    return needed > 1 and needed > sum(not assumed.is_passed_on for assumed in tried.assumed)


def _keeps_nothing(tried: Pass, room: Status | None) -> bool:
    """Return whether no capacity is kept for a group: other pods may be tried before its members are requeued."""
    return not (room is None or room.is_success or tried.is_enough)
