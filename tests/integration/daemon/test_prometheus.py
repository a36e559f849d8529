"""A real Prometheus reads a daemon that runs as a process of its own, over HTTPS: real time, real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from scheduler.tools.simulator.server import ApiServer
from tests.support.binaries import needed_binary
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program
from tests.support.ports import free_port
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

PATIENCE_SECONDS = 60.0
PODS = 3
OPEN_PATHS = "/healthz,/livez,/readyz,/metrics,/metrics/resources"  # the simulated API server reviews nothing


@dataclass(frozen=True)
class Running:
    """A daemon that has placed its pods, and how to read it.

    Attributes:
        port: of HTTPS on loopback.
    """

    port: int

    async def read(self, session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
        async with session.get(f"https://127.0.0.1:{self.port}{path}", ssl=False) as response:
            return response.status, await response.text()


@asynccontextmanager
async def running_daemon(folder: Path) -> AsyncIterator[Running]:
    async with ApiServer() as server:
        server.store.create("nodes", node_object("n1", cpu="8"))
        for number in range(PODS):
            server.store.create("pods", pod_object(f"web-{number}", cpu="1", memory="1Gi"))
        server.store.create("pods", pod_object("big", cpu="99"))
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        running = Running(free_port())
        command = (
            forked_program(), "run", "--kubeconfig", str(kubeconfig),
            "--bind-address", "127.0.0.1", "--secure-port", str(running.port),
            "--authorization-always-allow-paths", OPEN_PATHS,
        )  # fmt: skip

        async def settled() -> bool:
            pods = server.store.list("pods")
            return sum(bool(pod["spec"].get("nodeName")) for pod in pods) == PODS

        async with started(*command):
            await until(settled)
            yield running


async def test_promtool_finds_no_errors(tmp_path: Path) -> None:
    promtool = needed_binary("promtool", "Debian's package prometheus")

    async with running_daemon(tmp_path) as daemon, aiohttp.ClientSession() as session:
        for path in ("/metrics", "/metrics/resources"):
            status, text = await daemon.read(session, path)
            assert status == 200
            checking = await asyncio.create_subprocess_exec(
                promtool, "check", "metrics",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            complaints, _ = await checking.communicate(text.encode())
            assert (checking.returncode, complaints.decode()) == (0, "")


async def test_prometheus_scrapes_a_daemon_over_https(tmp_path: Path) -> None:
    prometheus = needed_binary("prometheus", "Debian's package prometheus")

    async with running_daemon(tmp_path) as daemon, aiohttp.ClientSession() as session:
        port = free_port()
        command = (
            prometheus,
            f"--config.file={_configuration(tmp_path, daemon)}",
            f"--storage.tsdb.path={tmp_path / 'series'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )

        async def api(path: str, **params: str) -> Any:
            url = f"http://127.0.0.1:{port}/api/v1/{path}"
            async with session.get(url, params=params) as response:
                return (await response.json())["data"]

        async def both_are_up() -> bool:
            try:
                targets = (await api("targets"))["activeTargets"]
            except (aiohttp.ClientConnectionError, aiohttp.ContentTypeError):  # not there, or not ready
                return False
            return [target["health"] for target in targets] == ["up", "up"]

        async def value_of(query: str) -> list[float]:
            return [float(found["value"][1]) for found in (await api("query", query=query))["result"]]

        async with started(*command):
            await until(both_are_up)
            reported = {
                'scheduler_schedule_attempts_total{result="scheduled"}': [PODS],
                "scheduler_pod_scheduling_attempts_count": [PODS],
                'scheduler_pod_scheduling_attempts_bucket{le="1"}': [PODS],
                'scheduler_pending_pods{queue="unschedulable"}': [1],
                'scheduler_unschedulable_pods{plugin="NodeResourcesFit"}': [1],
                'sum(kube_pod_resource_request{resource="cpu",node="n1"})': [PODS],
                'kube_pod_resource_request{pod="big",node="",unit="cores"}': [99],
            }
            found: dict[str, list[float]] = {}

            async def all_are_read() -> bool:
                found.update({query: await value_of(query) for query in reported})
                return found == reported

            try:
                await until(all_are_read)  # the first scrape may have been too early
            except TimeoutError:
                assert found == reported


def _configuration(folder: Path, daemon: Running) -> Path:
    jobs = [
        {
            "job_name": path.strip("/").replace("/", "-"),
            "scheme": "https",
            "metrics_path": path,
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [f"127.0.0.1:{daemon.port}"]}],
        }
        for path in ("/metrics", "/metrics/resources")
    ]
    written = folder / "prometheus.yml"
    written.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    return written
