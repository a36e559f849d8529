"""CapacityScheduling in a running daemon: teams borrow, take back, and never get more than their max; time is virtual."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

EXAMPLE = MANIFESTS / "examples" / "elastic-quota"
DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "elasticquotas.yaml").read_text())
CRDS, QUOTAS = "customresourcedefinitions.apiextensions.k8s.io", "elasticquotas.scheduling.x-k8s.io"


def quota(namespace: str, min_: int, max_: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": namespace, "namespace": namespace},
        "spec": {"min": {"cpu": min_}, "max": {"cpu": str(max_)}},
    }


@asynccontextmanager
async def teams(folder: Path, **quotas: tuple[int, int]) -> AsyncIterator[Cluster]:
    """A cluster with quotas: namespace -> (min, max), and 12 cpus."""
    async with cluster(folder, kubelet=True) as it:
        await it.define(DEFINITION)
        for namespace, (min_, max_) in quotas.items():
            it.server.store.create("namespaces", {"metadata": {"name": namespace}})
            it.server.store.create(QUOTAS, quota(namespace, min_, max_))
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(3)))
        async with it.daemon((EXAMPLE / "scheduler.yaml").read_text()):
            yield it


def placed(it: Cluster, namespace: str) -> set[str]:
    """The pods of a namespace that are on a node and stay there."""
    return {
        pod["metadata"]["name"]
        for pod in it.pods()
        if pod["metadata"]["namespace"] == namespace
        and pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
    }


def told(it: Cluster, name: str, namespace: str) -> str:
    conditions = it.pod(name, namespace).get("status", {}).get("conditions", ())
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def several(namespace: str, count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        pod_object(f"{namespace}{number}", namespace=namespace, cpu="1", **fields) for number in range(count)
    ]


async def test_borrowed_capacity_is_reclaimed_across_namespaces(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(2, 6), b=(4, 4)) as it:
        it.add_pods(*several("a", 6, priority=1000))
        await it.until(lambda: len(placed(it, "a")) == 6)

        it.add_pods(*several("b", 4))
        await it.until(lambda: len(placed(it, "b")) == 4)
        assert len(placed(it, "a")) == 2


async def test_max_is_never_exceeded_and_a_deleted_pod_requeues_waiting_pods(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(1, 2), b=(9, 9)) as it:
        it.add_pods(*several("a", 3))
        await it.until(lambda: any("more than Max" in told(it, f"a{number}", "a") for number in range(3)))
        await asyncio.sleep(30)
        [waiting] = {"a0", "a1", "a2"} - placed(it, "a")
        assert told(it, waiting, "a").startswith(
            f"0/3 nodes are available: Pod a/{waiting} is rejected in PreFilter because ElasticQuota a is more than Max."
        )

        it.server.store.delete("pods", min(placed(it, "a")), "a")
        await it.until(lambda: waiting in placed(it, "a"), seconds=60)
        assert len(placed(it, "a")) == 2


async def test_another_quota_requeues_waiting_pods(tmp_path: Path) -> None:
    async with teams(tmp_path, a=(1, 1), b=(9, 9)) as it:
        it.add_pods(*several("a", 2))
        await it.until(lambda: any("more than Max" in told(it, f"a{number}", "a") for number in range(2)))
        it.server.store.patch(QUOTAS, "a", {"spec": {"max": {"cpu": 2}}}, namespace="a")

        await it.until(lambda: len(placed(it, "a")) == 2, seconds=30)


async def test_a_missing_kind_is_named_and_used_once_it_exists(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with cluster(tmp_path) as it, it.daemon((EXAMPLE / "scheduler.yaml").read_text()):
            it.add_nodes(node_object("n"))
            it.add_pods(*several("default", 1))
            await it.until(lambda: placed(it, "default"))
            await asyncio.sleep(10)
            [said] = [each for each in caplog.records if "does not serve this kind" in each.message]
            assert vars(said)["resource"] == QUOTAS
            assert vars(said)["api_version"] == "scheduling.x-k8s.io/v1alpha1"

            await it.define(DEFINITION)
            it.server.store.create(QUOTAS, quota("default", 1, 1))
            await asyncio.sleep(60)
            it.add_pods(pod_object("late", cpu="1"))
            await it.until(lambda: "is more than Max" in told(it, "late", "default"))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"min": {"cpu": "many"}}, "spec.min.cpu"),
        ({"max": {"cpu": True}}, "spec.max.cpu"),
        ({"max": ["cpu"]}, "spec.max"),
    ],
    ids=["no quantity", "neither number nor text", "no mapping"],
)
async def test_an_invalid_quota_is_refused_at_its_field(tmp_path: Path, spec: Any, field: str) -> None:
    async with cluster(tmp_path) as it:
        await it.define(DEFINITION)
        with pytest.raises(StatusError, match=field):
            it.server.store.create(QUOTAS, {**quota("default", 1, 1), "spec": spec})


async def test_the_example_is_accepted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.define(DEFINITION)
        for each in yaml.safe_load_all((EXAMPLE / "teams.yaml").read_text()):
            it.server.store.create("namespaces" if each["kind"] == "Namespace" else QUOTAS, each)

        assert {each["metadata"]["name"] for each in it.server.store.list(QUOTAS)} == {
            "research",
            "shop",
            "reports",
        }
