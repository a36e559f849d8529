"""Topology spread constraints in a running daemon: by Services and by pods, with requeueing by events."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster, cluster

if TYPE_CHECKING:
    from pathlib import Path

ZONE = "topology.kubernetes.io/zone"
WEB = {"app": "web"}
LARGE_AND_SMALL = {"large": "64", "small": "8"}
OWN = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": WEB},
}


def add_zones(it: Cluster) -> None:
    it.add_nodes(*(node_object(name, cpu=cpu, labels={ZONE: name}) for name, cpu in LARGE_AND_SMALL.items()))


def add_service(it: Cluster) -> None:
    spec = {"selector": WEB, "ports": [{"port": 80}]}
    it.server.store.create("services", {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})


async def zones_of_six(it: Cluster) -> Counter[str]:
    it.add_pods(*(pod_object(f"web-{n}", cpu="1", labels=WEB) for n in range(6)))
    await it.until(lambda: all(pod["spec"].get("nodeName") for pod in it.pods()))
    return Counter(pod["spec"]["nodeName"] for pod in it.pods())


async def test_pods_of_a_service_are_spread_by_default(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        add_zones(it)
        async with it.daemon():
            alone = await zones_of_six(it)
    async with cluster(tmp_path) as it:
        add_zones(it)
        add_service(it)
        async with it.daemon():
            together = await zones_of_six(it)

    assert alone["large"] > together["large"]
    assert abs(together["large"] - together["small"]) <= 2


@pytest.mark.parametrize("missing", ["services", "replicasets", "statefulsets", "replicationcontrollers"])
async def test_a_server_that_lacks_a_kind_does_not_keep_pods_from_being_placed(
    missing: str, tmp_path: Path
) -> None:
    async with cluster(tmp_path) as it:
        it.server.faults.refuse(404, lambda info: info.resource == missing)
        add_zones(it)
        async with it.daemon():
            assert (await zones_of_six(it)).total() == 6


async def test_a_pod_that_fits_in_no_zone_is_placed_after_another_is_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(
            node_object("a", labels={ZONE: "a"}), node_object("b", labels={ZONE: "b"}, unschedulable=True)
        )
        async with it.daemon():
            it.add_pods(pod_object("web-1", labels=WEB, topologySpreadConstraints=[OWN]))
            await it.until(lambda: it.node_of("web-1"))
            it.add_pods(pod_object("web-2", labels=WEB, topologySpreadConstraints=[OWN]))
            await it.until(lambda: it.condition("web-2"))
            assert (
                "1 node(s) didn't match pod topology spread constraints" in it.condition("web-2")["message"]
            )

            it.server.store.delete("pods", "web-1", grace_period_seconds=0)
            await it.until(lambda: it.node_of("web-2"))
