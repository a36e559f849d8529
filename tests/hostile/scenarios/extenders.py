"""Extenders and plugins that misbehave."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import judged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.hostile.stage import Stage

Json = dict[str, Any]

RESOURCE = "hostile.example.com/asks"
FAILED = frozenset({"Extender failed", "Plugin failed", "Error scheduling pod; retrying"})
STOPPED = frozenset({"Over budget", "Plugin was stopped again and again, and rests"})
EVIL = "hostile-evil"
"""The schedulerName of a profile that innocent pods do not use."""


async def _answer(kind: str, request: web.BaseRequest) -> web.StreamResponse:
    """Answer late, with nonsense, or without an end."""
    if kind == "slow":
        await asyncio.sleep(4)
        return web.Response(body=b"{}")
    if kind == "nonsense":
        asked = json.loads(await request.read())
        deep = b'{"NodeNames":' + b"[" * 100_000
        bodies = [b"\x00" * 1000, deep, json.dumps({"NodeNames": ["x"] * 10**5, "Error": asked}).encode()]
        return web.Response(body=bodies[len(asked["Pod"]["metadata"]["name"]) % len(bodies)])
    response = web.StreamResponse()
    await response.prepare(request)
    try:
        while True:
            await response.write(b"[" * 2**16)
    except ConnectionError:
        return response


@asynccontextmanager
async def _extender(kind: str) -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await _answer(kind, request)

    server = web.Server(answer, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        await server.shutdown(0.1)


@scenario({kind: (kind,) for kind in ("slow", "nonsense", "endless")}, starts=False, logged=FAILED)
async def extender(it: Stage, kind: str) -> None:
    """100 pods for which an extender is asked whose answers are {0}"""
    async with _extender(kind) as url:
        asked = {
            "urlPrefix": url, "filterVerb": "filter", "httpTimeout": "1s", "nodeCacheCapable": True,
            "managedResources": [{"name": RESOURCE, "ignoredByScheduler": True}],
        }  # fmt: skip
        await it.start(more={"extenders": [asked]})
        for number in range(it.n(100, least=2)):
            made = it.pod("p" * (1 + number % 3) + str(number))
            amount = {"cpu": "10m", RESOURCE: "1"}
            made["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": {RESOURCE: "1"}}
            await it.api.create(made)
        await it.innocents()
        it.expect(await it.wait_for("p0", judged, 60), "a pod is not told that its extender fails")


THREADED = """\
import threading
from scheduler.framework import FilterPlugin


def compute():
    while True:
        sum(range(1_000_000))


class Threaded(FilterPlugin):
    name = "Threaded"
    api_version = 1

    def __init__(self):
        threading.Thread(target=compute, daemon=True).start()

    def filter_node(self, state, pod, node):
        return None
"""


@scenario(starts=False, is_ours=True)
async def threaded_plugin(it: Stage) -> None:
    """A plugin that computes in a thread of its own all the time"""
    path = it.folder / "threaded.py"
    path.write_text(THREADED)
    evil = {"schedulerName": EVIL, "plugins": {"filter": {"enabled": [{"name": str(path)}]}}}
    await it.start(profiles=[evil])
    for number in range(it.n(100, least=2)):
        await it.api.create(it.pod(f"t-{number}", schedulerName=EVIL))
    await it.innocents()
    it.expect(await it.wait_for("t-0", judged, 60), "the hostile pod is not judged")


@scenario(starts=False, is_ours=True, may_be_quarantined=True, logged=FAILED | STOPPED)
async def endless_guest(it: Stage) -> None:
    """100 pods of a profile whose WebAssembly guest loops for ever"""
    from tests.support.guests import LOOPS  # needs wasmtime

    path = it.folder / "loops.wasm"
    path.write_bytes(LOOPS)
    guest = {
        "schedulerName": EVIL,
        "plugins": {"filter": {"enabled": [{"name": str(path)}]}},
    }
    await it.start(profiles=[guest])
    for number in range(it.n(100, least=2)):
        await it.api.create(it.pod(f"g-{number}", schedulerName=EVIL))
    await it.innocents()
    it.expect(await it.wait_for("g-0", judged, 60), "the hostile pod is not judged")
