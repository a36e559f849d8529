"""Dry runs of groups without some pods: they pause, and other pods are placed on the cluster as it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.group_pass import GroupPasses, Pass, PassOptions
from scheduler.engine.cycle.group_preemption import _Absent
from scheduler.engine.cycle.scheduling import BY_ITSELF, DecisionOptions
from scheduler.engine.state.nominator import Nominator
from tests.support.builders import pod
from tests.unit.engine.cycle.test_group_search import KEY, Pods, Rests, Scene

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.engine.cycle.attempt import Attempt, Decision
    from scheduler.snapshot import Snapshot


async def at_once() -> None:
    """Do not yield."""


class NotingPods(Pods):
    """Notes the decisions."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.decided: list[str] = []

    async def decide(
        self, attempt: Attempt, options: DecisionOptions = BY_ITSELF
    ) -> tuple[Decision, Snapshot]:
        self.decided.append(attempt.queued.pod.name)
        return await super().decide(attempt, options)


class Pauses(Rests):
    """Pauses before each decision, and lets a test change the cluster meanwhile."""

    meanwhile: Callable[[int], set[str]]
    count = 0

    def is_due_in_dry_run(self) -> bool:
        return True

    async def pause_dry_run(
        self,
        restore: Callable[[], Awaitable[None]],
        repeat: Callable[[frozenset[str] | None], Awaitable[None]],
        **_: Any,
    ) -> None:
        await restore()
        self.count += 1
        changed = self.meanwhile(self.count)
        await repeat(frozenset(changed))


def run_dry(
    it: Scene, victims: Sequence[Any], meanwhile: Callable[[int], set[str]]
) -> tuple[Pass, list[str], int]:
    """Return a dry run without the victims, the names of the members that were decided, and the number of pauses."""
    pauses: Any = Pauses()
    pauses.meanwhile = meanwhile
    pods: Any = NotingPods(it.cache, it.group.min_count)
    passes = GroupPasses(pods, it.cache, Nominator(), pauses)

    async def run() -> Pass:
        async with _Absent(it.cache, victims, at_once) as absent:
            options = PassOptions(is_trial=True, gives_up=True, absent=absent)
            tried = await passes.run(it.group, it.plugin, it.attempts, options)
            await passes.take_back(tried)
        return tried

    tried = asyncio.run(run())
    it.cache.check()
    assert not it.cache.counts()["assumed_pods"]
    assert not it.cache.groups.placed(KEY)
    return tried, pods.decided, pauses.count


def test_during_a_pause_the_victims_count_and_the_members_do_not() -> None:
    it = Scene([2, 2], [2, 2], 2)
    victim = pod("victim", cpu="2", node="n0")
    it.cache.add_pod(victim)
    counts: list[dict[str, int]] = []

    def meanwhile(_: int) -> set[str]:
        counts.append(it.cache.counts())
        return set()

    tried, decided, _ = run_dry(it, [victim], meanwhile)
    assert counts == [{"nodes": 2, "pods": 1, "assumed_pods": 0}] * 2
    assert {each.node_name for each in tried.assumed} == {"n0", "n1"}
    assert decided == ["m0", "m1"], "members on unchanged nodes are not decided again"


@pytest.mark.parametrize(
    ("nodes", "is_removed", "expected"),
    [([4, 2, 3], False, ["n1", "n2"]), ([2, 2, 4], True, ["n0", "n1"])],
    ids=["changed", "removed"],
)
def test_a_member_on_a_changed_or_removed_node_is_tried_again(
    nodes: list[int], is_removed: bool, expected: list[str]
) -> None:
    it = Scene([2, 2], nodes, 2)

    def meanwhile(count: int) -> set[str]:
        if count == 2 and is_removed:
            it.cache.remove_node("n2")
        elif count == 2:
            it.cache.add_pod(pod("other", cpu="3", node="n0"))
            return {"n0"}
        return set()

    tried, decided, _ = run_dry(it, [], meanwhile)
    assert decided == ["m0", "m1", "m0"]
    assert sorted(each.node_name for each in tried.assumed) == expected


def test_a_group_does_not_fit_after_another_pod_took_its_node_in_a_pause() -> None:
    it = Scene([2, 2], [2, 2], 2)

    def meanwhile(count: int) -> set[str]:
        if count == 2:
            it.cache.add_pod(pod("other", cpu="1", node="n0"))
            return {"n0"}
        return set()

    tried, _, _ = run_dry(it, [], meanwhile)
    assert not tried.is_enough


def test_a_victim_that_is_deleted_in_a_pause_does_not_count_afterwards() -> None:
    it = Scene([2, 2], [4], 2)
    victim = pod("victim", cpu="4", node="n0")
    it.cache.add_pod(victim)

    def meanwhile(count: int) -> set[str]:
        if count == 2:
            it.cache.remove_pod(victim.uid)
            return {"n0"}
        return set()

    tried, _, _ = run_dry(it, [victim], meanwhile)
    assert tried.is_enough
    assert it.cache.pod(victim.uid) is None


def test_a_dry_run_ends_although_its_nodes_change_in_each_pause() -> None:
    it = Scene([1] * 6, [6], 6)
    tried, decided, pauses = run_dry(it, [], lambda _: {"n0"})
    assert tried.is_enough
    assert len(decided) <= 12
    assert pauses < 12
