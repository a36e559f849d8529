"""Pods with claims: what it costs to find their volumes, or the room for them, beside plain pods in the same cluster."""

from __future__ import annotations

import gc
import time
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.state.cache import Cache
from scheduler.framework import ClusterObjects
from scheduler.testing.samples import (
    DRIVER,
    claim,
    csi_driver,
    csi_node,
    mounted,
    only_on,
    storage_capacity,
    storage_class,
    volume,
    volume_attachment,
    watch_storage,
)
from tests.support.builders import node, pod
from tests.support.offline_capabilities import OFFLINE, frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.objects.pod import PodInfo

    Objects = Iterable[dict[str, Any]]

_HOST = "kubernetes.io/hostname"
_LOCAL = "kubernetes.io/no-provisioner"


def _bound(size: int, pods: int) -> Objects:
    for number in range(pods):
        yield claim(f"c{number}", f"v{number}")
    for number in range(size):
        yield volume(f"v{number}", nodeAffinity=only_on(_HOST, f"n{number}"))


def _limited(size: int, pods: int) -> Objects:
    for number in range(pods):
        yield from (claim(f"c{number}", f"v{number}"), volume(f"v{number}"))
    for number in range(size):
        yield csi_node(f"n{number}", {DRIVER: 25})
        yield from (claim(f"c-{number}", f"v-{number}"), volume(f"v-{number}"))
        yield volume_attachment(f"a-{number}", node=f"n{number}", volume=f"v-{number}")


def _static(claims: int) -> Callable[[int, int], Objects]:
    def objects(size: int, pods: int) -> Objects:
        yield storage_class("local", provisioner=_LOCAL)
        for number in range(size * claims):
            host = only_on(_HOST, f"n{number % size}")
            capacity = {"storage": f"{100 + number % 7}Gi"}
            yield _available(f"v{number}", nodeAffinity=host, storageClassName="local", capacity=capacity)
        for number in range(pods * claims):
            yield claim(f"c{number}", class_name="local", storage="100Gi")

    return objects


def _available(name: str, **spec: Any) -> dict[str, Any]:
    return volume(name, phase="Available", **spec)


def _dynamic(size: int, pods: int) -> Objects:
    yield storage_class("made")
    yield csi_driver()
    for number in range(size):
        yield storage_capacity(f"room-{number}", "made", "100Gi", labels={_HOST: f"n{number}"})
    for number in range(pods):
        yield claim(f"c{number}", class_name="made")


KINDS: Mapping[str, tuple[int, Callable[[int, int], Objects]]] = {
    "plain, beside local volumes": (0, _static(1)),
    "a claim, bound to a local volume": (1, _bound),
    "a claim, bound, and limits of nodes": (1, _limited),
    "a claim, a local volume per node": (1, _static(1)),
    "two claims, two local volumes per node": (2, _static(2)),
    "a claim, room for new volumes per node": (1, _dynamic),
}
"""What kind of pod -> how many claims each has, and what storage there is, by the number of nodes and pods."""


def seconds_per_pod(size: int, kind: str, pods: int) -> float:
    """Return the CPU seconds from the queue to Reserve for each of so many pods on so many nodes."""
    claims, objects = KINDS[kind]
    cache = Cache()
    for number in range(size):
        cache.add_node(node(f"n{number}", cpu="64", memory="256Gi"))
    watch_storage(cache.table, *objects(size, pods))
    own = {**OFFLINE, ClusterObjects: TableObjects(cache.table)}
    framework = frameworks(capabilities=own)["custom-scheduler"]
    first, *others = (_pod(number, claims) for number in range(pods))
    random = Random(1)

    def place(each: PodInfo) -> None:
        decision = schedule_pod(framework, each, cache.snapshot(), nominated={}, random=random)
        assert decision.node_name, decision.status
        cache.assume(each, decision.node_name)
        assert framework.run_reserve(decision.state, each, decision.node_name).is_success

    place(first)  # which makes what is kept for the others
    gc.collect()
    begin = time.process_time()
    for each in others:
        place(each)
    return (time.process_time() - begin) / len(others)


def _pod(number: int, claims: int) -> PodInfo:
    names = [f"c{number * claims + place}" for place in range(claims)]
    return pod(f"pod-{number}", cpu="100m", memory="500Mi", volumes=mounted(*names))
