"""A proxy before the API server that cuts answers."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.hostile.scenario import scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.hostile.stage import Stage

Json = dict[str, Any]

_CUT_SECONDS = 1.5
_PIECE_BYTES = 2**16


@asynccontextmanager
async def cutting(target: str) -> AsyncIterator[str]:
    """Run a proxy before a server; it cuts each connection after some time, wherever the answer is. Yield its URL."""
    url = urlsplit(target)
    assert url.hostname is not None

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.CancelledError):  # cancelled at the end of the loop
            beyond, to_server = await asyncio.open_connection(url.hostname, url.port)
            try:
                async with asyncio.timeout(_CUT_SECONDS):
                    await asyncio.gather(pass_on(reader, to_server), pass_on(beyond, writer))
            finally:
                writer.transport.abort()
                to_server.transport.abort()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy:
        yield f"{url.scheme}://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


def _kubeconfig(it: Stage, server: str) -> Json:
    cluster: Json = {"server": server}
    if server.startswith("https"):
        cluster |= {"insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": it.server.token} if it.server.token else {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip


@scenario(starts=False)
async def cut_answers(it: Stage) -> None:
    """A proxy that cuts each connection to the API server after 1.5 s, beside 20,000 pods, of which 50 a second change"""
    count = it.n(20_000, least=20)
    await it.api.create_all(it.pod(f"c-{number}", on=it.node(number), cpu="1m") for number in range(count))
    server = await it.stack.enter_async_context(cutting(it.server.url))
    it.stack.push_async_callback(it.end)
    kubeconfig = it.folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(it, server)))
    await it.start(server=it.server._replace(kubeconfig=kubeconfig), fresh=True)

    async def change(number: int) -> None:
        path = f"/api/v1/namespaces/{it.namespace}/pods/c-{number % count}"
        await it.api.patch(path, {"metadata": {"labels": {"churn": str(number)}}})

    await it.innocents_while(50, change)
