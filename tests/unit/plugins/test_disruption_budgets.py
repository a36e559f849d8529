"""Whose eviction breaks a disruption budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.preemption import disruption_budgets
from plugins.preemption.disruption_budgets import DisruptionBudgets, split
from scheduler.snapshot import ObjectStore
from tests.builders import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PODS = [pod(name, node="n", labels={"app": "db"}) for name in ("a", "b", "c")]


def budget(
    allowed: int = 1, *, namespace: str = "default", selector: Any = None, **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "db"}} if selector is None else selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def violating(*budgets: dict[str, Any]) -> list[str]:
    store, reader = ObjectStore(), DisruptionBudgets()
    reader.look_at(store)
    for number, each in enumerate(budgets):
        store[f"{each['metadata']['namespace']}/{number}"] = each
    broken, others = split(PODS, reader)
    assert sorted(each.name for each in broken + others) == ["a", "b", "c"]
    return [each.name for each in broken]


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        pytest.param(budget(0), ["a", "b", "c"], id="none may go"),
        pytest.param(budget(1), ["b", "c"], id="one may go"),
        pytest.param(budget(0, namespace="other"), [], id="another namespace"),
        pytest.param(budget(0, selector={}), [], id="an empty selector"),
        pytest.param({**budget(0), "spec": {}}, [], id="no selector"),
        pytest.param(
            budget(0, selector={"matchExpressions": [{"key": "app", "operator": "What"}]}), [], id="no rule"
        ),
        pytest.param(budget(1, disruptedPods={"a": "2026-03-01T08:00:00Z"}), ["c"], id="one counted already"),
        pytest.param({**budget(), "status": {}}, ["a", "b", "c"], id="no status yet"),
    ],
)
def test_pods_beyond_what_a_budget_allows_violate_it(found: dict[str, Any], broken: list[str]) -> None:
    assert violating(found) == broken


def test_the_tightest_of_several_budgets_counts() -> None:
    assert violating(budget(2), budget(1)) == ["b", "c"]


def test_a_budget_that_changes_is_read_again() -> None:
    store, reader = ObjectStore(), DisruptionBudgets()
    reader.look_at(store)
    broken = []
    for allowed in (0, 3, 1):
        store["default/b"] = budget(allowed)
        broken.append(len(split(PODS, reader)[0]))
    del store["default/b"]

    assert [*broken, len(split(PODS, reader)[0])] == [3, 0, 2, 0]


class Reading:
    """Counts the budgets that are read, and has time for a number of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        read = disruption_budgets._read

        def counted(found: Mapping[str, Any]) -> Any:
            self.read += 1
            return read(found)

        monkeypatch.setattr(disruption_budgets, "_read", counted)

    def has_time_for(self, count: int) -> Callable[[], bool]:
        end = self.read + count
        return lambda: self.read < end


def test_very_many_budgets_are_read_in_turns_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, store, reader = Reading(monkeypatch), ObjectStore(), DisruptionBudgets()
    for number in range(100):
        store[f"{'xyz'[number % 3]}/{number}"] = budget(0, namespace="xyz"[number % 3])

    ends = [reader.read(store, reading.has_time_for(7)) for _ in range(15)]

    assert ends == [False] * 14 + [True]
    assert reading.read == 100
    assert len(reader.protecting(pod("p", namespace="x", labels={"app": "db"}))) == 34
    assert reading.read == 100


def test_of_very_many_budgets_only_those_that_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, store, reader = Reading(monkeypatch), ObjectStore(), DisruptionBudgets()
    for number in range(100):
        store[f"default/{number}"] = budget(number)
    reader.look_at(store)
    assert len(reader.protecting(PODS[0])) == 100
    reading.read = 0

    store["default/7"] = budget(0, selector={"matchLabels": {"app": "other"}})
    del store["default/8"]

    assert sorted(each.allowed for each in reader.protecting(PODS[0])) == [*range(7), *range(9, 100)]
    assert reading.read == 1
