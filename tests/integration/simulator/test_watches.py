from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration.simulator.simulator_client import PODS, pod, serving
from tests.support.virtual_time import VirtualTimeLoop, run

if TYPE_CHECKING:
    from pathlib import Path

INITIAL = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


async def test_a_watch_begins_with_the_existing_objects_and_a_bookmark(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        for name in ("a", "b"):
            server.store.create("pods", pod(name))
        async with client.watch(f"{PODS}?{INITIAL}") as watch:
            server.store.create("pods", pod("c"))
            await asyncio.sleep(0.1)

        assert watch.seen == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", ""), ("ADDED", "c")]
        bookmark = watch.events[2]["object"]
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(bookmark["metadata"]["resourceVersion"]) == server.store.version - 1
        assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")


async def test_without_initial_events_a_watch_begins_now(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.store.create("pods", pod("a"))
        async with client.watch(
            f"{PODS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        ) as watch:
            server.store.create("pods", pod("b"))
            await asyncio.sleep(0.1)

        assert watch.seen == [("ADDED", "b")]


async def test_a_watch_from_a_version_delivers_all_changes_since_then(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        version = server.store.create("pods", pod("a"))["metadata"]["resourceVersion"]
        server.store.bind("a", "n1")
        server.store.delete("pods", "a", grace_period_seconds=0)
        async with client.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
            pass

        assert [type_ for type_, _ in watch.seen] == ["MODIFIED", "MODIFIED", "DELETED"]


async def test_a_watch_from_a_version_in_the_future_delivers_later_changes(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        version = server.store.version + 2
        async with client.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
            for name in ("a", "b", "c"):
                server.store.create("pods", pod(name))
            await asyncio.sleep(0.1)

        assert watch.seen == [("ADDED", "c")]


async def test_a_bound_pod_leaves_a_watch_of_the_unbound(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with client.watch(f"{PODS}?watch=1&fieldSelector=spec.nodeName%3D") as watch:
            server.store.create("pods", pod("a"))
            server.store.bind("a", "n1")
            server.store.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
            await asyncio.sleep(0.1)

        assert watch.seen == [("ADDED", "a"), ("DELETED", "a")]
        assert "nodeName" not in watch.events[1]["object"]["spec"]


async def test_an_expired_version_gives_an_error_event(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        version = server.store.create("pods", pod("a"))["metadata"]["resourceVersion"]
        server.store.bind("a", "n1")
        server.faults.compact("pods")
        async with client.watch(f"{PODS}?watch=1&resourceVersion={version}") as watch:
            await watch.wait_end()

        (event,) = watch.events
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_watch_ends_in_time_with_a_bookmark_shortly_before(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with client.watch(
            f"{PODS}?watch=1&resourceVersion={server.store.version}&timeoutSeconds=30&allowWatchBookmarks=true"
        ) as watch:
            await watch.wait_end()

        assert watch.ended
        assert loop.time() - started == pytest.approx(30, abs=0.1)
        assert watch.seen == [("BOOKMARK", "")]


async def test_bookmarks_deliver_versions_of_other_kinds_every_minute(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with client.watch(
            f"{PODS}?watch=1&resourceVersion={server.store.version}&allowWatchBookmarks=true"
        ) as watch:
            server.store.create("configmaps", {"metadata": {"name": "c"}})
            await asyncio.sleep(200)

        assert [event["type"] for event in watch.events] == ["BOOKMARK"] * 3
        assert {event["object"]["metadata"]["resourceVersion"] for event in watch.events} == {
            str(server.store.version)
        }


async def test_a_request_with_a_future_version_waits_for_it(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        version = server.store.version + 1
        asyncio.get_running_loop().call_later(1.0, server.store.create, "pods", pod("a"))

        status, found = await client.ask("GET", f"{PODS}?resourceVersion={version}")
        late_status, late = await client.ask("GET", f"{PODS}?resourceVersion={version + 5}")

        assert (status, len(found["items"])) == (200, 1)
        assert (late_status, late["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("sendInitialEvents=true", 422, id="initial events without a match"),
        pytest.param("resourceVersionMatch=NotOlderThan", 422, id="a match without initial events"),
        pytest.param("sendInitialEvents=true&resourceVersionMatch=Exact", 422, id="another match"),
        pytest.param("resourceVersion=abc", 500, id="a bad version"),
        pytest.param("timeoutSeconds=soon", 400, id="a bad timeout"),
        pytest.param("labelSelector=a%20in", 400, id="a bad label selector"),
        pytest.param("fieldSelector=nope%3D1", 400, id="a bad field selector"),
    ],
)
def test_a_watch_with_wrong_parameters_is_refused(tmp_path: Path, query: str, status: int):
    async def ask() -> int:
        async with serving(tmp_path) as (_, client):
            return (await client.ask("GET", f"{PODS}?watch=1&{query}"))[0]

    assert run(ask()) == status


async def test_rows_of_a_table_are_watched_with_columns_once(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        server.store.create("pods", pod("a"))
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        client.session.headers.update(headers)
        async with client.watch(f"{PODS}?watch=1") as watch:
            server.store.bind("a", "n1")
            await asyncio.sleep(0.1)

        first, second = (event["object"] for event in watch.events)
        assert first["columnDefinitions"][0]["name"] == "Name"
        assert second["columnDefinitions"] is None
        assert [table["rows"][0]["cells"][6] for table in (first, second)] == ["<none>", "n1"]


async def test_events_are_watched_in_both_versions(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with (
            client.watch("/api/v1/events?watch=1") as core,
            client.watch("/apis/events.k8s.io/v1/events?watch=1") as new,
        ):
            involved = {"kind": "Pod", "namespace": "default", "name": "web"}
            server.store.create(
                "events", {"metadata": {"name": "e"}, "involvedObject": involved, "message": "m"}
            )
            await asyncio.sleep(0.1)

        assert core.events[0]["object"]["message"] == "m"
        assert new.events[0]["object"]["note"] == "m"


async def test_the_end_of_the_server_ends_its_watches_cleanly(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        async with client.watch(f"{PODS}?watch=1") as watch:
            await server.stop()
            await watch.wait_end()

        assert watch.ended


async def test_a_watch_of_a_thousand_seconds_wakes_only_for_its_events(tmp_path: Path):
    async def watch_for_long() -> int:
        async with serving(tmp_path) as (server, client):
            server.store.create("pods", pod("a"))
            async with client.watch(f"{PODS}?watch=1&timeoutSeconds=2000&allowWatchBookmarks=true") as watch:
                for second in range(1000):
                    server.store.patch("pods", "a", {"metadata": {"labels": {"second": str(second)}}})
                    await asyncio.sleep(1)
            return len(watch.events)

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    turns = loop.all_turns

    assert await watch_for_long() == 1000 + 1 + 16
    assert loop.all_turns - turns < 10 * 1000
