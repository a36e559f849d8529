"""Connections to the scheduler's pages and to its extender service, and their certificates."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scheduler.kube.certificates import issue
from tests.hostile.api import UNVERIFIED
from tests.hostile.scenario import scenario
from tests.hostile.schedulers import process

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from tests.hostile.stage import Stage

Json = dict[str, Any]


class _Silent(asyncio.Protocol):
    """Opens a connection and says nothing."""

    is_closed = False

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True


async def silence(port: int, count: int, tls: ssl.SSLContext | None) -> list[asyncio.BaseTransport]:
    """Open so many connections, and say nothing on them."""
    loop = asyncio.get_running_loop()
    opened: list[asyncio.BaseTransport] = []

    async def one() -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(20):
                opened.append((await loop.create_connection(_Silent, "127.0.0.1", port, ssl=tls))[0])

    for begin in range(0, count, 50):
        await asyncio.gather(*(one() for _ in range(begin, min(begin + 50, count))))
    return opened


@scenario(starts=False)
async def silent_connections(it: Stage) -> None:
    """3000 silent connections, before and after the TLS handshake"""
    await it.start(fresh_connections=True)
    for tls in (None, UNVERIFIED):
        flood = await silence(it.scheduler.port, it.n(3000, least=20), tls)
        await it.innocents(rate=it.size.rate / 2)
        for transport in flood:
            transport.close()


@scenario(starts=False)
async def rotating_secrets(it: Stage) -> None:
    """The serving certificate and the token of the kubeconfig are replaced every second"""
    certificate, token = it.folder / "tls.pem", it.folder / "token"
    token.write_text(it.server.token or "none")
    found = json.loads(it.server.kubeconfig.read_text()) if it.is_small else None
    kubeconfig = it.folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_with_token_file(it, found, token)))

    def rotate() -> None:
        fresh = it.folder / "new"
        fresh.write_bytes(issue("localhost", addresses=["127.0.0.1"]).serving)
        fresh.replace(certificate)
        fresh.write_text(it.server.token or "none")
        fresh.replace(token)

    rotate()
    files = (f"--tls-cert-file={certificate}", f"--tls-private-key-file={certificate}")
    await it.start(server=it.server._replace(kubeconfig=kubeconfig), flags=files, fresh_connections=True)

    async def change(_: int) -> None:
        await asyncio.to_thread(rotate)

    await it.innocents_while(1 if not it.is_small else 10, change)


def _with_token_file(it: Stage, found: Json | None, token: Path) -> Json:
    cluster = (
        found["clusters"][0]["cluster"]
        if found
        else {"server": it.server.url, "insecure-skip-tls-verify": True}
    )
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


@scenario(starts=False)
async def door_of_the_extender_service(it: Stage) -> None:
    """The scheduler asks our extender service, at whose door 1000 strangers stand and send what is no question"""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = it.folder / "extender.yaml"
    plugins = {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}, {"name": "NodePorts"}],
        }
    }
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": "behind", "plugins": plugins}],
            }
        )
    )
    certificates = it.folder / "certificates"
    service = process(
        it.folder / "extender.log",
        "extender",
        f"--config={config}",
        f"--kubeconfig={it.server.kubeconfig}",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
    )
    try:
        await _open(it, port)
        tls = {
            "certFile": str(certificates / "client.crt"),
            "keyFile": str(certificates / "client.key"),
            "caFile": str(certificates / "ca.crt"),
        }
        extender = {
            "urlPrefix": f"https://127.0.0.1:{port}", "filterVerb": "filter", "enableHTTPS": True,
            "tlsConfig": tls, "httpTimeout": "10s", "nodeCacheCapable": True,
        }  # fmt: skip
        await it.start(more={"extenders": [extender]})
        flood = await silence(port, it.n(1000, least=10), UNVERIFIED)

        async def shout(number: int) -> None:
            body = b"[" * (10_000 if number % 2 else 1_000_000)
            with suppress(OSError):
                async with it.api.session.post(f"https://127.0.0.1:{port}/filter", data=body) as answer:
                    await answer.read()

        await it.innocents_while(it.n(100, least=10), shout)
        for transport in flood:
            transport.close()
        it.expect(service.poll() is None, f"the extender service ends: {service.poll()}")
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait()


async def _open(it: Stage, port: int) -> None:
    """Wait until the extender service answers."""
    for _ in range(600):
        with suppress(OSError):
            async with it.api.session.get(f"https://127.0.0.1:{port}/readyz") as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.1)
    raise LookupError("the extender service does not become ready")
