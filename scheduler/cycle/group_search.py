"""Looks on where trying the members of a group once, in their order, did not place enough of them.

What comes early takes what others need. So members are tried again in other orders, each on the node that it fills best;
then with second thoughts: one that finds no node makes those before it go elsewhere. All that ends after so many decisions
as are set.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.cycle.group_pass import EVERYWHERE, Pass, PassOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.cycle.attempt import Attempt
    from scheduler.cycle.group_pass import GroupPasses, Member
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot
    from scheduler.state.cache import Cache

_DECISIONS: Final = 600
"""So many in all; each takes some tenths of a millisecond, and more the more terms a member has."""
_BRANCHES: Final = 4
"""So many nodes of one member at most."""


class GroupSearch:
    """Searches; nothing is evicted by it.

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
        """Look for a way to place enough members.

        Args:
            tried: the pass that did not; it has been taken back.
            attempts: one for each member.
            options: of `GroupPasses.run`.

        Returns:
            A pass that does, its members assumed, None if none was found; and how many decisions that took.
        """
        if _are_alike([attempt.queued.pod for attempt in attempts]):
            return None, 0  # whoever of them comes first, the same is left
        spent = 0
        options = replace(options, makes_room=False)
        orders = await self._orders(tried, attempts)
        for order in orders:
            if spent + len(order) > _DECISIONS:
                break
            await self._passes.rest(options.within is not None)
            found = await self._passes.run(
                tried.group, tried.plugin, order, replace(options, choose=tightest)
            )
            spent += len(found.members)
            if found.is_enough:
                return found, spent
            await self._passes.take_back(found)
        await self._passes.rest(options.within is not None)
        search = _Backtracking(self._passes, tried, _DECISIONS - spent, options)
        backtracked = await search.run(orders[0], needed=self._needed(tried))
        return backtracked, spent + search.spent

    async def _orders(self, tried: Pass, attempts: Sequence[Attempt]) -> list[list[Attempt]]:
        """Return orders that are worth a try, the most promising first."""
        snapshot = self._cache.snapshot()
        choices: dict[int, int] = {}
        for member in tried.members:
            await self._passes.give_way()
            choices[id(member.attempt)] = len(member.decision.diagnosis.feasible) or snapshot.n_nodes
        sizes: dict[int, float] = {}
        largest: dict[str, int] = {}  # resource -> what the largest node has of it
        for attempt in attempts:
            await self._passes.give_way()
            sizes[id(attempt)] = _share(attempt.queued.pod, snapshot, largest)
        failed = {id(member.attempt) for member in tried.members if member.assumed is None}
        return [
            sorted(attempts, key=lambda each: (id(each) not in failed, -sizes[id(each)])),
            sorted(attempts, key=lambda each: -sizes[id(each)]),
            sorted(attempts, key=lambda each: (choices[id(each)], -sizes[id(each)])),
        ]

    def _needed(self, tried: Pass) -> int:
        return max(1, tried.group.min_count - len(self._cache.groups.placed(tried.group.key)))


class _Backtracking:
    """Places members one after another; where one finds no node, the one before goes elsewhere.

    Attributes:
        spent: how many decisions there were.
    """

    def __init__(self, passes: GroupPasses, tried: Pass, most: int, options: PassOptions) -> None:
        self._passes = passes
        self._tried = tried
        self._most = most
        self._options = options
        self.spent = 0

    async def run(self, order: Sequence[Attempt], needed: int) -> Pass | None:
        """Return a pass that places so many members as are needed, if one is found in time."""
        placed: list[Member] = []
        used: list[list[int]] = [[] for _ in order]  # of each member in the order, the rows it has been on
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
        """Take the last member back that was placed; return its place in the order, -1 if there is none."""
        if not placed:
            return -1
        last = placed.pop()
        await self._take_back([last])
        place = next(at for at, attempt in enumerate(order) if attempt is last.attempt)
        for later in range(place + 1, len(order)):
            used[later].clear()
        return place

    async def _place(self, attempt: Attempt, used: list[int]) -> Member | None:
        """Put a member on a node that it has not been on, and none like it; None if there is no other."""
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
        """Return one pass of those who were placed and, tried after them, those who were left out."""
        done = {id(member.attempt) for member in placed}
        rest = [attempt for attempt in order if id(attempt) not in done]
        found = await self._passes.run(self._tried.group, self._tried.plugin, rest, self._options)
        found.members[:0] = placed
        return found

    async def _take_back(self, placed: list[Member]) -> None:
        await self._passes.take_back(Pass(self._tried.group, self._tried.plugin, placed))


def tightest(pod: PodInfo, feasible: Rows, snapshot: Snapshot) -> int:
    """Return the feasible row of which a pod leaves the least, going by the resource of which least would be left."""
    left = np.ones(len(feasible))
    for resource, amount in pod.resources.requests.items():
        allocatable = snapshot.allocatable[resource][feasible]
        free = allocatable - snapshot.requested[resource][feasible] - amount
        left = np.minimum(left, free / np.maximum(allocatable, 1))
    return int(feasible[int(left.argmin())])


def _unlike(feasible: Rows, used: Sequence[int], snapshot: Snapshot) -> Rows:
    """Return those rows that have not been used, and whose free cpu, memory and labels are no used one's."""
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
    """Return the largest share that a pod asks for of what the largest node has of a resource.

    Args:
        pod: which.
        snapshot: the cluster.
        largest: resource -> what the largest node has; what is missing is added.
    """
    share = 0.0
    for resource, amount in pod.resources.requests.items():
        if resource not in largest:
            largest[resource] = int(snapshot.allocatable[resource].max(initial=0))
        if largest[resource] > 0:
            share = max(share, amount / largest[resource])
    return share


def _are_alike(pods: Sequence[PodInfo]) -> bool:
    return all(_is_like(pods[0], pod) for pod in pods[1:])


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
