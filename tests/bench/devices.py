"""Pods with claims to devices: what it costs to find them, beside plain pods in the same cluster."""

from __future__ import annotations

import gc
import time
from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.state.cache import Cache
from scheduler.framework import ClusterObjects
from scheduler.testing.devices import (
    DRIVER,
    claims_of,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
    watch_devices,
)
from tests.support.builders import node, pod
from tests.support.offline_capabilities import OFFLINE, frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.objects.pod import PodInfo

_LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def _device(number: int) -> dict[str, Any]:
    attributes = {
        "uuid": {"string": f"gpu-{number}"},
        "model": {"string": "h100"},
        "driverVersion": {"version": "550.1.0"},
        "root": {"string": f"pci-{number % 2}"},
    }
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


def _one_per_node(size: int) -> Iterable[dict[str, Any]]:
    return [resource_slice(f"n{number}", [_device(0)]) for number in range(size)]


def _eight_per_tenth_node(size: int) -> Iterable[dict[str, Any]]:
    eight = [_device(number) for number in range(8)]
    return [resource_slice(f"n{number}", eight) for number in range(0, size, 10)]


def _of_all_nodes(size: int) -> Iterable[dict[str, Any]]:
    for start in range(0, size, 125):
        found = resource_slice("", [_device(start + place) for place in range(125)], allNodes=True)
        found["metadata"]["name"] = f"slice-{start:05}"
        found["spec"]["pool"]["resourceSliceCount"] = size // 125
        yield found


def _none(_number: int) -> dict[str, Any] | None:
    return None


def _alike(number: int) -> dict[str, Any]:
    return resource_claim(f"c{number}", exactly(selectors=[{"cel": {"expression": _LARGE}}]))


def _different(number: int) -> dict[str, Any]:
    expression = f'device.attributes["{DRIVER}"].uuid != "none-{number}"'
    return resource_claim(f"c{number}", exactly(selectors=[{"cel": {"expression": expression}}]))


def _in_pairs(number: int) -> dict[str, Any]:
    found = resource_claim(f"c{number}", exactly("first"), exactly("second"))
    found["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
    return found


KINDS: Mapping[
    str, tuple[Callable[[int], dict[str, Any] | None], Callable[[int], Iterable[dict[str, Any]]], int]
] = {
    "plain, beside a device per node": (_none, _one_per_node, 500),
    "a claim, a device per node": (_alike, _one_per_node, 500),
    "a claim, eight devices per tenth node": (_alike, _eight_per_tenth_node, 500),
    "a claim, as many devices for all nodes": (_alike, _of_all_nodes, 500),
    "two devices of one root, eight per tenth node": (_in_pairs, _eight_per_tenth_node, 500),
    "a claim unlike others, a device per node": (_different, _one_per_node, 20),
}
"""What kind of pod -> its claim, by its number; the slices there are, by the number of nodes; and how many pods."""


def seconds_per_pod(size: int, kind: str) -> float:
    """Return the CPU seconds from the queue to Reserve for each pod of a kind but the first, on so many nodes."""
    pods = KINDS[kind][2]
    place, waiting = _scene(size, kind)
    place(waiting[0])  # which makes what is kept for the others
    gc.collect()
    begin = time.process_time()
    for each in waiting[1:]:
        place(each)
    return (time.process_time() - begin) / (pods - 1)


def seconds_of_first_pod(size: int, kind: str) -> float:
    """Return the CPU seconds of the first decision about a pod of a kind, after a start or a change of all slices."""
    place, waiting = _scene(size, kind)
    gc.collect()
    begin = time.process_time()
    place(waiting[0])
    return time.process_time() - begin


def _scene(size: int, kind: str) -> tuple[Callable[[PodInfo], None], list[PodInfo]]:
    """Return what places a pod in a cluster of so many nodes, and pods to place there; PreEnqueue has let the first in."""
    claim_of, slices, pods = KINDS[kind]
    cache = Cache()
    for number in range(size):
        cache.add_node(node(f"n{number}", cpu="64", memory="256Gi"))
    claims = [found for number in range(pods) if (found := claim_of(number)) is not None]
    watch_devices(cache.table, device_class("gpu", f'device.driver == "{DRIVER}"'), *slices(size), *claims)
    own = {**OFFLINE, ClusterObjects: TableObjects(cache.table)}
    framework = frameworks(capabilities=own)["custom-scheduler"]
    random = Random(1)

    def place(each: PodInfo) -> None:
        decision = schedule_pod(framework, each, cache.snapshot(), nominated={}, random=random)
        assert decision.node_name, decision.status
        cache.assume(each, decision.node_name)
        assert framework.run_reserve(decision.state, each, decision.node_name).is_success

    waiting = [_pod(number, has_claim=bool(claims)) for number in range(pods)]
    framework.run_pre_enqueue(waiting[0])
    return place, waiting


def _pod(number: int, *, has_claim: bool) -> PodInfo:
    claims = claims_of(f"c{number}") if has_claim else []
    return pod(f"pod-{number}", cpu="100m", memory="500Mi", resourceClaims=claims)
