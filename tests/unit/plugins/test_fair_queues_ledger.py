"""The state of queues, updated in steps, compared with a full recount over random histories; and the cost of a step."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plugins.fair_queues import ledger, queues
from plugins.fair_queues import ledger as ledgers
from plugins.fair_queues.ledger import Ledger
from plugins.fair_queues.queues import QUEUES
from scheduler.engine.state.cache import Cache
from scheduler.framework.sliced_work import run_to_end
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    counted = 0
    amounts = ledgers._Sums._amounts

    def counting(self: Any, given: Any) -> Any:
        nonlocal counted
        counted += 1
        return amounts(self, given)

    monkeypatch.setattr(ledgers._Sums, "_amounts", counting)
    for number in range(10):
        each = pod(f"p{number}", namespace="ns7", cpu="1")
        kept.pending.put(each)
        kept.standing(it.cache.snapshot())
        kept.pending.drop(each.uid)
        it.cache.assume(each, "n0")
        kept.standing(it.cache.snapshot())
    assert counted == 2 * 10 * 3
    assert kept.standing(it.cache.snapshot()).used.sum(axis=0)[0] == 2 * 10_000


def test_an_earlier_result_stays_unchanged() -> None:
    it, kept = Cluster(2, 1), Ledger()
    before = kept.standing(it.cache.snapshot())
    it.cache.assume(pod("p", namespace="ns0", cpu="1"), "n0")
    after = kept.standing(it.cache.snapshot())
    assert (before.used.sum(), after.used.sum() > 0) == (0, True)


def test_a_changed_weight_recomputes_only_its_siblings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, kept = Cluster(200, 20), Ledger()
    for name in ("ns7", "ns27"):
        kept.pending.put(pod(f"p-{name}", namespace=name, cpu="9"))
    for number in range(4):
        it.cache.assume(pod(f"o{number}", namespace="others", cpu="18"), f"n{number}")
    before = kept.standing(it.cache.snapshot())
    settled, divided = 0, 0
    settle, divide = queues._settled, ledger.divide

    def settling(*arguments: Any) -> Any:
        nonlocal settled
        settled += 1
        return settle(*arguments)

    def dividing(*arguments: Any) -> Any:
        nonlocal divided
        divided += 1
        return divide(*arguments)

    monkeypatch.setattr(queues, "_settled", settling)
    monkeypatch.setattr(ledger, "divide", dividing)
    it.objects["q7"] = queue("q7", "t7", namespaces=["ns7"], max={"cpu": "9"}, weight=3)
    after = kept.standing(it.cache.snapshot())
    assert (settled, divided) == (0, 1)
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
    counted = 0
    amounts = ledgers._Sums._amounts

    def counting(self: Any, given: Any) -> Any:
        nonlocal counted
        counted += 1
        return amounts(self, given)

    monkeypatch.setattr(ledgers._Sums, "_amounts", counting)
    assert kept.standing(it.cache.snapshot()).used.sum() > 0
    assert counted == 3
