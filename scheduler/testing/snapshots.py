"""Snapshots of small clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.engine.state.cache import Cache
from scheduler.testing.builders import node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


def cache_of(nodes: Iterable[NodeObject | str], pods: Iterable[PodInfo] = ()) -> Cache:
    """Return a cache with nodes, in row order, and bound pods; a name stands for a node of that name."""
    cache = Cache()
    for each in nodes:
        cache.add_node(node(each) if isinstance(each, str) else each)
    for pod in pods:
        cache.add_pod(pod)
    return cache


def snapshot_of(*nodes: NodeObject | str, pods: Iterable[PodInfo] = ()) -> Snapshot:
    """Return a snapshot of nodes, in row order, with bound pods."""
    return cache_of(nodes, pods).snapshot()
