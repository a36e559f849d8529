"""kopf against the simulated API server, in real time: handlers in a thread, as operators run them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kopf
import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.support.processes import until
from tests.unit.tools.simulator.definitions import definition, widget, with_spec

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.run(by=asyncio.run)

_PATIENCE_SECONDS = 20.0


@asynccontextmanager
async def operator(registry: kopf.OperatorRegistry, url: str):
    """Run kopf in a thread and a loop of its own."""
    stop, ready = threading.Event(), threading.Event()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    def run() -> None:
        asyncio.run(
            kopf.operator(
                registry=registry, standalone=True, namespaces=["default"], stop_flag=stop, ready_flag=ready
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        await until(ready.is_set)
        yield
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, _PATIENCE_SECONDS)
        assert not thread.is_alive()


async def test_kopf_handles_config_maps():
    registry = kopf.OperatorRegistry()
    seen: list[tuple[str, str]] = []

    @kopf.on.event("v1", "configmaps", registry=registry)
    def note(type: str | None, name: str, **_: Any) -> None:  # noqa: A002 - kopf's own name
        seen.append((str(type), name))

    async with ApiServer() as server:
        server.store.create("configmaps", {"metadata": {"name": "first"}})
        async with operator(registry, server.url):
            await until(lambda: ("None", "first") in seen)
            server.store.create("configmaps", {"metadata": {"name": "second"}})
            await until(lambda: ("ADDED", "second") in seen)
            server.store.patch("configmaps", "second", {"data": {"a": "b"}})
            await until(lambda: ("MODIFIED", "second") in seen)
            server.store.delete("configmaps", "second")
            await until(lambda: ("DELETED", "second") in seen)


async def test_kopf_handles_custom_resources_and_writes_their_status():
    registry = kopf.OperatorRegistry()

    @kopf.on.create("example.com", "v1", "widgets", registry=registry)
    @kopf.on.update("example.com", "v1", "widgets", field="spec", registry=registry)
    def doubled(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        patch.status["doubled"] = 2 * spec["size"]

    @kopf.on.delete("example.com", "v1", "widgets", registry=registry)
    def freed(**_: Any) -> None:
        """A handler of deletions has kopf put a finalizer on what it watches."""

    def status(server: ApiServer) -> Any:
        return server.store.get("widgets", "w").get("status", {}).get("doubled")

    async with ApiServer() as server:
        made = definition(schema=with_spec(size={"type": "integer"}), subresources={"status": {}})
        server.store.create("customresourcedefinitions", made)
        await asyncio.sleep(0.05)
        async with operator(registry, server.url):
            server.store.create("widgets", widget("w", spec={"size": 2}))
            await until(lambda: status(server) == 4)
            assert server.store.get("widgets", "w")["metadata"]["finalizers"]
            server.store.patch("widgets", "w", {"spec": {"size": 5}})
            await until(lambda: status(server) == 10)
            server.store.delete("widgets", "w")
            await until(lambda: server.store.find("widgets", "w") is None)
