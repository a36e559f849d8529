"""The page of what-if requests: one request at a time, and an error for everything that may happen to the child process."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler.configuration.load import default
from scheduler.daemon.app.child_process import ChildResult
from scheduler.daemon.metrics import Metrics
from scheduler.framework.preemption import RecentEvictions
from scheduler.http_server.messages import RequestTooLongError, ServerRequest
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.service import page
from scheduler.tools.whatif.service.cluster_copy import ChildTask, fill, pieces, read_pieces
from scheduler.tools.whatif.service.page import what_if_pages
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.clusters import scheduler_of

CLUSTER = (
    node_object("n1", cpu="4"),
    pod_object("there", cpu="1", node="n1", labels={"app": "web"}),
    pod_object("waits", cpu="9"),
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "example.com/disk",
    },
)


def daemon(*, has_synced: bool = True) -> Any:
    """What the page uses of a daemon, with a cluster."""
    scheduler = scheduler_of(*CLUSTER)
    return SimpleNamespace(
        parts=scheduler.parts,
        cycles=scheduler.cycles,
        configuration=default(),
        generations=SimpleNamespace(active=SimpleNamespace(needs=scheduler.needs)),
        has_synced=has_synced,
        metrics=Metrics(),
    )


async def body() -> bytes:
    return b'{"pending": true}'


async def too_long() -> bytes:
    raise RequestTooLongError("a request is at most 1 bytes long")


async def asked(given: Any, read: Any = body) -> tuple[int, dict[str, Any]]:
    answering, _ = what_if_pages(given)
    answer = await answering.handler(
        ServerRequest("POST", answering.path, {}, {}, "peer", shows_certificate=False, read=read)
    )
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body)


def ends(monkeypatch: pytest.MonkeyPatch, ended: ChildResult) -> None:
    async def in_a_child(*_: object) -> ChildResult:
        return ended

    monkeypatch.setattr(page, "in_a_child", in_a_child)
    monkeypatch.setattr(page, "memory_left", lambda: None)


@pytest.mark.parametrize(
    ("ended", "status", "message", "result"),
    [
        pytest.param(ChildResult(b'200\n{"verdict": "v"}', 0), 200, None, "success", id="an answer"),
        pytest.param(
            ChildResult(b'422\n[{"field": "add", "message": "m"}]', 0),
            422,
            "add: m",
            "invalid",
            id="an invalid request",
        ),
        pytest.param(
            ChildResult(b"", -9, "more than 60 seconds"),
            504,
            "the answer takes more than 60 seconds; send fewer pods or nodes",
            "late",
            id="the time limit",
        ),
        pytest.param(ChildResult(b"", -11), 500, "the evaluation ended with SIGSEGV", "failed", id="a crash"),
        pytest.param(
            ChildResult(b'503\n[{"field": "", "message": "m"}]', 0), 503, "m", "failed", id="the memory limit"
        ),
        pytest.param(ChildResult(b"", -9, "", True), 503, "the client has left", "left", id="no client"),
    ],
)
async def test_each_end_of_the_child_process_has_an_answer(
    monkeypatch: pytest.MonkeyPatch, ended: ChildResult, status: int, message: str | None, result: str
) -> None:
    ends(monkeypatch, ended)
    given = daemon()

    code, answer = await asked(given)

    assert (code, answer.get("message")) == (status, message)
    text = b"".join(given.metrics.pieces("")[0]).decode()
    assert f'custom_scheduler_whatif_requests_total{{result="{result}"}} 1' in text


async def test_a_request_during_another_one_gets_the_time_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends(monkeypatch, ChildResult(b"200\n{}", 0))
    started, ready = asyncio.Event(), asyncio.Event()

    async def in_a_child(*_: object) -> ChildResult:
        started.set()
        await ready.wait()
        return ChildResult(b"200\n{}", 0)

    monkeypatch.setattr(page, "in_a_child", in_a_child)
    answering, _ = what_if_pages(daemon())

    def request() -> ServerRequest:
        return ServerRequest("POST", answering.path, {}, {}, "peer", shows_certificate=False, read=body)

    first = asyncio.ensure_future(answering.handler(request()))
    await started.wait()
    second = await answering.handler(request())
    ready.set()

    assert (second.status, second.headers["Retry-After"]) == (429, "5")
    assert (await first).status == 200
    assert (await answering.handler(request())).status == 200


async def test_a_daemon_that_has_not_read_the_cluster_answers_no_request() -> None:
    code, answer = await asked(daemon(has_synced=False))

    assert (code, answer["message"]) == (503, "the daemon has not read the cluster yet")


async def test_a_request_that_needs_more_memory_than_is_left_is_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends(monkeypatch, ChildResult(b"200\n{}", 0))
    monkeypatch.setattr(page, "memory_left", lambda: 100 * 2**20)

    code, answer = await asked(daemon())

    assert (code, answer["message"]) == (503, "an answer needs 256 MiB, and the container has 100 MiB left")


async def test_a_body_beyond_the_limit_is_refused() -> None:
    assert (await asked(daemon(), too_long))[0] == 413


async def test_the_child_process_has_the_cluster_of_the_daemon() -> None:
    given = daemon()
    given.cycles.preemptions.recent.resume([(1.0, "default/gone", "uid")])
    task = ChildTask("", "", b"", {}, 0, given.cycles.preemptions.recent.kept())
    stream = b"".join([piece async for piece in pieces(task, given)])

    copied = OfflineScheduler(ClusterFile(), default(), refresh=False)
    left = read_pieces(BytesIO(stream))
    fill(copied, left, msgspec.msgpack.decode(next(left), type=ChildTask))

    assert copied.cache.counts() == given.parts.cache.counts()
    assert [pod.key for pod in copied.cache.pods()] == ["default/there"]
    assert [pod.labels for pod in copied.cache.pods()] == [{"app": "web"}]
    assert [queued.pod.key for queued in copied.queue.pods()] == ["default/waits"]
    assert [*copied.cache.table.watch_kind("storage.k8s.io/v1/storageclasses")] == ["fast"]
    assert isinstance(copied.cycles.preemptions.recent, RecentEvictions)
    assert len(copied.cycles.preemptions.recent) == 1


async def test_the_copy_of_a_large_cluster_is_made_in_pieces() -> None:
    cluster = [node_object(f"n{number}") for number in range(250)]
    given = daemon()
    given.parts = scheduler_of(*cluster).parts
    task = ChildTask("", "", b"", {}, 0, [])

    assert len([piece async for piece in pieces(task, given)]) == 1 + 3
