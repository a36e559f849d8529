"""The daemon as a process of its own, killed in the middle of its work: real time, real sockets."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.tools.simulator.scenarios.clusters import uniform
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import pod_object
from tests.support.processes import started, until

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

NODES, PODS = 1000, 2000
PATIENCE_SECONDS = 120.0


def daemon_process(kubeconfig: Path) -> AbstractAsyncContextManager[object]:
    command = (sys.executable, "-m", "scheduler", "run", "--kubeconfig", kubeconfig, "--secure-port", "0")
    return started(*command, "--bind-address", "127.0.0.1", "--leader-elect=false")


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
