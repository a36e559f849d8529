"""No request is sent after leadership is lost, for any time that it has waited."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import NotLeadingError
from scheduler.kube.client.connection import ApiConnection
from scheduler.kube.client.lease import Leadership
from scheduler.kube.client.requests import GuardedRequests
from scheduler.kube.client.writer import ApiWriter
from scheduler.kube.http.endpoint import Endpoint
from scheduler.kube.http.request import Request
from scheduler.objects.v1 import PodCondition
from tests.support.builders import pod
from tests.support.virtual_time import LoopClock
from tests.unit.kube.client.scripted_server import Answer, ScriptedServer, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PODS = "/api/v1/namespaces/default/pods"


class Right:
    """The right to write, controlled by the test."""

    def __init__(self) -> None:
        self.is_held = True

    def check(self) -> None:
        if not self.is_held:
            raise NotLeadingError("kube-system/custom-scheduler")


@dataclass(frozen=True)
class SlowEndpoint(Endpoint):
    """Delays every new connection."""

    seconds: float = 0.0

    async def connect(self, protocol_factory: Callable[[], Any]) -> Any:
        await asyncio.sleep(self.seconds)
        return await super().connect(protocol_factory)


@asynccontextmanager
async def guarded(
    *, connecting_seconds: float = 0.0
) -> AsyncIterator[tuple[ScriptedServer, GuardedRequests, Right]]:
    async with scripted_server() as server:
        endpoint = SlowEndpoint("http://localhost", unix_socket=server.socket, seconds=connecting_seconds)
        right = Right()
        async with ApiConnection(endpoint) as connection:
            yield server, GuardedRequests(connection, right.check), right


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[ScriptedServer, ApiWriter, Right]]:
    async with (
        guarded() as (server, requests, right),
        ApiWriter(requests, LoopClock(), random=Random(7)) as writer,
    ):
        yield server, writer, right


async def test_a_leader_sends_requests_unchanged():
    async with guarded() as (server, requests, _):
        server.script("POST", "/a", Answer(201, {"b": 1}))

        answer = await requests.send(Request("POST", "/a", b"{}", "text/x", {"q": "1"}))

        (got,) = server.received
        assert (answer.status, answer.body) == (201, b'{"b": 1}')
        assert (got.query, got.body, got.headers["Content-Type"]) == ({"q": "1"}, b"{}", "text/x")


async def test_without_leadership_nothing_is_sent_and_the_error_has_no_status():
    async with guarded() as (server, requests, right):
        right.is_held = False

        with pytest.raises(NotLeadingError, match=r"not leading any more.*nothing was sent") as caught:
            await requests.send(Request("POST", "/a", b"{}"))

        assert caught.value.status not in {0, 404, 409, 500, 504}, "it is certain to have had no effect"
        assert not server.received


@pytest.mark.parametrize("body", [b"{}", None], ids=["with a body", "without"])
async def test_a_request_that_waited_for_a_connection_checks_leadership_again(body: bytes | None):
    async with guarded(connecting_seconds=9.0) as (server, requests, right):
        asking = asyncio.create_task(requests.send(Request("POST", "/a", body)))
        await asyncio.sleep(5.0)
        right.is_held = False

        with pytest.raises(NotLeadingError):
            await asking
        await asyncio.sleep(5.0)

        assert not server.received

        right.is_held = True
        server.script("POST", "/a", Answer(201))
        assert (await requests.send(Request("POST", "/a", b"{}"))).status == 201, "the pool is none the worse"


@dataclass(frozen=True)
class WrittenTo(Endpoint):
    """Records writes to its connections."""

    story: list[str] = field(default_factory=list)

    async def connect(self, protocol_factory: Callable[[], Any]) -> Any:
        protocol = await super().connect(protocol_factory)
        write = protocol._transport.write

        def noting(data: bytes) -> None:
            self.story.append("written")
            write(data)

        protocol._transport.write = noting
        return protocol


@pytest.mark.parametrize("body", [b"{}", None], ids=["with a body", "without"])
async def test_no_task_runs_between_the_last_check_and_the_first_byte(body: bytes | None):
    async with scripted_server() as server:
        endpoint = WrittenTo("http://localhost", unix_socket=server.socket)

        def ask() -> None:
            endpoint.story.append("asked")
            asyncio.get_running_loop().call_soon(endpoint.story.append, "others had their turn")

        async with ApiConnection(endpoint) as connection:
            server.script("POST", "/a", Answer(201))
            await GuardedRequests(connection, ask).send(Request("POST", "/a", body))

        assert endpoint.story.count("written") == 1
        assert endpoint.story[endpoint.story.index("written") - 1] == "asked"


async def test_a_bind_that_waited_in_the_lane_checks_leadership_at_its_turn():
    async with writing() as (server, writer, right):
        for number in range(100):
            server.script("POST", f"{PODS}/p{number}/binding", Answer(201, after=5.0))
        binds = [asyncio.create_task(writer.bind(pod(f"p{number}"), "n1")) for number in range(100)]
        await asyncio.sleep(1.0)
        sent = len(server.received)
        right.is_held = False

        ends = await asyncio.gather(*binds, return_exceptions=True)

        assert 0 < sent < 100
        assert len(server.received) == sent
        assert [type(end) for end in ends].count(NotLeadingError) == 100 - sent
        assert writer.pending()["binds"] == 0


async def test_a_deferred_bind_checks_leadership_before_it_is_sent_again():
    async with writing() as (server, writer, right):
        server.script("POST", f"{PODS}/p/binding", failure(429, Retry_After="5"), Answer(201))
        binding = asyncio.create_task(writer.bind(pod("p"), "n1"))
        await asyncio.sleep(1.0)
        right.is_held = False

        with pytest.raises(NotLeadingError):
            await binding

        assert len(server.received) == 1


async def test_without_leadership_no_patches_events_or_deletions_are_written(
    caplog: pytest.LogCaptureFixture,
):
    condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no")
    async with writing() as (server, writer, right):
        right.is_held = False
        with caplog.at_level(logging.INFO):
            writer.patch_pod_status(pod("a"), condition=condition)
            with pytest.raises(NotLeadingError):
                await writer.wait_pod_status_patched(pod("b"), condition=condition)
            with pytest.raises(NotLeadingError):
                await writer.delete_pod(pod("c"))

        assert await writer.drain(60.0)
        assert not server.received
        assert not caplog.messages, "it is no fault"


async def test_without_an_election_the_daemon_always_leads():
    leadership = Leadership()
    await leadership.acquire()
    keeping = asyncio.create_task(leadership.keep())
    await asyncio.sleep(1e6)

    leadership.check()
    assert leadership.is_leading()
    assert not keeping.done()
    keeping.cancel()
