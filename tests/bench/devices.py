"""Pods that claim a device each, on a cluster that has one on every node, beside pods that claim none."""

from __future__ import annotations

import gc
import time
from random import Random
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.app.capabilities import TableObjects
from scheduler.configuration.load import default
from scheduler.cycle.scheduling import schedule_pod
from scheduler.framework import ClusterObjects
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.state.cache import Cache
from scheduler.testing.devices import (
    DRIVER,
    claims_of,
    device_class,
    first_available,
    resource_claim,
    resource_slice,
    watch_devices,
)
from tests.builders import node, pod
from tests.offline_capabilities import OFFLINE

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework

_DEVICE = {
    "name": "gpu-0",
    "attributes": {"model": {"string": "A100"}},
    "capacity": {"memory": {"value": "80Gi"}},
}
_LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'

KINDS = ("no devices", "one device each", "the first of two kinds each", "an extended resource each")


def decisions(nodes: int, kind: str, count: int) -> float:
    """Return how many seconds a decision takes: from the snapshot to the end of Reserve."""
    cache = Cache()
    for number in range(nodes):
        cache.add_node(node(f"n{number}", cpu="64", memory="256Gi"))
    watch_devices(
        cache.table,
        device_class("gpu", _LARGE, extended_resource="example.com/gpu"),
        device_class("other"),
        *(resource_slice(f"n{number}", [_DEVICE]) for number in range(nodes)),
    )
    capabilities = {**OFFLINE, ClusterObjects: TableObjects(cache.table)}
    framework = build_frameworks(default(), Registry(IN_TREE), lambda _: capabilities)["custom-scheduler"]
    pods = [_pending(cache, kind, number) for number in range(count + 1)]
    _decide(framework, cache, pods[:1])  # what is read once is not the cost of a pod
    gc.collect()
    begin = time.process_time()
    _decide(framework, cache, pods[1:])
    return (time.process_time() - begin) / count


def _pending(cache: Cache, kind: str, number: int) -> PodInfo:
    name = f"p{number}"
    asked: dict[str, Any] = {"cpu": "100m", "memory": "500Mi"}
    if kind == KINDS[0]:
        return pod(name, **asked)
    if kind == KINDS[3]:
        return pod(name, **asked, requests={"example.com/gpu": 1})
    requests = [first_available("r0", "gpu", "other")] if kind == KINDS[2] else []
    watch_devices(cache.table, resource_claim(name, *requests))
    return pod(name, **asked, resourceClaims=claims_of(name))


def _decide(framework: Framework, cache: Cache, pods: list[PodInfo]) -> None:
    random = Random(1)
    for each in pods:
        decision = schedule_pod(framework, each, cache.snapshot(), nominated={}, random=random)
        placed = cache.assume(each, decision.node_name)
        assert framework.run_reserve(decision.state, placed, decision.node_name).is_success
