"""The nominated pods for a decision follow nominations and nodes, and only what changed is read again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.framework.pod_groups import PodGroup
from scheduler.objects.pod_group import COMPOSITE_POD_GROUPS, POD_GROUPS, GroupKey
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


class CountingNominator(Nominator):
    """Counts the nodes whose nominations are read."""

    reads = 0

    def nominated_pods_for_node(self, node_name: str) -> tuple[PodInfo, ...]:
        self.reads += 1
        return super().nominated_pods_for_node(node_name)


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    for number in range(50):
        cache.add_node(node(f"n{number}"))
    return cache


@pytest.fixture
def nominator() -> CountingNominator:
    return CountingNominator()


def others(
    nominator: Nominator, cache: Cache, *, name: str = "web", priority: int = 5
) -> dict[str, list[str]]:
    snapshot = cache.snapshot()
    found = nominator.others(pod(name, priority=priority), snapshot)
    return {snapshot.name_of(row): [each.name for each in found[row]] for row in found}


def test_a_second_decision_reads_only_nodes_that_changed(cache: Cache, nominator: CountingNominator):
    for number in range(40):
        nominator.add(pod(f"p{number}", priority=9), f"n{number}")
    assert len(others(nominator, cache)) == 40

    nominator.reads = 0
    assert len(others(nominator, cache)) == 40
    assert nominator.reads == 0

    nominator.add(pod("p3", priority=9), "n45")
    cache.add_pod(pod("bound", node="n7"))
    found = others(nominator, cache)

    assert "n3" not in found
    assert found["n45"] == ["p3"]
    assert nominator.reads == 3  # n3, n45 and n7


def test_pods_of_different_priorities_share_columns_if_the_nominated_pods_are_the_same(
    cache: Cache, nominator: CountingNominator
):
    nominator.add(pod("high", priority=9), "n1")
    others(nominator, cache, priority=0)
    nominator.reads = 0

    assert others(nominator, cache, priority=9) == {"n1": ["high"]}
    assert nominator.reads == 0
    assert others(nominator, cache, priority=10) == {}


def test_no_nomination_costs_nothing(cache: Cache, nominator: CountingNominator):
    assert nominator.others(pod("web"), cache.snapshot()) == {}
    nominator.add(pod("low", priority=1), "n1")
    assert nominator.others(pod("web", priority=2), cache.snapshot()) == {}
    assert nominator.reads == 0


def test_a_bound_pod_counts_once(cache: Cache, nominator: CountingNominator):
    pending = pod("high", priority=9, cpu="2")
    nominator.add(pending, "n1")
    assert others(nominator, cache) == {"n1": ["high"]}

    bound = pending.placed_on("n1")
    cache.add_pod(bound)
    nominator.add(bound, "n1")

    assert others(nominator, cache) == {}


def test_many_changes_at_once_drop_the_columns(cache: Cache, nominator: CountingNominator):
    nominator.add(pod("first"), "n1")
    others(nominator, cache, priority=0)
    for number in range(1100):
        nominator.add(pod(f"p{number}"), f"gone-{number}")

    assert not nominator._views
    assert others(nominator, cache, priority=0) == {"n1": ["first"]}


def test_the_number_of_stored_priorities_is_limited(cache: Cache, nominator: CountingNominator):
    for number in range(100):
        nominator.add(pod(f"p{number}", priority=number), "n1")
        others(nominator, cache, priority=number)

    assert len(nominator._views) <= 16
    assert others(nominator, cache, priority=98) == {"n1": ["p98", "p99"]}


def test_pods_of_the_own_group_are_left_out(cache: Cache, nominator: CountingNominator):
    for name, group in (("a", "g"), ("b", "g"), ("c", "h")):
        nominator.add(pod(name, schedulingGroup={"podGroupName": group}), "n1")
    snapshot = cache.snapshot()
    own = nominator.others(pod("web"), snapshot, PodGroup(GroupKey(POD_GROUPS, "default", "g"), "g"))
    nothing_left_out = nominator.others(
        pod("web"), snapshot, PodGroup(GroupKey(POD_GROUPS, "default", "other"), "other")
    )
    row = snapshot.row_of("n1")
    assert row is not None

    assert [each.name for each in own[row]] == ["c"]
    assert [each.name for each in nothing_left_out[row]] == ["a", "b", "c"]


def test_pods_of_all_groups_of_the_own_tree_are_left_out(cache: Cache, nominator: CountingNominator):
    for name, group in (("a", "g"), ("b", "h"), ("c", "other")):
        nominator.add(pod(name, schedulingGroup={"podGroupName": group}), "n1")
    leaves = tuple(PodGroup(GroupKey(POD_GROUPS, "default", name), name) for name in ("g", "h", "empty"))
    key = GroupKey(COMPOSITE_POD_GROUPS, "default", "root")
    snapshot = cache.snapshot()
    own = nominator.others(pod("web"), snapshot, PodGroup(key, "root", is_composite=True, children=leaves))
    row = snapshot.row_of("n1")
    assert row is not None

    assert [each.name for each in own[row]] == ["c"]


@pytest.mark.parametrize("seed", range(20))
def test_the_others_are_those_that_a_new_reader_finds(cache: Cache, nominator: CountingNominator, seed: int):
    random = Random(seed)
    pods = [pod(f"p{number}", priority=random.randrange(4)) for number in range(30)]
    names = [f"n{number}" for number in range(60)]
    for _ in range(200):
        name, chance = random.choice(names), random.random()
        if chance < 0.5:
            nominator.add(random.choice(pods), name)
        elif chance < 0.6:
            nominator.delete(random.choice(pods).uid)
        elif chance < 0.75:
            cache.remove_node(name)
        else:
            cache.add_node(node(name))
        asking = random.choice(pods)
        expected = {
            name: [
                other.name
                for other in nominator.nominated_pods_for_node(name)
                if other.priority >= asking.priority and other.uid != asking.uid
            ]
            for name in sorted(nominator.nominated_nodes)
            if cache.snapshot().row_of(name) is not None
        }
        found = others(nominator, cache, name=asking.name, priority=asking.priority)
        assert found == {name: there for name, there in expected.items() if there}
    nominator.check()
