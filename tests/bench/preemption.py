"""Pods that find no room: what a search for pods that could leave costs, on full nodes, with disruption budgets or without.

Also what a preemptor costs where most nodes keep their capacity for preemptors before it.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.objects.decode import decode_pod
from tests.support.builders import CREATED, node, pod, pod_object

if TYPE_CHECKING:
    from scheduler.engine.runtime.framework import Framework
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


def seconds_of_preemptor(framework: Framework, size: int, count: int) -> float:
    """Return the CPU seconds for each preemptor, if three of four nodes already have a nominated pod.

    Each node is full with one victim, which stays on its node for its grace period.
    """
    cache, nominator, random = Cache(), Nominator(), Random(1)
    cache.table.watch_kind("policy/v1/poddisruptionbudgets")
    for number in range(size):
        cache.add_node(node(f"n{number}", cpu="4"))
        cache.add_pod(_victim(f"n{number}"))
    first = size * 3 // 4
    for number in range(first + count):
        each = pod(f"urgent-{number}", cpu="3", priority=1000)
        if number == first:
            begin = time.process_time()
        node_name: str | None = f"n{number}"
        if number >= first - 2:  # results are kept from the second pod of a kind on
            snapshot = cache.snapshot()
            nominated = nominator.others(each, snapshot)
            node_name = schedule_pod(
                framework, each, snapshot, nominated=nominated, random=random
            ).nominated_node_name
        assert node_name
        nominator.add(each, node_name)
        cache.add_pod(_victim(node_name, deletionTimestamp=CREATED))
    return (time.process_time() - begin) / count


def _victim(node_name: str, **metadata: str) -> PodInfo:
    made = pod_object(f"victim-{node_name}", node=node_name, cpu="3", terminationGracePeriodSeconds=3600)
    made["metadata"].update(metadata)
    return decode_pod(msgspec.json.encode(made))
