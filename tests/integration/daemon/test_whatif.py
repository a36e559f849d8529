"""What-if requests to a daemon as a process: access, answers, limits, and that nothing is written."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from scheduler.tools.whatif.service.openapi import description
from tests.support.builders import pod_object
from tests.support.daemon_pages import RBAC, give, pages_of_a_daemon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_pages import Pages

pytestmark = pytest.mark.run(by=asyncio.run)

PATH = "/v1/whatif"
DESCRIPTION = f"{PATH}/openapi.json"


async def ask(it: Pages, body: Any, token: str = "") -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{it.url}{PATH}", json=body, headers=headers, ssl=False) as response,
    ):
        return response.status, await response.json()


def allow(it: Pages) -> None:
    rules = [{"verbs": ["post"], "nonResourceURLs": [PATH]}]
    it.server.store.create(f"clusterroles.{RBAC}", {"metadata": {"name": "whatif"}, "rules": rules})
    give(it.server, "reader", "whatif")


async def test_a_daemon_answers_no_what_if_requests_by_default(tmp_path: Path) -> None:
    async with pages_of_a_daemon(tmp_path, readable=(DESCRIPTION,)) as it:
        allow(it)

        assert await it.status(PATH, it.reader, "POST") == 404


async def test_a_daemon_answers_what_if_requests_of_authorized_users(tmp_path: Path) -> None:
    async with pages_of_a_daemon(tmp_path, "--whatif", readable=(DESCRIPTION,)) as it:
        allow(it)
        pod = {"kind": "Pod", "apiVersion": "v1", **pod_object("new", cpu="2")}
        pod["metadata"] = {"name": "new"}
        before = len(list(it.server.requests))
        written = {"POST", "PUT", "PATCH", "DELETE"}

        code, answer = await ask(it, {"objects": [pod], "replicas": 4}, it.reader)
        assert (code, answer["pods"], answer["starting"]) == (200, 4, 3), answer
        assert answer["workloads"][0]["nodes"] == {"n1": 3}
        code, answer = await ask(
            it, {"objects": [pod], "replicas": 4, "add": {"count": 2, "like": "n1"}}, it.reader
        )
        assert (code, answer["added"]["needed"]) == (200, 1)

        assert (await ask(it, {"objects": [pod]}))[0] == 403
        assert (await ask(it, {"objects": [pod]}, "made-up"))[0] == 401
        assert (await ask(it, {"objects": [pod]}, it.stranger))[0] == 403
        assert await it.status(PATH, it.reader) == 403
        assert await it.answer(DESCRIPTION, it.reader) == json.loads(json.dumps(description()))

        code, refused = await ask(it, {"pods": ["default/gone"]}, it.reader)
        assert (code, refused["reason"]) == (422, "Invalid")
        assert refused["details"]["causes"] == [
            {"field": "pods[0]", "message": "default/gone is no pending pod of custom-scheduler"}
        ]
        requests = [each for each in list(it.server.requests)[before:] if each.method in written]
        assert not [each.path for each in requests if "/pods" in each.path or "/nodes" in each.path]
