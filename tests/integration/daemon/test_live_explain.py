"""Asking a running daemon why, and a daemon that writes nothing."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from scheduler.configuration.load import default
from scheduler.daemon.app.live_explain import live_explanation
from scheduler.daemon.app.pages import pages
from scheduler.daemon.server.http_server import serving
from scheduler.framework import PermitPlugin, Wait
from tests.support.builders import node_object, pod_object
from tests.support.commands import run_command
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.objects.pod import PodInfo


async def test_the_last_attempt_is_shown_as_it_was_after_nodes_have_changed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="4"), node_object("n2", cpu="1"), node_object("n3", cpu="8"))
        await it.until(lambda: daemon.parts.cache.table.n_nodes == 3)
        it.add_pods(pod_object("web", cpu="2"))
        await it.until(lambda: it.node_of("web"))
        chosen = it.node_of("web")
        it.server.store.delete("nodes", "n1")
        it.add_nodes(node_object("n0"))
        await it.until(lambda: "n0" in daemon.parts.cache.snapshot().names)

        reported = live_explanation(daemon, "default/web", LoopClock())

        assert reported is not None
        assert (reported["node"], reported["place"]) == (chosen, "outside")
        assert [move["to"] for move in reported["history"]] == ["active", "in flight", "outside"]
        attempt = reported["attempt"]
        assert (attempt["number"], attempt["chosen"], attempt["result"]) == (1, chosen, "schedulable")
        assert sorted(attempt["nodes"]) == ["n1", "n2", "n3"]
        assert attempt["nodes"]["n2"]["reasons"] == ["Insufficient cpu"]
        best = max(node["total"] for node in attempt["nodes"].values() if node["feasible"])
        assert attempt["nodes"][chosen]["total"] == best


async def test_a_pending_pod_is_shown_with_its_reason_and_history(tmp_path: Path) -> None:
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
        assert "waiting for scheduling gates: [example.com/quota]" in gated["history"][-1]["why"]
        assert live_explanation(daemon, "default/nobody", LoopClock()) is None


class Holding(PermitPlugin):
    name = "Holding"
    api_version = 1

    def permit(self, state: Any, pod: PodInfo, node_name: str) -> Any:
        return Wait(600.0)


HOLDING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: Holding}]}}
"""


async def test_a_pod_held_at_permit_is_shown_with_the_plugin_and_the_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(HOLDING, plugins={"Holding": Holding}) as daemon:
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(pod_object("web", cpu="1"))
        await it.until(lambda: daemon.parts.waiting_pods.holds(it.pod("web")["metadata"]["uid"]))
        clock = LoopClock()

        held = live_explanation(daemon, "default/web", clock)

        assert held is not None
        (hold,) = held["held"]
        left = datetime.fromisoformat(hold["until"]) - clock.utc_now()
        assert (hold["plugin"], 590 < left.total_seconds() <= 600) == ("Holding", True)
        assert held["verdict"] == (
            "Pod default/web fits on node n1, but is not bound yet: it is held at Permit by Holding "
            f"(until {hold['until']})."
        )
        assert next(iter(held)) == "verdict"


async def test_the_verdict_says_why_a_pod_is_not_the_schedulers_business(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(
            pod_object("gated", gates=("example.com/quota",)),
            pod_object("stranger", scheduler_name="custom-schedular"),
            pod_object("theirs", node="n1", scheduler_name="x"),
            pod_object("ours"),
        )
        await it.until(lambda: it.node_of("ours"))

        def verdict(name: str) -> str:
            found = live_explanation(daemon, f"default/{name}", LoopClock())
            return "unknown" if found is None else str(found["verdict"])

        assert {name: verdict(name) for name in ("gated", "stranger", "theirs", "ours")} == {
            "gated": "Pod default/gated is not attempted: it waits for its scheduling gates example.com/quota.",
            "stranger": "Pod default/stranger has schedulerName custom-schedular, which this scheduler does not "
            'serve; its profiles are custom-scheduler, did you mean "custom-scheduler"?',
            "theirs": "Pod default/theirs is on node n1.",
            "ours": "Pod default/ours is on node n1; if it were pending, it fits on 1 of 1 nodes; best: n1, the only "
            "one.",
        }


async def test_a_pending_pod_is_shown_with_changes_that_would_place_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(pod_object("big", cpu="8"))
        await it.until(lambda: it.condition("big"))

        big = live_explanation(daemon, "default/big", LoopClock())
        assert big is not None
        assert big["verdict"] == big["attempt"]["verdict"]
        assert big["verdict"] == (
            "Pod default/big does not fit on the only node. It would fit if: its cpu request were 1 or less (now 8)."
        )


async def test_a_deleted_pod_is_shown_by_its_last_attempt(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(pod_object("big", cpu="8"))
        await it.until(lambda: it.condition("big"))
        it.server.store.delete("pods", "big", "default")
        await it.until(lambda: "default/big" not in daemon.parts.pods)

        reported = live_explanation(daemon, "default/big", LoopClock())

        assert reported is not None
        assert reported["verdict"] == "Pod default/big has ended or is deleted."
        assert (reported["node"], reported["place"]) == (None, "outside")
        assert reported["attempt"]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu. ")


async def test_a_pod_that_preempted_is_shown_with_the_evaluated_nodes_only(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="4"), node_object("n2", cpu="1"), node_object("n3", cpu="1"))
        it.add_pods(pod_object("low", cpu="3"))
        await it.until(lambda: it.node_of("low"))
        it.add_pods(pod_object("vip", cpu="3", priority=9))
        await it.until(lambda: daemon.cycles.attempts.last("default/vip"))
        waiting = live_explanation(daemon, "default/vip", LoopClock())
        await it.until(lambda: it.node_of("vip"))
        placed = live_explanation(daemon, "default/vip", LoopClock())

    assert waiting is not None
    assert waiting["attempt"]["nominates"] == "n1"
    assert waiting["attempt"]["preemption"] == {
        "candidates": {"n1": {"victims": ["default/low"], "pdbViolations": 0}},
        "nominated": ["n1"],
    }
    assert waiting["attempt"]["nodes"]["n1"]["details"] == ["needs 3 cpu, 1 free of 4"]
    assert waiting["now"] is None
    assert placed is not None
    attempt = placed["attempt"]
    assert (attempt["chosen"], attempt["nominatedNodeName"], attempt["notExamined"]) == ("n1", "n1", 2)
    assert attempt["nodes"] == {"n1": {"feasible": True}}
    assert (placed["now"]["node"], placed["now"]["best"]) == ("n1", ["n1"])
    assert "nominatedNodeName" not in placed["now"]


async def test_the_current_choice_for_a_bound_pod_is_shown_without_evictions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(
            pod_object("vip", cpu="3", priority=9),
            pod_object("theirs", cpu="1", node="n1", scheduler_name="x"),
        )
        await it.until(lambda: it.node_of("vip"))
        it.server.store.patch("nodes", "n1", {"spec": {"unschedulable": True}})
        it.add_nodes(node_object("n2", cpu="4"))
        it.add_pods(pod_object("low", cpu="3"))
        await it.until(lambda: it.node_of("low") == "n2")

        vip, theirs = (live_explanation(daemon, f"default/{name}", LoopClock()) for name in ("vip", "theirs"))
        await asyncio.sleep(60)

        assert vip is not None
        assert vip["now"]["result"] == "unschedulable"
        assert (
            vip["now"]["message"]
            == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        )
        assert vip["now"]["nodes"]["n2"]["details"] == ["needs 3 cpu, 1 free of 4"]
        assert theirs is not None
        assert theirs["now"] is None
        assert it.node_of("low") == "n2", "it was not sent away"
        assert daemon.parts.cache.snapshot().requested["cpu"].tolist() == [4000, 3000]


def test_the_command_gets_explanations_from_a_daemon_over_http(tmp_path: Path) -> None:
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
        words = ("explain", "--server", f"http://127.0.0.1:{port}", *arguments)
        done = await asyncio.to_thread(run_command, *words)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    asyncio.run(scenario())  # in real time: the command is a process of its own


async def test_a_daemon_that_may_not_bind_decides_and_writes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(leader_elect=True, no_bind=True) as daemon:
        it.add_nodes(node_object("n1", cpu="4"))
        it.add_pods(pod_object("web", cpu="3"), pod_object("more", cpu="3"), pod_object("big", cpu="8"))
        await it.until(lambda: daemon.cycles.attempts.last("default/big"))
        await asyncio.sleep(600)

        decided = {name: daemon.cycles.attempts.last(f"default/{name}") for name in ("web", "more", "big")}

        nodes = sorted(attempted.decision.node_name for attempted in decided.values() if attempted)
        assert nodes == ["", "", "n1"], "what it would bind counts"
        assert {pod["spec"].get("nodeName", "") for pod in it.pods()} == {""}
        assert {request.method for request in it.server.requests} == {"GET"}
