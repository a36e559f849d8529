"""How queues stand, kept up to date in steps, against counting everything anew over random histories; and what a step costs."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from plugins.fair_queues import ledger as ledgers
from plugins.fair_queues.ledger import Ledger
from plugins.fair_queues.queues import QUEUES
from scheduler.state.cache import Cache
from tests.builders import node, pod


def queue(name: str, parent: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": "2026-03-01T08:00:00Z"}
    return {"metadata": metadata, "spec": {"parent": parent, **spec}}


class Cluster:
    """Nodes, and queues of a namespace each below some others."""

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


@pytest.mark.parametrize("seed", range(20))
def test_what_is_counted_in_steps_is_what_is_counted_anew(seed: int) -> None:
    random, it, kept = Random(seed), Cluster(6, 2), Ledger()
    placed: list[Any] = []
    waiting: list[Any] = []
    for step in range(60):
        match random.randrange(6):
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
            case 5:
                name = f"q{random.randrange(6)}"
                parent, most = f"t{random.randrange(2)}", str(random.randint(3, 12))
                it.objects[name] = queue(
                    name, parent, namespaces=[f"ns{random.randrange(8)}"], max={"cpu": most}
                )
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
def test_a_pod_is_counted_in_its_queue_and_those_above_however_many_others_there_are(
    n_queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, kept = Cluster(n_queues, 4), Ledger()
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


def test_how_queues_stood_stays_as_it_was_told() -> None:
    it, kept = Cluster(2, 1), Ledger()
    before = kept.standing(it.cache.snapshot())
    it.cache.assume(pod("p", namespace="ns0", cpu="1"), "n0")
    after = kept.standing(it.cache.snapshot())
    assert (before.used.sum(), after.used.sum() > 0) == (0, True)
