"""Searches for the best placement of a group, and for other orders of its members."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.engine.cycle.group_pass import EVERYWHERE, Pass, PassOptions, SeenPlacement
from scheduler.engine.runtime.calls import PluginError
from scheduler.framework.group_plugins import Placement
from scheduler.framework.reasons import NO_PLACEMENT, Reason
from scheduler.framework.status import Status
from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random

    from scheduler.clock import Clock
    from scheduler.engine.cycle.attempt import Attempt
    from scheduler.engine.cycle.group_pass import GroupPasses, Member
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.state.cache import Cache
    from scheduler.framework.group_plugins import PodGroupPlugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Int64s, Rows, Snapshot

_DECISIONS: Final = 600
"""Maximum number of decisions; each takes a few tenths of a millisecond, and more for members with many terms."""
_BRANCHES: Final = 4
"""Maximum number of nodes that are tried for one member."""


class GroupSearch:
    """Searches for other orders of a group's members, if one pass over them did not place enough; without preemption.

    Members that are placed early may use capacity that other members need. So members are tried in other orders, each on
    the node with the least free capacity afterwards. Then backtracking follows: if a member finds no node, the members
    before it are moved. The number of decisions is limited.

    Args:
        passes: tries members.
        cache: the cluster.
    """

    def __init__(self, passes: GroupPasses, cache: Cache) -> None:
        self._passes = passes
        self._cache = cache

    async def run(
        self, tried: Pass, attempts: Sequence[Attempt], options: PassOptions = EVERYWHERE
    ) -> tuple[Pass | None, int]:
        """Search for a way to place enough members.

        Args:
            tried: the pass that placed too few; it is undone.
            attempts: one attempt for each member.
            options: options for `GroupPasses.run`.

        Returns:
            A pass that places enough members and assumes them, or None; and the number of decisions.
        """
        pods = [attempt.queued.pod for attempt in attempts]
        if all(_is_like(pods[0], pod) for pod in pods[1:]):
            return None, 0  # the order of identical pods makes no difference
        spent = 0
        options = replace(options, may_preempt=False)
        orders = await self._orders(tried, attempts)
        for order in orders:
            if spent + len(order) > _DECISIONS:
                break
            await self._passes.pause(options.within is not None)
            found = await self._passes.run(
                tried.group, tried.plugin, order, replace(options, choose=tightest)
            )
            spent += len(found.members)
            if found.is_enough:
                return found, spent
            await self._passes.take_back(found)
        await self._passes.pause(options.within is not None)
        search = _Backtracking(self._passes, tried, _DECISIONS - spent, options)
        backtracked = await search.run(orders[0], needed=self._needed(tried))
        return backtracked, spent + search.spent

    async def _orders(self, tried: Pass, attempts: Sequence[Attempt]) -> list[list[Attempt]]:
        """Return the orders to try, the most promising first."""
        snapshot = self._cache.snapshot()
        choices: dict[int, int] = {}
        for member in tried.members:
            await self._passes.yield_to_loop()
            choices[id(member.attempt)] = len(member.decision.diagnosis.feasible) or snapshot.n_nodes
        sizes: dict[int, float] = {}
        largest: dict[str, int] = {}  # resource -> largest allocatable amount of a node
        for attempt in attempts:
            await self._passes.yield_to_loop()
            sizes[id(attempt)] = _share(attempt.queued.pod, snapshot, largest)
        failed = {id(member.attempt) for member in tried.members if member.assumed is None}
        return [
            sorted(attempts, key=lambda each: (id(each) not in failed, -sizes[id(each)])),
            sorted(attempts, key=lambda each: -sizes[id(each)]),
            sorted(attempts, key=lambda each: (choices.get(id(each), snapshot.n_nodes), -sizes[id(each)])),
        ]

    def _needed(self, tried: Pass) -> int:
        return max(1, tried.group.min_count - len(self._cache.groups.placed(tried.group.key)))


class _Backtracking:
    """Places members in order; if one finds no node, the member before it is moved.

    Attributes:
        spent: the number of decisions.
    """

    def __init__(self, passes: GroupPasses, tried: Pass, most: int, options: PassOptions) -> None:
        self._passes = passes
        self._tried = tried
        self._most = most
        self._options = options
        self.spent = 0

    async def run(self, order: Sequence[Attempt], needed: int) -> Pass | None:
        """Return a pass that places `needed` members, or None without one within the limit."""
        placed: list[Member] = []
        used: list[list[int]] = [[] for _ in order]  # by member in the order, the rows tried for it
        at = 0
        while at >= 0 and self.spent < self._most:
            if len(placed) >= needed and at == len(order):
                found = await self._with_the_rest(order, placed)
                if found.is_enough:
                    return found
                await self._passes.take_back(found)
                return None
            may_skip = len(order) - at > needed - len(placed)
            member = None
            if at < len(order) and len(used[at]) < _BRANCHES:
                member = await self._place(order[at], used[at])
            if member is not None:
                placed.append(member)
                at += 1
            elif at < len(order) and may_skip:
                at += 1
            else:
                at = await self._step_back(order, placed, used)
        await self._take_back(placed)
        return None

    async def _step_back(self, order: Sequence[Attempt], placed: list[Member], used: list[list[int]]) -> int:
        """Undo the last placed member; return its position in the order, or -1 without one."""
        if not placed:
            return -1
        last = placed.pop()
        await self._take_back([last])
        place = next(at for at, attempt in enumerate(order) if attempt is last.attempt)
        for later in range(place + 1, len(order)):
            used[later].clear()
        return place

    async def _place(self, attempt: Attempt, used: list[int]) -> Member | None:
        """Place a member on a node that differs from its earlier nodes; None if there is no such node."""
        self.spent += 1

        def choose(pod: PodInfo, feasible: Rows, snapshot: Snapshot) -> int | None:
            others = _unlike(feasible, used, snapshot)
            if not others.size:
                return None
            row = tightest(pod, others, snapshot)
            used.append(row)
            return row

        tried = await self._passes.run(
            self._tried.group,
            self._tried.plugin,
            [attempt],
            replace(self._options, choose=choose, remembers_rows=True),
        )
        return tried.members[0] if tried.kept else None

    async def _with_the_rest(self, order: Sequence[Attempt], placed: list[Member]) -> Pass:
        """Return one pass with the placed members, followed by tries of the skipped members."""
        done = {id(member.attempt) for member in placed}
        rest = [attempt for attempt in order if id(attempt) not in done]
        found = await self._passes.run(self._tried.group, self._tried.plugin, rest, self._options)
        found.members[:0] = placed
        found.placed_before -= len(placed)
        found.attempts = [*(member.attempt for member in placed), *rest]
        return found

    async def _take_back(self, placed: list[Member]) -> None:
        await self._passes.take_back(Pass(self._tried.group, self._tried.plugin, members=placed))


def tightest(pod: PodInfo, feasible: Rows, snapshot: Snapshot) -> int:
    """Return the feasible row with the smallest free share after the placement, over the pod's scarcest resource."""
    left = np.ones(len(feasible))
    for resource, amount in pod.resources.requests.items():
        allocatable = snapshot.allocatable[resource][feasible]
        free = allocatable - snapshot.requested[resource][feasible] - amount
        left = np.minimum(left, free / np.maximum(allocatable, 1))
    return int(feasible[int(left.argmin())])


def _unlike(feasible: Rows, used: Sequence[int], snapshot: Snapshot) -> Rows:
    """Return the unused rows whose free resources, and absence of pods, differ from all used rows."""
    if not used:
        return feasible

    def looks(row: int) -> tuple[object, ...]:
        requested = snapshot.requested_on(row)
        node = snapshot.nodes[row]
        free = tuple(
            sorted((name, node.allocatable[name] - requested.get(name, 0)) for name in node.allocatable)
        )
        return free, len(snapshot.pods_on(row)) == 0

    seen = {looks(row) for row in used}
    kept = [row for row in feasible.tolist() if row not in used and looks(row) not in seen]
    return np.array(kept, dtype=np.intp)


def _share(pod: PodInfo, snapshot: Snapshot, largest: dict[str, int]) -> float:
    """Return the pod's largest request of a resource, as a share of the largest node.

    Args:
        pod: the pod.
        snapshot: the cluster.
        largest: cache of resource -> largest allocatable amount of a node; missing entries are added.
    """
    share = 0.0
    for resource, amount in pod.resources.requests.items():
        if resource not in largest:
            largest[resource] = int(snapshot.allocatable[resource].max(initial=0))
        if largest[resource] > 0:
            share = max(share, amount / largest[resource])
    return share


def _is_like(pod: PodInfo, other: PodInfo) -> bool:
    one, two = pod.pod.spec, other.pod.spec
    return (
        pod.resources == other.resources
        and pod.labels == other.labels
        and one.affinity == two.affinity
        and one.node_selector == two.node_selector
        and one.tolerations == two.tolerations
        and one.topology_spread_constraints == two.topology_spread_constraints
        and pod.claims == other.claims
        and one.resource_claims == two.resource_claims
        and pod.host_ports == other.host_ports
    )


_SEARCHED: Final = 4
"""Number of placements with the best scores in which other orders are tried, if no placement holds the group."""
NOWHERE: Final = Reason("no feasible placements found", NO_PLACEMENT)


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
    """Tries groups in their placements, or on all nodes if they have no placements: with as few tries as possible.

    The children of a composite group are tried in each of its placements, one after another, and each in its own placements
    within that placement.

    Args:
        passes: tries the members in one placement.
        cache: the cluster.
        random: breaks ties.
        clock: measures the tries.
        observer: receives what was tried.

    Source:
        kube-scheduler v1.36, schedule_one_podgroup.go, podGroupSchedulingPlacementAlgorithm, which tries all, in any order;
        kube-scheduler v1.37, schedule_one_podgroup.go, compositePodGroupSchedulingPlacementAlgorithm.
    """

    def __init__(
        self, passes: GroupPasses, cache: Cache, random: Random, *, clock: Clock, observer: CycleObserver
    ) -> None:
        self._passes = passes
        self._cache = cache
        self._random = random
        self._clock, self._observer = clock, observer

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
        return await self._run(
            _Trial(group, plugin, attempts[0].framework, Members(group, attempts)), options
        )

    async def run_within(
        self,
        group: PodGroup,
        plugin: PodGroupPlugin,
        attempts: Sequence[Attempt],
        options: PassOptions = EVERYWHERE,
    ) -> Pass:
        """Try a group as `run`, on all allowed nodes instead of in one of its placements."""
        trial = _Trial(group, plugin, attempts[0].framework, Members(group, attempts))
        return await self._run_within(trial, options)

    async def _run(self, trial: _Trial, options: PassOptions) -> Pass:
        group, plugin, attempts = trial.group, trial.plugin, trial.attempts
        members = [attempt.queued.pod for attempt in attempts]
        snapshot = self._cache.snapshot()
        placing = trial.framework.placing
        try:
            # Without pending members those on nodes decide.
            placements = placing.generate(group, members, snapshot) if members else None
            if placements is not None and options.within is not None:
                placements = [*_overlaps(placements, options.within)]
            if placements is None:
                tried = await self._run_within(trial, options)
                if (group.is_composite or options.root is not None) and not tried.has_enough:
                    tried.refusal = _none_available(1, tried)
                return tried
            if not group.is_composite:
                self._observer.placements_generated(trial.framework.profile, len(placements))
            if not placements:
                who, refusal = frozenset(placing.generators), Status.unschedulable(NOWHERE)
                return Pass(
                    group, plugin, attempts, refusal=refusal, refused_elsewhere=who, placements=(), places=()
                )
            candidates = self._candidates(trial, placements, snapshot)
            tried = await self._first_or_best(trial, candidates, options)
        except PluginError as error:
            return Pass(group, plugin, attempts, error=error.status)
        tried.placements = list(candidates.seen.values())
        return tried

    async def _run_within(self, trial: _Trial, options: PassOptions) -> Pass:
        """Try the members of a group on the allowed nodes, or the children of a composite group, one after another.

        Source:
            kube-scheduler v1.37, schedule_one_podgroup.go, compositePodGroupSchedulingDefaultAlgorithm.
        """
        if not trial.group.is_composite:
            return await self._passes.run(trial.group, trial.plugin, trial.attempts, options)
        options = replace(options, root=options.root or trial.group)
        tried = Pass(trial.group, trial.plugin, trial.attempts)
        missing, left = max(trial.group.min_count, 1), len(trial.group.children)
        for child in trial.group.children:
            if missing > left:
                break
            await self._passes.yield_to_loop()
            part = await self._run(replace(trial, group=child), options)
            tried.parts.append(part)
            tried.members += part.members
            if not part.error.is_success:
                message = f"composite pod group evaluation failed due to child error: {part.failure.message}"
                tried.error = Status.failed(message, part.error.error)
                break
            left -= 1
            if part.has_enough:
                missing -= 1
            else:
                await self._passes.take_back(part)
        if not tried.has_enough:
            await self._passes.take_back(tried)
            if too_few := tried.too_few():
                tried.refusal = Status.unschedulable(too_few)
        return tried

    def _candidates(self, trial: _Trial, placements: Sequence[Placement], snapshot: Snapshot) -> _Candidates:
        """Sort placements by their capacity and their predicted scores."""
        group = trial.group
        members = [attempt.queued.pod for attempt in trial.attempts]
        needed = max(1, group.fewest({leaf.key: self._placed(leaf) for leaf in group.leaves}))
        slots = capacity_for(members, snapshot)
        rooms = {id(each): int(slots[each.rows].sum()) for each in placements}
        shuffled = list(placements)
        self._random.shuffle(shuffled)  # random order among equal placements
        worth = [each for each in shuffled if rooms[id(each)] >= min(needed, len(members))]
        others = [each for each in shuffled if rooms[id(each)] < min(needed, len(members))]
        others.sort(key=lambda each: -rooms[id(each)])
        totals = trial.framework.placing.foresee(group, worth, members, snapshot) if worth else None
        if totals is None:
            worth.sort(key=lambda each: -min(rooms[id(each)], len(members)))
            return _Candidates(worth, others).note(rooms)
        by_total = sorted(
            range(len(worth)), key=lambda place: (-(rooms[id(worth[place])] >= len(members)), -totals[place])
        )
        best_first = [worth[at] for at in by_total]
        return _Candidates(best_first, others, [totals[at] for at in by_total]).note(rooms)

    def _placed(self, leaf: PodGroup) -> int:
        return len(self._cache.groups.placed(leaf.key))

    async def _first_or_best(self, trial: _Trial, candidates: _Candidates, options: PassOptions) -> Pass:
        """Try placements until one holds all members, if no other can score higher; else select the best of all."""
        enough: list[tuple[Placement, Sequence[PodInfo]]] = []
        first: Pass | None = None
        framework = trial.framework
        refused_by = {*framework.placing.generators}
        if candidates.others:  # the rule of `capacity_for` is that of these plugins
            refused_by |= framework.plugins.filters_with(lambda each: each.checks_free_capacity)
        # A dry run leaves pods out, and other pods would get their capacity; members of other parts may be assumed.
        may_pause = not options.is_trial and options.root is None
        n_members = len(trial.attempts)
        count = len(candidates.worth_a_try) + len(candidates.others)
        for placement in candidates.worth_a_try or candidates.others[:1]:
            if first is not None and may_pause:
                await self._passes.pause(True)
            # Only the first placement runs preemption, because the pods' messages come from it.
            within = replace(
                options, within=placement.rows, may_preempt=options.may_preempt and first is None
            )
            began = self._clock.monotonic()
            tried = await self._run_within(trial, within)
            candidates.seen[placement].fits = len(tried.kept)
            if not tried.error.is_success:
                return tried
            is_feasible, seconds = _is_placed(tried, options), self._clock.monotonic() - began
            if not trial.group.is_composite:
                self._observer.placement_evaluated(
                    framework.profile, is_feasible=is_feasible, seconds=seconds
                )
            if is_feasible:
                if candidates.totals is not None and len(tried.kept) == n_members:
                    return tried
                enough.append((placement, [member.decision.pod for member in tried.kept]))
            await self._passes.take_back(tried)
            refused_by |= tried.refused_by
            first = first or tried
        if enough:
            if may_pause:
                await self._passes.pause(True)
            return await self._best(trial, enough, candidates.seen, options)
        assert first is not None
        first.refusal = _none_available(count, first)
        first.refused_elsewhere = frozenset(refused_by)
        first.places = [placement.rows for placement in candidates.worth_a_try[:_SEARCHED]]
        return first

    async def _best(
        self,
        trial: _Trial,
        enough: Sequence[tuple[Placement, Sequence[PodInfo]]],
        seen: Mapping[Placement, SeenPlacement],
        options: PassOptions,
    ) -> Pass:
        totals: Sequence[int] = [0]
        if len(enough) > 1:
            totals = trial.framework.placing.totals(trial.group, enough, self._cache.snapshot())
            for (each, _), total in zip(enough, totals, strict=True):
                seen[each].total = total
        best = max(totals)
        rows = self._random.choice(
            [each.rows for (each, _), total in zip(enough, totals, strict=True) if total == best]
        )
        tried = await self._run_within(trial, replace(options, within=rows, may_preempt=False))
        tried.places = [rows]  # the random choice among equal nodes may differ, so that too few members fit
        return tried


class Members:
    """The attempts at the members of a tree, by leaf."""

    def __init__(self, root: PodGroup, attempts: Sequence[Attempt]) -> None:
        self._root, self._attempts = root, attempts
        self._by_leaf: dict[GroupKey | None, list[Attempt]] = {}
        for attempt in attempts if root.is_composite else ():
            self._by_leaf.setdefault(attempt.queued.pod.group, []).append(attempt)

    def of(self, group: PodGroup) -> Sequence[Attempt]:
        """Return the attempts at the members of a group in the tree, leaf by leaf."""
        if not self._root.is_composite:
            return self._attempts
        return [attempt for leaf in group.leaves for attempt in self._by_leaf.get(leaf.key, ())]


@dataclass(frozen=True, slots=True)
class _Trial:
    """The group, or the tree, that is tried in each placement.

    Attributes:
        group: the group.
        plugin: the plugin of its kind.
        framework: the profile of the members.
        tree: the attempts at the members of the whole tree.
    """

    group: PodGroup
    plugin: PodGroupPlugin
    framework: Framework
    tree: Members

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The attempts at the members of the group."""
        return self.tree.of(self.group)


def _overlaps(placements: Iterable[Placement], rows: Rows) -> Iterator[Placement]:
    """Yield the parts of placements on some nodes, without empty ones."""
    for placement in placements:
        there = np.intersect1d(placement.rows, rows, assume_unique=True)
        if there.size:
            yield Placement(placement.name, there)


def _is_placed(tried: Pass, options: PassOptions) -> bool:
    """Return whether a placement holds the group; a part of a tree needs no new member if enough are on nodes."""
    return tried.has_enough if options.root is not None else tried.is_placed


def _none_available(count: int, first: Pass) -> Status:
    """Return the status of a group that fits in none of its placements."""
    why = first.refusal.reasons[0]
    return Status.unschedulable(f"0/{count} placements are available, first placement status: {why}")


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
