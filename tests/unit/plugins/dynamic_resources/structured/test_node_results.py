"""The results of many nodes are computed once, and again after a change that matters."""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plugins.dynamic_resources.structured.allocator import _Searching
from plugins.dynamic_resources.structured.node_results import NodeResults
from scheduler.loop_work import run_to_end
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
)
from tests.support.builders import node
from tests.support.counted_labels import lines_run
from tests.support.snapshots import cache_of, snapshot_of
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, claim, device, part, selecting

if TYPE_CHECKING:
    from collections.abc import Generator

NO_ROOM = "cannot allocate all claims"
NODES = [node(f"n{number}", labels={"zone": f"z{number % 2}"}) for number in range(10)]


def searching(*slices: Any) -> Search:
    return Search(device_class(), claim("one"), *slices)


def steps(search: Search, cache: Any) -> int:
    """Return how many steps it takes to evaluate all nodes."""
    before = search.steps
    search.judge(cache.snapshot())
    return search.steps - before


def of_nodes():
    return [resource_slice(each.name) for each in NODES]


def each_for_itself():
    """Devices that several claims may share, so that no two nodes are equivalent."""
    return [
        resource_slice(each.name, [{"name": "gpu-0", "allowMultipleAllocations": True}]) for each in NODES
    ]


def test_nodes_with_the_same_or_identical_devices_are_searched_once():
    one = searching(part("s", 1, [{"name": "gpu-0"}], allNodes=True))
    zones = [
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [each]}]}]}
        for each in ("z0", "z1")
    ]
    two = searching(
        *(
            part(f"s{place}", 1, [{"name": "gpu-0"}], pool=f"p{place}", nodeSelector=zone)
            for place, zone in enumerate(zones)
        )
    )

    once = steps(one, cache_of(NODES))
    assert steps(two, cache_of(NODES)) == once
    assert steps(searching(*of_nodes()), cache_of(NODES)) == once
    assert steps(searching(*each_for_itself()), cache_of(NODES)) == len(NODES) * once


def test_nodes_whose_own_devices_do_not_match_are_searched_once():
    local = [resource_slice(each.name, driver="other.example.com") for each in NODES]
    search = searching(*local, part("s", 1, [{"name": "gpu-0"}], allNodes=True))
    search.add(device_class("gpu", f'device.driver == "{DRIVER}"'))
    alone = searching(part("s", 1, [{"name": "gpu-0"}], allNodes=True))

    assert steps(search, cache_of(NODES)) == steps(alone, cache_of(NODES))


def test_an_identical_next_pod_needs_no_search():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    steps(search, cache)
    search.claims[:] = []
    search.add(claim("another"))

    assert steps(search, cache) == 0
    assert set(search.judge(cache.snapshot()).values()) == {""}


def test_a_pod_with_another_claim_is_searched():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    steps(search, cache)
    search.claims[:] = []
    search.add(claim("another", exactly(count=2)))

    assert set(search.judge(cache.snapshot()).values()) == {NO_ROOM}


def test_only_nodes_with_allocated_devices_are_searched_again():
    search, cache = searching(*each_for_itself()), cache_of(NODES)
    all_steps = steps(search, cache)
    search.add(resource_claim("taken", allocated=allocation("gpu-0", node="n3")))

    assert 0 < steps(search, cache) < all_steps / 5
    assert [name for name, words in search.judge(cache.snapshot()).items() if words] == ["n3"]

    search.allocated.set("uid-of-default-taken", None)

    assert set(search.judge(cache.snapshot()).values()) == {""}


def test_an_unchanged_allocation_changes_nothing():
    taken = resource_claim("taken", allocated=allocation("gpu-0", node="n3"))
    search, cache = searching(*of_nodes(), taken), cache_of(NODES)
    steps(search, cache)
    search.add({**taken, "status": {**taken["status"], "reservedFor": []}})

    assert steps(search, cache) == 0


def test_only_nodes_with_changed_slices_are_searched_again():
    search, cache = searching(*each_for_itself()), cache_of(NODES)
    search.judge(cache.snapshot())

    all_steps = search.steps
    search.add(resource_slice("n4", 0))

    assert [name for name, words in search.judge(cache.snapshot()).items() if words] == ["n4"]
    assert search.steps - all_steps < all_steps / 5

    del search.slices[next(iter(search.slices))]

    assert [name for name, words in search.judge(cache.snapshot()).items() if words] == ["n0", "n4"]


def test_nodes_are_not_searched_again_for_irrelevant_changes():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    steps(search, cache)

    cache.add_node(node("n4", labels={"zone": "elsewhere"}))
    cache.add_node(node("new"))
    cache.remove_node("n9")
    search.add(resource_slice("absent"))

    assert 0 < steps(search, cache) < 3  # the new node has no devices, so its result is quick
    assert [name for name, words in search.judge(cache.snapshot()).items() if words] == ["new"]


def test_a_changed_class_is_evaluated_again():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    search.judge(cache.snapshot())

    search.add(device_class("gpu", 'device.driver == "none"'))

    assert set(search.judge(cache.snapshot()).values()) == {NO_ROOM}


def test_added_changed_and_deleted_nodes_are_evaluated_in_their_current_state():
    zone = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}]
    }
    search = searching(part("s", 1, [{"name": "gpu-0"}], nodeSelector=zone), resource_slice("late"))
    cache = cache_of(NODES)

    def fits() -> set[str]:
        return {name for name, words in search.judge(cache.snapshot()).items() if not words}

    assert fits() == {"n1", "n3", "n5", "n7", "n9"}

    cache.add_node(node("late"))
    cache.remove_node("n3")
    cache.add_node(node("n1", labels={"zone": "z0"}))
    cache.add_node(node("n2", labels={"zone": "z1"}))

    assert fits() == {"late", "n2", "n5", "n7", "n9"}


def test_some_nodes_of_the_cluster_are_evaluated_alone():
    search, snapshot = searching(resource_slice("n1"), resource_slice("n8")), snapshot_of(*NODES)
    rows = snapshot.all_rows[[8, 2]]

    index, table = search.allocator().judge(snapshot, rows, search.claims)
    taken, _ = search.allocator().judge(snapshot.take(rows), snapshot.all_rows[:2], search.claims)

    assert table[index[8]] is None
    assert table[index[2]].words == NO_ROOM
    assert [bool(place) for place in taken] == [False, True]


def test_results_for_some_nodes_are_used_for_the_cluster():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    search.judge(cache.snapshot())
    search.add(resource_claim("taken", allocated=allocation("gpu-0", node="n3")))
    snapshot = cache.snapshot()

    some = snapshot.take(snapshot.all_rows[2:4])
    index, table = search.allocator().judge(some, some.all_rows, search.claims)

    assert [table[place] and table[place].words for place in index] == [None, NO_ROOM]
    assert [name for name, words in search.judge(snapshot).items() if words] == ["n3"]


def test_an_error_names_its_claim():
    faulty = exactly(selectors=selecting(f'device.attributes["{DRIVER}"].missing'))
    search = Search(device_class(), claim("one", faulty), *of_nodes())
    snapshot = snapshot_of(*NODES)
    assert all(words.startswith("claim default/one: ") for words in search.judge(snapshot).values())

    search.claims[:] = []
    search.add(claim("two", faulty))

    assert all(words.startswith("claim default/two: ") for words in search.judge(snapshot).values())


def test_a_changed_device_is_evaluated_again():
    fast = exactly(selectors=selecting(f'device.attributes["{DRIVER}"].fast'))
    search = Search(device_class(), claim("one", fast), resource_slice("n0", [device("gpu-0", fast=False)]))
    assert search.devices(NODES[0]) == "none"

    search.add(resource_slice("n0", [device("gpu-0", fast=True)]))

    assert search.devices(NODES[0]) == [["gpu-0"]]


def test_the_set_of_missing_results_is_small_once_all_nodes_are_evaluated():
    many = [node(f"n{number}") for number in range(200)]
    search = searching(*(resource_slice(each.name) for each in many))

    search.judge(cache_of(many).snapshot())

    ((_, question),) = search.inventory.questions._known.values()
    assert sys.getsizeof(question.verdicts._missing) == sys.getsizeof(set())


def test_the_cost_of_a_changed_slice_does_not_depend_on_the_number_of_nodes():
    def lines(number: int) -> int:
        many = [node(f"n{each}") for each in range(number)]
        search, cache = searching(*(resource_slice(each.name) for each in many)), cache_of(many)
        snapshot = cache.snapshot()
        for devices in (2, 3):
            search.judge(snapshot)
            search.add(resource_slice("n7", devices))
        search.inventory.refresh()
        allocator = search.allocator()
        return lines_run(lambda: allocator.judge(snapshot, snapshot.all_rows, search.claims))

    assert lines(400) < 1.2 * lines(100)


@pytest.mark.parametrize("seed", range(12))
def test_incremental_results_equal_those_of_a_fresh_search(seed: int):
    random = Random(seed)
    names = [f"n{number}" for number in range(40)]
    objects: dict[str, Any] = {}
    taken: dict[str, Any] = {}
    search, cache = searching(), cache_of([node(name) for name in names])

    def change() -> None:
        name, kind = random.choice(names), random.randrange(8)
        if kind == 0:
            cache.add_node(node(name, labels={"zone": f"z{random.randrange(3)}"}))
        elif kind == 1:
            device, pool = random.choice([("gpu-0", name), ("z", "zone-0"), ("z", "zone-1")])
            taken[pool] = resource_claim(pool, allocated=allocation(device, node=pool))
            search.add(taken[pool])
        elif kind == 2 and taken:
            search.allocated.set(taken.popitem()[1]["metadata"]["uid"], None)
        elif kind == 3 and objects:
            del search.slices[objects.popitem()[0]]
        elif kind == 4:
            zone = {"key": "zone", "operator": "In", "values": [f"z{random.randrange(3)}"]}
            pool = f"zone-{random.randrange(2)}"
            made = part(pool, 1, [{"name": "z"}], pool=pool, nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [zone]}]})  # fmt: skip
            objects[made["metadata"]["name"]] = made
            search.add(made)
        else:
            made = resource_slice(name, random.randrange(3))
            objects[made["metadata"]["name"]] = made
            search.add(made)

    for _ in range(60):
        for _ in range(random.randrange(1, 4)):
            change()
        fresh = searching(*objects.values(), *taken.values())
        assert search.judge(cache.snapshot()) == fresh.judge(cache.snapshot())


def test_views_that_no_node_has_any_more_are_forgotten():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    for number in range(3000):
        search.add(resource_slice("n3", [device("gpu-0", number=number)]))
        search.judge(cache.snapshot())

    ((_, question),) = search.inventory.questions._known.values()
    assert max(len(question.verdicts._pools), len(question.verdicts._place)) < 2500
    assert len(question.verdicts._number) <= len(NODES)


def test_what_is_known_of_existing_nodes_is_kept_however_many_they_are(monkeypatch: pytest.MonkeyPatch):
    inner = "plugins.dynamic_resources.structured"
    for limit in ("inventory._GONE_NODES", "question.KEPT_POOLS", "node_results.KEPT_POOLS"):
        monkeypatch.setattr(f"{inner}.{limit}", 0)
    search, cache = searching(*each_for_itself()), cache_of(NODES)
    search.judge(cache.snapshot())
    (question,) = search.inventory.questions._keys
    views, relevant = dict(search.inventory._views), dict(question._matter)

    search.add(resource_slice("n4", 0))
    search.judge(cache.snapshot())

    for each in NODES:
        assert (search.inventory._views[each.name] is views[each.name]) == (each.name != "n4")
    assert relevant.keys() <= question._matter.keys()


def test_what_one_attempt_found_of_all_nodes_is_not_arranged_again_by_another_that_waited():
    many = [node(f"n{number}") for number in range(200)]
    search, snapshot = searching(*(resource_slice(each.name) for each in many)), cache_of(many).snapshot()
    search.judge(snapshot)
    (question,) = search.inventory.questions._keys
    views = search.inventory.views_of_all(snapshot)
    assert views is not None
    results = NodeResults()

    def found() -> Generator[None, None, None]:
        return results.find_all(views, search.allocated, question, _Searching(search.allocator(), question))

    first, second = found(), found()
    next(second)
    run_to_end(first)
    arranged = results._numbers

    assert list(second) == [], "it does not go on with the other nodes"
    assert results._numbers is arranged


def test_attempts_that_begin_before_any_view_exists_build_each_view_once():
    many = [node(f"n{number}") for number in range(100)]
    search, snapshot = searching(*(resource_slice(each.name) for each in many)), cache_of(many).snapshot()
    search.inventory.refresh()
    first, second = (search.inventory.looks(snapshot, snapshot.all_rows) for _ in range(2))
    next(first)
    next(second)

    steps = len(list(first))

    assert steps > 2
    assert list(second) == []


def test_devices_before_are_freed_in_the_steps_that_build_views():
    many = [node(f"n{number}") for number in range(100)]
    search, snapshot = searching(*(resource_slice(each.name) for each in many)), cache_of(many).snapshot()
    search.inventory.refresh()
    views = search.inventory.views_of_all(snapshot)
    assert views is not None
    assert all(views.by_row)
    for each in many:
        search.add(resource_slice(each.name, 2))
    search.inventory.refresh()
    assert all(pool.is_gone for view in views.by_row for pool in view)

    for _ in search.inventory.looks(snapshot, snapshot.all_rows):
        pass

    assert not any(pool.is_gone for view in views.by_row for pool in view)


def test_the_views_of_nodes_are_built_a_few_in_a_step():
    many = [node(f"n{number}") for number in range(100)]
    search, snapshot = searching(*(resource_slice(each.name) for each in many)), cache_of(many).snapshot()
    search.inventory.refresh()
    views = search.inventory._views

    built = [len(views) for _ in search.inventory.looks(snapshot, snapshot.all_rows)]

    assert built == list(range(1, 100, 8))
    assert len(views) == len(many)


def test_views_are_built_in_steps_until_the_last_node_is_removed():
    search, cache = searching(*of_nodes()), cache_of(NODES)
    snapshot = cache.snapshot()
    search.inventory.refresh()

    steps = search.inventory.looks(snapshot, snapshot.all_rows)
    next(steps)
    cache.remove_node(NODES[-1].name)

    assert list(steps) == []
    assert search.judge(cache.snapshot())
