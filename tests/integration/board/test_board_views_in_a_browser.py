"""The board's pages of queues, groups, controllers, preemptions, objects and dry runs, and its filters, in a real browser."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from scheduler.clock import SystemClock
from scheduler.configuration.load import default, parse
from scheduler.objects.decode import decode_pod
from scheduler.tools.board.file import FileBoard
from scheduler.tools.board.pages import board_of
from scheduler.tools.board.sign_in import serving_board
from scheduler.tools.simulator.server import ApiServer
from scheduler.tools.whatif.cluster_file import ClusterFile
from tests.integration.board.test_board_in_a_browser import add, board_of_a_daemon, nodes, panel
from tests.integration.groups.gangs import POD_GROUPS, members, pod_group
from tests.support.browser import assert_accessible, browsing, run_with_browser
from tests.support.builders import node, pod, pod_object
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from pathlib import Path

    from playwright.async_api import Page as Shown

    from scheduler.configuration.load import Configuration

pytestmark = pytest.mark.run(by=run_with_browser)

QUEUES = "custom-scheduler.io/v1alpha1/queues"
FAIR_QUEUES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins:
    multiPoint: {enabled: [{name: FairQueues}]}
    postFilter: {enabled: [{name: FairQueues}], disabled: [{name: "*"}]}
  pluginConfig:
  - {name: FairQueues, args: {longestWaitSeconds: 90}}
"""


@asynccontextmanager
async def file_board(
    cluster: ClusterFile, configuration: Configuration | None = None, **options: Any
) -> AsyncIterator[tuple[FileBoard, str, Shown, list[str]]]:
    """Show the board of a file whose pods were evaluated; the options are those of the browser."""
    shown = FileBoard(cluster, configuration or default(), refresh=False)
    await shown.judge()
    async with (
        serving_board(board_of(shown.subject)) as url,
        browsing(**options) as (page, complaints),
    ):
        yield shown, url, page, complaints


def queue(name: str, parent: str = "", **spec: Any) -> bytes:
    metadata = {"name": name, "creationTimestamp": "2026-03-01T08:00:00Z"}
    return json.dumps({"metadata": metadata, "spec": {"parent": parent, **spec}}).encode()


def queues_of_labs() -> ClusterFile:
    """Two queues below a third; one has borrowed from the other, whose pods wait."""
    return ClusterFile(
        nodes=[node("n1", cpu="10")],
        pods=[
            *(pod(f"star-{each}", node="n1", namespace="astronomy", cpu="2") for each in range(4)),
            *(pod(f"cell-{each}", namespace="biology", cpu="3") for each in range(3)),
        ],
        others={
            QUEUES: {
                "labs": queue("labs", max={"cpu": "10"}),
                "astronomy": queue("astronomy", "labs", namespaces=["astronomy"]),
                "biology": queue("biology", "labs", namespaces=["biology"], min={"cpu": "4"}),
                "lost": queue("lost", "nobody"),
            }
        },
    )


async def test_queues_are_a_tree_with_what_is_used_guaranteed_borrowed_and_waiting() -> None:
    async with file_board(queues_of_labs(), parse(FAIR_QUEUES)) as (_, url, page, complaints):
        await page.goto(f"{url}#/quotas")
        tree = panel(page, "Quotas of FairQueues")
        rows = tree.get_by_role("row")
        await expect(rows).to_have_count(5)
        await expect(rows.nth(1)).to_have_text("labs84101093YAML")
        astronomy = tree.get_by_role("row", name=re.compile("^astronomy"))
        await expect(astronomy.get_by_role("img")).to_have_attribute(
            "aria-label", re.compile("borrowed [23]")
        )
        biology = tree.get_by_role("row", name=re.compile("^biology"))
        await expect(biology).to_have_text("biology, below labs04593YAML")
        await expect(tree.get_by_role("row", name=re.compile("^lost"))).to_contain_text("nobody")
        await assert_accessible(page)

        await biology.get_by_role("link", name="YAML").click()
        await expect(panel(page, "Object")).to_contain_text('namespaces: - biology min: cpu: "4"')
        await assert_accessible(page)
        assert complaints == []


async def test_queues_have_a_column_with_their_average_if_a_history_counts() -> None:
    queues = queues_of_labs()
    known = json.loads(queues.others[QUEUES]["astronomy"])
    status = {"averageShare": "40.00%", "averageShareTime": "2999-01-01T00:00:00Z"}
    queues.others[QUEUES]["astronomy"] = json.dumps({**known, "status": status}).encode()
    text = (MANIFESTS / "examples" / "fair-queues" / "history.yaml").read_text()
    async with file_board(queues, parse(text)) as (_, url, page, complaints):
        await page.goto(f"{url}#/quotas")
        tree = panel(page, "Quotas of FairQueues")
        await expect(tree.get_by_role("columnheader", name="average")).to_be_visible()
        await expect(tree.get_by_role("row", name=re.compile("^astronomy"))).to_contain_text("40.0%")
        await expect(tree.get_by_role("row", name=re.compile("^biology"))).to_contain_text("0.0%")
        await assert_accessible(page)
        assert complaints == []


async def test_a_group_has_a_page_with_its_members_and_pods_on_nodes(tmp_path: Path) -> None:
    async with ApiServer(kubelet=True) as server, board_of_a_daemon(server, tmp_path) as (_, url):
        add(server, "nodes", *nodes(2))
        add(server, POD_GROUPS, pod_group("ring", 3))
        add(server, "pods", *members("ring", 3, cpu="3"))
        async with browsing() as (page, complaints):
            await page.goto(url)
            await page.get_by_role("link", name="default/ring", exact=True).first.click()
            group = panel(page, "Group default/ring")
            await expect(group).to_contain_text("minimum3 pods")
            await expect(group).to_contain_text("0 on nodes; 2 of 3 pending pods fit")
            await expect(panel(page, "Members")).to_contain_text("default/ring-2")
            await assert_accessible(page)

            add(server, "nodes", *nodes(3)[2:])
            await expect(panel(page, "Pods on nodes").get_by_role("row")).to_have_count(4)
            await panel(page, "Pods on nodes").get_by_role("link", name="default/ring-1").click()
            facts = panel(page, "Pod default/ring-1")
            await expect(facts.get_by_role("link", name="default/ring", exact=True)).to_be_visible()
            assert complaints == []


def owned(name: str, **fields: Any) -> dict[str, Any]:
    obj = pod_object(name, **fields)
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    ]
    return obj


async def test_a_controller_has_a_page_with_its_pods_and_their_causes() -> None:
    pods = [
        decode_pod(json.dumps(owned(f"train-{each}", **{"cpu": "9", **fields})).encode())
        for each, fields in enumerate([{}, {}, {"node": "n1", "cpu": "1"}])
    ]
    async with file_board(ClusterFile([node("n1", cpu="4")], pods)) as (_, url, page, complaints):
        await page.goto(f"{url}#/pods/default/train-0")
        await page.get_by_role("link", name="Job/train").click()
        facts = panel(page, "Controller Job/train")
        await expect(facts).to_contain_text("1 of 3 on 1 node")
        await expect(facts).to_contain_text("2 pods: 0/1 nodes are available: 1 Insufficient cpu")
        await panel(page, "Pods").get_by_role("link", name="n1").click()
        await expect(panel(page, "Node n1")).to_contain_text("default/train-2")
        assert complaints == []


async def test_preemptions_have_their_cause_victims_and_preemptor(tmp_path: Path) -> None:
    async with ApiServer(kubelet=True) as server, board_of_a_daemon(server, tmp_path) as (_, url):
        add(server, "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "urgent"}, "value": 100})
        add(server, "nodes", *nodes(1))
        add(server, "pods", pod_object("low", cpu="3"))
        async with browsing() as (page, complaints):
            await page.goto(url)
            await expect(panel(page, "Nodes")).to_contain_text("1 pod on them")
            urgent = pod_object("urgent", cpu="3", priority=100)
            add(server, "pods", {**urgent, "spec": {**urgent["spec"], "priorityClassName": "urgent"}})
            await page.get_by_role("link", name="Preemptions").click()
            row = panel(page, "Preemptions").get_by_role("row").nth(1)
            await expect(row).to_contain_text("priority 100, now on node-0")
            await expect(row).to_contain_text("1 Insufficient cpu")
            await expect(row).to_contain_text("default/low priority 0")
            await expect(row).to_contain_text("DefaultPreemption")
            await assert_accessible(page)
            assert complaints == []


async def test_pending_pods_and_nodes_are_filtered_and_the_address_keeps_the_filter() -> None:
    cluster = ClusterFile(
        nodes=[node(f"n{each}", cpu="4", labels={"pool": f"p{each % 2}"}) for each in range(4)],
        pods=[
            *(pod(f"web-{each}", cpu="9", labels={"app": "web"}) for each in range(3)),
            *(pod(f"job-{each}", namespace="batch", cpu="9", priority=7) for each in range(2)),
            pod("there", node="n1", cpu="1"),
        ],
    )
    async with file_board(cluster) as (_, url, page, complaints):
        await page.goto(url)
        pending = panel(page, "Pending pods")
        await expect(pending).to_contain_text("by namespace: default (3), batch (2)")
        await expect(pending).to_contain_text("by priority: 0 (3), 7 (2)")
        await expect(page.get_by_role("list", name="Requested of what there is")).to_contain_text(
            "1 of 16 requested"
        )
        await pending.get_by_role("button", name="batch").click()
        await expect(pending).to_contain_text("2 pending pods")
        await expect(panel(page, "Decisions")).not_to_contain_text("default/web")

        await page.goto(f"{url}#/?label=app%3Dweb&nodes=pool%3Dp1&by=pool")
        await page.reload()
        await expect(pending).to_contain_text("3 pending pods")
        await pending.get_by_role("button", name="3", exact=True).click()
        await expect(pending).to_contain_text("default/web-2")
        await expect(panel(page, "Nodes")).to_contain_text("2 nodes; 1 pod on them")
        await page.get_by_role("button", name="As a table").click()
        await expect(panel(page, "Nodes").get_by_role("row", name=re.compile("^n1 p1"))).to_be_visible()
        await assert_accessible(page)
        assert complaints == []


class StandingClock(SystemClock):
    """The clock of a recording: its time of day does not advance."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def utc_now(self) -> datetime:
        return self._now


async def test_times_are_relative_to_the_time_of_the_scheduler_and_their_title_is_the_date() -> None:
    shown = FileBoard(ClusterFile([node("n1", cpu="4")], [pod("web", cpu="9")]), default(), refresh=False)
    await shown.judge()
    clock = StandingClock(shown.subject.clock.utc_now() + timedelta(minutes=5, seconds=1))
    async with (
        serving_board(board_of(replace(shown.subject, clock=clock))) as url,
        browsing() as (page, complaints),
    ):
        await page.goto(url)
        decided = panel(page, "Decisions").get_by_role("row").nth(1).get_by_role("time")
        await expect(decided).to_have_text("5 min ago")
        await expect(decided).to_have_attribute("title", re.compile(r"\d+/\d+/\d{4}, \d+:\d\d:\d\d"))
        assert complaints == []


async def test_equal_decisions_are_one_line_with_their_number() -> None:
    cluster = ClusterFile([node("n1", cpu="4")], [pod(f"web-{each}", cpu="9") for each in range(7)])
    async with file_board(cluster) as (_, url, page, complaints):
        await page.goto(url)
        decisions = panel(page, "Decisions")
        await expect(decisions.get_by_role("row")).to_have_count(2)
        await decisions.get_by_role("button", name="7 equal decisions").click()
        await expect(decisions.get_by_role("listitem")).to_have_count(6)
        assert complaints == []


async def test_the_configuration_shows_arguments_and_the_profile_as_yaml() -> None:
    async with file_board(queues_of_labs(), parse(FAIR_QUEUES)) as (_, url, page, complaints):
        await page.goto(f"{url}#/configuration")
        profile = panel(page, "Profile custom-scheduler")
        row = profile.get_by_role("row", name=re.compile("^FairQueues"))
        await row.locator("summary").click()
        await expect(row).to_contain_text("longestWaitSeconds: 90")
        await profile.get_by_text("The profile as YAML").click()
        await expect(profile.get_by_role("group", name="The profile as YAML")).to_contain_text(
            "schedulerName: custom-scheduler"
        )
        await assert_accessible(page)
        assert complaints == []


async def test_a_dry_run_shows_where_pending_pods_would_go_and_writes_nothing() -> None:
    cluster = ClusterFile([node("n1", cpu="4")], [pod("web", cpu="9"), pod("small", cpu="1")])
    async with file_board(cluster) as (shown, url, page, complaints):
        await page.goto(url)
        await page.get_by_role("link", name="Try a profile").click()
        await page.get_by_role("checkbox", name="NodeResourcesFit enabled").uncheck()
        await page.get_by_role("spinbutton", name="weight of TaintToleration").fill("7")
        await page.get_by_role("button", name="Try").click()
        result = panel(page, "Result")
        await expect(result).to_contain_text(
            "0 pods on another node, 1 more placed, 0 no longer placed, 1 unchanged"
        )
        await expect(result.get_by_role("row", name=re.compile("^default.web"))).to_have_text(
            re.compile("^default/web0/1 nodes are available: 1 Insufficient cpu.*n1$")
        )
        assert not shown.subject.parts.pods["default/web"].node_name
        await assert_accessible(page)

        await page.get_by_role("combobox", name="add a plugin").select_option("CapacityScheduling")
        await page.get_by_role("button", name="Try").click()
        await expect(page.get_by_role("alert")).to_contain_text("which the scheduler does not watch now")
        assert complaints == []


async def test_nodes_of_a_small_cluster_have_names_and_bars() -> None:
    cluster = ClusterFile([node(f"n{each}", cpu="4") for each in range(4)], [pod("p", node="n2", cpu="4")])
    async with file_board(cluster) as (_, url, page, complaints):
        await page.goto(url)
        await expect(panel(page, "Nodes")).to_contain_text("4 nodes")
        nodes_map = page.get_by_role("application")
        # The third tile of the row; the tiles of a large cluster would be narrower.
        await nodes_map.hover(position={"x": 2 * 170 + 80, "y": 35})
        await expect(page.locator(".tip")).to_contain_text("n2")
        await nodes_map.click(position={"x": 3 * 170 + 80, "y": 35})
        await expect(panel(page, "Node n3")).to_be_visible()
        assert page.url.endswith("?node=n3")
        await page.reload()
        await expect(panel(page, "Node n3")).to_be_visible()
        assert complaints == []
