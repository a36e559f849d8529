"""How much memory and CPU the daemon takes for a cluster of a size: `python -m tests.bench.cluster_size 100 1000 5000`.

Each size has a process of its own, with the whole daemon, whose connection is answered from memory: there is no simulated
server beside it. Nodes and pods are as large as kubelets and controllers make them. The figures are the time until the lists
are read and the first pod is bound, memory, CPU of a minute without new pods, in which a fifth of the nodes change their
status and a thousandth come and go, and CPU of a pod of each kind. The time until the lists are read contains what the benchmark
takes to create their objects, which is printed too. In the end, pods of high priority request whole nodes, so that all nodes are
full for them, and pods of low priority have to leave. The values in `scheduler/daemon/app/size.py` are from here.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import defaultdict
from hashlib import sha256
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.cli.process import run_in_loop
from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.configuration.overrides import with_leader_election
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.memory import settle_memory
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Response
from scheduler.testing.devices import claims_of, device_class, resource_claim, resource_slice
from scheduler.testing.samples import claim, mounted, only_on, volume
from scheduler.tools.simulator.scenarios.clusters import heterogeneous
from tests.bench.process_size import usage_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping

    from scheduler.kube.http.request import Request

PODS_PER_NODE = 30
PENDING = 2000
PER_OWNER = 20
PREEMPTORS = 4
_STATUS_MINUTES = 5
"""A kubelet reports an unchanged node status every five minutes."""
_CHURN = 1000
"""In one minute, one of 1000 nodes is deleted and created again."""
_IDLE_SECONDS = 3.0
_EVICTION_SECONDS = 0.2
"""All victims of a preemptor are deleted in this time, so that no other preemptor is measured with it."""
_ZONE = "topology.kubernetes.io/zone"
_MIB = 2**20
_END = {"k8s.io/initial-events-end": "true"}
_EMPTY = '{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
_DEVICES = "/apis/resource.k8s.io/v1"
_KINDS_OF_DEVICES = [{"resource": each} for each in ("deviceclasses", "resourceclaims", "resourceslices")]
_SERVED = msgspec.json.encode(
    {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": "resource.k8s.io"},
                "versions": [{"version": "v1", "resources": _KINDS_OF_DEVICES}],
            }
        ],
    }
)
"""The kinds with several versions."""
_LINES_AT_A_TIME = 32


class FromMemory(ApiConnection):
    """Answers as an API server with a cluster of a size: lists within watches, and writes that the watch confirms.

    Attributes:
        bound: the number of pods bound so far.
        nominated: when the last nomination was written: seconds of the clock, and of CPU.
        own_seconds: the time that the objects of the lists took to create.
    """

    def __init__(self, nodes: int, pods: int) -> None:
        super().__init__(Endpoint("http://localhost"))
        self._nodes, self._pods = nodes, pods
        self._changes: dict[str, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self._version = 1
        self._pending: dict[str, dict[str, Any]] = {}  # name -> pod
        self._node_of: dict[str, str] = {}  # name of a pod that was bound -> node
        self.bound = 0
        self.nominated = (0.0, 0.0)
        self.own_seconds = 0.0

    def create_pod(self, pod: dict[str, Any]) -> None:
        self._pending[pod["metadata"]["name"]] = pod
        self._tell("ADDED", pod)

    def create_claim(self, name: str, namespace: str, zone: str) -> None:
        """Tell the daemon of a PersistentVolumeClaim that is bound to a PersistentVolume of a zone."""
        self._tell(
            "ADDED", volume(f"v-{name}", nodeAffinity=only_on(_ZONE, zone)), "/api/v1/persistentvolumes"
        )
        self._tell("ADDED", claim(name, f"v-{name}", namespace=namespace), "/api/v1/persistentvolumeclaims")

    def create_devices(self) -> None:
        """Tell the daemon of a device on each node, and of a DeviceClass of all devices."""
        self._tell("ADDED", device_class(), f"{_DEVICES}/deviceclasses")
        for number in range(self._nodes):
            self._tell("ADDED", resource_slice(_node_name(number, self._nodes)), f"{_DEVICES}/resourceslices")

    def create_device_claim(self, name: str, namespace: str) -> None:
        """Tell the daemon of a ResourceClaim of one device."""
        self._tell("ADDED", resource_claim(name, namespace=namespace), f"{_DEVICES}/resourceclaims")

    def pass_a_minute(self) -> None:
        """Tell the daemon of all that nodes do in a minute."""
        changing = heterogeneous(self._nodes, seed=7)[: max(1, self._nodes // _STATUS_MINUTES)]
        for number, node in enumerate(changing):
            as_kubelets_write(node)
            if number < self._nodes // _CHURN:
                self._tell("DELETED", node, "/api/v1/nodes")
                self._tell("ADDED", node, "/api/v1/nodes")
            else:
                self._tell("MODIFIED", node, "/api/v1/nodes")
            node["status"].pop("images")

    @property
    def has_told_all(self) -> bool:
        """Whether the daemon has read all changes."""
        return all(changes.empty() for changes in self._changes.values())

    async def send(self, request: Request, before_sending: Any = None) -> Response:
        await asyncio.sleep(0)
        *_, name, subresource = request.path.split("/")
        if subresource == "binding":
            assert request.body is not None
            pod = self._pending.pop(name)
            pod["spec"]["nodeName"] = msgspec.json.decode(request.body)["target"]["name"]
            self._node_of[name] = pod["spec"]["nodeName"]
            self._tell("MODIFIED", pod)
            self.bound += 1
        elif request.method == "PATCH" and name in self._pending:
            assert request.body is not None
            self._pending[name]["status"] |= msgspec.json.decode(request.body)["status"]
            if "nominatedNodeName" in self._pending[name]["status"]:
                self.nominated = time.perf_counter(), time.process_time()
            self._tell("MODIFIED", self._pending[name])
        elif request.method == "PUT" and "/resourceclaims/" in request.path:
            assert request.body is not None
            written = msgspec.json.decode(request.body)
            self._tell("MODIFIED", written, f"{_DEVICES}/resourceclaims")
            return Response(200, msgspec.json.encode(written))
        elif request.path == "/apis":
            return Response(200, _SERVED)
        elif request.method == "DELETE":
            victim = a_pod(int(subresource.rpartition("-")[2]), self._nodes, is_bound=True)
            victim["spec"]["nodeName"] = self._node_of.pop(subresource, victim["spec"]["nodeName"])
            self._tell("DELETED", victim)
        return Response(200, _EMPTY.encode())

    async def stream(self, request: Request, *, silence_seconds: float) -> AsyncGenerator[list[bytes], None]:
        listed = self._listed(request.path)
        while lines := self._created(listed):
            yield lines
            await asyncio.sleep(0)
        kind = {"/api/v1/nodes": "Node", "/api/v1/pods": "Pod"}.get(request.path, "Other")
        metadata = {"resourceVersion": str(self._version), "annotations": _END}
        yield [_line("BOOKMARK", {"kind": kind, "apiVersion": "v1", "metadata": metadata})]
        changes = self._changes[request.path]
        while True:
            lines = [await changes.get()]
            while not changes.empty() and len(lines) < _LINES_AT_A_TIME:
                lines.append(changes.get_nowait())
            yield lines
            await asyncio.sleep(0)

    def _created(self, listed: Iterator[bytes]) -> list[bytes]:
        began = time.perf_counter()
        lines = list(islice(listed, _LINES_AT_A_TIME))
        self.own_seconds += time.perf_counter() - began
        return lines

    def _listed(self, path: str) -> Iterator[bytes]:
        if path == "/api/v1/nodes":
            for node in heterogeneous(self._nodes, seed=7):
                yield _line("ADDED", as_kubelets_write(node))
                del node["status"]["images"]  # or the benchmark would need more memory than the daemon
        elif path == "/api/v1/pods":
            for first in range(0, self._pods, PER_OWNER):
                yield from self._pods_of_owner(first)
        elif path == "/apis/apps/v1/replicasets":
            for number in range(self._pods // PER_OWNER):
                replica_set = {
                    "kind": "ReplicaSet",
                    "apiVersion": "apps/v1",
                    "metadata": _metadata(f"app-{number}", number, {"app": f"app-{number}"}, number),
                    "spec": {"replicas": PER_OWNER, "selector": {"matchLabels": {"app": f"app-{number}"}}},
                }
                yield _line("ADDED", replica_set)

    def _pods_of_owner(self, first: int) -> Iterator[bytes]:
        """Yield the pods of one owner; they differ in a few texts, and to encode each pod takes as long as to decode it."""
        written = _line("ADDED", a_pod(first, self._nodes, is_bound=True))
        for number in range(first, min(first + PER_OWNER, self._pods)):
            line = written
            for before, after in zip(
                _own_texts(first, self._nodes), _own_texts(number, self._nodes), strict=True
            ):
                line = line.replace(before, after)
            yield line

    def _tell(self, type_: str, obj: dict[str, Any], path: str = "/api/v1/pods") -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._changes[path].put_nowait(_line(type_, obj))


def _line(type_: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj})


def _own_texts(number: int, nodes: int) -> tuple[bytes, ...]:
    """Return what only one bound pod of `a_pod` has."""
    texts = (f"-{number // PER_OWNER}-{number}", _uid(number), _commit(number), _node_name(number, nodes))
    return tuple(f'{text}"'.encode() for text in texts)


def _uid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


def _commit(number: int) -> str:
    return f"{number:040x}"


def _node_name(number: int, nodes: int) -> str:
    return f"node-{number % nodes:04}"


def _metadata(name: str, number: int, labels: dict[str, str], owner: int) -> dict[str, Any]:
    fields = {
        f"f:{key}": {} for key in ("metadata", "spec", "status", "containers", "resources", "image", *labels)
    }
    return {
        "name": name,
        "namespace": f"team-{owner % 200}",
        "uid": _uid(number),
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
        "annotations": {"prometheus.io/scrape": "true", "example.com/commit": _commit(number)},
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
    metadata = _metadata(f"app-{owner}-{number}", number, labels, owner)
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
            **({"nodeName": _node_name(number, nodes)} if is_bound else {}),
        },
        "status": {
            "phase": "Running" if is_bound else "Pending",
            **({"startTime": "2026-01-01T00:00:00Z"} if is_bound else {}),
            "conditions": conditions if is_bound else [],
        },
    }


_IMAGES_OF_NODE = 50
_IMAGES = [
    {
        "names": [
            f"registry.example.com/team/app-{i}@sha256:{sha256(str(i).encode()).hexdigest()}",
            f"registry.example.com/team/app-{i}:1",
        ],
        "sizeBytes": 10**8 + i,
    }
    for i in range(400)
]


def as_kubelets_write(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node with its images, its managed fields and the room that the pods of this benchmark take."""
    first = int(node["metadata"]["name"].removeprefix("node-")) % (len(_IMAGES) - _IMAGES_OF_NODE)
    node["status"]["images"] = _IMAGES[first : first + _IMAGES_OF_NODE]
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts |= {"cpu": "64", "memory": "256Gi", "pods": "250"}
    node["metadata"] |= {"managedFields": _metadata("", 0, {}, 0)["managedFields"], "resourceVersion": "1"}
    return node


def _selected(number: int) -> dict[str, Any]:
    return {"matchLabels": {"app": f"app-{number // PER_OWNER}"}}


def _spread(number: int, when_unsatisfiable: str) -> dict[str, Any]:
    constraint = {
        "topologyKey": _ZONE,
        "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": _selected(number),
    }
    return {"topologySpreadConstraints": [{"maxSkew": 5, **constraint}]}


def _affinity(number: int, kind: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": _selected(number)}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


_KINDS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "plain": lambda _: {},
    "all different": lambda _: {},
    "spread over zones": lambda number: _spread(number, "DoNotSchedule"),
    "affinity in the zone": lambda number: _affinity(number, "podAffinity", _ZONE),
    "anti-affinity on the host": lambda number: _affinity(
        number, "podAntiAffinity", "kubernetes.io/hostname"
    ),
}
"""Kind -> what its pods have in their specs. Half of the pods of the kind `mixed` are plain, and half of the other kinds."""
_MIXED = "mixed"
_CLAIM = "one claim"
_DEVICE = "one claim of a device"
_ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")


def _claim_of(number: int) -> str:
    return f"data-{number}"


def _pods_of(kind: str, first: int, nodes: int) -> Iterator[dict[str, Any]]:
    """Yield pending pods of a kind."""
    kinds = list(_KINDS)
    for number in range(first, first + PENDING):
        its = kind if kind != _MIXED else kinds[0 if number % 2 else number // 2 % len(kinds)]
        pod = a_pod(number, nodes, is_bound=False)
        del pod["spec"]["topologySpreadConstraints"]
        if its == _CLAIM:
            pod["spec"]["volumes"] = mounted(_claim_of(number))
        elif its == _DEVICE:
            pod["spec"]["resourceClaims"] = claims_of(_claim_of(number))
        else:
            pod["spec"] |= _KINDS[its](number)
        if its == "all different":
            pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = f"{32_000 + number - first}Ki"
        yield pod


def _preemptor(number: int, nodes: int, cpu: str) -> dict[str, Any]:
    """Return a pending pod of high priority that has room on a node only if the others there leave."""
    pod = a_pod(number, nodes, is_bound=False)
    del pod["spec"]["topologySpreadConstraints"]
    pod["spec"]["priority"] = 1000
    pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return pod


async def measure(nodes: int, pods: int) -> None:
    """Run the daemon for a cluster, have it place pods of each kind, and print what that took."""
    settle_memory()
    connection = FromMemory(nodes, pods)
    daemon = Daemon(
        connection, with_leader_election(default(), leader_elect=False), clock=SystemClock(), random=Random(1)
    )
    daemon.parts.budget.take_clock()  # as `run` does
    stop = asyncio.Event()
    began = time.perf_counter()
    running = asyncio.create_task(daemon.run(stop))
    while not daemon.has_synced:  # noqa: ASYNC110 - the daemon tells nobody
        await asyncio.sleep(0.1)
    listed, listed_seconds = usage_of("self"), time.perf_counter() - began
    connection.create_pod(a_pod(pods, nodes, is_bound=False))
    await _until_bound(connection, 1)
    first_seconds = time.perf_counter() - began
    _show("lists are read after", f"{listed_seconds:.1f} s ({listed.cpu_seconds:.1f} s of CPU)")
    _show("the first pod is bound after", f"{first_seconds:.1f} s")
    _show("of it the benchmark itself", f"{connection.own_seconds:.1f} s")
    _show("memory", f"{listed.resident_bytes / _MIB:.0f} MiB")
    _show("CPU of a minute without new pods", f"{await _idle_minute(connection):.2f} s")
    kinds = [*_KINDS, _MIXED, _CLAIM, _DEVICE]
    for place, kind in enumerate(kinds):
        first = pods + 1 + place * PENDING
        if kind == _DEVICE:
            connection.create_devices()
        for number in range(first, first + PENDING):
            namespace = f"team-{number // PER_OWNER % 200}"
            if kind == _CLAIM:
                connection.create_claim(_claim_of(number), namespace, _ZONES[number % len(_ZONES)])
            elif kind == _DEVICE:
                connection.create_device_claim(_claim_of(number), namespace)
        await _until_told(connection)
        before = usage_of("self")
        for pod in _pods_of(kind, first, nodes):
            connection.create_pod(pod)
        await _until_bound(connection, 1 + (place + 1) * PENDING)
        now = usage_of("self")
        milli = (now.cpu_seconds - before.cpu_seconds) / PENDING * 1000
        _show(f"CPU of a pod, {kind}", f"{milli:.2f} ms, then {now.resident_bytes / _MIB:.0f} MiB")
    await _preempt(connection, nodes, pods + 1 + len(kinds) * PENDING)
    gc.collect()
    now = usage_of("self")
    stop.set()
    await running
    daemon.parts.budget.give_clock_back()
    _show(
        "memory in the end", f"{now.resident_bytes / _MIB:.0f} MiB, at most {now.peak_bytes / _MIB:.0f} MiB"
    )


def _show(what: str, value: str) -> None:
    sys.stdout.write(f"  {what:40} {value}\n")
    sys.stdout.flush()


async def _until_bound(connection: FromMemory, count: int) -> None:
    while connection.bound < count:  # noqa: ASYNC110 - the daemon tells nobody
        await asyncio.sleep(0.01)


async def _until_told(connection: FromMemory) -> None:
    while not connection.has_told_all:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.01)


async def _preempt(connection: FromMemory, nodes: int, first: int) -> None:
    """Print what it takes from the watch event of a preemptor until its nomination is written."""
    alike, different = ["64"] * PREEMPTORS, [f"{63_999 - place}m" for place in range(PREEMPTORS)]
    taken, bound = [], connection.bound
    for number, cpu in enumerate(["64", *alike, *different], first):
        pod = _preemptor(number, nodes, cpu)
        began, began_cpu = time.perf_counter(), time.process_time()
        connection.create_pod(pod)
        while connection.nominated[0] < began:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
        ended, ended_cpu = connection.nominated
        taken.append((ended - began, ended_cpu - began_cpu))
        await asyncio.sleep(_EVICTION_SECONDS)
    await _until_bound(connection, bound + len(taken))
    for what, some in (
        ("the first", taken[:1]),
        ("one alike", taken[1 : 1 + PREEMPTORS]),
        ("one unlike others", taken[1 + PREEMPTORS :]),
    ):
        seconds, cpu_seconds = (sum(each) / len(some) * 1000 for each in zip(*some, strict=True))
        _show(f"preemption, {what}", f"{seconds:.0f} ms, of it {cpu_seconds:.0f} ms of CPU")


async def _idle_minute(connection: FromMemory) -> float:
    """Return the CPU seconds of what nodes do in a minute, and of a minute in which nothing happens."""
    connection.pass_a_minute()
    before = usage_of("self").cpu_seconds
    await _until_told(connection)
    changed = usage_of("self").cpu_seconds
    await asyncio.sleep(_IDLE_SECONDS)
    return changed - before + (usage_of("self").cpu_seconds - changed) * 60 / _IDLE_SECONDS


def main() -> None:
    """Measure each size in a process of its own."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--pods-per-node", type=int, default=PODS_PER_NODE)
    parser.add_argument("--here", action="store_true", help="in this process, the first size only")
    arguments = parser.parse_args()
    if arguments.here:
        run_in_loop(measure(arguments.nodes[0], arguments.nodes[0] * arguments.pods_per_node))
        return
    for nodes in arguments.nodes:
        sys.stdout.write(f"{nodes} nodes, {nodes * arguments.pods_per_node} pods\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "tests.bench.cluster_size", str(nodes), "--here"]
        subprocess.run([*command, "--pods-per-node", str(arguments.pods_per_node)], check=True)


if __name__ == "__main__":
    main()
