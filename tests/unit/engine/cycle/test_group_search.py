"""Searches for a way to place a group, and for its best placement, compared with an exhaustive search."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.cycle.attempt import AssumedPod, Attempt, Decision
from scheduler.engine.cycle.group_pass import GroupPasses, PassOptions
from scheduler.engine.cycle.group_search import GroupPlacements, GroupSearch
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.scheduling import BY_ITSELF, DecisionOptions
from scheduler.engine.runtime.framework import EnabledPlugins
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.framework import CycleState, Diagnosis, NeedsTime, Status
from scheduler.framework.group_plugins import Placement
from scheduler.framework.pod_groups import PodGroup
from scheduler.framework.queued_pod import QueuedPodInfo
from scheduler.framework.status import SUCCESS
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from tests.support.builders import node, pod
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from scheduler.engine.cycle.pod_cycle import PodCycle
    from scheduler.framework.pod_groups import PodGroup as Group
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

KEY = GroupKey(POD_GROUPS, "default", "g")
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
ROOMS = st.lists(st.integers(1, 8), min_size=1, max_size=3)


class Gangs:
    """A group plugin with a minimum number of members."""

    name = "Gangs"
    waiting = "waiting"


@dataclass
class Profile:
    """Scores a placement by its number of members."""

    @property
    def placing(self) -> Profile:
        return self

    racks: int = 1
    profile = "custom-scheduler"
    generators: Sequence[str] = ()
    plugins = EnabledPlugins({})

    def run_unreserve(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def generate(self, group: Group, members: Sequence[PodInfo], snapshot: Snapshot) -> list[Placement]:
        parts = [snapshot.all_rows[place :: self.racks] for place in range(self.racks)]
        return [Placement(str(place), rows) for place, rows in enumerate(parts) if rows.size]

    def foresee(
        self, group: Group, placements: Sequence[Placement], members: Sequence[PodInfo], snapshot: Snapshot
    ) -> list[int]:
        return [len(members)] * len(placements)

    def totals(
        self, group: Group, assigned: Sequence[tuple[Placement, Sequence[PodInfo]]], snapshot: Snapshot
    ) -> list[int]:
        return [len(pods) for _, pods in assigned]


def placing(passes: Any, cache: Cache, random: Random) -> GroupPlacements:
    return GroupPlacements(passes, cache, random, clock=ManualClock(), observer=NoObserver())


class Pods:
    """Places each pod on the node with the most free CPU; a gang waits until enough members are placed."""

    def __init__(self, cache: Cache, min_count: int) -> None:
        self._cache, self._min_count = cache, min_count

    async def decide(
        self, attempt: Attempt, options: DecisionOptions = BY_ITSELF
    ) -> tuple[Decision, Snapshot]:
        within, choose = options.within, options.choose
        snapshot, asking = self._cache.snapshot(), attempt.queued.pod
        rows = snapshot.all_rows if within is None else within
        free = snapshot.allocatable["cpu"] - snapshot.requested["cpu"]
        feasible = np.array(
            [row for row in rows.tolist() if free[row] >= asking.resources.requests["cpu"]], dtype=np.intp
        )
        row = None
        if feasible.size:
            row = (
                int(feasible[int(free[feasible].argmax())])
                if choose is None
                else choose(asking, feasible, snapshot)
            )
        blank = Diagnosis.blank(snapshot.n_nodes)
        if row is None:
            return Decision(asking, CycleState(), blank, status=Status.unschedulable("full")), snapshot
        return Decision(asking, CycleState(), blank, snapshot.name_of(row)), snapshot

    def assume(self, attempt: Attempt, decision: Decision) -> AssumedPod:
        placed = self._cache.assume(decision.pod, decision.node_name)
        return AssumedPod(attempt, decision.state, placed, decision.node_name)

    def reserve(self, assumed: AssumedPod) -> Status:
        return SUCCESS

    def permit(self, assumed: AssumedPod) -> Status | Mapping[str, float]:
        return SUCCESS if len(self._cache.groups.placed(KEY)) >= self._min_count else {Gangs.name: 300.0}


class Rests(Any):
    """Do not yield."""

    async def yield_to_loop(self) -> None:
        """Do nothing."""

    async def pause(self, is_bound_to_nodes: bool) -> None:
        """Do nothing."""

    async def pause_within(self, kept: Any, *, is_bound_to_nodes: bool) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Return without pausing."""

    def released(self, uid: str) -> None:
        """Do nothing: no pod waits."""


class Scene:
    """A cluster, and a group to place."""

    def __init__(self, sizes: Sequence[int], rooms: Sequence[int], min_count: int, racks: int = 1) -> None:
        self.cache = Cache()
        for number, cpus in enumerate(rooms):
            self.cache.add_node(node(f"n{number}", cpu=str(cpus)))
        profile: Any = Profile(racks)
        self.attempts = [
            Attempt(
                profile,
                QueuedPodInfo(pod(f"m{number}", cpu=str(cpus), schedulingGroup={"podGroupName": "g"}), 0.0),
                0.0,
            )
            for number, cpus in enumerate(sizes)
        ]
        self.group = PodGroup(KEY, "uid", min_count=min_count)
        self.plugin: Any = Gangs()
        pods: Any = Pods(self.cache, min_count)

        self.passes = GroupPasses(pods, self.cache, Nominator(), Rests())


def most(sizes: Sequence[int], rooms: Sequence[int]) -> int:
    """Return the maximum number of pods that fit, with an exhaustive search: each pod on any node, or on none."""
    best = 0
    for ways in product(range(-1, len(rooms)), repeat=len(sizes)):
        used = [0] * len(rooms)
        for size, row in zip(sizes, ways, strict=True):
            if row >= 0:
                used[row] += size
        if all(taken <= room for taken, room in zip(used, rooms, strict=True)):
            best = max(best, sum(row >= 0 for row in ways))
    return best


@settings(max_examples=150, deadline=None)
@given(sizes=SIZES, rooms=ROOMS, data=st.data())
def test_any_placement_of_a_gang_that_exists_is_found(
    sizes: list[int], rooms: list[int], data: st.DataObject
) -> None:
    min_count = data.draw(st.integers(1, len(sizes)))
    it = Scene(sizes, rooms, min_count)

    async def look() -> tuple[bool, int]:
        tried = await it.passes.run(it.group, it.plugin, it.attempts)
        await it.passes.take_back(tried)
        if tried.is_enough:
            return True, 0
        found, spent = await GroupSearch(it.passes, it.cache).run(tried, it.attempts)
        if found is not None:
            assert len(found.kept) >= min_count
            await it.passes.take_back(found)
        return found is not None, spent

    found, spent = asyncio.run(look())
    assert found == (most(sizes, rooms) >= min_count)
    assert spent <= 600
    assert not it.cache.counts()["assumed_pods"]


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 3),
    count=st.integers(1, 5),
    rooms=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    data=st.data(),
)
def test_the_best_of_sufficient_placements_is_chosen(
    size: int, count: int, rooms: list[int], data: st.DataObject
) -> None:
    """Identical members fill the free capacity, so the number of members in a placement needs no search."""
    racks = data.draw(st.integers(1, 3))
    min_count = data.draw(st.integers(1, count))
    it = Scene([size] * count, rooms, min_count, racks)
    placements = placing(it.passes, it.cache, Random(data.draw(st.integers(0, 9))))
    tried = asyncio.run(placements.run(it.group, it.plugin, it.attempts))

    holds = [
        min(count, sum(room // size for room in part))
        for part in (rooms[place::racks] for place in range(racks))
        if part
    ]
    enough = [each for each in holds if each >= min_count]
    assert tried.is_enough == bool(enough)
    if enough:
        assert len(tried.kept) == max(enough)
        assert len({int(each.node_name[1:]) % racks for each in tried.assumed}) == 1


class Breaks(Pods):
    """Fails with an error if no node is chosen for it, as in the part of a search that tries the skipped members."""

    async def decide(
        self, attempt: Attempt, options: DecisionOptions = BY_ITSELF
    ) -> tuple[Decision, Snapshot]:
        decision, snapshot = await super().decide(attempt, options)
        return (decision if options.choose else replace(decision, status=Status.failed("broken"))), snapshot


def test_each_decision_of_a_group_yields_to_the_event_loop_first() -> None:
    it = Scene([1, 1, 1, 1], [4], 4)
    turns: list[int] = []
    placed = pod("there", cpu="1", node="n0")

    async def yield_to_loop() -> None:
        turns.append(len(it.cache.groups.placed(KEY)))

    async def look() -> bool:
        async with it.cache.without([placed], yield_to_loop):
            pauses: Any = Rests()
            pauses.yield_to_loop = yield_to_loop
            pods: Any = Pods(it.cache, 4)
            passes = GroupPasses(pods, it.cache, Nominator(), pauses)
            tried = await passes.run(it.group, it.plugin, it.attempts, PassOptions(is_trial=True))
            await passes.take_back(tried)
        return tried.is_enough

    it.cache.add_pod(placed)
    assert asyncio.run(look())
    assert turns == [0, *range(4), *reversed(range(1, 5)), 0]
    it.cache.check()


def test_a_trial_ends_once_too_few_members_remain() -> None:
    it = Scene([9, 1, 1, 1], [4], 4)

    async def look() -> int:
        tried = await it.passes.run(
            it.group, it.plugin, it.attempts, PassOptions(is_trial=True, gives_up=True)
        )
        await it.passes.take_back(tried)
        return len(tried.members)

    assert asyncio.run(look()) == 1


def test_a_pass_interrupted_after_enough_placements_has_no_result() -> None:
    """Members that were not tried must be requeued too."""
    it = Scene([1, 1, 2, 2], [2, 2], 3)
    breaks: Any = Breaks(it.cache, 3)
    broken = GroupPasses(breaks, it.cache, Nominator(), Rests())

    async def look() -> object:
        tried = await it.passes.run(it.group, it.plugin, it.attempts)
        await it.passes.take_back(tried)
        found, _ = await GroupSearch(broken, it.cache).run(tried, it.attempts)
        return found

    assert asyncio.run(look()) is None
    assert not it.cache.counts()["assumed_pods"]


class Wavers(Pods):
    """Accepts the members of a group in any placement, at the first try only."""

    async def decide(
        self, attempt: Attempt, options: DecisionOptions = BY_ITSELF
    ) -> tuple[Decision, Snapshot]:
        decision, snapshot = await super().decide(attempt, options)
        self.decisions = getattr(self, "decisions", 0) + 1
        if self.decisions > 6:
            decision = replace(decision, node_name="", status=Status.unschedulable("no more"))
        return decision, snapshot


def test_a_group_whose_best_placement_fails_does_not_preempt() -> None:
    it = Scene([1, 1, 1], [2, 2], 2, racks=2)
    wavers: Any = Wavers(it.cache, 2)
    passes = GroupPasses(wavers, it.cache, Nominator(), Rests())
    tried = asyncio.run(placing(passes, it.cache, Random(0)).run(it.group, it.plugin, it.attempts))
    assert not tried.is_enough
    assert [None if rows is None else len(rows) for rows in tried.places] == [1]


class Slow(Pods):
    """Raises NeedsTime for each pod at PreFilter and at Reserve."""

    def __init__(self, cache: Cache, min_count: int) -> None:
        super().__init__(cache, min_count)
        self.known: set[tuple[str, str]] = set()
        self.steps = 0

    def _ask(self, what: str, uid: str) -> None:
        def steps() -> Generator[None, None, None]:
            for _ in range(3):
                self.steps += 1
                yield
            self.known.add((what, uid))

        if (what, uid) not in self.known:
            raise NeedsTime(steps())

    async def decide(
        self, attempt: Attempt, options: DecisionOptions = BY_ITSELF
    ) -> tuple[Decision, Snapshot]:
        self._ask("decide", attempt.queued.pod.uid)
        return await super().decide(attempt, options)

    def reserve(self, assumed: AssumedPod) -> Status:
        self._ask("reserve", assumed.pod.uid)
        return SUCCESS

    async def give_time(self, needs: NeedsTime, yield_to_loop: Any = None) -> None:
        for _ in needs.steps:
            await yield_to_loop()


def test_members_of_plugins_that_need_time_get_it_within_the_pass() -> None:
    it = Scene([2, 1, 1], [2, 2], 3)
    slow = Slow(it.cache, 3)
    passes = GroupPasses(cast("PodCycle", slow), it.cache, Nominator(), Rests())
    tried = asyncio.run(passes.run(it.group, it.plugin, it.attempts))
    assert tried.is_enough
    assert len(tried.members) == len(tried.kept) == 3
    assert slow.steps == 18
    it.cache.check()
    asyncio.run(passes.take_back(tried))
    assert not it.cache.groups.placed(KEY)
