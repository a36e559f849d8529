"""Pods that find no room: what a search for pods that could leave costs, on full nodes, with disruption budgets or without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.engine.state.cache import Cache
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

_ON_EACH_NODE = 10
_NAMESPACES = 50


def full_cluster(size: int, budgets: int, *, allowed: int = 1) -> Cache:
    """Return nodes full of pods of low priority in fifty namespaces, with so many PodDisruptionBudgets in all.

    Each lets so many of its pods go; where none may, and all pods are protected, every node is tried.
    """
    cache = Cache()
    for number in range(size):
        cache.add_node(node(f"n{number}", cpu="10", memory="64Gi"))
    for number in range(size * _ON_EACH_NODE):
        app, namespace = f"app-{number % 500}", f"team-{number % _NAMESPACES}"
        there = {"namespace": namespace, "labels": {"app": app}, "cpu": "1", "priority": number % 7}
        cache.add_pod(pod(f"running-{number}", node=f"n{number % size}", **there))
    kept = cache.table.watch_kind("policy/v1/poddisruptionbudgets")
    for number in range(budgets):
        namespace = f"team-{number % _NAMESPACES}"
        kept[f"{namespace}/budget-{number}"] = _budget(
            f"budget-{number}", namespace, f"app-{number % 500}", allowed
        )
    return cache


def _budget(name: str, namespace: str, app: str, allowed: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def urgent(count: int) -> list[PodInfo]:
    """Return pods that fit where two others leave."""
    return [pod(f"urgent-{number}", cpu="2", priority=1000) for number in range(count)]
