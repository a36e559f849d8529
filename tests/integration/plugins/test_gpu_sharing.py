"""Shares of GPUs in a running daemon: which GPUs a pod was given is written on it before it is bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

CONFIGURATION = Path(__file__).parents[3] / "manifests" / "examples" / "gpu-sharing" / "best-fit.yaml"
COUNT, MILLI, INDEX = (f"alibabacloud.com/gpu-{name}" for name in ("count", "milli", "index"))


def asking(name: str, milli: int) -> dict[str, Any]:
    return pod_object(name, annotations={MILLI: str(milli), COUNT: "1", "kept": "as it is"})


async def test_pods_get_their_gpus_as_annotations(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(CONFIGURATION.read_text()):
        it.add_nodes(
            node_object(
                "n",
                labels={"alibabacloud.com/gpu-card-model": "T4"},
                allocatable={"cpu": "4", "memory": "16Gi", "pods": "110", COUNT: "2"},
            )
        )
        for name, milli in (("a", 600), ("b", 600), ("c", 400), ("d", 500)):
            it.add_pods(asking(name, milli))
            await it.until(lambda name=name: it.node_of(name) or it.condition(name))

        given = {name: it.pod(name)["metadata"]["annotations"].get(INDEX) for name in "abcd"}
        assert given == {"a": "0", "b": "1", "c": "0", "d": None}
        assert it.pod("a")["metadata"]["annotations"]["kept"] == "as it is"
        assert it.condition("d")["message"].startswith("0/1 nodes are available: 1 Insufficient GPU shares.")
        written = [
            request
            for request in it.server.requests.matching(method="PATCH")
            if request.path.endswith("/pods/a")
        ]
        assert len(written) == 1
