"""All pages of the board and of `tune` can be read and used by everyone: in light and dark colours, on a desktop and on a phone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from playwright.async_api import expect

from scheduler.http_server.messages import ServerRequest, json_answer
from scheduler.tools.board.sign_in import SignIn
from scheduler.tools.board.tune_page import page_of
from scheduler.tools.simulator.server import ApiServer
from scheduler.tools.whatif.tuning.comparison import Candidate, Change, Compared, Measured, Searched, Tuned
from tests.integration.board.test_board_in_a_browser import ALONE, add, board_of_a_daemon, nodes, panel
from tests.integration.groups.gangs import POD_GROUPS, members, pod_group
from tests.support.browser import (
    DESKTOP,
    PATIENCE_MS,
    assert_accessible,
    assert_accessible_in_all_colours,
    browsing,
    run_with_browser,
)
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster
from tests.support.fair_queues import CRDS, DEFINITION, EXAMPLE, QUEUES, queue, several

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Page, ViewportSize

    from scheduler.http_server.messages import ServerResponse

pytestmark = pytest.mark.run(by=run_with_browser)

PHONE: ViewportSize = {"width": 390, "height": 800}
LONG = "a-service-with-a-long-name-in-production-7d9f8c6b5-x2x4q"

expect.set_options(timeout=PATIENCE_MS)


PAGES = {
    "/": "pending pods",
    "/?node=node-0": "free of",
    "/?label=app%3Dweb&nodes=pool%3Dbatch&by=pool": "Show all",
    f"/pods/default/{LONG}": "Rejections",
    "/pods/a/a0": "chosen from",
    "/groups/default%2Fring": "Pending pods of the group",
    f"/controllers/default/ReplicaSet/{LONG}": "Why pods are pending",
    f"/objects/v1%2Fpods/default%2F{LONG}": "apiVersion: v1",
    "/objects/v1%2Fpods/default%2Fnone": "not found",
    "/quotas": "used, borrowed",
    "/preemptions": "a/a0",
    "/configuration": "FairQueues",
    "/try": "extension points",
}
"""Address after the # -> a text that the complete page has."""


@asynccontextmanager
async def board_with_all_pages(folder: Path) -> AsyncIterator[str]:
    """Run a board whose daemon has queues, a preemption, a pending group and pending pods of a controller."""
    configuration = {**yaml.safe_load((EXAMPLE / "scheduler.yaml").read_text()), **yaml.safe_load(ALONE)}
    async with ApiServer(kubelet=True) as server:
        add(server, CRDS, DEFINITION)
        name = DEFINITION["metadata"]["name"]
        await Cluster(server).until(lambda: server.store.get(CRDS, name)["status"].get("conditions"))
        add(server, "namespaces", *({"metadata": {"name": name}} for name in "ab"))
        add(server, QUEUES, queue("a", min={"cpu": "2"}), queue("b"), queue("lost", parent="nobody"))
        add(server, "nodes", *nodes(2), node_object("reserved", cpu="1", taints=["pool=batch:NoSchedule"]))
        add(server, "pods", *several("b", 8))
        async with board_of_a_daemon(server, folder, configuration=yaml.safe_dump(configuration)) as (
            daemon,
            url,
        ):
            await Cluster(server).until(lambda: daemon.parts.cache.counts()["pods"] == 8)
            add(server, "pods", *several("a", 4))
            add(server, POD_GROUPS, pod_group("ring", 3))
            add(server, "pods", *members("ring", 3, cpu="3"), *map(of_a_controller, (LONG, "other", "third")))
            yield url


def of_a_controller(name: str) -> dict[str, Any]:
    pod = pod_object(name, cpu="9", labels={"app.kubernetes.io/name": "a-service"})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": LONG, "uid": "1", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


async def open_everything(page: Page) -> None:
    """Open all lists and details of the page, and show two nodes side by side if it has their results."""
    await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    for name in ("Pending pods", "Decisions"):  # of which one row at a time is open
        button = panel(page, name).locator("button[aria-expanded=false]").first
        if await button.count():
            await button.click()
    for choice in (await page.get_by_role("checkbox", name="side by side").all())[:2]:
        await choice.check()
    for name in ("As a table", "Try"):
        button = page.get_by_role("button", name=name, exact=True)
        if await button.count():
            if name == "Try":
                await page.get_by_role("checkbox", name="NodeResourcesFit enabled").uncheck()
            await button.click()
    if "/try" in page.url:
        await expect(panel(page, "Result")).to_contain_text("unchanged")


async def assert_is_for_everyone(page: Page) -> None:
    """Check the page with everything open: in light and dark colours on a desktop, and on a phone.

    There only tables scroll sideways, in their own frames, and no text has a column of a few letters.
    """
    await assert_accessible_in_all_colours(page)
    await page.set_viewport_size(PHONE)
    await assert_accessible(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], page.url
    narrow = await page.evaluate(
        """() => [...document.querySelectorAll('td, th, dd, li')]
            .filter((each) => each.checkVisibility() && each.innerText.trim().length > 8)
            .filter((each) => each.clientWidth < 40 && each.clientHeight > 60).map((each) => each.innerText)"""
    )
    assert narrow == [], page.url
    await page.set_viewport_size(DESKTOP)


async def test_all_pages_are_accessible_on_a_desktop_and_on_a_phone(tmp_path: Path) -> None:
    async with board_with_all_pages(tmp_path) as url, browsing() as (page, complaints):
        for place, text in PAGES.items():
            await page.goto(f"{url}#{place}")
            await expect(page.locator("main")).to_contain_text(text)
            await assert_accessible(page)
            await open_everything(page)
            await assert_is_for_everyone(page)
        assert complaints == []


async def test_a_preemption_leads_to_the_queue_that_gets_the_capacity(tmp_path: Path) -> None:
    async with board_with_all_pages(tmp_path) as url, browsing() as (page, complaints):
        await page.goto(f"{url}#/preemptions")
        await panel(page, "Preemptions").get_by_role("link", name="a", exact=True).first.click()
        selected = panel(page, "Quotas of FairQueues").locator("tr.chosen")
        await expect(selected.get_by_role("link", name="a", exact=True)).to_be_visible()
        assert complaints == []


class Refusing:
    """Refuses every request."""

    async def refusal(self, _request: ServerRequest) -> ServerResponse:
        return json_answer({"message": 'User "system:anonymous" cannot get path "/board"'}, 403)


async def test_the_form_for_a_token_is_accessible_on_a_desktop_and_on_a_phone() -> None:
    async def nothing() -> bytes:
        return b""

    headers = {"accept": "text/html", "cookie": "__Secure-custom-scheduler-board=abc"}
    request = ServerRequest("GET", "/board", {}, headers, "127.0.0.1", shows_certificate=False, read=nothing)
    form = await SignIn(Refusing()).refusal(request)
    assert form is not None
    assert isinstance(form.body, bytes)
    async with browsing() as (page, complaints):
        await page.set_content(form.body.decode())
        await expect(page.get_by_role("alert")).to_contain_text("cannot get path")
        await assert_is_for_everyone(page)
        assert complaints == []


def tuned() -> Tuned:
    """A result of `tune` with two objectives, two candidates and long names."""
    changes = [Change(parameter="NodeResourcesFit.weight", today=1, value=7)]

    def of(name: str, trial: int, verdict: str, difference: float) -> Candidate:
        compared = Compared(
            today=40.0, value=40.0 + difference, spread=1.5, difference=difference, noise=2.4, verdict=verdict
        )
        objectives = {"nodes": compared, "wait-p99": msgspec.structs.replace(compared, verdict="same")}
        return Candidate(
            name=name,
            trial=trial,
            changes=changes,
            left_out=["ImageLocality.weight"],
            placed=0,
            objectives=objectives,
        )

    def measured(name: str) -> Measured:
        values = [[40.0, 41.0], [39.0, 42.0]]
        return Measured(name=name, placed=100, values={"nodes": values, "wait-p99": values})

    return Tuned(
        source=f"{LONG}/recording",
        profile=LONG,
        objectives=["nodes", "wait-p99"],
        parameters=[Searched(name="NodeResourcesFit.weight", today=1, values="1..10")],
        complete=4,
        pruned=0,
        rejected=1,
        parts=4,
        played=2,
        held_out=2,
        seeds=[1],
        held_out_seeds=[2, 3],
        today=measured("today"),
        measured=[measured("candidate 1"), measured("candidate 2")],
        candidates=[of("candidate 1", 2, "better", -20.0), of("candidate 2", 3, "same", -1.0)],
        recommended="candidate 1",
        same_candidates=[("candidate 1", "candidate 2")],
        history=[(number, [40.0 - number, 12.0]) for number in range(4)],
        front=[[37.0, 12.0], [38.0, 11.0]],
    )


async def test_the_page_of_tune_is_accessible_on_a_desktop_and_on_a_phone() -> None:
    async with browsing() as (page, complaints):
        await page.set_content(page_of(tuned()))
        await expect(page.get_by_role("region", name="Charts").locator("canvas").first).to_be_visible()
        await assert_accessible(page)
        await open_everything(page)
        await assert_is_for_everyone(page)
        assert complaints == []
