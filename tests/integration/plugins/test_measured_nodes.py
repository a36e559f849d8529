"""Real exporters, a real Prometheus and the scheduler as a process of its own: pods go to the quieter node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import yaml

from scheduler.tools.simulator.server import ApiServer
from tests.integration.daemon.test_prometheus import OPEN_PATHS, Running
from tests.support.binaries import needed_binary
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program
from tests.support.node_exporters import DEVICE, node_exporter
from tests.support.ports import free_port
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PODS = 6
LABELS = 'plugin="NetworkTraffic",profile="custom-scheduler"'


def test_pods_go_to_the_quieter_node_and_are_placed_without_prometheus_too(tmp_path: Path) -> None:
    with node_exporter(busy=True) as loud, node_exporter(busy=False) as quiet:
        asyncio.run(_placed_by_traffic(tmp_path, {"loud": loud, "quiet": quiet}))


async def _placed_by_traffic(folder: Path, exporters: Mapping[str, int]) -> None:
    prometheus = needed_binary("prometheus", "Debian's package prometheus")
    port = free_port()
    async with ApiServer() as server, aiohttp.ClientSession() as session:
        for name in exporters:
            server.store.create("nodes", node_object(name))
        daemon = Running(free_port())
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")

        async def shown(metric: str, labels: str = LABELS) -> float:
            try:
                _, text = await daemon.read(session, "/metrics")
            except aiohttp.ClientConnectionError:
                return -1.0
            series = f"{metric}{{{labels}}} "
            return next(
                (float(line.split()[-1]) for line in text.splitlines() if line.startswith(series)), -1.0
            )

        async def data_are_missing_on(nodes: int) -> bool:
            # None while the cluster is being read.
            known = await shown("scheduler_cache_size", 'type="nodes"')
            return known == len(exporters) and (
                await shown("custom_scheduler_plugin_refresh_nodes_without_data") == nodes
            )

        async def place(kind: str) -> list[str]:
            names = [f"{kind}-{number}" for number in range(PODS)]
            for name in names:
                server.store.create("pods", pod_object(name, cpu="10m"))

            async def placed() -> bool:
                return all(server.store.get("pods", name)["spec"].get("nodeName") for name in names)

            await until(placed)
            return [server.store.get("pods", name)["spec"]["nodeName"] for name in names]

        scheduler = started(
            forked_program(), "run", "--kubeconfig", str(kubeconfig),
            "--config", str(_scheduler_configuration(folder, port)),
            "--bind-address", "127.0.0.1", "--secure-port", str(daemon.port),
            "--authorization-always-allow-paths", OPEN_PATHS,
        )  # fmt: skip
        async with scheduler:
            async with started(
                prometheus,
                f"--config.file={_prometheus_configuration(folder, exporters)}",
                f"--storage.tsdb.path={folder / 'series'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ):
                await until(lambda: data_are_missing_on(0))
                assert await place("measured") == ["quiet"] * PODS
            failures = await shown("custom_scheduler_plugin_refresh_failures_total")

            await until(lambda: data_are_missing_on(2))
            assert set(await place("blind")) <= {"loud", "quiet"}
            assert await shown("custom_scheduler_plugin_refresh_failures_total") > failures
            assert await shown("custom_scheduler_plugin_refresh_age_seconds") > 3


def _scheduler_configuration(folder: Path, port: int) -> Path:
    arguments = {
        "ip": f"127.0.0.1:{port}",
        "deviceName": DEVICE,
        "timeRange": 5,
        "refreshPeriod": "1s",
        "trafficPerPod": 0,
    }
    profile = {
        "schedulerName": "custom-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "NetworkTraffic", "weight": 100}]}},
        "pluginConfig": [{"name": "NetworkTraffic", "args": arguments}],
    }
    return _written(
        folder / "scheduler.yaml",
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        },
    )


def _prometheus_configuration(folder: Path, exporters: Mapping[str, int]) -> Path:
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": f"{name}:9100"}}
        for name, port in exporters.items()
    ]
    return _written(
        folder / "prometheus.yaml",
        {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "nodes", "static_configs": targets}],
        },
    )


def _written(path: Path, document: object) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path
