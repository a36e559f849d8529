"""Which of the places where a group may go together it goes to: the best that holds it, and no more are tried than it takes.

Source:
    kube-scheduler v1.36, schedule_one_podgroup.go, podGroupSchedulingPlacementAlgorithm. There all are tried, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.cycle.group_pass import EVERYWHERE, Pass, PassOptions, SeenPlacement
from scheduler.framework.pod_groups import UNSCHEDULABLE
from scheduler.framework.status import Status
from scheduler.objects.resource_names import PODS
from scheduler.runtime.calls import PluginError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from scheduler.cycle.attempt import Attempt
    from scheduler.cycle.group_pass import GroupPasses
    from scheduler.framework.group_plugins import PodGroupPlugin
    from scheduler.framework.placements import Placement
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Snapshot
    from scheduler.state.cache import Cache

_JUDGES_ROOM: Final = "NodeResourcesFit"
"""Who would refuse members in the placements that are not tried: `room_for` is what it goes by."""
_SEARCHED: Final = 4
"""In so many placements, those that score best, other orders are tried where none holds the group at once."""
NOWHERE: Final = "no feasible placements found"


@dataclass(slots=True)
class _Candidates:
    """The placements of a group, those to be tried first coming first.

    Attributes:
        worth_a_try: those whose free room might hold enough members.
        others: those whose room does not.
        totals: of the first ones, if they held all members; None if that cannot be told.
        seen: what is known of each, in that order.
    """

    worth_a_try: list[Placement]
    others: list[Placement]
    totals: list[int] | None = field(default=None)
    seen: dict[Placement, SeenPlacement] = field(default_factory=dict)

    def note(self, rooms: Mapping[int, int]) -> _Candidates:
        """Take down the room of each, by its id, and what it is expected to score."""
        self.seen = {each: SeenPlacement(each, rooms[id(each)]) for each in (*self.worth_a_try, *self.others)}
        for each, total in zip(self.worth_a_try, self.totals or (), strict=False):
            self.seen[each].total = total
        return self


class GroupPlacements:
    """Tries groups in their placements, or on all nodes where they may go anywhere.

    Args:
        passes: tries the members within one.
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
        """Try a group as `GroupPasses.run`, in the best of its placements that holds it.

        If none does, the pass over the most promising one is returned, and why the whole group is refused.
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
        """Put placements in the order in which they are worth a try, by their room and by what they would score."""
        members = [attempt.queued.pod for attempt in attempts]
        needed = max(1, group.min_count - len(self._cache.groups.placed(group.key)))
        slots = room_for(members, snapshot)
        rooms = {id(each): int(slots[each.rows].sum()) for each in placements}
        shuffled = list(placements)
        self._random.shuffle(shuffled)  # of equals any may be the best
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
        """Try placements until one holds all members, if what the others score cannot be more; else all, and take the best."""
        enough: list[tuple[Placement, Sequence[PodInfo]]] = []
        first: Pass | None = None
        refused_by = {*attempts[0].framework.placing.generators}
        if candidates.others:
            refused_by.add(_JUDGES_ROOM)
        may_rest = not options.is_trial  # else pods are left out, whose room others would be given
        count = len(candidates.worth_a_try) + len(candidates.others)
        for placement in candidates.worth_a_try or candidates.others[:1]:
            if first is not None and may_rest:
                await self._passes.rest(True)
            # Room is made by hand of the first alone, as the pods' messages come from it.
            within = replace(options, within=placement.rows, makes_room=options.makes_room and first is None)
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
            if may_rest:
                await self._passes.rest(True)
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
            group, plugin, attempts, replace(options, within=rows, makes_room=False)
        )
        tried.places = [rows]  # of equal nodes others may be taken this time, so that too few members fit
        return tried


def room_for(members: Sequence[PodInfo], snapshot: Snapshot) -> Int64s:
    """Return int64 (n_nodes,), how many of some pods each node could hold at most, going by the least that any asks for."""
    slots = snapshot.allocatable[PODS] - snapshot.pod_count
    least = dict(members[0].resources.requests)
    for pod in members[1:]:
        for resource in list(least):
            least[resource] = min(least[resource], pod.resources.requests.get(resource, 0))
    for resource, amount in least.items():
        if amount > 0:
            allocatable = snapshot.allocatable[resource]
            held = (allocatable - snapshot.requested[resource]) // amount
            # What a node does not offer may be a device that a claim is made for; that is for filters to say.
            slots = np.where(allocatable > 0, np.minimum(slots, held), slots)
    found: Int64s = np.maximum(slots, 0)
    return found
