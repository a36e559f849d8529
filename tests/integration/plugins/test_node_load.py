"""NodeLoad in a running daemon, fed by a metrics API; the time is virtual."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
METRICS = "nodes.metrics.k8s.io"
LABELS = {"plugin": "NodeLoad", "profile": "custom-scheduler"}


def configuration(**args: Any) -> str:
    profile = {
        "schedulerName": "custom-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "NodeLoad", "weight": 100}]}},
        "pluginConfig": [{"name": "NodeLoad", "args": {"resources": [{"name": "cpu"}], **args}}],
    }
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )


async def serve_metrics(it: Cluster, usage: Mapping[str, str]) -> None:
    """Let the API server answer for metrics-server: node name -> cpu in use."""
    it.server.store.create(
        DEFINITIONS,
        {
            "metadata": {
                "name": METRICS,
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/metrics"},
            },
            "spec": {
                "group": "metrics.k8s.io",
                "scope": "Cluster",
                "names": {"plural": "nodes", "singular": "node", "kind": "NodeMetrics"},
                "versions": [
                    {
                        "name": "v1beta1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            }
                        },
                    }
                ],
            },
        },
    )

    def is_served() -> bool:
        try:
            return not it.server.store.list(METRICS)
        except KeyError:
            return False

    await it.until(is_served)
    for name, cpu in usage.items():
        it.server.store.create(METRICS, {"metadata": {"name": name}, "usage": {"cpu": cpu}})


def shown(daemon: Daemon, metric: str) -> float | None:
    return daemon.metrics.registry.get_sample_value(f"custom_scheduler_plugin_refresh_{metric}", LABELS)


def all_known(daemon: Daemon) -> bool:
    return daemon.parts.cache.table.n_nodes > 0 and shown(daemon, "nodes_without_data") == 0


async def placed(it: Cluster, *names: str) -> Counter[str]:
    it.add_pods(*(pod_object(name, cpu="1") for name in names))
    await it.until(lambda: all(it.node_of(name) for name in names))
    return Counter(it.node_of(name) for name in names)


async def test_a_burst_fills_the_idle_nodes_evenly_and_leaves_the_busy_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(*(node_object(name, cpu="16") for name in ("idle-1", "idle-2", "busy")))
        await serve_metrics(it, {"idle-1": "1", "idle-2": "1", "busy": "12"})
        async with it.daemon(configuration()) as daemon:
            await it.until(lambda: all_known(daemon))

            assert await placed(it, *(f"web-{n}" for n in range(12))) == {"idle-1": 6, "idle-2": 6}


async def test_without_a_metrics_api_pods_are_placed_and_it_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reported = "Plugin could not refresh its data"
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        async with it.daemon(configuration(refreshPeriod="10s")) as daemon:
            await placed(it, "first")
            await it.until(lambda: shown(daemon, "failures_total") == 4)

            assert shown(daemon, "total") == 4
            assert shown(daemon, "nodes_without_data") == 2
            assert 30 <= (shown(daemon, "age_seconds") or 0) < 40
            (record,) = [each for each in caplog.records if each.message == reported]
            assert record.exc_info is None
            assert "GET /apis/metrics.k8s.io/v1beta1/nodes" in record.error  # type: ignore[attr-defined]

            await serve_metrics(it, {"a": "3", "b": "0"})
            await it.until(lambda: all_known(daemon))
            assert "Plugin has fresh data again" in caplog.messages
            assert (shown(daemon, "age_seconds") or 0) < 10
            assert await placed(it, "second") == {"b": 1}
            assert shown(daemon, "failures_total") in {4, 5}


async def test_stale_data_score_no_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        await serve_metrics(it, {"a": "3", "b": "0"})
        async with it.daemon(configuration(refreshPeriod="10s")) as daemon:
            await it.until(lambda: all_known(daemon))
            it.server.store.delete(DEFINITIONS, METRICS)

            await it.until(lambda: shown(daemon, "nodes_without_data") == 2)
            assert (shown(daemon, "age_seconds") or 0) > 30
