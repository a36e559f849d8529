"""Selects the placement of a group: the best one that holds the group, with as few tries as possible.

Source:
    kube-scheduler v1.36, schedule_one_podgroup.go, podGroupSchedulingPlacementAlgorithm, which tries all, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.cycle.group_pass import EVERYWHERE, Pass, PassOptions, SeenPlacement
from scheduler.engine.runtime.calls import PluginError
from scheduler.framework.pod_groups import UNSCHEDULABLE
from scheduler.framework.status import Status
from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from scheduler.engine.cycle.attempt import Attempt
    from scheduler.engine.cycle.group_pass import GroupPasses
    from scheduler.engine.state.cache import Cache
    from scheduler.framework.group_plugins import Placement, PodGroupPlugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Snapshot

_SEARCHED: Final = 4
"""Number of placements with the best scores in which other orders are tried, if no placement holds the group."""
NOWHERE: Final = "no feasible placements found"


@dataclass(slots=True)
class _Candidates:
    """The placements of a group, in the order of the tries.

    Attributes:
        worth_a_try: placements whose free capacity may hold enough members.
        others: placements with too little free capacity.
        totals: the scores of `worth_a_try` if they held all members; None if they cannot be predicted.
        seen: placement -> its results, in the same order.
    """

    worth_a_try: list[Placement]
    others: list[Placement]
    totals: list[int] | None = field(default=None)
    seen: dict[Placement, SeenPlacement] = field(default_factory=dict)

    def note(self, rooms: Mapping[int, int]) -> _Candidates:
        """Record the capacity of each placement, by its id, and its predicted score."""
        self.seen = {each: SeenPlacement(each, rooms[id(each)]) for each in (*self.worth_a_try, *self.others)}
        for each, total in zip(self.worth_a_try, self.totals or (), strict=False):
            self.seen[each].total = total
        return self


class GroupPlacements:
    """Tries groups in their placements, or on all nodes if they have no placements.

    Args:
        passes: tries the members in one placement.
        cache: the cluster.
        random: breaks ties.
    """

    def __init__(self, passes: GroupPasses, cache: Cache, random: Random) -> None:
        self._passes = passes
        self._cache = cache
        self._random = random

    async def run(
        self,
        group: PodGroup,
        plugin: PodGroupPlugin,
        attempts: Sequence[Attempt],
        options: PassOptions = EVERYWHERE,
    ) -> Pass:
        """Try a group as `GroupPasses.run`, in the best placement that holds it.

        If no placement holds it, return the pass over the most promising one, with the reason for the whole group.
        """
        members = [attempt.queued.pod for attempt in attempts]
        snapshot = self._cache.snapshot()
        framework = attempts[0].framework
        try:
            placements = framework.placing.generate(group, members, snapshot)
            if placements is None:
                return await self._passes.run(group, plugin, attempts, options)
            if not placements:
                who, refusal = frozenset(framework.placing.generators), Status.unschedulable(NOWHERE)
                return Pass(group, plugin, refusal=refusal, refused_elsewhere=who, placements=(), places=())
            candidates = self._candidates(group, attempts, placements, snapshot)
            tried = await self._first_or_best(group, plugin, attempts, candidates, options)
        except PluginError as error:
            return Pass(group, plugin, error=error.status)
        tried.placements = list(candidates.seen.values())
        return tried

    def _candidates(
        self,
        group: PodGroup,
        attempts: Sequence[Attempt],
        placements: Sequence[Placement],
        snapshot: Snapshot,
    ) -> _Candidates:
        """Sort placements by their capacity and their predicted scores."""
        members = [attempt.queued.pod for attempt in attempts]
        needed = max(1, group.min_count - len(self._cache.groups.placed(group.key)))
        slots = capacity_for(members, snapshot)
        rooms = {id(each): int(slots[each.rows].sum()) for each in placements}
        shuffled = list(placements)
        self._random.shuffle(shuffled)  # random order among equal placements
        worth = [each for each in shuffled if rooms[id(each)] >= min(needed, len(members))]
        others = [each for each in shuffled if rooms[id(each)] < min(needed, len(members))]
        others.sort(key=lambda each: -rooms[id(each)])
        totals = attempts[0].framework.placing.foresee(group, worth, members, snapshot) if worth else None
        if totals is None:
            worth.sort(key=lambda each: -min(rooms[id(each)], len(members)))
            return _Candidates(worth, others).note(rooms)
        by_total = sorted(
            range(len(worth)), key=lambda place: (-(rooms[id(worth[place])] >= len(members)), -totals[place])
        )
        best_first = [worth[at] for at in by_total]
        return _Candidates(best_first, others, [totals[at] for at in by_total]).note(rooms)

    async def _first_or_best(
        self,
        group: PodGroup,
        plugin: PodGroupPlugin,
        attempts: Sequence[Attempt],
        candidates: _Candidates,
        options: PassOptions,
    ) -> Pass:
        """Try placements until one holds all members, if no other can score higher; else select the best of all."""
        enough: list[tuple[Placement, Sequence[PodInfo]]] = []
        first: Pass | None = None
        framework = attempts[0].framework
        refused_by = {*framework.placing.generators}
        if candidates.others:  # the rule of `capacity_for` is that of these plugins
            refused_by |= framework.plugins.filters_with(lambda each: each.checks_free_capacity)
        may_pause = not options.is_trial  # a dry run leaves pods out, and other pods would get their capacity
        count = len(candidates.worth_a_try) + len(candidates.others)
        for placement in candidates.worth_a_try or candidates.others[:1]:
            if first is not None and may_pause:
                await self._passes.pause(True)
            # Only the first placement runs preemption, because the pods' messages come from it.
            within = replace(
                options, within=placement.rows, may_preempt=options.may_preempt and first is None
            )
            tried = await self._passes.run(group, plugin, attempts, within)
            candidates.seen[placement].fits = len(tried.kept)
            if not tried.error.is_success:
                return tried
            if tried.is_enough and not tried.needs_room:
                if candidates.totals is not None and len(tried.kept) == len(attempts):
                    return tried
                enough.append((placement, [member.decision.pod for member in tried.kept]))
            await self._passes.take_back(tried)
            refused_by |= tried.refused_by
            first = first or tried
        if enough:
            if may_pause:
                await self._passes.pause(True)
            return await self._best(group, plugin, attempts, enough, candidates.seen, options)
        assert first is not None
        first.refusal = Status.unschedulable(
            f"0/{count} placements are available, first placement status: {UNSCHEDULABLE}"
        )
        first.refused_elsewhere = frozenset(refused_by)
        first.places = [placement.rows for placement in candidates.worth_a_try[:_SEARCHED]]
        return first

    async def _best(
        self,
        group: PodGroup,
        plugin: PodGroupPlugin,
        attempts: Sequence[Attempt],
        enough: Sequence[tuple[Placement, Sequence[PodInfo]]],
        seen: Mapping[Placement, SeenPlacement],
        options: PassOptions,
    ) -> Pass:
        totals: Sequence[int] = [0]
        if len(enough) > 1:
            totals = attempts[0].framework.placing.totals(group, enough, self._cache.snapshot())
            for (each, _), total in zip(enough, totals, strict=True):
                seen[each].total = total
        best = max(totals)
        rows = self._random.choice(
            [each.rows for (each, _), total in zip(enough, totals, strict=True) if total == best]
        )
        tried = await self._passes.run(
            group, plugin, attempts, replace(options, within=rows, may_preempt=False)
        )
        tried.places = [rows]  # the random choice among equal nodes may differ, so that too few members fit
        return tried


def capacity_for(members: Sequence[PodInfo], snapshot: Snapshot) -> Int64s:
    """Return int64 (n_nodes,), the maximum number of the pods that fit on each node, with the smallest request of any."""
    slots = snapshot.allocatable[PODS] - snapshot.pod_count
    least = dict(members[0].resources.requests)
    for pod in members[1:]:
        for resource in list(least):
            least[resource] = min(least[resource], pod.resources.requests.get(resource, 0))
    for resource, amount in least.items():
        if amount > 0:
            allocatable = snapshot.allocatable[resource]
            held = (allocatable - snapshot.requested[resource]) // amount
            # A resource that the node lacks may be a device of a claim; the filters decide about it.
            slots = np.where(allocatable > 0, np.minimum(slots, held), slots)
    found: Int64s = np.maximum(slots, 0)
    return found
