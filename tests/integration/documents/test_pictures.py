"""The pictures in the documentation: each is made here, from a page that has the parts that the picture shows.

`make pictures` writes them into docs/; otherwise they are made in a temporary folder.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.async_api import expect

from scheduler.configuration.load import default, parse
from scheduler.daemon.app import live_explain
from scheduler.objects.decode import decode_pod
from scheduler.tools.board.backtest_page import page_of
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.pages import board_of
from scheduler.tools.board.sign_in import serving_board
from scheduler.tools.whatif.backtest.backtest_run import as_recorded, backtest
from scheduler.tools.whatif.backtest.result import Backtest
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.recording.backtests import PACKING, delete, material
from tests.support.browser import PATIENCE_MS, browsing, run_with_browser
from tests.support.builders import node, node_object, pod_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.support.daemon_harness import Cluster

pytestmark = pytest.mark.run(by=run_with_browser)

DOCS = Path(__file__).parents[3] / "docs"
ZONE = "topology.kubernetes.io/zone"

expect.set_options(timeout=PATIENCE_MS)


def test_each_picture_of_the_documentation_is_made_here() -> None:
    made = re.findall(r'take\(page, "([^"]+)"', Path(__file__).read_text())

    assert sorted(made) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.png"))


async def take(page: Page, name: str, folder: Path) -> None:
    """Make a picture of the visible part of a page."""
    picture = Path(os.environ.get("PICTURES", folder)) / name
    await page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000


@asynccontextmanager
async def board_of_a_file(cluster: ClusterFile, height: int) -> AsyncIterator[tuple[Page, str]]:
    shown = FileBoard(cluster, default(), refresh=False)
    await shown.judge()
    async with (
        serving_board(board_of(shown.subject)) as url,
        browsing(viewport={"width": 1400, "height": height}) as (page, complaints),
    ):
        yield page, url
        assert complaints == []


def region(page: Page, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


def pod(name: str, *, minutes: int = 5, **fields: Any) -> PodInfo:
    """Return a pod that was created some minutes ago."""
    obj = pod_object(name, **fields)
    created = datetime.now(UTC) - timedelta(minutes=minutes)
    obj["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return decode_pod(msgspec.json.encode(obj))


# The board.


def large_cluster() -> ClusterFile:
    """Return 5000 nodes in three zones that are used differently, and 2000 pending pods with four causes."""
    random = Random(7)
    nodes: list[NodeObject] = []
    pods: list[PodInfo] = []
    for zone, number, share in (
        ("eu-west-1a", 2090, 0.75),
        ("eu-west-1b", 1670, 0.45),
        ("eu-west-1c", 1240, 0.2),
    ):
        for _ in range(number):
            name = f"node-{len(nodes):04}"
            kind: dict[str, Any] = random.choices(
                [
                    {},
                    {"taints": ["dedicated=batch:NoSchedule"]},
                    {"unschedulable": True},
                    {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
                ],
                weights=[92, 5, 2, 1],
            )[0]
            nodes.append(node(name, cpu="15900m", memory="30Gi", labels={ZONE: zone}, **kind))
            wanted = random.betavariate(4 * share, 4 * (1 - share)) * 15_500
            for place in range(3):
                used = {"cpu": f"{wanted / 3:.0f}m", "memory": f"{wanted / 3 * 1.8:.0f}Mi"}
                pods.append(pod(f"{name}-{place}", namespace="shop", node=name, minutes=900, **used))
    pods += [pod(f"train-{each}", namespace="ml", cpu="16", minutes=47) for each in range(1180)]
    pods += [pod(f"etl-{each}", namespace="data", cpu="20", memory="64Gi", minutes=12) for each in range(610)]
    pool = {"node_selector": {"pool": "gpu"}}
    pods += [pod(f"render-{each}", namespace="studio", cpu="1", minutes=3, **pool) for each in range(190)]
    gates = ["example.com/quota"]
    pods += [pod(f"report-{each}", namespace="data", gates=gates, minutes=26) for each in range(20)]
    return ClusterFile(nodes, pods)


async def test_the_picture_of_the_board_has_the_map_a_node_and_the_pending_pods(tmp_path: Path) -> None:
    async with board_of_a_file(large_cluster(), 1020) as (page, url):
        await page.goto(url)
        nodes, pending = region(page, "Nodes"), region(page, "Pending pods")
        await expect(nodes).to_contain_text(
            re.compile(r"5,000 nodes, \d+ of them unschedulable; 15,000 pods")
        )
        await expect(page.get_by_role("list", name="Requested of what there is")).to_contain_text("cpu")
        await expect(pending).to_contain_text("2,000 pending pods")
        for cause in ("Insufficient cpu", "Insufficient memory", "node affinity/selector", "gated by"):
            await expect(pending).to_contain_text(cause)
        await page.get_by_role("application").hover(position={"x": 620, "y": 230})
        await expect(page.locator(".tip")).to_contain_text("free of 15.9")
        await take(page, "board-cluster.png", tmp_path)


def pool_of_workers() -> ClusterFile:
    """Return 31 nodes that reject a pod for four reasons."""
    random = Random(3)
    nodes = [
        node(
            f"worker-{each:02}",
            cpu="16",
            memory="64Gi",
            labels={"pool": "general" if each < 8 else "batch", ZONE: f"eu-west-1{'abc'[each % 3]}"},
            taints=["gpu=yes:NoSchedule"] if each in {8, 9} else [],
            unschedulable=each == 10,
        )
        for each in range(31)
    ]
    running = [
        pod(f"worker-{each}", node=f"worker-{each:02}", cpu=f"{random.randint(1, 9)}", minutes=700)
        for each in range(31)
    ]
    wanted = pod(
        "checkout-7d9f8c6b5-x2x4q",
        namespace="shop",
        cpu="20",
        memory="8Gi",
        labels={"app": "checkout"},
        node_selector={"pool": "batch"},
    )
    return ClusterFile(nodes, [*running, wanted])


async def test_the_picture_of_a_pod_has_its_rejections_by_reason_and_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_explain, "_DETAILS_SECONDS", 600.0)  # on a busy machine too
    async with board_of_a_file(pool_of_workers(), 1000) as (page, url):
        await page.goto(f"{url}#/pods/shop/checkout-7d9f8c6b5-x2x4q")
        facts, results = region(page, "Pod shop/checkout-7d9f8c6b5-x2x4q"), region(page, "Results")
        await expect(facts).to_contain_text("does not fit on any of 31 nodes")
        await expect(results).to_contain_text("The pod would fit if its cpu request were")
        for group in (
            "20 nodes: Insufficient cpu",
            "8 nodes: node(s) didn't match",
            "2 nodes: node(s) had",
            "1 node: node(s) were",
        ):
            await expect(results.locator("summary", has_text=group)).to_be_visible()
        await expect(region(page, "Attempts")).to_contain_text("0/31 nodes are available")
        await take(page, "board-pod.png", tmp_path)


# A backtest.


async def some_minutes(it: Cluster) -> None:
    """Create a pod on 24 nodes each second, and more of them in the middle; each runs for two to four minutes."""
    seconds = 600 if "PICTURES" in os.environ else 300
    random = Random(5)
    it.add_nodes(
        *(node_object(f"n{each:02}", cpu="8", labels={ZONE: f"zone-{each % 3}"}) for each in range(24))
    )
    await asyncio.sleep(1.0)
    ends: list[tuple[int, str]] = []
    for second in range(seconds):
        for number in range(1 + (200 < second < 330)):
            name = f"web-{second}-{number}"
            it.add_pods(pod_object(name, cpu=f"{random.choice([250, 500, 1000])}m", memory="256Mi"))
            ends.append((second + random.randint(120, 240), name))
        for end, name in [each for each in ends if each[0] <= second]:
            ends.remove((end, name))
            delete(it, name)
        await asyncio.sleep(1.0)


@pytest.fixture
def result(tmp_path: Path) -> Backtest:
    recorded = material(tmp_path, some_minutes)
    runs = [backtest(recorded, parse(PACKING), "packing.yaml")]
    baseline = backtest(recorded, recorded.recorded, "recorded configuration")
    return Backtest(recorded=as_recorded(recorded), baseline=baseline, no_baseline="", runs=runs)


async def test_the_picture_of_a_backtest_has_figures_and_charts(result: Backtest, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page_of(result), encoding="utf-8")
    async with browsing(viewport={"width": 1280, "height": 1400}) as (page, complaints):
        await page.goto((tmp_path / "page.html").as_uri())
        figures, charts = region(page, "Figures"), region(page, "Charts")
        for name in ("as recorded", "recorded configuration", "packing"):
            await expect(figures.get_by_role("columnheader", name=name, exact=True)).to_be_visible()
        await expect(figures.get_by_role("row", name=re.compile("^nodes in use, mean"))).to_be_visible()
        await expect(charts).to_contain_text("Nodes in use")
        await expect(charts.locator("canvas").first).to_be_visible()
        await take(page, "backtest.png", tmp_path)
        assert complaints == []
