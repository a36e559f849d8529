"""Node sets in a running daemon: where the pods of a Deployment go, what requeues them, and how it is scaled down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from scheduler.daemon.app.live_explain import live_explanation
from tests.support.builders import node_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from tests.support.daemon_harness import Cluster

EXAMPLE = Path(__file__).parents[3] / "manifests" / "examples" / "node-preference"
CONFIGURATION = (EXAMPLE / "scheduler.yaml").read_text()
ANNOTATION = "custom-scheduler.io/node-preference"
COST = "controller.kubernetes.io/pod-deletion-cost"


def web(**spec: Any) -> dict[str, Any]:
    """Return the Deployment of the example with other fields of its spec."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "web.yaml").read_text())
    return {"metadata": found["metadata"], "spec": {**found["spec"], **spec}}


def on_sets(it: Cluster) -> tuple[int, int, int]:
    """Return the pods on spot nodes, on on-demand nodes and on none."""
    nodes = [pod["spec"].get("nodeName", "") for pod in it.pods()]
    spot, on_demand = (sum(name.startswith(prefix) for name in nodes) for prefix in ("spot", "demand"))
    return spot, on_demand, nodes.count("")


def add_nodes(it: Cluster, *names: str) -> None:
    for name in names:
        capacity = "spot" if name.startswith("spot") else "on-demand"
        it.add_nodes(node_object(name, labels={"capacity": capacity}))


async def test_the_pods_of_a_deployment_stay_within_the_limits_of_their_sets(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True, controllers=True) as it, it.daemon(CONFIGURATION) as daemon:
        add_nodes(it, "spot-1", "spot-2", "demand-1")
        it.server.store.create("deployments", web())
        await it.until(lambda: on_sets(it) == (3, 7, 0))

        it.server.store.patch("nodes", "demand-1", {"spec": {"unschedulable": True}})
        it.server.store.scale("deployments", "web", 14)
        await it.until(lambda: on_sets(it) == (4, 7, 3))
        pending = next(pod["metadata"]["name"] for pod in it.pods() if not pod["spec"].get("nodeName"))
        await it.until(lambda: it.condition(pending))
        message = it.condition(pending)["message"]
        assert "2 node(s) were in node set spot, which has 4 of at most 4 pods" in message
        explained = live_explanation(daemon, f"default/{pending}", LoopClock())
        assert "node set spot has 4 of at most 4 pods (maxReplicas 30% of 14 replicas" in str(explained)

        # More replicas allow more pods on spot.
        it.server.store.scale("deployments", "web", 17)
        await it.until(lambda: on_sets(it) == (5, 7, 5))
        add_nodes(it, "demand-2")
        await it.until(lambda: on_sets(it) == (5, 12, 0))


async def test_a_scale_down_follows_the_sets(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True, controllers=True) as it, it.daemon(CONFIGURATION):
        add_nodes(it, "spot-1", "demand-1")
        it.server.store.create("deployments", web())
        await it.until(
            lambda: all(COST in pod["metadata"].get("annotations", {}) for pod in it.pods()) and it.pods()
        )
        assert on_sets(it) == (3, 7, 0)
        patches = [
            request
            for request in it.server.requests.matching(method="PATCH")
            if "/pods/" in request.path and not request.path.endswith("/status")
        ]
        assert len(patches) == 10, "one for each pod"

        for replicas, expected in ((7, (2, 5, 0)), (5, (1, 4, 0)), (2, (0, 2, 0))):
            it.server.store.scale("deployments", "web", replicas)
            await it.until(lambda expected=expected: on_sets(it) == expected, seconds=120.0)


async def test_a_corrected_annotation_requeues_the_pods(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True, controllers=True) as it, it.daemon(CONFIGURATION):
        add_nodes(it, "spot-1", "demand-1")
        made = web(replicas=2)
        valid = made["metadata"]["annotations"][ANNOTATION]
        made["metadata"] = {**made["metadata"], "annotations": {ANNOTATION: valid.replace("30%", "30 %")}}
        it.server.store.create("deployments", made)
        await it.until(
            lambda: len(it.pods()) == 2 and all(it.condition(pod["metadata"]["name"]) for pod in it.pods())
        )
        message = it.condition(it.pods()[0]["metadata"]["name"])["message"]
        assert "sets[0].maxReplicas: a number of replicas from 0" in message

        it.server.store.patch("deployments", "web", {"metadata": {"annotations": {ANNOTATION: valid}}})
        await it.until(lambda: on_sets(it) == (0, 2, 0))
