"""Accounts of queues: usage, fair shares, groups and reports."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.preemption.ranking import Unit
from plugins.quotas import ledger, queues
from plugins.quotas import ledger as ledgers
from plugins.quotas.ledger import FairShares, Ledger, QueueReport, divide, want
from plugins.quotas.queues import QUEUES, Queue, Tree
from scheduler.engine.state.cache import Cache
from scheduler.framework import PodGroup
from scheduler.loop_work import run_to_end
from scheduler.objects.pod_group import GroupKey
from tests.support.builders import node, pod
from tests.support.counted_labels import calls_of
from tests.unit.plugins.quotas.test_fair_queues import TREE, TWO, World, incoming, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo


def queue(name: str, parent: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": "2026-03-01T08:00:00Z"}
    return {"metadata": metadata, "spec": {"parent": parent, **spec}}


class Cluster:
    """Nodes, and queues of one namespace each, some of them with a parent."""

    def __init__(self, n_queues: int, n_parents: int) -> None:
        self.cache = Cache()
        for number in range(4):
            self.cache.add_node(node(f"n{number}", cpu="20"))
        self.objects = self.cache.table.watch_kind(QUEUES)
        for number in range(n_parents):
            self.objects[f"t{number}"] = queue(f"t{number}", max={"cpu": "30"})
        for number in range(n_queues):
            self.objects[f"q{number}"] = queue(
                f"q{number}", f"t{number % n_parents}", namespaces=[f"ns{number}"], max={"cpu": "9"}
            )


def changed(random: Random, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a queue with another weight, or with another parent, namespace and max."""
    if random.randrange(2):
        return {**obj, "spec": {**obj["spec"], "weight": random.randint(1, 9)}}
    parent, most = f"t{random.randrange(2)}", str(random.randint(3, 12))
    return queue(obj["metadata"]["name"], parent, namespaces=[f"ns{random.randrange(8)}"], max={"cpu": most})


@pytest.mark.parametrize("seed", range(20))
def test_incremental_counts_equal_full_counts(seed: int) -> None:
    random, it, kept = Random(seed), Cluster(6, 2), Ledger()
    placed: list[Any] = []
    waiting: list[Any] = []
    for step in range(60):
        match random.randrange(7):
            case 0 | 1:
                each = pod(f"w{step}", namespace=f"ns{random.randrange(8)}", cpu=str(random.randint(1, 6)))
                waiting.append(each)
                kept.pending.put(each)
            case 2 if waiting:
                each = waiting.pop(random.randrange(len(waiting)))
                kept.pending.drop(each.uid)
                placed.append(it.cache.assume(each, f"n{random.randrange(4)}"))
            case 3 if placed:
                it.cache.remove_pod(placed.pop(random.randrange(len(placed))).uid)
            case 4 if waiting:
                kept.pending.give_up(random.choice(waiting).uid)
            case 5 | 6:
                name = f"q{random.randrange(6)}"
                it.objects[name] = changed(random, it.objects[name])
        found = kept.standing(it.cache.snapshot())
        anew = Ledger()
        anew.standing(it.cache.snapshot())
        for each in waiting:
            anew.pending.put(each)
            if kept.pending.is_hopeless(each.uid):
                anew.pending.give_up(each.uid)
        expected = anew.standing(it.cache.snapshot())
        assert [each.name for each in found.tree.queues] == [each.name for each in expected.tree.queues]
        for field in ("used", "leaving", "deserved", "limit", "whole"):
            assert np.array_equal(getattr(found, field), getattr(expected, field)), (step, field)


@pytest.mark.parametrize("n_queues", [20, 2000])
def test_a_pod_is_counted_in_its_queue_and_its_ancestors_only(
    n_queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, kept = Cluster(n_queues, 4), Ledger()
    run_to_end(kept.reading(it.cache.snapshot()))
    kept.standing(it.cache.snapshot())
    counted = calls_of(monkeypatch, ledgers._Sums, "_amounts")
    for number in range(10):
        each = pod(f"p{number}", namespace="ns7", cpu="1")
        kept.pending.put(each)
        kept.standing(it.cache.snapshot())
        kept.pending.drop(each.uid)
        it.cache.assume(each, "n0")
        kept.standing(it.cache.snapshot())
    assert len(counted) == 2 * 10 * 3
    assert kept.standing(it.cache.snapshot()).used.sum(axis=0)[0] == 2 * 10_000


def test_an_earlier_result_stays_unchanged() -> None:
    it, kept = Cluster(2, 1), Ledger()
    before = kept.standing(it.cache.snapshot())
    it.cache.assume(pod("p", namespace="ns0", cpu="1"), "n0")
    after = kept.standing(it.cache.snapshot())
    assert (before.used.sum(), after.used.sum() > 0) == (0, True)


def test_a_changed_weight_recomputes_only_its_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    it, kept = Cluster(200, 20), Ledger()
    for name in ("ns7", "ns27"):
        kept.pending.put(pod(f"p-{name}", namespace=name, cpu="9"))
    for number in range(4):
        it.cache.assume(pod(f"o{number}", namespace="others", cpu="18"), f"n{number}")
    before = kept.standing(it.cache.snapshot())
    settled, divided = calls_of(monkeypatch, queues, "_settled"), calls_of(monkeypatch, ledger, "divide")
    it.objects["q7"] = queue("q7", "t7", namespaces=["ns7"], max={"cpu": "9"}, weight=3)
    after = kept.standing(it.cache.snapshot())
    assert (len(settled), len(divided)) == (0, 1)
    places = [after.tree.place(name) for name in ("q7", "q27")]
    column = after.resources["cpu"]
    assert before.deserved[places, column].tolist() == [4000, 4000]
    assert after.deserved[places, column].tolist() == [6000, 2000]
    anew = Ledger()
    anew.standing(it.cache.snapshot())
    for name in ("ns7", "ns27"):
        anew.pending.put(pod(f"p-{name}", namespace=name, cpu="9"))
    assert np.array_equal(anew.standing(it.cache.snapshot()).deserved, after.deserved)


@pytest.mark.parametrize("n_queues", [20, 2000])
def test_queues_without_pods_are_not_counted(n_queues: int, monkeypatch: pytest.MonkeyPatch) -> None:
    it, kept = Cluster(n_queues, 4), Ledger()
    run_to_end(kept.reading(it.cache.snapshot()))
    it.cache.assume(pod("p", namespace="ns7", cpu="1"), "n0")
    counted = calls_of(monkeypatch, ledgers._Sums, "_amounts")
    assert kept.standing(it.cache.snapshot()).used.sum() > 0
    assert len(counted) == 3


Row = tuple[int, ...]


def divided(
    room: Row, wanted: Sequence[Row], *, sure: Sequence[Row] | None = None, weights: Sequence[int] = ()
) -> list[list[float]]:
    found = divide(
        np.array(room, dtype=float),
        np.maximum(np.array(room, dtype=float), 1),
        np.array(wanted, dtype=float),
        np.zeros((len(wanted), len(room))) if sure is None else np.array(sure, dtype=float),
        np.array(weights or [1] * len(wanted), dtype=float),
    )
    return [[round(float(each), 6) for each in row] for row in found]


@pytest.mark.parametrize(
    ("room", "wanted", "options", "found"),
    [
        pytest.param((12,), [(99,), (99,), (99,)], {}, [[4], [4], [4]], id="equals get equal parts"),
        pytest.param(
            (12,), [(99,), (99,), (99,)], {"weights": [1, 2, 3]}, [[2], [4], [6]], id="parts go by weight"
        ),
        pytest.param(
            (12,), [(2,), (99,), (99,)], {}, [[2], [5], [5]], id="unused shares are divided among the others"
        ),
        pytest.param((12,), [(2,), (3,)], {}, [[2], [3]], id="no more than the demand"),
        pytest.param(
            (12,), [(99,), (99,)], {"sure": [(8,), (0,)]}, [[8], [4]], id="the guaranteed part comes first"
        ),
        pytest.param(
            (12,),
            [(99,), (99,)],
            {"sure": [(3,), (0,)]},
            [[6], [6]],
            id="the guaranteed part counts toward the share",
        ),
        pytest.param(
            (12,),
            [(99,), (99,)],
            {"sure": [(18,), (6,)]},
            [[9], [3]],
            id="too much that is sure is scaled down",
        ),
        pytest.param((12,), [(1,), (99,)], {"sure": [(8,), (0,)]}, [[1], [11]], id="unused min is borrowed"),
        pytest.param(
            (9, 18),
            [(90, 360), (270, 90)],
            {},
            [[3, 12], [6, 2]],
            id="dominant shares, as in the paper on DRF",
        ),
        pytest.param(
            (10, 10), [(99, 0), (0, 99), (99, 99)], {}, [[5, 0], [0, 5], [5, 5]], id="two resources run out"
        ),
        pytest.param(
            (10, 10),
            [(99, 0), (99, 0), (0, 99)],
            {},
            [[5, 0], [5, 0], [0, 10]],
            id="a resource with one consumer goes to it",
        ),
        pytest.param((0,), [(5,), (5,)], {}, [[0], [0]], id="nothing to divide"),
        pytest.param((5,), [(0,), (0,)], {}, [[0], [0]], id="no demand"),
    ],
)
def test_the_capacity_is_divided(
    room: Row, wanted: Sequence[Row], options: dict[str, Any], found: list[list[float]]
) -> None:
    assert divided(room, wanted, **options) == found


def slowly(
    room: Sequence[float], wanted: Sequence[Row], sure: Sequence[Row], weights: Sequence[int]
) -> list[list[float]]:
    """Let all shares grow together; if that exceeds a resource, find the level by bisection, and the queues that stop."""
    n, columns = len(wanted), range(len(room))
    whole = [max(each, 1) for each in room]
    floor = [[float(min(s, w)) for s, w in zip(sure[i], wanted[i], strict=True)] for i in range(n)]
    for r in columns:
        total = sum(floor[i][r] for i in range(n))
        if total > room[r]:
            for i in range(n):
                floor[i][r] *= room[r] / total
    dominant = [max(wanted[i][r] / whole[r] for r in columns) for i in range(n)]
    full = [dominant[i] / weights[i] for i in range(n)]

    def has(i: int, level: float) -> list[float]:
        part = 1.0 if full[i] == 0 else min(1.0, level / full[i])
        return [max(floor[i][r], wanted[i][r] * part) for r in columns]

    stopped: dict[int, float] = {}

    def overfilled(level: float) -> list[int]:
        totals = [sum(has(i, stopped.get(i, level))[r] for i in range(n)) for r in columns]
        return [r for r in columns if totals[r] > room[r] * (1 + 1e-9) + 1e-9]

    while len(stopped) < n:
        top = max(full[i] for i in range(n) if i not in stopped)
        if not overfilled(top):
            break
        low, high = 0.0, top
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if overfilled(middle) else (middle, high)
        out = overfilled(high + 1e-7 * (1 + high))
        growing = [
            i
            for i in range(n)
            if i not in stopped
            and any(has(i, high + 1e-7 * (1 + high))[r] > has(i, low)[r] + 1e-12 for r in out)
        ]
        for i in growing:
            stopped[i] = low
    return [has(i, stopped.get(i, full[i])) for i in range(n)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Row, list[Row], list[Row], list[int]]:
    n, columns = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    row = st.tuples(*[st.sampled_from([0, 0, 1, 2, 3, 5, 8, 20, 100])] * columns)
    rows = st.lists(row, min_size=n, max_size=n)
    weights = st.lists(st.integers(1, 5), min_size=n, max_size=n)
    return draw(row), draw(rows), draw(rows), draw(weights)


@given(cases())
@example(((0, 1), [(1, 0), (0, 1)], [(0, 0), (0, 0)], [1, 1]))
def test_the_fast_division_equals_the_slow_one(case: tuple[Row, list[Row], list[Row], list[int]]) -> None:
    room, wanted, sure, weights = case
    found = divided(room, wanted, sure=sure, weights=weights)

    assert np.allclose(found, slowly(room, wanted, sure, weights), atol=1e-3)
    assert (np.array(found).sum(axis=0) <= np.array(room) + 1e-3).all()
    assert (np.array(found) <= np.array(wanted) + 1e-6).all()


def test_a_tree_is_divided_from_the_root_within_every_max() -> None:
    tree = Tree([Queue("a", weight=3), Queue("b"), Queue("a-1", "a"), Queue("a-2", "a", max={"cpu": 10})])
    shares = FairShares(tree, ("cpu",))
    wanted, asked = np.zeros((2, 4, 1), dtype=np.int64)
    for name in ("a-1", "a-2", "b"):
        want(wanted, asked, shares.limit, tree.paths[name], np.array([200]))
    found = shares.deserved(wanted, np.array([100]), np.array([100]))

    assert {queue.name: int(found[place, 0]) for place, queue in enumerate(tree.queues)} == {
        "a": 75,
        "b": 25,
        "a-1": 65,
        "a-2": 10,
    }


def test_large_amounts_are_divided_exactly() -> None:
    tree = Tree([Queue("a"), Queue("b")])
    gib = 1 << 50
    demand = np.array([[gib + 1], [3]])
    found = FairShares(tree, ("memory",)).deserved(demand, np.array([gib + 4]), np.array([gib + 4]))

    assert found.tolist() == [[gib + 1], [3]]


GROUP = PodGroup(GroupKey("PodGroup", "a", "g"), "uid", min_count=1)


def members_on_nodes(count: int) -> list[PodInfo]:
    pods = running("a", count)
    for each in pods:
        each._group = GROUP.key
    return pods


def singles(pods: list[PodInfo]) -> list[Unit]:
    return [Unit((each,), each.priority) for each in pods]


def whole(pods: list[PodInfo]) -> list[Unit]:
    return [Unit(tuple(pods), pods[0].priority, is_group=True)]


@pytest.mark.parametrize(
    ("queues", "units", "wants", "priority", "leaving"),
    [
        pytest.param(TWO, singles(running("b", 12)), 6, 0, 6, id="borrowed pods"),
        pytest.param(TWO, singles(running("b", 12)), 7, 0, 0, id="more than its share"),
        pytest.param(TWO, whole(running("b", 12)), 6, 0, 0, id="a gang that is not borrowed as a whole"),
        pytest.param(
            TWO,
            whole(running("b", 4)) + whole(running("b", 4, first=4)) + whole(running("b", 4, first=8)),
            6,
            0,
            4,
            id="gangs, as many as are borrowed as wholes",
        ),
        pytest.param(
            TWO,
            whole(running("b", 8)) + singles(running("b", 4, first=8)),
            6,
            0,
            4,
            id="single pods if the gang is too large",
        ),
        pytest.param(
            {"a": {"max": {"cpu": 5}}, "b": {}}, singles(running("b", 12)), 6, 0, 0, id="more than its max"
        ),
        pytest.param(TWO, singles(running("a", 12)), 6, 10, 12, id="lower priorities of its own queue"),
        pytest.param(TWO, singles(running("a", 12)), 6, 0, 0, id="not its equals"),
        pytest.param(
            TWO, singles(members_on_nodes(12)), 6, 10, 0, id="not its own members, whose priority is lower"
        ),
        pytest.param(TWO, singles(running("c", 12)), 6, 10, 0, id="pods without a queue"),
        pytest.param(TREE, singles(running("a", 12)), 6, 10, 12, id="of no queue, by priority"),
    ],
)
def test_a_group_reclaims_borrowed_capacity_in_whole_units(
    queues: dict[str, dict[str, Any]], units: list[Unit], wants: int, priority: int, leaving: int
) -> None:
    world = World(queues, [pod for unit in units for pod in unit.pods])
    members = [incoming(name=f"g{number}", priority=priority) for number in range(wants)]
    world.wait(*members)

    found = run_to_end(world.plugin.removable(units, GROUP, members, world.cache.snapshot(), None))

    assert sum(len(unit.pods) for unit in found) == leaving
    assert all(unit in units for unit in found)


def test_a_queue_includes_its_descendants() -> None:
    world = World(TREE, [*running("nlp", 2), *running("vision", 1)])
    world.wait(incoming("nlp", "2"), incoming("shop", "1", name="q"))

    found = run_to_end(world.plugin.report())

    assert {name: its.pending for name, its in found.items()} == {
        "research": 1,
        "nlp": 1,
        "vision": 0,
        "shop": 1,
    }
    assert found["research"] == QueueReport(
        used={"cpu": 3000},
        fair_share={"cpu": 5000},
        used_share=pytest.approx(3 / 12),
        fair_part=pytest.approx(5 / 12),
        pending=1,
    )


def test_errors_of_inactive_queues_are_reported_too() -> None:
    found = run_to_end(
        World({"a": {"parent": "nobody"}, "b": {"min": {"cpu": 2}, "max": {"cpu": 1}}}).plugin.report()
    )

    assert {name: its.fault and its.fault.reason for name, its in found.items()} == {
        "a": "UnknownParent",
        "b": "MinAboveMax",
    }


def test_the_longest_wait_is_that_of_a_pod_that_fits_on_some_node() -> None:
    world = World(TREE, running("shop", 12, priority=10))
    run_to_end(world.plugin.report())  # the queues are read
    world.wait(incoming("nlp", "100", name="huge"))
    world.fakes.clock.advance(70)  # overdue: the share does not keep it back any more
    world.wait(incoming("nlp", "1", name="first"))
    world.fakes.clock.advance(10)
    world.wait(incoming("vision", "1", name="second"))
    world.fakes.clock.advance(10)

    def longest() -> dict[str, float]:
        world.refresh()
        return {name: its.longest_wait_seconds for name, its in run_to_end(world.plugin.report()).items()}

    assert longest() == {"research": 90, "nlp": 90, "vision": 10, "shop": 0}
    world.attempt(incoming("nlp", "100", name="huge"))
    assert longest() == {"research": 20, "nlp": 20, "vision": 10, "shop": 0}


def test_the_use_of_each_queue_includes_the_queues_below_it() -> None:
    cache = Cache()
    cache.add_node(node("n", cpu="10"))
    objects = cache.table.watch_kind(QUEUES)
    for each in (
        queue("all", min={"cpu": "4"}),
        queue("research", "all", namespaces=["research"], max={"cpu": "8"}),
        queue("web", "all", namespaces=["web"]),
        queue("lost", "nobody"),
    ):
        objects[each["metadata"]["name"]] = each
    cache.add_pod(pod("p", node="n", namespace="research", cpu="7"))
    waiting = [pod(f"w{number}", namespace="web", cpu="2") for number in range(3)]
    kept = Ledger()
    for each in waiting:
        kept.pending.put(each)

    found = {each.key: each for each in run_to_end(ledger.usages(kept, cache.snapshot(), waiting))}

    assert list(found) == ["lost", "all", "research", "web"], "parents come before their children"
    assert "nobody" in found["lost"].fault
    assert (found["all"].used["cpu"], found["all"].guaranteed, found["all"].pending) == (
        7000,
        {"cpu": 4000},
        3,
    )
    research, web = found["research"], found["web"]
    assert (research.parent, research.limit, research.pending) == ("all", {"cpu": 8000}, 0)
    assert research.fair_share == {"cpu": 5000}
    assert research.borrowed == {"cpu": 2000}
    assert (web.used, web.waiting["cpu"], web.pending) == ({}, 6000, 3)
