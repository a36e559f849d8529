"""How much memory and CPU the daemon takes for a cluster of a size: `python -m tests.bench.cluster_size 100 1000 5000`.

Each size in a process of its own, with the whole daemon, whose connection is answered from memory: what is measured are
lists, watches and the cluster as it is kept, and no simulated server beside it. Nodes and pods are as large as kubelets
and controllers make them. What `scheduler/daemon/app/size.py` is taken from.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.memory import settle_memory
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Response
from scheduler.simulator.scenarios.clusters import heterogeneous
from tests.bench.process_size import usage_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from scheduler.kube.http.request import Request

PODS_PER_NODE = 30
PENDING = 2000
PER_OWNER = 20
_MIB = 2**20
_END = {"k8s.io/initial-events-end": "true"}
_EMPTY = '{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
_LINES_AT_A_TIME = 32


class FromMemory(ApiConnection):
    """Answers as an API server with a cluster of a size: lists within watches, and Bindings that the watch confirms."""

    def __init__(self, nodes: int, pods: int) -> None:
        super().__init__(Endpoint("http://localhost"))
        self._nodes, self._pods = nodes, pods
        self._changes: dict[str, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self._version = 1
        self.bound = 0

    def create_pod(self, number: int) -> None:
        self._tell("ADDED", a_pod(number, self._nodes, is_bound=False))

    async def send(self, request: Request, before_sending: Any = None) -> Response:
        await asyncio.sleep(0)
        if request.path.endswith("/binding"):
            number = int(request.path.split("/")[-2].rpartition("-")[2])
            assert request.body is not None
            target = msgspec.json.decode(request.body)["target"]["name"]
            pod = a_pod(number, self._nodes, is_bound=False)
            pod["spec"]["nodeName"] = target
            self._tell("MODIFIED", pod)
            self.bound += 1
        return Response(200, _EMPTY.encode())

    async def stream(self, request: Request, *, silence_seconds: float) -> AsyncGenerator[list[bytes], None]:
        lines: list[bytes] = []
        for obj in self._objects(request.path):
            lines.append(_line("ADDED", obj))
            if len(lines) == _LINES_AT_A_TIME:
                yield lines
                lines = []
                await asyncio.sleep(0)
        kind = {"/api/v1/nodes": "Node", "/api/v1/pods": "Pod"}.get(request.path, "Other")
        metadata = {"resourceVersion": str(self._version), "annotations": _END}
        yield [*lines, _line("BOOKMARK", {"kind": kind, "apiVersion": "v1", "metadata": metadata})]
        while True:
            yield [await self._changes[request.path].get()]

    def _objects(self, path: str) -> Iterator[dict[str, Any]]:
        if path == "/api/v1/nodes":
            for node in heterogeneous(self._nodes, seed=7):
                yield as_kubelets_write(node)
        elif path == "/api/v1/pods":
            for number in range(self._pods):
                yield a_pod(number, self._nodes, is_bound=True)
        elif path == "/apis/apps/v1/replicasets":
            for number in range(self._pods // PER_OWNER):
                yield {
                    "kind": "ReplicaSet",
                    "apiVersion": "apps/v1",
                    "metadata": _metadata(f"app-{number}", number, {"app": f"app-{number}"}),
                    "spec": {"replicas": PER_OWNER, "selector": {"matchLabels": {"app": f"app-{number}"}}},
                }

    def _tell(self, type_: str, pod: dict[str, Any]) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._changes["/api/v1/pods"].put_nowait(_line(type_, pod))


def _line(type_: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj})


def _metadata(name: str, number: int, labels: dict[str, str]) -> dict[str, Any]:
    fields = {
        f"f:{key}": {} for key in ("metadata", "spec", "status", "containers", "resources", "image", *labels)
    }
    return {
        "name": name,
        "namespace": f"team-{number % 200}",
        "uid": f"00000000-0000-0000-0000-{number:012}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
        "annotations": {"prometheus.io/scrape": "true", "example.com/commit": f"{number:040x}"},
        "managedFields": [
            {
                "manager": manager,
                "operation": "Update",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
            for manager in ("kube-controller-manager", "kubelet")
        ],
    }


def a_pod(number: int, nodes: int, *, is_bound: bool) -> dict[str, Any]:
    """Return a pod of a Deployment of twenty, with all that controllers and kubelets put into one."""
    owner = number // PER_OWNER
    labels = {"app": f"app-{owner}", "pod-template-hash": f"{owner:08x}", "app.kubernetes.io/part-of": "shop"}
    containers = [
        {
            "name": name,
            "image": f"registry.example.com/team/{name}:{owner}",
            "env": [{"name": f"SETTING_{i}", "value": "a value of some length"} for i in range(12)],
            "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "livenessProbe": {"httpGet": {"path": "/livez", "port": 8080}, "periodSeconds": 10},
        }
        for name in ("main", "sidecar")
    ]
    metadata = _metadata(f"app-{owner}-{number}", number, labels)
    metadata["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": f"app-{owner}",
            "uid": f"r-{owner}",
            "controller": True,
        }
    ]
    conditions = [
        {"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_ in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {
            "schedulerName": "custom-scheduler",
            "priority": 0,
            "containers": containers,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
            ],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 5,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": f"app-{owner}"}},
                }
            ],
            "volumes": [
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
            ],
            **({"nodeName": f"node-{number % nodes:04}"} if is_bound else {}),
        },
        "status": {
            "phase": "Running" if is_bound else "Pending",
            "conditions": conditions if is_bound else [],
        },
    }


def as_kubelets_write(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node with its images, its managed fields and the room that the pods of this benchmark take."""
    images = [
        {
            "names": [
                f"registry.example.com/team/app-{i}@sha256:{i:064x}",
                f"registry.example.com/team/app-{i}:1",
            ],
            "sizeBytes": 10**8 + i,
        }
        for i in range(50)
    ]
    node["status"]["images"] = images
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts |= {"cpu": "64", "memory": "256Gi", "pods": "250"}
    node["metadata"] |= {"managedFields": _metadata("", 0, {})["managedFields"], "resourceVersion": "1"}
    return node


async def measure(nodes: int, pods: int) -> None:
    """Run the daemon for a cluster, have it place pods, and print what that took."""
    settle_memory()
    connection = FromMemory(nodes, pods)
    daemon = Daemon(
        connection, with_leader_election(default(), leader_elect=False), clock=SystemClock(), random=Random(1)
    )
    stop = asyncio.Event()
    began = time.perf_counter()
    running = asyncio.create_task(daemon.run(stop))
    while not daemon.has_synced:  # noqa: ASYNC110 - the daemon tells nobody
        await asyncio.sleep(0.1)
    listed, read_seconds = usage_of("self"), time.perf_counter() - began
    before, began = usage_of("self"), time.perf_counter()
    for number in range(pods, pods + PENDING):
        connection.create_pod(number)
    while connection.bound < PENDING:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - began
    gc.collect()
    now = usage_of("self")
    stop.set()
    await running
    milli = (now.cpu_seconds - before.cpu_seconds) / PENDING * 1000
    sys.stdout.write(
        f"{nodes:6} nodes {pods:7} pods: {listed.resident_bytes / _MIB:5.0f} MiB after lists of {read_seconds:.1f} s, "
        f"{now.resident_bytes / _MIB:5.0f} MiB after {PENDING} placed in {seconds:.1f} s ({milli:.2f} ms of CPU each), "
        f"most {now.peak_bytes / _MIB:5.0f} MiB\n"
    )


def main() -> None:
    """Measure each size in a process of its own."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--pods-per-node", type=int, default=PODS_PER_NODE)
    parser.add_argument("--here", action="store_true", help="in this process, the first size only")
    arguments = parser.parse_args()
    if arguments.here:
        asyncio.run(measure(arguments.nodes[0], arguments.nodes[0] * arguments.pods_per_node))
        return
    for nodes in arguments.nodes:
        command = [sys.executable, "-m", "tests.bench.cluster_size", str(nodes), "--here"]
        subprocess.run([*command, "--pods-per-node", str(arguments.pods_per_node)], check=True)


if __name__ == "__main__":
    main()
