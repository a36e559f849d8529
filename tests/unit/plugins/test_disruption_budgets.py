"""Whose eviction breaks a disruption budget."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.preemption.disruption_budgets import DisruptionBudgets, split
from scheduler.snapshot import ObjectStore
from tests.builders import pod

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
