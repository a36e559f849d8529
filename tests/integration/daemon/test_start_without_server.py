"""A daemon that starts while the API server is away, as a process: it waits and logs it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest

from scheduler.tools.simulator.access.authentication import write_kubeconfig
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program
from tests.support.ports import free_port
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

PATIENCE_SECONDS = 60.0
CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@asynccontextmanager
async def daemon(folder: Path, server_port: int, pages: int) -> AsyncIterator[asyncio.subprocess.Process]:
    kubeconfig = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{server_port}", None, "admin")
    with (folder / "log").open("wb") as log:
        async with started(
            forked_program(), "run", "--kubeconfig", kubeconfig,
            "--config-map", "default/custom-scheduler", "--secure-port=0", f"--http-port={pages}",
            "--bind-address=127.0.0.1", "--leader-elect=false", stderr=log,
        ) as process:  # fmt: skip
            yield process


async def page(pages: int, path: str) -> tuple[int, str]:
    """What a page says; status 0 where nobody serves it."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{pages}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return 0, ""


async def test_it_waits_without_being_ready_and_places_pods_once_the_server_is_there(tmp_path: Path) -> None:
    server_port, pages = free_port(), free_port()

    async def is_ready() -> bool:
        return (await page(pages, "/readyz"))[0] == 200

    async with daemon(tmp_path, server_port, pages) as process:

        async def lives() -> bool:
            return (await page(pages, "/livez"))[0] == 200

        await until(lives)
        assert (await page(pages, "/readyz"))[0] == 500
        assert "waiting for the API server" in (await page(pages, "/readyz/api-server"))[1]
        assert (await page(pages, "/metrics"))[0] == 404
        assert process.returncode is None

        async with ApiServer(port=server_port) as server:
            server.store.create(
                "configmaps",
                {
                    "metadata": {"name": "custom-scheduler", "namespace": "default"},
                    "data": {"config.yaml": CONFIGURATION},
                },
            )
            server.store.create("nodes", node_object("n1"))
            server.store.create("pods", pod_object("web"))

            async def is_placed() -> bool:
                return bool(server.store.get("pods", "web")["spec"].get("nodeName"))

            await until(is_placed)
            await until(is_ready)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await process.wait() == 0
    assert "Waiting for the API server" in (tmp_path / "log").read_text()


async def test_a_daemon_that_waits_for_the_server_ends_cleanly_on_a_signal(tmp_path: Path) -> None:
    pages = free_port()
    async with daemon(tmp_path, free_port(), pages) as process:

        async def lives() -> bool:
            return (await page(pages, "/livez"))[0] == 200

        await until(lives)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def run_for_a_while(until_said: bytes | None, *flags: str, **environment: str) -> list[str]:
    """Run the daemon until it has said something, or with None until it ends by itself; return its log, a line each."""

    async def scenario() -> bytes:
        inherited = {name: os.environ[name] for name in os.environ.keys() - {"KUBECONFIG"}}
        process = await asyncio.create_subprocess_exec(
            forked_program(), "run", "--secure-port=0", "--leader-elect=false", *flags,
            stderr=asyncio.subprocess.PIPE, env={**inherited, **environment},
        )  # fmt: skip
        assert process.stderr is not None
        said = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (until_said is None or until_said not in said) and (
                line := await process.stderr.readline()
            ):
                said += line
            if until_said is not None and process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            said += await process.stderr.read()
            await process.wait()
        return said

    return asyncio.run(scenario()).decode().splitlines()


def test_an_unreachable_server_is_reported_in_one_line_for_every_source(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", nobody, None, "admin")

    away, stopped = run_for_a_while(b"Waiting for the API server", KUBECONFIG=str(kubeconfig))

    assert "Waiting for the API server" in away
    assert f"{nobody}: Connection refused" in away
    assert "Stopped" in stopped


def test_without_a_server_the_ways_to_name_one_are_listed(tmp_path: Path) -> None:
    (said,) = run_for_a_while(None, HOME=str(tmp_path))

    assert said.startswith(
        "error: the API server: no address is configured: give --kubeconfig FILE, set $KUBECONFIG, or"
    )
