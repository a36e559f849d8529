"""A scheduler that decides nothing: it binds each pending pod to the next node, and writes the event.

Its rate is the most that any scheduler can reach in a benchmark on the same machine: the API server, the controllers and the
load use the rest of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from scheduler.cli.process import run_in_loop
from scheduler.errors import ApiError
from scheduler.kube.client.connect import connect
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.kube.client.connection import ApiConnection

READY = "The floor is ready"
_PODS, _NODES = "/api/v1/pods", "/api/v1/nodes"
_AT_ONCE = 32


async def _run(kubeconfig: str) -> None:
    async with connect(kubeconfig) as connection, asyncio.TaskGroup() as tasks:
        floor = _Floor(connection)
        tasks.create_task(floor.follow(_NODES, floor.see_node))
        tasks.create_task(floor.follow(_PODS, floor.see_pod))
        for _ in range(_AT_ONCE):
            tasks.create_task(floor.bind_pods())
        sys.stderr.write(f"{READY}\n")


class _Floor:
    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._nodes: list[str] = []
        self._is_told = asyncio.Event()  # of a node
        self._numbers = itertools.count()
        self._pods: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._seen: set[str] = set()  # names of nodes, and uids of pods

    def see_node(self, kind: str, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        if kind != "DELETED" and name not in self._seen:
            self._seen.add(name)
            self._nodes.append(name)
            self._is_told.set()

    def see_pod(self, kind: str, pod: dict[str, Any]) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        if kind == "DELETED":
            self._seen.discard(uid)
        elif uid not in self._seen and not spec.get("nodeName") and not spec.get("schedulingGates"):
            self._seen.add(uid)
            self._pods.put_nowait(pod)

    async def follow(self, path: str, see: Callable[[str, dict[str, Any]], None]) -> None:
        """List and watch the objects, again after the server has ended the watch: it does when the floor is slow."""
        while True:
            listed = json.loads((await self._connection.send(Request("GET", path))).body)
            for each in listed["items"]:
                see("ADDED", each)
            params = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            request = Request("GET", path, params=params)
            with suppress(ApiError):
                async for lines in self._connection.stream(request, silence_seconds=3600):
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] != "ERROR":
                            see(event["type"], event["object"])

    async def bind_pods(self) -> None:
        await self._is_told.wait()
        while True:
            pod = await self._pods.get()
            node = self._nodes[next(self._numbers) % len(self._nodes)]
            try:
                await self._bind(pod["metadata"], node)
            except ApiError as error:  # a pod that was deleted meanwhile
                sys.stderr.write(f"{error}\n")

    async def _bind(self, pod: dict[str, str], node: str) -> None:
        name, namespace, uid = pod["name"], pod["namespace"], pod["uid"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": node},
        }
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{uid[:8]}", "namespace": namespace},
            "eventTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "reportingController": "default-scheduler",
            "reportingInstance": "floor",
            "action": "Binding",
            "reason": "Scheduled",
            "type": "Normal",
            "note": f"Successfully assigned {namespace}/{name} to {node}",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": name,
                "namespace": namespace,
                "uid": uid,
            },
        }
        await self._post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)
        await self._post(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        await self._connection.send(Request("POST", path, body=json.dumps(body).encode()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the configuration of a kube-scheduler")
    options, _ = parser.parse_known_args()  # the flags of a scheduler mean nothing here
    run_in_loop(_run(yaml.safe_load(options.config.read_text())["clientConnection"]["kubeconfig"]))
