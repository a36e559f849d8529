"""`python -m tests.bench.requests`: what it costs to bind a pod and to hear of it, beside what it costs at least.

The bare loop writes the same bytes to connections it keeps and looks for the end of each answer; it decides nothing,
checks nothing, and cannot be told to wait. Both ask one server in another process, over TLS; what counts is the CPU
time of this process. Machines differ; compare the lines of one run with each other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import ssl
import time
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from scheduler.clock import SystemClock
from scheduler.daemon.app.memory import settle_memory
from scheduler.kube.certificates import issue
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.events import EventRecorder
from scheduler.kube.client.store import Store
from scheduler.kube.client.wire import decode_watch_event
from scheduler.kube.client.writer import ApiWriter
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Request
from scheduler.kube.tls import load_key_pair
from scheduler.objects.decode import decode_pod
from tests.support.builders import pod, pod_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

    from scheduler.objects.pod import PodInfo

_COUNT = 4000
_AT_A_TIME = 16
_RUNS = 5
_BODY = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
_ANSWER = (
    b"HTTP/1.1 201 Created\r\nAudit-Id: 7f0c0f3a-5d0e-4b2c-9d1c-2f3f0a2b6a11\r\nCache-Control: no-cache, private\r\n"
    b"Content-Type: application/json\r\nX-Kubernetes-Pf-Flowschema-Uid: 2bd04c0f-6d6b-4f4b-8b8a-8f8a1c1c1c1c\r\n"
    b"X-Kubernetes-Pf-Prioritylevel-Uid: 3bd04c0f-6d6b-4f4b-8b8a-8f8a1c1c1c1c\r\n"
    b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class _Answering(asyncio.Protocol):
    """Answers every request alike."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if _whole(self._received):
            self._received = b""
            self._transport.write(_ANSWER)


def _whole(message: bytes) -> bool:
    head, separator, body = message.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(separator) and len(body) >= int(length or 0)


class _Bare(asyncio.Protocol):
    """The least that a client can do."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if _whole(self._received) and self._answer is not None:
            received, self._received = self._received, b""
            self._answer.set_result(received)

    def post(self, path: str, head: str, body: bytes) -> asyncio.Future[bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(
            f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        return self._answer


def _serve(port: Connection) -> None:
    issued = issue("bench", dns_names=["localhost"], addresses=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key_pair(context, issued.serving)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=context)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


async def _nothing() -> None: ...


async def _cpu_each(
    work: Callable[[PodInfo], Awaitable[object]],
    pods: list[PodInfo],
    finish: Callable[[], Awaitable[object]] = _nothing,
) -> float:
    """Return the CPU seconds that each pod took, some at a time, once connections are there."""

    async def worker() -> None:
        for each in left:
            await work(each)

    left = iter(pods[: _AT_A_TIME * 8])
    await asyncio.gather(*(worker() for _ in range(_AT_A_TIME)))
    await finish()
    left = iter(pods)
    began = time.process_time()
    await asyncio.gather(*(worker() for _ in range(_AT_A_TIME)))
    await finish()
    return (time.process_time() - began) / len(pods)


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_HEAD = "Host: 127.0.0.1\r\nAuthorization: Bearer t\r\nContent-Type: application/json\r\nAccept: application/json\r\n"


async def _bare(port: int, pods: list[PodInfo], *, with_events: bool) -> float:
    loop = asyncio.get_running_loop()
    tls = _tls()
    connections = [
        (await loop.create_connection(_Bare, "127.0.0.1", port, ssl=tls))[1] for _ in range(_AT_A_TIME)
    ]

    async def bind(each: PodInfo) -> None:
        connection = connections.pop()
        name, namespace, uid = each.name.encode(), each.namespace.encode(), each.uid.encode()
        await connection.post(
            f"/api/v1/namespaces/{each.namespace}/pods/{each.name}/binding",
            _HEAD,
            b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%b","namespace":"%b","uid":"%b"},'
            b'"target":{"kind":"Node","name":"n1"}}' % (name, namespace, uid),
        )
        if with_events:
            event = {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": f"{each.name}.1", "namespace": each.namespace},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "bench",
                "reportingInstance": "bench",
                "action": "Binding",
                "reason": "Scheduled",
                "type": "Normal",
                "note": f"Successfully assigned {each.key} to n1",
                "regarding": {"apiVersion": "v1", "kind": "Pod", "name": each.name, "uid": each.uid},
            }
            path = f"/apis/events.k8s.io/v1/namespaces/{each.namespace}/events"
            await connection.post(path, _HEAD, json.dumps(event).encode())
        connections.append(connection)

    return await _cpu_each(bind, pods)


class _Token:
    def header(self) -> str:
        return "Bearer t"

    def rejected(self) -> None:
        raise AssertionError("nobody rejects it")


async def _ours(port: int, pods: list[PodInfo]) -> tuple[float, float, float]:
    """Return what a request, a bind, and a bind with its event take."""
    endpoint = Endpoint(f"https://127.0.0.1:{port}", _tls())
    async with (
        ApiConnection(endpoint, authorization=_Token()) as connection,
        ApiWriter(connection, SystemClock(), random=Random(1)) as writer,
    ):
        recorder = EventRecorder(writer.queue_event, SystemClock(), "bench")
        body = b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","namespace":"default","uid":"u"}}'

        async def send(each: PodInfo) -> None:
            path = f"/api/v1/namespaces/{each.namespace}/pods/{each.name}/binding"
            await connection.send(Request("POST", path, body))

        async def bind(each: PodInfo) -> None:
            await writer.bind(each, "n1")

        async def bind_and_record(each: PodInfo) -> None:
            await writer.bind(each, "n1")
            recorder.record(
                each,
                type_="Normal",
                reason="Scheduled",
                action="Binding",
                note=f"Successfully assigned {each.key}",
            )

        seconds = [await _cpu_each(work, pods) for work in (send, bind)]
        both = await _cpu_each(bind_and_record, pods, lambda: writer.drain(60.0))
        return seconds[0], seconds[1], both


class _Nobody:
    def on_add(self, obj: PodInfo) -> None: ...
    def on_update(self, old: PodInfo, new: PodInfo) -> None: ...
    def on_delete(self, old: PodInfo) -> None: ...
    def on_undecodable(self, identity: object, error: object) -> None: ...


def _pod_as_served(name: str, version: int) -> dict[str, Any]:
    """A pod with what a server adds to it."""
    found = pod_object(
        name, uid=f"uid-{name}", labels={"app": "web", "tier": "front"}, cpu="100m", memory="500Mi"
    )
    found["metadata"] |= {
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generateName": "web-",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
        ],
    }
    mount = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    found["spec"]["containers"][0] |= {
        "image": "registry.example/web:1",
        "volumeMounts": [mount],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    found["spec"] |= {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{each}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for each in ("not-ready", "unreachable")
        ],
        "volumes": [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        ],
    }
    found["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    return found


def _watch_event() -> tuple[float, float]:
    """Return the CPU seconds of taking in a watch event, and of decoding the object in it alone."""
    lines = []
    for number in range(_COUNT):
        found = _pod_as_served(f"p{number % 500}", number + 1)
        lines.append(b'{"type":"MODIFIED","object":%b}' % json.dumps(found, separators=(",", ":")).encode())
    objects = [decode_watch_event(line).object for line in lines]
    store = Store("Pod", decode_pod, _Nobody())
    began = time.process_time()
    for line in lines:
        event = decode_watch_event(line)
        store.put(event.identity, event.object)
    whole = time.process_time() - began
    began = time.process_time()
    for raw in objects:
        decode_pod(raw)
    return whole / _COUNT, (time.process_time() - began) / _COUNT


def _show(label: str, seconds: float, base: float) -> None:
    print(f"{label:60}{seconds * 1e6:9.1f} us{seconds / base:9.2f}x")


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    settle_memory()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    pods = [pod(f"p{number}", uid=f"uid-{number}") for number in range(_COUNT)]
    best = [float("inf")] * 7
    for _ in range(_RUNS):
        figures = (
            uvloop.run(_bare(port, pods, with_events=False)),
            *uvloop.run(_ours(port, pods)),
            uvloop.run(_bare(port, pods, with_events=True)),
            *_watch_event(),
        )
        best = [min(pair) for pair in zip(best, figures, strict=True)]
    bare, request, bind, both, bare_both, event, decoded = best
    _show("Binding, bare loop", bare, bare)
    _show("Binding, ApiConnection.send", request, bare)
    _show("Binding, ApiWriter.bind", bind, bare)
    _show("Binding and event, bare loop", bare_both, bare_both)
    _show("Binding and event, ApiWriter and EventRecorder", both, bare_both)
    _show("a pod decoded", decoded, decoded)
    _show("a watch event taken in, to the handler", event, decoded)
    server.kill()


if __name__ == "__main__":
    main()
