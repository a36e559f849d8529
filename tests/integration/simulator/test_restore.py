"""A simulated API server that is restored from a backup answers as a real one does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.integration.simulator.simulator_client import PODS, pod, serving
from tests.support.builders import node_object
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path

INITIAL = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
BOOKMARK_SECONDS = 61.0


async def go_back(server: ApiServer, backup: Any) -> None:
    await server.stop()
    server.restore(backup)
    await server.start()


def too_large(asked: int, current: int) -> dict[str, Any]:
    return {
        "message": f"Timeout: Too large resource version: {asked}, current: {current}",
        "reason": "Timeout",
        "code": 504,
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    }


def told(status: Any) -> dict[str, Any]:
    return {
        **{field: status[field] for field in ("message", "reason", "code")},
        "causes": status["details"]["causes"],
    }


async def restored(server: ApiServer) -> tuple[int, int]:
    """Go back by two pods; the version that was, and the one that is."""
    server.store.create("pods", pod("kept"))
    backup = server.backup()
    for name in ("lost-1", "lost-2"):
        server.store.create("pods", pod(name))
    was = server.store.version
    await go_back(server, backup)
    return was, server.store.version


async def test_objects_and_versions_are_restored(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        was, now = await restored(server)
        _, listed = await client.ask("GET", PODS)

        assert was == now + 2
        assert [each["metadata"]["name"] for each in listed["items"]] == ["kept"]
        assert listed["metadata"]["resourceVersion"] == str(now)
        assert int(server.store.create("pods", pod("new"))["metadata"]["resourceVersion"]) == now + 1


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        pytest.param("resourceVersion={}", 3.0, id="a list"),
        pytest.param("resourceVersion={}&resourceVersionMatch=NotOlderThan", 3.0, id="a list not older"),
        pytest.param("resourceVersion={}&resourceVersionMatch=Exact", 3.0, id="an exact list"),
        pytest.param(
            "resourceVersion={}&resourceVersionMatch=Exact&fieldSelector=metadata.name%3Dkept",
            0.0,
            id="an exact list of one, past the watch cache",
        ),
        pytest.param(f"{INITIAL}&resourceVersion={{}}", 3.0, id="a watch that begins with a list"),
    ],
)
async def test_a_version_beyond_the_restored_one_is_too_large(tmp_path: Path, query: str, seconds: float):
    async with serving(tmp_path) as (server, client):
        was, now = await restored(server)
        began = asyncio.get_running_loop().time()
        status, answer = await client.ask("GET", f"{PODS}?{query.format(was)}")

        assert status == 504
        assert told(answer) == too_large(was, now)
        assert answer["details"].get("retryAfterSeconds") == (1 if seconds else None)
        assert asyncio.get_running_loop().time() - began == pytest.approx(seconds, abs=0.1)


async def test_a_watch_from_a_version_beyond_the_restored_one_waits_for_it(tmp_path: Path):
    async with serving(tmp_path) as (server, client):
        was, _ = await restored(server)
        path = f"{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={was}"
        async with client.watch(path) as watch:
            for name in ("unseen-1", "unseen-2"):
                await asyncio.sleep(BOOKMARK_SECONDS)
                server.store.create("pods", pod(name))
            assert not watch.events
            server.store.create("pods", pod("seen"))
            await asyncio.sleep(BOOKMARK_SECONDS)

        assert watch.seen == [("ADDED", "seen"), ("BOOKMARK", "")]


async def test_its_controllers_continue_with_the_restored_objects(tmp_path: Path):
    path = tmp_path / "s"
    async with ApiServer(clock=LoopClock(), socket_path=path, kubelet=True, controllers=True) as server:
        for name in ("n1", "n2"):
            server.store.create("nodes", node_object(name, cpu="4", pods=10))
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        server.store.create(
            "replicasets.apps",
            {
                "metadata": {"name": "web"},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
            },
        )
        await asyncio.sleep(1.0)
        first, second = (each["metadata"]["name"] for each in server.store.list("pods"))
        backup = server.backup()
        server.store.bind(first, "n1")
        server.store.delete("pods", second, grace_period_seconds=0)
        await asyncio.sleep(10.0)
        assert server.store.get("pods", first)["status"]["phase"] == "Running"
        await go_back(server, backup)
        await asyncio.sleep(10.0)
        assert {each["metadata"]["name"] for each in server.store.list("pods")} == {first, second}

        server.store.bind(first, "n2")
        await asyncio.sleep(10.0)
        assert server.store.get("pods", first)["status"]["phase"] == "Running"


async def test_a_listening_server_refuses_a_restore(tmp_path: Path):
    async with serving(tmp_path) as (server, _):
        with pytest.raises(RuntimeError, match="stop it first"):
            server.restore(server.backup())
