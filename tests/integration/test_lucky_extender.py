"""The extender of a well-known tutorial, as shipped: random nodes, and all pods run in the end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import yaml

from scheduler.app.daemon import Daemon
from scheduler.client.connect import connect
from scheduler.clock import SystemClock
from scheduler.configuration.load import parse
from scheduler.configuration.overrides import with_leader_election
from scheduler.simulator.clusters import heterogeneous
from scheduler.simulator.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "lucky-extender"
PATIENCE_SECONDS = 90.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@asynccontextmanager
async def the_extender(port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE / "lucky_extender.py"),
        str(port),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield
    finally:
        process.kill()
        await process.wait()


async def run_the_tutorial(folder: Path) -> tuple[Counter[str], int]:
    """Return the phases of the Deployment's pods, and on how many nodes they are."""
    port = free_port()
    text = (EXAMPLE / "scheduler.yaml").read_text().replace("8888", str(port))
    configuration = with_leader_election(parse(text), leader_elect=False)
    stop = asyncio.Event()
    async with (
        the_extender(port),
        ApiServer(clock=SystemClock(), kubelet=True, controllers=True) as server,
        connect(str(server.write_kubeconfig(folder / "kubeconfig"))) as connection,
    ):
        for node in heterogeneous(30, seed=7):
            server.store.create("nodes", node)
        daemon = Daemon(connection, configuration, clock=SystemClock(), random=Random(1))
        running = asyncio.create_task(daemon.run(stop))
        deployment = yaml.safe_load((EXAMPLE / "deployment.yaml").read_text())
        server.store.create("deployments.apps", deployment)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    pods = server.store.list("pods")
                    phases = Counter(pod["status"]["phase"] for pod in pods)
                    if phases == {"Running": 20}:
                        return phases, len({pod["spec"]["nodeName"] for pod in pods})
                    await asyncio.sleep(0.1)
        finally:
            stop.set()
            await running


def test_all_pods_of_the_tutorial_run_on_lucky_nodes(tmp_path: Path) -> None:
    phases, nodes = asyncio.run(run_the_tutorial(tmp_path))
    assert phases == {"Running": 20}
    assert nodes > 3
