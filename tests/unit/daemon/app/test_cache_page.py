"""/debug/cache: which clients may repair the cache, and that the endpoint needs authentication."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.consistency.checker import Report
from scheduler.daemon.app.consistency.state_check import Discrepancy, Finding
from scheduler.daemon.app.pages import cache_page
from scheduler.daemon.server.http_server import application, serving
from scheduler.engine.cycle.observer import NoObserver
from scheduler.http_server.messages import ServerResponse
from scheduler.testing.builders import node, pod
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping


class Checker:
    """Returns the same findings each time."""

    def __init__(self) -> None:
        self.repaired: list[bool] = []

    async def check(self, *, repair: bool) -> Report:
        self.repaired.append(repair)
        return Report(
            [Finding(Discrepancy.POD, "default/one", "it is gone")], {"pods": 1}, {}, is_repaired=repair
        )


def parts() -> Parts:
    made = Parts(ManualClock(), NoObserver(), {})
    made.cache.add_node(node("a", cpu="2"))
    made.cache.add_pod(pod("one", cpu="1", node="a"))
    made.cache.assume(pod("two", cpu="500m"), "a")
    made.cache.add_pod(pod("three", node="gone"))
    return made


def asked(method: str, path: str, *, may_repair: bool, access: Any = None) -> tuple[int, str, Checker]:
    async def scenario() -> tuple[int, str, Checker]:
        checker = Checker()
        page = cache_page(checker, parts(), may_repair=may_repair)  # type: ignore[arg-type]
        app = application(metrics=_none, live={}, ready={}, more=[page], access=access)
        async with (
            serving(app, "127.0.0.1", 0) as port,
            aiohttp.ClientSession() as session,
            session.request(method, f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text(), checker

    return asyncio.run(scenario())


def _none(_accept: str) -> tuple[bytes, Mapping[str, str]]:
    return b"", {}


def test_get_compares_and_lists_every_node_and_pod() -> None:
    status, text, checker = asked("GET", "/debug/cache?output=text", may_repair=True)

    assert (status, checker.repaired) == (200, [False])
    assert "pod default/one: it is gone\n" in text
    assert "Node name: a\nDeleted: false\nRequested Resources: &{MilliCPU:1500 " in text
    assert (
        "name: two, namespace: default, uid: uid-of-default-two, phase: Pending, nominated node: , state: assumed\n"
        in text
    )
    assert "Node name: gone\nDeleted: true\n" in text


def test_post_repairs_where_repairs_are_permitted() -> None:
    assert asked("POST", "/debug/cache", may_repair=True)[2].repaired == [True]
    status, _, checker = asked("POST", "/debug/cache", may_repair=False)
    assert (status, checker.repaired) == (405, [])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refused_request_compares_nothing(method: str) -> None:
    async def refusal(_request: Any) -> ServerResponse:
        return ServerResponse(b"no", 403)

    status, _, checker = asked(
        method, "/debug/cache", may_repair=True, access=SimpleNamespace(refusal=refusal)
    )

    assert (status, checker.repaired) == (403, [])
