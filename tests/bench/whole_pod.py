"""`python -m tests.bench.whole_pod`: all that a pod costs the daemon but sockets, beside a bare loop over the same bytes.

Decision, Binding, event and watch go through the daemon as it is built for `run`; instead of an API server, an object in
the same process answers. The bare loop fills in the same Binding and event and reads the same watch events, and decides
nothing. Machines differ; compare the lines of one run with each other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.cli.process import run_in_loop
from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.memory import settle_memory
from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording import RecordingWriter
from scheduler.daemon.recording.recording_files import Header
from scheduler.kube.client.discovery import ServedVersions
from scheduler.kube.http.request import Request, Response
from scheduler.objects.decode import decode_pod
from scheduler.objects.pod import TOPOLOGY_LABELS
from tests.support.builders import CREATED, node_object, pod_object

if TYPE_CHECKING:
    import cProfile
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.ports import Ports

_SIZES = (100, 5000)
_PODS = 2000
_RUNS = 3
_LINES_AT_A_TIME = 32
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})
_ANY_NODE, _ANY_ZONE = b"the-node-of-the-binding", b"the-zone-of-the-node"
_ZONE, _ZONES = TOPOLOGY_LABELS[0], 3
_ACCEPTED = Response(201, b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}')


_MANAGED = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2026-03-01T08:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {
        "f:metadata": {
            "f:generateName": {},
            "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}},
            "f:ownerReferences": {".": {}, 'k:{"uid":"2f1c"}': {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"main"}': {
                    ".": {},
                    "f:image": {},
                    "f:imagePullPolicy": {},
                    "f:name": {},
                    "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                    "f:terminationMessagePath": {},
                    "f:terminationMessagePolicy": {},
                }
            },
            "f:dnsPolicy": {},
            "f:enableServiceLinks": {},
            "f:restartPolicy": {},
            "f:schedulerName": {},
            "f:securityContext": {},
            "f:terminationGracePeriodSeconds": {},
        },
    },
}


def pending_pods(number: int, *, all_different: bool = False) -> list[dict[str, Any]]:
    """Return pods of a Deployment, as an API server sends them; with other requests each, if they are to differ."""
    token = {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": []}}
    waits = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    pods = [
        pod_object(
            f"web-7d4b9c6f5-{each:05}",
            cpu=f"{100 + each if all_different else 100}m",
            memory="100Mi",
            schedulerName="custom-scheduler",
            labels={"app": "web", "pod-template-hash": "7d4b9c6f5"},
            tolerations=waits,
            volumes=[token],
        )
        for each in range(number)
    ]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5", "uid": "2f1c"}
    for each in pods:
        each["metadata"] |= {"resourceVersion": "10", "ownerReferences": [owner], "managedFields": [_MANAGED]}
    return pods


class Loopback:
    """An API server in the same loop: takes every write for done, and shows every Binding to the watch of pods.

    Args:
        nodes: watch events of the nodes there are.
        pods: the pending pods, which `create_pods` shows to the watch.
        elsewhere: pod -> node, for the pods that other replicas bind.
    """

    silent_since = None  # it answers whatever it is asked

    def __init__(
        self, nodes: list[bytes], pods: list[dict[str, Any]], elsewhere: Mapping[str, str] = _NOWHERE
    ) -> None:
        self.observer: object = None
        self.versions = ServedVersions(self.send)
        self._nodes = nodes
        self._added = {each["metadata"]["name"]: event("ADDED", each) for each in pods}
        self._bound = {each["metadata"]["name"]: event("MODIFIED", _bound(each)) for each in pods}
        self._elsewhere = elsewhere
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._left = 2 * (len(pods) - len(elsewhere))  # a Binding and an event each
        self.done = asyncio.Event()
        self.written: list[tuple[str, bytes]] = []

    def create_pods(self) -> None:
        """Show all pods, and the Bindings of other replicas soon after each pod."""
        names = list(self._added)
        for first in range(0, len(names), _LINES_AT_A_TIME):
            some = names[first : first + _LINES_AT_A_TIME]
            for name in some:
                self._lines.put_nowait(self._added[name])
            for name in some:
                if name in self._elsewhere:
                    self._show_bound(name, self._elsewhere[name])

    async def send(self, request: Request, **_: Any) -> Response:
        assert request.body is not None
        await asyncio.sleep(0)  # an answer comes later
        if request.path.endswith("/binding"):
            node_name = msgspec.json.decode(request.body, type=_Binding).target.name
            self._show_bound(request.path.split("/")[-2], node_name)
        self.written.append((request.path, request.body))
        self._left -= 1
        self._note_done()
        return _ACCEPTED

    def _show_bound(self, pod: str, node_name: str) -> None:
        line = self._bound[pod].replace(_ANY_ZONE, _zone(node_name).encode(), 1)
        self._lines.put_nowait(line.replace(_ANY_NODE, node_name.encode(), 1))

    def _note_done(self) -> None:
        if not self._left and self._lines.empty():
            self.done.set()

    async def stream(self, request: Request, **_: Any) -> AsyncGenerator[list[bytes], None]:
        kind = request.path.rsplit("/", 1)[-1]
        if kind == "nodes":
            yield [*self._nodes, _end("Node")]
        elif kind == "pods":
            yield [_end("Pod")]
            while True:
                lines = [await self._lines.get()]
                while not self._lines.empty() and len(lines) < _LINES_AT_A_TIME:
                    lines.append(self._lines.get_nowait())
                yield lines
                self._note_done()
                await asyncio.sleep(0)
        else:
            yield [_end("Object")]
        await asyncio.Event().wait()


class _Target(msgspec.Struct):
    name: str


class _Binding(msgspec.Struct):
    target: _Target


def _bound(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as it is after its Binding, on any node; the API server copies the zone of the node."""
    labels = {**pod["metadata"]["labels"], _ZONE: _ANY_ZONE.decode()}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}
    return {
        **pod,
        "metadata": {**pod["metadata"], "resourceVersion": "11", "labels": labels},
        "spec": {**pod["spec"], "nodeName": _ANY_NODE.decode()},
        "status": {"phase": "Pending", "conditions": [condition], "qosClass": "Burstable"},
    }


def event(kind: str, found: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": found})


def _end(kind: str) -> bytes:
    metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    return event("BOOKMARK", {"kind": kind, "apiVersion": "v1", "metadata": metadata})


def watched_nodes(number: int) -> list[bytes]:
    """Return watch events of nodes that are equal but for their zones."""
    names = [f"n{each}" for each in range(number)]
    return [
        event("ADDED", node_object(name, cpu="32", memory="256Gi", labels={_ZONE: _zone(name)}))
        for name in names
    ]


def _zone(node_name: str) -> str:
    return f"zone-{int(node_name.removeprefix('n')) % _ZONES}"


def configuration() -> Configuration:
    configuration = default()
    election = msgspec.structs.replace(configuration.settings.leader_election, leader_elect=False)
    settings = msgspec.structs.replace(configuration.settings, leader_election=election)
    return dataclasses.replace(configuration, settings=settings)


async def schedule_all(
    server: Loopback,
    folder: Path | None = None,
    profile: cProfile.Profile | None = None,
    make: Callable[..., Daemon] = Daemon,
) -> float:
    """Return the CPU seconds from the watch events of the pods until everything is written.

    Args:
        server: has the pods.
        folder: where the daemon records; None for no recording.
        profile: is enabled meanwhile.
        make: makes the daemon.
    """
    ports: Ports | None = None
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        if folder is not None:
            header = Header.fresh(SystemClock(), Random(1))
            tape = RecordingWriter(RecordingLimits(folder), header)
            stack.callback(tape.close)
            ports = Recorder(SystemClock(), tape, header)
        connection: Any = server
        daemon = make(connection, configuration(), clock=SystemClock(), random=Random(1), ports=ports)
        daemon.parts.budget.take_clock()  # as `run` does
        stack.callback(daemon.parts.budget.give_clock_back)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())  # a daemon that ends early ends this too
        tasks.create_task(daemon.run(stop))
        await daemon.watches.wait_synced()
        gc.collect()
        begin = time.process_time()
        if profile is not None:
            profile.enable()
        server.create_pods()
        await server.done.wait()
        if profile is not None:
            profile.disable()
        seconds = time.process_time() - begin
        stop.set()
    return seconds


def _bare(server: Loopback, pods: list[dict[str, Any]]) -> float:
    """Return the CPU seconds for filling in what was written, and reading what was watched."""
    lines = [event("MODIFIED", each) for each in pods]
    begin = time.process_time()
    for path, body in server.written:
        _ = b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
    for line in lines:
        decode_pod(bytes(msgspec.json.decode(line, type=_Watched).object))
    return time.process_time() - begin


class _Watched(msgspec.Struct):
    object: msgspec.Raw


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    settle_memory()
    print_table(_SIZES, _PODS)


def print_table(sizes: Sequence[int], n_pods: int) -> None:
    """Print a whole pod's cost and the bare loop's, at so many nodes."""
    for size in sizes:
        nodes, pods = watched_nodes(size), pending_pods(n_pods)
        best, recorded, bare = float("inf"), float("inf"), float("inf")
        for _ in range(_RUNS):
            with TemporaryDirectory() as folder:
                recorded = min(recorded, run_in_loop(schedule_all(Loopback(nodes, pods), Path(folder))))
            server = Loopback(nodes, pods)
            best = min(best, run_in_loop(schedule_all(server)))
            bare = min(bare, _bare(server, pods))
        for label, seconds in (
            ("a whole pod", best),
            ("a whole pod, recorded", recorded),
            ("the bare loop", bare),
        ):
            ratio = f"{seconds / bare:8.1f}x"
            print(f"{label + f', {size} nodes':50}{seconds / n_pods * 1e6:9.0f} us{'':14}{ratio:>12}")


if __name__ == "__main__":
    main()
