"""The daemon as a process of its own, killed in the middle of its work: real time, real sockets."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.simulator.scenarios.clusters import uniform
from scheduler.simulator.server import ApiServer
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

NODES, PODS = 1000, 2000
PATIENCE_SECONDS = 120.0


@asynccontextmanager
async def daemon_process(kubeconfig: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler", "run", "--kubeconfig", str(kubeconfig), "--secure-port", "0",
        "--bind-address", "127.0.0.1", "--leader-elect=false",
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


def placed(server: ApiServer) -> list[dict[str, Any]]:
    return [pod for pod in server.store.list("pods") if pod["spec"].get("nodeName")]


async def test_two_thousand_pods_are_placed_once_each_after_a_kill_of_the_daemon(tmp_path: Path) -> None:
    async with ApiServer(logged_requests=50_000) as server:
        for node in uniform(NODES, cpu="4", memory="16Gi", pods=20):
            server.store.create("nodes", node)
        for number in range(PODS):
            server.store.create("pods", pod_object(f"pod-{number}", cpu="1500m", memory="1Gi"))
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")

        async with daemon_process(kubeconfig) as first:
            await until(lambda: len(placed(server)) >= PODS // 4)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        survived = len(placed(server))
        assert survived < PODS, "it was killed too late to tell anything"

        async with daemon_process(kubeconfig) as second:
            await until(lambda: len(placed(server)) == PODS)
            second.send_signal(signal.SIGTERM)
            assert await second.wait() == 0

        binds = Counter(
            request.path
            for request in server.requests
            if request.path.endswith("/binding") and request.status == 201
        )
        on_node = Counter(pod["spec"]["nodeName"] for pod in placed(server))
        assert len(binds) == PODS
        assert set(binds.values()) == {1}, "no pod is bound twice"
        assert max(on_node.values()) == 2, "two of these pods fill a node"
