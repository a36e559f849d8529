"""Policies that score nodes for shared GPUs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.gpu_scores import (
    FragmentationGradientDescent,
    FragmentationGradientDescentArgs,
    GpuShareBestFit,
    GpuShareClustering,
    GpuShareDotProduct,
    GpuSharePacking,
    RandomNode,
)
from plugins.gpu_sharing import Gpus
from scheduler.framework import CycleState
from tests.support.builders import pod
from tests.unit.plugins.gpu_clusters import GpuCluster, gpu_node, gpu_pod
from tests.unit.plugins.plugin_calls import faults

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


SIZES = (100, 300, 500, 700, 1000)


def lost(cpu: int, left: list[int], model: str, typical: list[dict[str, Any]]) -> float:
    """The fragments of one node, computed pod by pod and GPU by GPU."""
    total = 0.0
    for kind in typical:
        fitting = [each for each in left if each >= kind["gpuMilli"]]
        fits = (
            kind["gpuMilli"] > 0
            and len(fitting) >= kind["gpuCount"]
            and cpu >= kind["milliCpu"]
            and (not kind["gpuModels"] or model in kind["gpuModels"])
        )
        total += kind["share"] * (sum(left) - sum(fitting) if fits else sum(left))
    return total / sum(kind["share"] for kind in typical)


def points(before: float, after: float) -> int:
    gained = before - after
    return int(100 / (1 + math.exp(-(gained if abs(gained) > 1e-6 else 0.0) / 1000)))


typical_pods = st.lists(
    st.fixed_dictionaries(
        {
            "milliCpu": st.sampled_from([0, 1000, 6000]),
            "gpuMilli": st.sampled_from([0, *SIZES]),
            "gpuCount": st.integers(1, 3),
            "gpuModels": st.sampled_from([[], ["T4"], ["T4", "G2"]]),
            "share": st.sampled_from([1, 2, 5]),
        }
    ),
    min_size=1,
    max_size=5,
)
used = st.lists(st.sampled_from([0, *SIZES]), min_size=1, max_size=4)


@given(typical=typical_pods, in_use=used, milli=st.sampled_from(SIZES), model=st.sampled_from(["T4", "G1"]))
def test_scores_and_gpus_equal_those_of_the_slow_rule(
    typical: list[dict[str, Any]], in_use: list[int], milli: int, model: str
):
    there = [gpu_pod(f"on-{gpu}", taken, gpus=str(gpu), cpu="1") for gpu, taken in enumerate(in_use) if taken]
    cluster = GpuCluster([gpu_node("other", 0), gpu_node("n", len(in_use), model, cpu="8")], {"n": there})
    plugin = cluster.made(FragmentationGradientDescent, typicalPods=typical)
    left, cpu = [1000 - taken for taken in in_use], 8000 - 1000 * len(there)
    wanted = gpu_pod("p", milli, cpu="2")

    choices = {}
    for gpu, each in enumerate(left):
        if each >= milli:
            then = [*left[:gpu], each - milli, *left[gpu + 1 :]]
            choices[gpu] = points(lost(cpu, left, model, typical), lost(cpu - 2000, then, model, typical))
    scores = plugin.score(CycleState(), wanted, cluster.snapshot, cluster.snapshot.all_rows)

    if choices and milli < 1000:
        best = max(choices.values())
        assert scores[1] == best
        placed = cluster.place(plugin, wanted, "n")
        assert Gpus.of(cluster.objects).given(placed) == (min(g for g in choices if choices[g] == best),)
    elif choices:
        assert scores[1] == next(iter(choices.values()))


@pytest.mark.parametrize(
    ("wanted", "better", "worse"),
    [
        pytest.param(gpu_pod("p", 500), "half-used", "unused", id="a half beside a half"),
        pytest.param(gpu_pod("p", 300), "third-used", "half-used", id="without more fragmentation"),
    ],
)
def test_a_pod_goes_where_the_fragmentation_grows_least(wanted: Any, better: str, worse: str):
    cluster = GpuCluster(
        [gpu_node("unused", 1), gpu_node("half-used", 1), gpu_node("third-used", 1)],
        {
            "half-used": [gpu_pod("a", 500, gpus="0")],
            "third-used": [gpu_pod("b", 200, gpus="0")],
        },
    )
    typical = [{"gpuMilli": 500, "gpuCount": 1}, {"gpuMilli": 1000, "gpuCount": 1}]
    plugin = cluster.made(FragmentationGradientDescent, typicalPods=typical)

    scores = plugin.score(CycleState(), wanted, cluster.snapshot, cluster.snapshot.all_rows).tolist()

    by_name = dict(zip(("unused", "half-used", "third-used"), scores, strict=True))
    assert by_name[better] > by_name[worse]


@pytest.mark.parametrize(
    ("given_args", "expected"),
    [
        pytest.param(
            {"gpuMilli": -1}, "typicalPods[0].gpuMilli: must be 0 or more, was -1", id="less than none"
        ),
        pytest.param({"share": 0}, "typicalPods[0].share: must be more than 0, was 0.0", id="no share"),
    ],
)
def test_invalid_arguments(given_args: dict[str, Any], expected: str):
    assert faults(FragmentationGradientDescentArgs, typicalPods=[given_args]) == [expected]
