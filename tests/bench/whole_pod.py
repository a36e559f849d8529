"""`python -m tests.bench.whole_pod`: all that a pod costs the daemon but sockets, beside a bare loop over the same bytes.

Decision, Binding, event and watch go through the daemon as it is built for `run`; instead of an API server, an object in
the same process answers. The bare loop fills in the same Binding and event and reads the same watch events, and decides
nothing. Machines differ; compare the lines of one run with each other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

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
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.ports import Ports

_SIZES = (100, 5000)
_PODS = 2000
_RUNS = 3
_ACCEPTED = Response(201, b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}')


class Loopback:
    """An API server in the same loop: takes every write for done, and shows every Binding to the watch of pods.

    Args:
        nodes: watch events of the nodes there are.
        pods: watch events of the pending pods.
    """

    silent_since = None  # it answers whatever it is asked

    def __init__(self, nodes: list[bytes], pods: list[dict[str, Any]]) -> None:
        self.observer: object = None
        self.versions = ServedVersions(self.send)
        self._nodes = nodes
        self._pods = {each["metadata"]["name"]: each for each in pods}
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._left = 2 * len(pods)  # a Binding and an event each
        self.done = asyncio.Event()
        self.written: list[tuple[str, bytes]] = []

    async def send(self, request: Request, **_: Any) -> Response:
        assert request.body is not None
        if request.path.endswith("/binding"):
            name = request.path.split("/")[-2]
            node_name = json.loads(request.body)["target"]["name"]
            bound = {**self._pods[name], "spec": {**self._pods[name]["spec"], "nodeName": node_name}}
            self._lines.put_nowait(_event("MODIFIED", bound))
        self.written.append((request.path, request.body))
        self._left -= 1
        if not self._left:
            self.done.set()
        return _ACCEPTED

    async def stream(self, request: Request, **_: Any) -> AsyncGenerator[list[bytes], None]:
        kind = request.path.rsplit("/", 1)[-1]
        if kind == "nodes":
            yield [*self._nodes, _end("Node")]
        elif kind == "pods":
            yield [*(_event("ADDED", each) for each in self._pods.values()), _end("Pod")]
            while True:
                lines = [await self._lines.get()]
                while not self._lines.empty():
                    lines.append(self._lines.get_nowait())
                yield lines
        else:
            yield [_end("Object")]
        await asyncio.Event().wait()


def _event(kind: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


def _end(kind: str) -> bytes:
    metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    return _event("BOOKMARK", {"kind": kind, "apiVersion": "v1", "metadata": metadata})


def _configuration() -> Configuration:
    configuration = default()
    election = msgspec.structs.replace(configuration.settings.leader_election, leader_elect=False)
    settings = msgspec.structs.replace(configuration.settings, leader_election=election)
    return dataclasses.replace(configuration, settings=settings)


async def _daemon(server: Loopback, folder: Path | None = None) -> float:
    """Return the CPU seconds from the first decision until everything is written; it is recorded in a folder, if given."""
    ports: Ports | None = None
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        if folder is not None:
            header = Header.fresh(SystemClock(), Random(1))
            tape = RecordingWriter(RecordingLimits(folder), header)
            stack.callback(tape.close)
            ports = Recorder(SystemClock(), tape, header)
        connection: Any = server
        daemon = Daemon(connection, _configuration(), clock=SystemClock(), random=Random(1), ports=ports)
        daemon.parts.budget.take_clock()  # as `run` does
        stack.callback(daemon.parts.budget.give_clock_back)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())  # a daemon that ends early ends this too
        tasks.create_task(daemon.run(stop))
        await daemon.watches.wait_synced()
        gc.collect()
        begin = time.process_time()
        await server.done.wait()
        seconds = time.process_time() - begin
        stop.set()
    return seconds


def _bare(server: Loopback, pods: list[dict[str, Any]]) -> float:
    """Return the CPU seconds for filling in what was written, and reading what was watched."""
    lines = [_event("MODIFIED", each) for each in pods]
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
        nodes = [
            _event("ADDED", node_object(f"n{number}", cpu="32", memory="256Gi")) for number in range(size)
        ]
        pods = [
            pod_object(f"pod-{number}", cpu="100m", memory="500Mi", schedulerName="custom-scheduler")
            for number in range(n_pods)
        ]
        best, recorded, bare = float("inf"), float("inf"), float("inf")
        for _ in range(_RUNS):
            with TemporaryDirectory() as folder:
                recorded = min(recorded, asyncio.run(_daemon(Loopback(nodes, pods), Path(folder))))
            server = Loopback(nodes, pods)
            best = min(best, asyncio.run(_daemon(server)))
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
