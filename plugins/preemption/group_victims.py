"""Chooses the victims so that a whole group fits: the least important pods, and as few as possible.

Source:
  kube-scheduler v1.36, framework/preemption/podgrouppreemption.go. Upstream tries every unit separately. Here ranges of
  units are tried, and halved if one of them is needed. The result is the same, since a group that fits beside many
  units also fits beside few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plugins.preemption.disruption_budgets import Evictions
from scheduler.framework import Status

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from plugins.preemption.disruption_budgets import DisruptionBudgets
    from plugins.preemption.units import Unit
    from scheduler.framework import GroupDryRuns
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
STILL_UNSCHEDULABLE: Final = "pod group is unschedulable"

_FEW: Final = 256
"""Up to this number units of all nodes are considered; above it, those on the nodes where they do the least harm."""
_UNITS_A_STEP: Final = 512
_NODES_A_STEP: Final = 32
_MOST_DECISIONS: Final = 20_000
"""After this number of decisions about members, units on the members' nodes that are not reprieved become victims."""


async def choose_victims(
    units: Sequence[Unit],
    members: Sequence[PodInfo],
    budgets: DisruptionBudgets,
    dry_runs: GroupDryRuns,
) -> Sequence[PodInfo] | Status:
    """Return the victims, or why preemption would not help.

    Args:
        units: the possible victims, the most important first.
        members: the members of the group.
        budgets: the disruption budgets; units that violate none leave first.
        dry_runs: the cluster, and whether the group fits without some pods.
    """
    if not units:
        return Status.unschedulable(NO_VICTIMS, resolvable=False)
    leaving = [pod for unit in units if unit.is_leaving for pod in unit.pods]
    staying = [unit for unit in units if not unit.is_leaving]
    widening = await dry_runs.done(_widening(staying, members, dry_runs.snapshot()))
    if leaving and await dry_runs.fits_without(leaving) is not None:
        return leaving  # terminating pods free enough capacity
    for chosen in widening:
        if await dry_runs.fits_without([*leaving, *_pods(chosen)]) is not None:
            search = _Search(leaving, dry_runs, max(1, _MOST_DECISIONS // len(members)))
            violating, others = await dry_runs.done(_split(chosen, budgets))
            return [*leaving, *_pods(await search.needed([*violating, *others]))]
    return Status.unschedulable(STILL_UNSCHEDULABLE)


class _Search:
    """Reprieves units as long as the group fits beside them."""

    def __init__(self, leaving: Sequence[PodInfo], dry_runs: GroupDryRuns, most_trials: int) -> None:
        self._leaving = leaving
        self._fits_without = dry_runs.fits_without
        self._victims: list[Unit] = []
        self._most_trials = most_trials
        self._trials = 0

    async def needed(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return the units that cannot be reprieved; the first ones are reprieved first."""
        left = [units]  # ranges still to be reprieved, the next one last
        while left:
            stretch = left.pop()
            if self._trials >= self._most_trials:
                await self._settle([*stretch, *(unit for later in reversed(left) for unit in later)])
                break
            away = [*self._victims, *(unit for later in left for unit in later)]
            if await self._fits(away) is not None:
                continue
            if len(stretch) == 1:
                self._victims.append(stretch[0])
                continue
            half = len(stretch) // 2
            left += [stretch[half:], stretch[:half]]
        return self._victims

    async def _settle(self, undecided: Sequence[Unit]) -> None:
        """Make victims of the units on the members' nodes if that is enough; else of all."""
        nodes = await self._fits([*self._victims, *undecided]) or frozenset()
        there = [unit for unit in undecided if any(pod.node_name in nodes for pod in unit.pods)]
        enough = await self._fits([*self._victims, *there]) is not None
        self._victims += there if enough else undecided

    async def _fits(self, away: Sequence[Unit]) -> frozenset[str] | None:
        self._trials += 1
        return await self._fits_without([*self._leaving, *_pods(away)])


def _pods(units: Sequence[Unit]) -> list[PodInfo]:
    return [pod for unit in units for pod in unit.pods]


def _split(
    units: Sequence[Unit], budgets: DisruptionBudgets
) -> Generator[None, None, tuple[list[Unit], list[Unit]]]:
    """Return the units whose eviction would violate a disruption budget, and the others, both in the given order."""
    violating: list[Unit] = []
    others: list[Unit] = []
    evictions = Evictions(budgets)
    for unit in units:
        breaks = False
        for pod in unit.pods:
            breaks = evictions.breaks(pod) or breaks
            yield
        (violating if breaks else others).append(unit)
    return violating, others


def _widening(
    units: Sequence[Unit], members: Sequence[PodInfo], snapshot: Snapshot
) -> Generator[None, None, Sequence[Sequence[Unit]]]:
    """Return growing sets of units, all of them in the end: first those on the nodes where preemption costs least.

    Only the first step reads the snapshot.

    A node costs as much as its most important unit. The first set would hold the group twice, the next one is twice as
    large, and so on.
    """
    if len(units) <= _FEW:
        return [units]
    demand = _sum(members)
    rows = {snapshot.name_of(row): row for row in range(snapshot.n_nodes)}
    free = {name: snapshot.allocatable[name] - snapshot.requested[name] for name in demand}
    found: list[Sequence[Unit]] = []
    yield
    by_node = yield from _places(units)
    nodes = sorted(by_node, key=lambda name: -by_node[name][0])
    end, wanted, room = 0, 2.0, dict.fromkeys(demand, 0)
    while end < len(nodes):
        while end < len(nodes) and any(room[name] < wanted * demand[name] for name in demand):
            if end % _NODES_A_STEP == 0:
                yield
            name = nodes[end]
            row = rows.get(name)
            if row is not None:
                freed = _sum(
                    [pod for place in by_node[name] for pod in units[place].pods if pod.node_name == name]
                )
                for resource in demand:
                    room[resource] += int(free[resource][row]) + freed.get(resource, 0)
            end += 1
        wanted *= 2
        if end < len(nodes):
            places = sorted({place for name in nodes[:end] for place in by_node[name]})
            found.append([units[place] for place in places])
            yield
    return [*found, units]


def _places(units: Sequence[Unit]) -> Generator[None, None, dict[str, list[int]]]:
    """Return name of a node -> the places of its units in `units`."""
    found: dict[str, list[int]] = {}
    for place, unit in enumerate(units):
        if place % _UNITS_A_STEP == 0:
            yield
        for pod in unit.pods:
            found.setdefault(pod.node_name, []).append(place)
    return found


def _sum(pods: Sequence[PodInfo]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.resources.taken.items():
            total[resource] = total.get(resource, 0) + amount
    return total
