"""The board as people see it: real time, real sockets, a real browser."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from scheduler.clock import SystemClock
from scheduler.configuration.load import default, parse
from scheduler.daemon.app import live_explain
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.server.http_server import Application, serving
from scheduler.http_server.messages import Page, ServerResponse
from scheduler.kube.client.connect import connect
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.pages import board_of
from scheduler.tools.board.sign_in import serving_board
from scheduler.tools.board.subject import of_daemon
from scheduler.tools.simulator.server import ApiServer
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.support.browser import PATIENCE_MS, browsing, run_with_browser
from tests.support.builders import node, node_object, pod, pod_object
from tests.support.extender_server import scripted_extender
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from playwright.async_api import Page as Shown

    from scheduler.http_server.messages import ServerRequest

pytestmark = pytest.mark.run(by=run_with_browser)

ZONE = "topology.kubernetes.io/zone"
HOSTILE = "<img src=x onerror=document.title='hit'><svg onload=document.title='hit'>&lt;b&gt;"

expect.set_options(timeout=PATIENCE_MS)


# The longest budget: a busy machine could stop an attempt, and a quarantined pod is shown in another way.
ALONE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
attemptBudget: 5s
leaderElection: {leaderElect: false}
"""


@asynccontextmanager
async def daemon_of(server: ApiServer, folder: Path, configuration: str) -> AsyncIterator[Daemon]:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            connect(str(server.write_kubeconfig(folder / "kubeconfig")))
        )
        daemon = Daemon(connection, parse(configuration), clock=SystemClock(), random=Random(1))
        stop = asyncio.Event()
        running = asyncio.create_task(daemon.run(stop))
        try:
            yield daemon
        finally:
            stop.set()
            await running


@asynccontextmanager
async def board_of_a_daemon(
    server: ApiServer, folder: Path, port: int = 0, configuration: str = ALONE
) -> AsyncIterator[tuple[Daemon, str]]:
    async with (
        daemon_of(server, folder, configuration) as daemon,
        serving_board(board_of(of_daemon(daemon, SystemClock())), port) as url,
    ):
        yield daemon, url


def nodes(number: int, **options: Any) -> list[Mapping[str, Any]]:
    return [
        node_object(f"node-{each}", labels={ZONE: f"zone-{each % 3}"}, **{"cpu": "4", **options})
        for each in range(number)
    ]


def add(server: ApiServer, kind: str, *objects: Mapping[str, Any]) -> None:
    for each in objects:
        server.store.create(kind, dict(each))


def panel(page: Shown, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


async def test_the_map_and_the_lists_of_pending_pods_and_decisions_update_live(tmp_path: Path) -> None:
    async with ApiServer(kubelet=True) as server, board_of_a_daemon(server, tmp_path) as (_, url):
        add(server, "nodes", *nodes(5))
        async with browsing() as (page, complaints):
            await page.goto(url)
            await expect(panel(page, "Nodes")).to_contain_text("5 nodes")

            add(
                server,
                "pods",
                pod_object("web", cpu="1"),
                *(pod_object(f"big-{each}", cpu="9") for each in range(3)),
            )

            decisions = panel(page, "Decisions")
            await expect(decisions.get_by_role("row", name=re.compile("default.web"))).to_contain_text(
                "→ node-"
            )
            waiting = panel(page, "Pending pods")
            await expect(waiting).to_contain_text("3 pending pods")
            await expect(waiting).to_contain_text("Insufficient cpu on 5 of 5 nodes")

            add(server, "nodes", node_object("node-large", cpu="64"))

            await expect(waiting).to_contain_text("No pending pods")
            await expect(panel(page, "Nodes")).to_contain_text("6 nodes; 4 pods on them")
            assert complaints == []


async def test_the_page_of_a_pod_explains_the_choice_of_its_node(tmp_path: Path) -> None:
    async with ApiServer(kubelet=True) as server, board_of_a_daemon(server, tmp_path) as (_, url):
        add(server, "nodes", *nodes(3), node_object("small", cpu="1"))
        add(server, "pods", pod_object("web", cpu="2"))
        async with browsing() as (page, complaints):
            await page.goto(url)
            await page.get_by_role("link", name="default/web").click()

            verdicts = panel(page, "Results")
            rejected = verdicts.locator("details", has_text="1 node: Insufficient cpu")
            await expect(rejected).to_contain_text("NodeResourcesFit")
            await expect(rejected.get_by_role("row", name=re.compile("^small side"))).to_be_visible()
            await expect(verdicts.get_by_role("img", name=re.compile(r"NodeResourcesFit \d+"))).to_have_count(
                3
            )
            for name in ("node-0", "node-1"):
                await verdicts.get_by_role("checkbox", name=f"{name} side by side").check()
            beside = panel(page, "Two nodes side by side")
            await expect(beside.get_by_role("row", name=re.compile("^NodeResourcesFit"))).to_be_visible()
            await expect(beside.get_by_role("row", name=re.compile("^total"))).to_be_visible()
            await expect(panel(page, "Attempts")).to_contain_text("→ node-")
            await expect(panel(page, "Queue history")).to_contain_text("in flight")
            event = panel(page, "Events").get_by_role("row").nth(1)
            await expect(event).to_contain_text(
                re.compile(r"1ScheduledSuccessfully assigned default/web to node-\dcustom-scheduler$")
            )
            assert complaints == []


async def test_rejected_nodes_are_grouped_by_reason_and_remedies_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_explain, "_DETAILS_SECONDS", 600.0)  # on a busy machine too
    pool = {"pool": "batch"}
    terms = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    cluster = ClusterFile(
        nodes=[
            *(node(f"small-{each}", cpu="2", labels=pool) for each in range(8)),
            *(node(f"other-{each}", cpu="64") for each in range(3)),
        ],
        pods=[pod("web", cpu="4", affinity=affinity, labels={"app": "web"})],
    )
    shown = FileBoard(cluster, default(), refresh=False)
    await shown.judge()
    async with serving_board(board_of(shown.subject)) as url, browsing() as (page, complaints):
        await page.goto(f"{url}#/pods/default/web")
        results = panel(page, "Results")
        small = results.locator("details", has_text="8 nodes: Insufficient cpu")
        await expect(small).to_contain_text("4 cpu requested, at most 2 of 2 free")
        await expect(small.get_by_role("row", name=re.compile("^small-3 side"))).to_be_hidden()
        await small.locator("summary").click()
        await expect(small.get_by_role("row", name=re.compile("^small-3 side"))).to_be_visible()
        other = results.locator(
            "details", has_text="3 nodes: node(s) didn't match Pod's node affinity/selector"
        )
        await expect(other).to_contain_text("required: pool=batch on 8 of 11 nodes")
        await expect(results).to_contain_text("What would help")
        await expect(results).to_contain_text(
            "The pod would fit if its cpu request were 2 or less (now 4) (node small-"
        )
        await expect(panel(page, "Pod default/web")).to_contain_text("labelsapp=web")
        assert complaints == []


async def test_a_pod_held_at_permit_shows_the_plugin_and_its_time_limit() -> None:
    cluster = ClusterFile(nodes=[node("n1", cpu="8")], pods=[pod("web", cpu="4")])
    shown = FileBoard(cluster, default(), refresh=False)
    await shown.judge()
    [held] = cluster.pods
    shown.subject.parts.waiting_pods.hold(held, {"Coscheduling": 600.0})
    async with serving_board(board_of(shown.subject)) as url, browsing() as (page, complaints):
        await page.goto(f"{url}#/pods/default/web")
        facts = panel(page, "Pod default/web")
        await expect(facts).to_contain_text(
            re.compile(r"held at Permitby Coscheduling until .*\((9|10) min left\)")
        )
        assert complaints == []


async def test_earlier_attempts_and_victims_can_be_viewed(tmp_path: Path) -> None:
    async with ApiServer(kubelet=True) as server, board_of_a_daemon(server, tmp_path) as (_, url):
        add(server, "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "urgent"}, "value": 100})
        add(server, "nodes", *nodes(2))
        add(server, "pods", *(pod_object(f"low-{each}", cpu="3") for each in range(2)))
        async with browsing() as (page, complaints):
            await page.goto(url)
            await expect(panel(page, "Nodes")).to_contain_text("2 pods on them")
            urgent = pod_object("urgent", cpu="3", priority=100)
            add(server, "pods", {**urgent, "spec": {**urgent["spec"], "priorityClassName": "urgent"}})
            placed = panel(page, "Decisions").get_by_role(
                "row", name=re.compile(r"default.urgent 2 .*→ node-")
            )
            await expect(placed).to_be_visible()

            await placed.get_by_role("link").click()
            await panel(page, "Attempts").get_by_role("button", name="1", exact=True).click()

            verdicts = panel(page, "Results")
            await expect(verdicts).to_contain_text("2 nodes would fit after evictions")
            await expect(verdicts).to_contain_text("default/low-0")
            await expect(verdicts).to_contain_text("No node fits (0 of 2)")
            assert complaints == []


@pytest.mark.parametrize("path", ["", "#/pods/default/{name}"], ids=["the map", "the pod's page"])
async def test_names_labels_and_messages_are_shown_as_text(path: str) -> None:
    hostile = node(
        HOSTILE,
        cpu="1",
        labels={ZONE: HOSTILE, HOSTILE: HOSTILE},
        taints=[{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}],
    )
    said = [{"type": "PodScheduled", "status": "False", "reason": HOSTILE, "message": HOSTILE}]
    cluster = ClusterFile(
        nodes=[hostile, node("plain", cpu="1")],
        pods=[
            pod(HOSTILE, cpu="9", labels={HOSTILE: HOSTILE}, status={"conditions": said}),
            pod(
                f"{HOSTILE}2",
                scheduling_gates=[{"name": HOSTILE}],
                scheduling_group={"podGroupName": HOSTILE},
            ),
            pod("there", node=HOSTILE, cpu="500m"),
        ],
    )
    # Refreshing takes a loop of its own, and these plugins have nothing to refresh.
    shown = FileBoard(cluster, default(), refresh=False)
    async with serving_board(board_of(shown.subject)) as url, browsing() as (page, complaints):
        judging = asyncio.create_task(shown.judge())
        name = "".join(f"%{byte:02x}" for byte in HOSTILE.encode())
        await page.goto(url + path.format(name=name))
        if path:
            await expect(page.get_by_role("heading", name=f"default/{HOSTILE}")).to_be_visible()
            await expect(panel(page, "Results")).to_contain_text(HOSTILE)
        else:
            await expect(panel(page, "Pending pods")).to_contain_text(f"gated by SchedulingGates: {HOSTILE}")
            await expect(panel(page, "Pending pods")).to_contain_text(
                f"in 1 pod group: default/{HOSTILE} (1)"
            )
            await expect(panel(page, "Decisions")).to_contain_text(f"default/{HOSTILE}")
            await page.get_by_role("button", name="As a table").click()
            await page.get_by_role("button", name=HOSTILE).click()
            await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
            await expect(page.get_by_text(f"{HOSTILE}={HOSTILE}:NoSchedule")).to_be_visible()
        await judging

        assert await page.title() == "custom-scheduler"
        assert await page.locator("img:not([role])").count() == 0
        assert complaints == []


async def test_an_open_page_reconnects_to_the_daemon(tmp_path: Path) -> None:
    port = free_port()
    async with ApiServer(kubelet=True) as server, browsing() as (page, complaints):
        add(server, "nodes", *nodes(3))
        async with board_of_a_daemon(server, tmp_path, port) as (_, url):
            await page.goto(url)
            await expect(panel(page, "Nodes")).to_contain_text("3 nodes")
        await expect(page.get_by_role("status")).to_have_text("no answer; reconnecting")
        server.store.delete("nodes", "node-2")
        add(server, "pods", pod_object("web", cpu="1"))
        asked = asyncio.Event()

        async def not_yet(_: ServerRequest) -> ServerResponse:
            asked.set()
            return ServerResponse(b"", 404)

        # As a daemon that waits for the API server has no board yet.
        async with serving(Application([Page("/board/data/stream", not_yet)], None, 1000), "127.0.0.1", port):
            await asyncio.wait_for(asked.wait(), PATIENCE_MS / 1000)

        async with board_of_a_daemon(server, tmp_path, port):
            await expect(page.get_by_role("status")).to_have_text("live")
            await expect(panel(page, "Nodes")).to_contain_text("2 nodes; 1 pod on them")
            await expect(panel(page, "Decisions")).to_contain_text("default/web")
        assert complaints == []


async def test_the_active_configuration_is_shown_after_a_reload(tmp_path: Path) -> None:
    async with (
        ApiServer() as server,
        board_of_a_daemon(server, tmp_path) as (daemon, url),
        browsing() as (page, complaints),
    ):
        await page.goto(f"{url}#/configuration")
        profile = panel(page, "Profile custom-scheduler")
        await expect(profile.get_by_role("row", name=re.compile("^TaintToleration 3 "))).to_be_visible()

        await daemon.reload(
            parse(
                "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, "
                "leaderElection: {leaderElect: false}, profiles: [{schedulerName: custom-scheduler, plugins: "
                "{score: {disabled: [{name: TaintToleration}], enabled: [{name: TaintToleration, weight: 42}]}}}]}"
            )
        )

        await expect(profile.get_by_role("row", name=re.compile("^TaintToleration 42 "))).to_be_visible()
        assert complaints == []


async def test_the_state_of_an_extender_is_shown(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"filter": lambda asked: {"NodeNames": asked["NodeNames"]}}
    async with (
        scripted_extender(answers) as extender,
        ApiServer(kubelet=True) as server,
        board_of_a_daemon(server, tmp_path) as (daemon, url),
        browsing() as (page, complaints),
    ):
        await daemon.reload(
            parse(
                "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, "
                "leaderElection: {leaderElect: false}, profiles: [{schedulerName: custom-scheduler}], "
                f"extenders: [{{urlPrefix: '{extender.url}', filterVerb: filter, nodeCacheCapable: true}}]}}"
            )
        )
        await page.goto(f"{url}#/configuration")
        row = panel(page, "Extenders").get_by_role("row").nth(1)
        await expect(row).to_contain_text(f"{extender.url}filter00never")

        add(server, "nodes", *nodes(3))
        add(server, "pods", pod_object("web", cpu="1"))
        await expect(row).to_contain_text(re.compile(r"filter10\d+ s ago[\d.]+ m?snone$"))
        answers["filter"] = 503
        add(server, "pods", pod_object("refused", cpu="1"))

        await expect(row).to_contain_text("503")
        await expect(row.get_by_role("cell").nth(3)).not_to_have_text("0")
        assert complaints == []


async def test_the_board_can_be_used_by_keyboard_alone(tmp_path: Path) -> None:
    async with ApiServer(kubelet=True) as server, board_of_a_daemon(server, tmp_path) as (_, url):
        add(server, "nodes", *nodes(6))
        add(server, "pods", pod_object("web", cpu="2"), pod_object("big", cpu="9"))
        async with browsing(color_scheme="dark") as (page, complaints):
            await page.goto(url)
            await expect(panel(page, "Nodes")).to_contain_text("6 nodes")

            await page.get_by_role("application").focus()
            await page.keyboard.press("ArrowRight")
            await page.keyboard.press("ArrowDown")
            await expect(panel(page, "Node node-1")).to_be_visible()
            await expect(page.locator("[aria-live=polite]")).to_contain_text("node-1: ")
            await page.keyboard.press("Escape")
            await expect(panel(page, "Node node-1")).to_have_count(0)

            more = panel(page, "Pending pods").get_by_role("button", name="1", exact=True)
            await more.focus()
            await page.keyboard.press("Enter")
            await expect(more).to_have_attribute("aria-expanded", "true")
            await page.get_by_role("combobox", name="Find a pod").focus()
            await page.keyboard.type("big")
            await expect(page.locator("datalist option")).to_have_count(1)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="default/big")).to_be_visible()
            assert await page.evaluate("document.activeElement.tagName") == "MAIN"
            assert complaints == []


async def test_five_thousand_nodes_and_two_thousand_pods_are_displayed_at_once() -> None:
    large = ClusterFile(
        nodes=[node(f"node-{each:04}", cpu="8", labels={ZONE: f"zone-{each % 3}"}) for each in range(5000)],
        pods=[pod(f"train-{each}", cpu="99") for each in range(2000)],
    )
    shown = FileBoard(large, default(), refresh=False)
    async with serving_board(board_of(shown.subject)) as url, browsing() as (page, complaints):
        judging = asyncio.create_task(shown.judge())
        await page.goto(url)
        await expect(panel(page, "Nodes")).to_contain_text("5,000 nodes")
        await expect(panel(page, "Pending pods")).to_contain_text("Insufficient cpu on 5,000 of 5,000 nodes")
        await page.get_by_role("application").hover(position={"x": 300, "y": 200})
        await expect(page.locator(".tip")).to_contain_text("node-")
        await judging

        # Coloring the whole map costs most.
        drawn = await page.evaluate(
            """async () => {
                    let drawn = 0;
                    const fill = CanvasRenderingContext2D.prototype.fill;
                    CanvasRenderingContext2D.prototype.fill = function () { drawn += 1; fill.call(this); };
                    const choice = [...document.querySelectorAll('select')].find((each) => each.value === 'cpu');
                    choice.value = 'memory';
                    choice.dispatchEvent(new Event('change', {bubbles: true}));
                    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                    return drawn;
                }"""
        )
        assert drawn == 5000, "each node is drawn once"
        await page.goto(f"{url}#/pods/default/train-7")
        await expect(panel(page, "Results")).to_contain_text("No node fits (0 of 5,000)")
        assert complaints == []
