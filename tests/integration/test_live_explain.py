"""Asking a running daemon why, and a daemon that writes nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from scheduler.app.live_explain import live_explanation
from scheduler.app.pages import pages
from scheduler.configuration.load import default
from scheduler.server.http_server import serving
from tests import virtual_time
from tests.builders import node_object, pod_object
from tests.daemon_harness import cluster
from tests.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_attempt_is_told_as_it_was_though_nodes_have_changed_since(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            it.add_nodes(node_object("n1", cpu="4"), node_object("n2", cpu="1"), node_object("n3", cpu="8"))
            await it.until(lambda: daemon.parts.cache.table.n_nodes == 3)
            it.add_pods(pod_object("web", cpu="2"))
            await it.until(lambda: it.node_of("web"))
            chosen = it.node_of("web")
            it.server.store.delete("nodes", "n1")
            it.add_nodes(node_object("n0"))
            await it.until(lambda: "n0" in daemon.parts.cache.snapshot().names)

            told = live_explanation(daemon, "default/web", LoopClock())

            assert told is not None
            assert (told["node"], told["place"]) == (chosen, "outside")
            assert [move["to"] for move in told["story"]] == ["active", "in flight", "outside"]
            attempt = told["attempt"]
            assert (attempt["number"], attempt["chosen"], attempt["result"]) == (1, chosen, "schedulable")
            assert sorted(attempt["nodes"]) == ["n1", "n2", "n3"]
            assert attempt["nodes"]["n2"]["reasons"] == ["Insufficient cpu"]
            best = max(node["total"] for node in attempt["nodes"].values() if node["feasible"])
            assert attempt["nodes"][chosen]["total"] == best

    virtual_time.run(scenario())


def test_a_pod_that_waits_is_told_with_its_reason_and_what_happened_to_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            it.add_nodes(node_object("n1", cpu="1"))
            it.add_pods(pod_object("big", cpu="8"), pod_object("gated", gates=("example.com/quota",)))
            await it.until(lambda: it.condition("big"))

            big = live_explanation(daemon, "default/big", LoopClock())
            gated = live_explanation(daemon, "default/gated", LoopClock())

            assert big is not None
            assert big["place"] == "unschedulable"
            assert big["attempt"]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu. ")
            assert gated is not None
            assert (gated["place"], gated["attempt"]) == ("gated", None)
            assert "waiting for scheduling gates: [example.com/quota]" in gated["story"][-1]["why"]
            assert live_explanation(daemon, "default/nobody", LoopClock()) is None

    virtual_time.run(scenario())


def test_the_command_asks_a_daemon_over_http(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            it.add_nodes(node_object("n1", cpu="1"))
            it.add_pods(pod_object("big", cpu="8"))
            await it.until(lambda: it.condition("big"))
            app = pages(daemon, default(), stop=asyncio.Event(), clock=LoopClock())
            async with serving(app, "127.0.0.1", 0) as port:
                status, shown, error = await explain(port, "--pod", "big")
                assert status == 0, error
                assert "Insufficient cpu" in shown

                status, text, _ = await explain(port, "--pod", "default/big", "-o", "json")
                assert status == 0
                assert json.loads(text)["attempt"]["result"] == "unschedulable"

                status, _, error = await explain(port, "--pod", "default/nobody")
                assert status == 1
                assert "pod default/nobody is unknown here" in error

    async def explain(port: int, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "scheduler", "explain", "--server", f"http://127.0.0.1:{port}", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await process.communicate()
        return process.returncode or 0, out.decode(), error.decode()

    asyncio.run(scenario())  # in real time: the command is a process of its own


def test_a_daemon_that_may_not_bind_decides_and_writes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as it, it.daemon(leader_elect=True, no_bind=True) as daemon:
            it.add_nodes(node_object("n1", cpu="4"))
            it.add_pods(pod_object("web", cpu="3"), pod_object("more", cpu="3"), pod_object("big", cpu="8"))
            await it.until(lambda: daemon.cycles.attempts.last("default/big"))
            await asyncio.sleep(600)

            decided = {
                name: daemon.cycles.attempts.last(f"default/{name}") for name in ("web", "more", "big")
            }

            nodes = sorted(attempted.decision.node_name for attempted in decided.values() if attempted)
            assert nodes == ["", "", "n1"], "what it would bind counts"
            assert {pod["spec"].get("nodeName", "") for pod in it.pods()} == {""}
            assert {request.method for request in it.server.requests} == {"GET"}

    virtual_time.run(scenario())
