"""Simulated kubelets of an API server: they register their nodes, run the pods on them, and delete the nodes."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.clock import rfc3339
from scheduler.errors import ApiError, SchedulerError
from scheduler.kube.client.resources import LEASES, NODES
from scheduler.kube.http.request import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request
from scheduler.objects.decode import decode_object
from scheduler.simulator.apimachinery.objects import labels_of
from scheduler.simulator.node_agents.kubelet import (
    LEASE_NAMESPACE,
    Heartbeats,
    Kubelet,
    KubeletOptions,
    healthy_conditions,
)
from scheduler.simulator.remote.objects import RemoteObjects

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Collection, Iterable
    from random import Random

    from scheduler.clock import Clock
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.requests import Requests
    from scheduler.simulator.apimachinery.objects import Object

logger = logging.getLogger(__name__)

SIMULATED: Final = "simulator/kubelet"
"""Label of nodes whose kubelet is simulated."""
_VERSION: Final = "v1.36.2"
_OPTIONS: Final = KubeletOptions(heartbeat_seconds=10.0, recover=True)


class ForeignNodeError(SchedulerError):
    """A node belongs to another kubelet."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"node {name} exists and has no label {SIMULATED}: another kubelet runs it; choose other names with "
            "--name-prefix"
        )


def as_registered(node: Object, place: int, clock: Clock) -> Object:
    """Return a node as its kubelet registers it.

    Args:
        node: the node, with labels, capacity and allocatable.
        place: its number, from which its address is made.
        clock: time of its conditions.
    """
    metadata, labels = node["metadata"], labels_of(node)
    status = {
        **node["status"],
        "conditions": healthy_conditions(rfc3339(clock.utc_now())),
        "addresses": [
            {
                "type": "InternalIP",
                "address": f"172.{16 + (place >> 16 & 0xF)}.{place >> 8 & 0xFF}.{place & 0xFF}",
            },
            {"type": "Hostname", "address": metadata["name"]},
        ],
        "nodeInfo": {
            "architecture": labels["kubernetes.io/arch"],
            "bootID": "",
            "containerRuntimeVersion": "simulated://1",
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": _VERSION,
            "machineID": "",
            "operatingSystem": labels["kubernetes.io/os"],
            "osImage": "simulated",
            "systemUUID": "",
        },
    }
    return node | {"metadata": metadata | {"labels": labels | {SIMULATED: "true"}}, "status": status}


async def register(requests: Requests, nodes: Iterable[Object]) -> None:
    """Create nodes. An existing node of simulated kubelets gets the labels and the status of the new one.

    Raises:
        ApiError: the API server refuses a node.
        ForeignNodeError: a node belongs to another kubelet.
    """
    for node in nodes:
        try:
            await requests.send(Request("POST", NODES.path(), msgspec.json.encode(node)))
        except ApiError as error:
            if error.status != 409:
                raise
            await _take_over(requests, node)


async def _take_over(requests: Requests, node: Object) -> None:
    path = NODES.path(name=node["metadata"]["name"])
    present = decode_object((await requests.send(Request("GET", path))).body)
    if SIMULATED not in labels_of(present):
        raise ForeignNodeError(node["metadata"]["name"])
    labels = msgspec.json.encode({"metadata": {"labels": labels_of(node)}})
    await requests.send(Request("PATCH", path, labels, MERGE_PATCH))
    status = msgspec.json.encode({"status": node["status"]})
    await requests.send(Request("PATCH", f"{path}/status", status, STRATEGIC_MERGE_PATCH))


@asynccontextmanager
async def running(
    connection: ApiConnection, nodes: Collection[str], stop: asyncio.Event, *, clock: Clock, random: Random
) -> AsyncIterator[None]:
    """Run the kubelets of registered nodes while the block runs.

    Args:
        connection: to the API server.
        nodes: names of the nodes.
        stop: ends the wait for the objects of the API server, before the block.
        clock: time of statuses.
        random: for jitter.
    """
    objects = RemoteObjects(connection, frozenset(nodes), clock=clock, random=random)
    agents = (Kubelet(objects, _OPTIONS), Heartbeats(objects, _OPTIONS))
    async with objects.running(stop):
        for agent in agents:
            agent.start()
        try:
            yield
        finally:
            for agent in agents:
                agent.stop()


async def delete(requests: Requests, names: Iterable[str]) -> None:
    """Delete nodes and their leases; errors are logged."""
    for name in names:
        for path in (NODES.path(name=name), LEASES.path(LEASE_NAMESPACE, name)):
            try:
                await requests.send(Request("DELETE", path))
            except ApiError as error:
                if error.status != 404:
                    logger.warning("Not deleted", extra={"path": path, "error": str(error)})
