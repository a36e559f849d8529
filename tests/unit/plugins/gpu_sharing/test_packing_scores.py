from __future__ import annotations

from typing import Any

import pytest

from plugins.gpu_scores import (
    GpuShareBestFit,
    GpuShareClustering,
    GpuShareDotProduct,
    GpuSharePacking,
    RandomNode,
)
from scheduler.framework import CycleState
from tests.support.builders import pod
from tests.unit.plugins.gpu_sharing.gpu_clusters import GpuCluster, gpu_node, gpu_pod

NODES = (gpu_node("empty", 8), gpu_node("shared", 2), gpu_node("whole", 4))
THERE = {"shared": [gpu_pod("a", 300, gpus="0")], "whole": [gpu_pod("b", 1000, 2, gpus="0-1")]}


@pytest.mark.parametrize(
    ("plugin", "wanted", "expected"),
    [
        # (1 - 0.5 * (cpu left - 1)/128 - 0.5 * (gpu left - 0.5)/8) * 100, truncated
        pytest.param(GpuShareBestFit, gpu_pod("p", 500), [28, 68, 66], id="best fit"),
        # (1 - (cpu left/128 * 64/128 + gpu left/8 * 0.5/8) / 2) * 100, truncated
        pytest.param(GpuShareDotProduct, gpu_pod("p", 500, cpu="60"), [85, 87, 87], id="dot product"),
        pytest.param(GpuSharePacking, gpu_pod("p", 500), [25, 93, 49], id="packing a share"),
        pytest.param(GpuSharePacking, gpu_pod("p", 1000), [25, 49, 49], id="packing a whole one"),
        pytest.param(GpuSharePacking, pod("p", cpu="1"), [0, 0, 0], id="packing without GPUs"),
        # 25 for each of: the only pod of its kind 3, among others 2, unused 1; and 25 * used / 8
        pytest.param(GpuShareClustering, gpu_pod("p", 500), [25, 94, 18], id="clustering of shares"),
        pytest.param(GpuShareClustering, gpu_pod("p", 1000, 2), [25, 19, 93], id="clustering of pairs"),
        pytest.param(GpuShareClustering, pod("p", cpu="1"), [0, 0, 0], id="clustering without GPUs"),
    ],
)
def test_scores(plugin: type[Any], wanted: Any, expected: list[int]):
    cluster = GpuCluster(NODES, THERE)

    snapshot = cluster.snapshot

    assert cluster.made(plugin).score(CycleState(), wanted, snapshot, snapshot.all_rows).tolist() == expected


def test_any_node_may_be_chosen_at_random():
    cluster = GpuCluster(NODES)
    plugin, snapshot = cluster.made(RandomNode), cluster.snapshot
    chosen = []
    for number in range(60):
        raw = plugin.score(CycleState(), pod(f"p-{number}"), snapshot, snapshot.all_rows)
        scores = plugin.normalize(CycleState(), pod(f"p-{number}"), raw, snapshot.all_rows).tolist()
        assert sorted(scores) == [0, 0, 100]
        chosen.append(scores.index(100))

    assert all(chosen.count(row) > 8 for row in range(3))
