from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from scheduler.tools.simulator.api.requests import RequestInfo
from scheduler.tools.simulator.faults import binds, requests
from tests.integration.simulator.simulator_client import PODS, pod, serving

if TYPE_CHECKING:
    from pathlib import Path

BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}


async def test_requests_can_be_delayed(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        loop = asyncio.get_running_loop()
        server.faults.delay(7.0, requests(resource="pods", verb="list"), times=1)

        started = loop.time()
        await client.ask("GET", PODS)
        delayed = loop.time() - started
        await client.ask("GET", PODS)

        assert delayed == pytest.approx(7.0)
        assert loop.time() - started == pytest.approx(7.0)


async def test_a_delayed_request_whose_client_has_left_has_no_effect(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.faults.delay(7.0, requests(resource="pods", verb="create"), times=1)
        asking = asyncio.create_task(client.ask("POST", PODS, pod("a")))
        await asyncio.sleep(3)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(10)

        assert server.store.list("pods") == []
        assert (await client.ask("POST", PODS, pod("b")))[0] == 201


def test_faults_match_requests_by_their_attributes():
    binding = RequestInfo("POST", "", verb="create", resource="pods", subresource="binding", name="a")

    assert requests()(binding)
    assert requests(verb="create", subresource="binding", name="a")(binding)
    assert not requests(subresource="")(binding)
    assert not requests(resource="pods", name="b")(binding)


async def test_requests_can_be_refused_with_retry_after(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.faults.refuse(429, requests(verb="create"), times=1, retry_after_seconds=3)

        async with client.session.post(f"http://localhost{PODS}", json=pod("a")) as response:
            refused = await response.json()
            retry_after = response.headers["Retry-After"]

        assert (response.status, refused["reason"], retry_after) == (429, "TooManyRequests", "3")
        assert server.store.list("pods") == []
        assert (await client.ask("POST", PODS, pod("a")))[0] == 201


async def test_random_faults_are_repeatable_with_a_seed(tmp_path: Path):
    async def statuses() -> list[int]:
        async with serving(tmp_path, seed=4) as (server, client):
            server.faults.refuse(500, probability=0.5)
            return [(await client.ask("GET", PODS))[0] for _ in range(20)]

    first = await statuses()

    assert first == await statuses()
    assert set(first) == {200, 500}


async def test_a_bind_can_take_effect_though_its_response_is_lost(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.store.create("pods", pod("a"))
        fault = server.faults.lose_answers(binds, times=1)

        with pytest.raises(aiohttp.ClientError):
            await client.ask("POST", f"{PODS}/a/binding", BINDING)

        assert fault.hits == 1
        assert server.store.get("pods", "a")["spec"]["nodeName"] == "n1"
        status, again = await client.ask("POST", f"{PODS}/a/binding", BINDING)
        assert (status, again["reason"]) == (409, "Conflict")
        assert [request.status for request in server.requests] == [0, 409]


async def test_watches_can_be_closed(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with client.watch(f"{PODS}?watch=1") as pods, client.watch("/api/v1/nodes?watch=1") as nodes:
            assert server.faults.drop_watches(requests(resource="pods")) == 1
            await asyncio.sleep(0.1)

        assert pods.lost
        assert not nodes.lost


async def test_watches_can_stall_and_catch_up(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with client.watch(f"{PODS}?watch=1&allowWatchBookmarks=true") as watch:
            fault = server.faults.stall_watches()
            server.store.create("pods", pod("a"))
            await asyncio.sleep(300)
            assert watch.events == []

            server.faults.remove(fault)
            await asyncio.sleep(0.1)

        assert watch.seen[0] == ("ADDED", "a")


async def test_watches_that_begin_during_a_stall_are_stalled_too(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.faults.stall_watches()
        server.store.create("pods", pod("a"))
        async with client.watch(f"{PODS}?watch=1") as late:
            await asyncio.sleep(1)

        assert late.events == []


async def test_a_stall_of_present_watches_does_not_affect_later_ones(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with client.watch(f"{PODS}?watch=1") as early:
            server.faults.stall_watches(future=False)
            async with client.watch(f"{PODS}?watch=1") as late:
                server.store.create("pods", pod("a"))
                await asyncio.sleep(0.1)

        assert early.events == []
        assert late.seen == [("ADDED", "a")]


async def test_cleared_faults_have_no_effect(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.faults.refuse(503)
        server.faults.delay((1.0, 2.0))
        server.faults.lose_answers(requests())
        server.faults.clear()

        assert (await client.ask("GET", PODS))[0] == 200


async def test_the_last_requests_are_kept(tmp_path: Path):
    async with serving(tmp_path, logged_requests=2) as (server, client):
        for name in ("a", "b", "c"):
            await client.ask("POST", PODS, pod(name))

        assert [request.json["metadata"]["name"] for request in server.requests] == ["b", "c"]
        assert server.requests.count == 3
        (last, _) = server.requests.matching(method="POST", path="/pods")
        assert (last.status, last.path, last.query) == (201, PODS, {})
