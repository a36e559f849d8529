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
    from collections.abc import Generator, Iterator, Sequence

    from plugins.preemption.disruption_budgets import DisruptionBudgets
    from plugins.preemption.units import Unit
    from scheduler.framework import FitsWithout, SlicedWork
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
STILL_UNSCHEDULABLE: Final = "pod group is unschedulable"

_FEW: Final = 256
"""Up to this number units of all nodes are considered; above it, those on the nodes where they do the least harm."""
_MOST_DECISIONS: Final = 20_000
"""After this number of decisions about members, units on the members' nodes that are not reprieved become victims."""


async def choose_victims(
    units: Sequence[Unit],
    members: Sequence[PodInfo],
    snapshot: Snapshot,
    budgets: DisruptionBudgets,
    fits_without: FitsWithout,
    work: SlicedWork,
) -> Sequence[PodInfo] | Status:
    """Return the victims, or why preemption would not help.

    Args:
        units: the possible victims, the most important first.
        members: the members of the group.
        snapshot: the cluster.
        budgets: the disruption budgets; units that violate none leave first.
        fits_without: returns whether the group fits without some pods.
        work: runs slow steps.
    """
    if not units:
        return Status.unschedulable(NO_VICTIMS, resolvable=False)
    leaving = [pod for unit in units if unit.is_leaving for pod in unit.pods]
    staying = [unit for unit in units if not unit.is_leaving]
    widening = list(_widening(staying, members, snapshot))
    if leaving and await fits_without(leaving) is not None:
        return leaving  # terminating pods free enough capacity
    for chosen in widening:
        if await fits_without([*leaving, *_pods(chosen)]) is not None:
            search = _Search(leaving, fits_without, max(1, _MOST_DECISIONS // len(members)))
            violating, others = await work.done(_split(chosen, budgets))
            return [*leaving, *_pods(await search.needed([*violating, *others]))]
    return Status.unschedulable(STILL_UNSCHEDULABLE)


class _Search:
    """Reprieves units as long as the group fits beside them."""

    def __init__(self, leaving: Sequence[PodInfo], fits_without: FitsWithout, most_trials: int) -> None:
        self._leaving = leaving
        self._fits_without = fits_without
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
) -> Iterator[Sequence[Unit]]:
    """Yield growing sets of units, all of them in the end: first those on the nodes where preemption costs least.

    A node costs as much as its most important unit. The first set would hold the group twice, the next one is twice as
    large, and so on.
    """
    if len(units) <= _FEW:
        yield units
        return
    by_node: dict[str, list[int]] = {}  # name -> places in `units`
    for place, unit in enumerate(units):
        for pod in unit.pods:
            by_node.setdefault(pod.node_name, []).append(place)
    nodes = sorted(by_node, key=lambda name: -by_node[name][0])
    demand = _sum(members)
    rows = {name: row for name in nodes if (row := snapshot.row_of(name)) is not None}
    end, wanted, room = 0, 2.0, dict.fromkeys(demand, 0)
    while end < len(nodes):
        while end < len(nodes) and any(room[name] < wanted * demand[name] for name in demand):
            name = nodes[end]
            row = rows.get(name)
            if row is not None:
                freed = _sum(
                    [pod for place in by_node[name] for pod in units[place].pods if pod.node_name == name]
                )
                for resource in demand:
                    free = snapshot.allocatable[resource][row] - snapshot.requested[resource][row]
                    room[resource] += int(free) + freed.get(resource, 0)
            end += 1
        wanted *= 2
        if end < len(nodes):
            places = sorted({place for name in nodes[:end] for place in by_node[name]})
            yield [units[place] for place in places]
    yield units


def _sum(pods: Sequence[PodInfo]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.resources.taken.items():
            total[resource] = total.get(resource, 0) + amount
    return total
