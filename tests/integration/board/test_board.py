"""Access to the board of `run --board`, by token or browser, and the boards of the other commands."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from playwright.async_api import expect

from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.configuration.overrides import GivenFeatures, with_features
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.kube.client.connect import connect
from scheduler.tools.board.cluster_observer import Observer, WatchOnDemand
from scheduler.tools.board.object_details import pod_details, pod_events
from scheduler.tools.simulator.server import ApiServer
from tests.support.browser import PATIENCE_MS, browsing, run_with_browser
from tests.support.builders import node_object, pod_object
from tests.support.daemon_pages import RBAC, give, pages_of_a_daemon

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.tools.board.pages import Board

pytestmark = pytest.mark.run(by=asyncio.run)

READABLE = ("/board", "/board/*")
PATHS = (
    "/board",
    "/board/",
    "/board/assets/main.js",
    "/board/data/stream",
    "/board/data/pods/default/web",
    "/board/data/nodes/n1",
)
SOME = PATHS[::2]
"""So few that the API server may be asked about strangers for each of them at once."""


async def test_a_daemon_has_no_board_by_default(tmp_path: Path) -> None:
    async with pages_of_a_daemon(tmp_path, readable=READABLE) as it:
        assert {await it.status(path, it.reader) for path in PATHS} == {404}


@pytest.mark.run(by=run_with_browser)
async def test_the_board_needs_a_role_that_permits_it(tmp_path: Path) -> None:
    async with pages_of_a_daemon(tmp_path, "--board", readable=READABLE) as it:
        assert {await it.status(path, it.reader) for path in PATHS} == {200}
        assert {await it.status(path) for path in SOME} == {403}
        assert {await it.status(path, "made-up") for path in SOME} == {401}
        assert {await it.status(path, it.stranger) for path in SOME} == {403}
        assert await it.status("/board/data/stream", it.reader, "POST") == 403

        async with browsing(ignore_https_errors=True) as (page, complaints):
            refused = await page.goto(f"{it.url}/board")
            assert refused is not None
            assert refused.status == 403
            await page.get_by_label("Token").fill(it.stranger)
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("alert")).to_contain_text("stranger", timeout=PATIENCE_MS)
            await page.get_by_label("Token").fill(it.reader)
            await page.get_by_role("button", name="Sign in").click()

            decisions = page.get_by_role("region", name="Decisions")
            await expect(decisions).to_contain_text("default/web", timeout=PATIENCE_MS)
            assert await page.evaluate("document.cookie") == ""
            assert complaints == []


async def test_an_object_is_shown_with_the_right_to_get_it_only(tmp_path: Path) -> None:
    async with pages_of_a_daemon(tmp_path, "--board", readable=READABLE) as it:
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]
        it.server.store.create(f"clusterroles.{RBAC}", {"metadata": {"name": "nodes"}, "rules": rules})
        give(it.server, "reader", "nodes")

        found = await it.answer("/board/data/object?kind=v1/nodes&key=n1", it.reader)
        assert found["object"]["metadata"]["name"] == "n1"
        refused = await it.answer("/board/data/object?kind=v1/pods&key=default/web", it.reader)
        assert refused == {"problem": "you need permission to get pods default/web"}


# Others.


async def told(board: Board, name: str) -> list[Any]:
    """What is told under a name, until something is."""
    found: list[Any] = []
    async with asyncio.timeout(60):
        async for message in board.hub.stream():
            found += map(json.loads, re.findall(rf"event: {name}\ndata: (.*)\n", message.decode()))
            if found and found[-1]:
                return found
    raise AssertionError


async def test_the_board_of_a_shadow_watches_the_cluster_only_while_it_has_viewers(tmp_path: Path) -> None:
    message = "0/1 nodes are available: 1 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    async with ApiServer(kubelet=True) as server:
        server.store.create("nodes", node_object("n1", cpu="8"))
        server.store.create("pods", pod_object("web", cpu="9", scheduler_name="default-scheduler"))
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        watched = WatchOnDemand(
            kubeconfig, default(), ServerVersions(GivenFeatures()), clock=SystemClock(), random=Random(1)
        )
        async with watched.running():
            await asyncio.sleep(0.2)
            assert not any(task.get_name().startswith("watch pods") for task in asyncio.all_tasks())

            board = await watched()
            assert [
                group["causes"][0]["reason"] for group in (await told(board, "waiting"))[-1]["groups"]
            ] == ["no attempt yet"]
            server.store.patch("pods", "web", {"status": {"conditions": [condition]}}, subresource="status")
            decisions = await told(board, "decisions")
            assert decisions[-1][-1]["message"] == message
            judged = asked(board, "default/web")
            assert judged["attempt"]["nodes"]["n1"]["reasons"] == ["Insufficient cpu"]


async def test_the_events_of_a_pod_are_read_from_the_cluster_for_all_reporters(tmp_path: Path) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "web"}
    old = {
        "metadata": {"name": "web.1"},
        "involvedObject": about,
        "reason": "FailedScheduling",
        "message": "no room",
        "count": 3,
        "lastTimestamp": "2026-03-01T08:00:00Z",
        "source": {"component": "default-scheduler"},
    }
    new = {
        "metadata": {"name": "web.2"},
        "regarding": about,
        "reason": "Preempted",
        "note": "by another",
        "eventTime": "2026-03-01T08:00:01.000000Z",
        "series": {"count": 5, "lastObservedTime": "2026-03-01T09:00:00.000000Z"},
        "reportingController": "custom-scheduler",
        "reportingInstance": "custom-scheduler-1",
        "action": "Preempting",
        "type": "Normal",
    }

    async with ApiServer() as server:
        server.store.create("pods", pod_object("web"))
        server.store.create("events", old)
        server.store.create("events.events.k8s.io", new)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        async with connect(kubeconfig) as connection:
            as_1_37 = with_features(default(), GivenFeatures("1.37"))
            observer = Observer(connection, as_1_37, clock=SystemClock(), random=Random(1))
            assert observer.subject.parts.features.version == "1.37"  # histories name events as it does
            told = await pod_events(observer.subject, "default/web")
            assert told == {
                "events": [
                    {
                        "at": "2026-03-01T09:00:00.000000Z",
                        "reason": "Preempted",
                        "note": "by another",
                        "times": 5,
                        "by": "custom-scheduler",
                    },
                    {
                        "at": "2026-03-01T08:00:00Z",
                        "reason": "FailedScheduling",
                        "note": "no room",
                        "times": 3,
                        "by": "default-scheduler",
                    },
                ]
            }
            assert await pod_events(observer.subject, "default/other") == {"events": []}
        refused = await pod_events(observer.subject, "default/web")
        assert refused is not None
        assert [*refused] == ["problem"]


def asked(board: Board, key: str) -> dict[str, Any]:
    story = pod_details(board.subject, key)
    assert story is not None
    return story


@pytest.mark.parametrize("command", ["api-server", "board"])
async def test_a_command_prints_the_url_of_its_board(command: str, tmp_path: Path) -> None:
    cluster = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [node_object("n1"), pod_object("big", cpu="99")],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    arguments = {
        "api-server": ("--nodes", "3", "--kubeconfig", str(tmp_path / "kubeconfig")),
        "board": ("--cluster", str(tmp_path / "cluster.json"), "--scheduler-name", "custom-scheduler"),
    }[command]
    nothing = asyncio.subprocess.DEVNULL
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "scheduler",
        command,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=nothing,
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = ""
            while not url:
                line = (await started.stdout.readline()).decode()
                assert line, "it ended"
                url = line.removeprefix("Board: ").strip() if "Board: " in line else ""
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as response:
                assert response.status == 200
            async with session.get(url, headers={"Host": "rebound.example"}) as response:
                assert response.status == 403
            if command == "board":
                async with session.get(f"{url}/data/pods/default/big") as response:
                    assert (await response.json())["attempt"]["nodes"]["n1"]["plugin"] == "NodeResourcesFit"
    finally:
        started.terminate()
        assert await started.wait() == 0
