"""The daemon's cache compared with a new one built from the API server's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scheduler.engine.state.cache import Cache
from scheduler.objects.decode import decode_node, decode_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.engine.state.cache import PodState
    from scheduler.snapshot import Snapshot
    from scheduler.tools.simulator.registry.store import Store


def cache_from(store: Store) -> Cache:
    """Return a cache that has seen the server's objects and nothing before them."""
    cache = Cache()
    for node in store.list("nodes"):
        cache.add_node(decode_node(msgspec.json.encode(node)))
    for found in store.list("pods"):
        pod = decode_pod(msgspec.json.encode(found))
        if pod.node_name and not pod.is_terminal:
            cache.add_pod(pod)
    return cache


def differences(found: Cache, wanted: Cache) -> Iterator[str]:
    """Yield where two caches differ, whatever the order of their rows."""
    left, right = _described(found.snapshot()), _described(wanted.snapshot())
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield f"node {name}: the cache has {left.get(name)}, the server {right.get(name)}"
    for what in (_pods_of_unknown_nodes, _states):
        here, there = what(found), what(wanted)
        if here != there:
            yield f"{what.__name__}: the cache has {here}, the server {there}"


def _pods_of_unknown_nodes(cache: Cache) -> dict[str, list[str]]:
    return {name: sorted(pod.uid for pod in pods) for name, pods in cache.pods_of_unknown_nodes().items()}


def _states(cache: Cache) -> dict[str, PodState]:
    return {pod.uid: cache.state_of(pod.uid) for pod in cache.pods()}


def _described(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Return node name -> everything that columns say of it; zeros are left out."""
    taints = snapshot.taints
    zones = snapshot.label("zone")
    described = {}
    for row in snapshot.all_rows.tolist():
        amounts = {
            f"{kind} {resource}": int(arrays[resource][row])
            for kind, arrays in (("allocatable", snapshot.allocatable), ("requested", snapshot.requested))
            for resource in sorted(snapshot.resources)
        }
        for resource in ("cpu", "memory"):
            amounts[f"nonzero {resource}"] = int(snapshot.nonzero_requested[resource][row])
        described[snapshot.name_of(row)] = {
            **{what: amount for what, amount in amounts.items() if amount},
            "pods": sorted(pod.uid for pod in snapshot.pods_on(row)),
            "pod count": int(snapshot.pod_count[row]),
            "cordoned": bool(np.asarray(snapshot.unschedulable)[row]),
            "taints": taints.values[int(taints.codes[row])],
            "ports": sorted(map(str, snapshot.used_ports_on(row))),
            "zone": zones.values[int(zones.codes[row])],
        }
    return described
