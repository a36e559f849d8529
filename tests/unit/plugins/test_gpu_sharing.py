"""Pods that request parts of GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.gpu_sharing import NOTHING, GpuRequest, Gpus, GpuSharing, gpu_request
from scheduler.framework import SKIP, Code, CycleState, EventResource
from scheduler.testing.contract import verdict
from tests.support.builders import node, pod
from tests.unit.plugins.gpu_clusters import GpuCluster, gpu_node, gpu_pod
from tests.unit.plugins.plugin_calls import requeues


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        pytest.param({}, NOTHING, id="nothing"),
        pytest.param({"gpu-milli": "300"}, GpuRequest(300, 1), id="a share"),
        pytest.param({"gpu-count": "2"}, GpuRequest(1000, 2), id="whole ones"),
        pytest.param({"gpu-milli": "0", "gpu-count": "2"}, NOTHING, id="none of two"),
        pytest.param(
            {"gpu-milli": "1000", "gpu-count": "1", "gpu-card-model": "T4|G2|"},
            GpuRequest(1000, 1, frozenset({"T4", "G2"})),
            id="one of a model",
        ),
        pytest.param(
            {"gpu-milli": "1001"},
            GpuRequest(
                fault="annotation alibabacloud.com/gpu-milli must be a number from 0 to 1000, was '1001'"
            ),
            id="more than one of one",
        ),
        pytest.param(
            {"gpu-count": "-1"},
            GpuRequest(
                fault="annotation alibabacloud.com/gpu-count must be a number from 0 to 1024, was '-1'"
            ),
            id="no number",
        ),
    ],
)
def test_the_gpus_that_annotations_request(annotations: dict[str, str], request_: GpuRequest):
    full = {f"alibabacloud.com/{key}": value for key, value in annotations.items()}

    assert gpu_request(pod("p", annotations=full)) == request_


_NODES = (gpu_node("none", 0), gpu_node("one", 1), gpu_node("two", 2, "T4"), gpu_node("full", 1))
_THERE = {"two": [gpu_pod("a", 700, gpus="0")], "full": [gpu_pod("b", 1000, gpus="0")]}


@pytest.mark.parametrize(
    ("wanted", "refused"),
    [
        pytest.param(
            gpu_pod("p", 300),
            {"none": "Too few GPUs", "full": "Insufficient GPU shares"},
            id="a share fits beside another",
        ),
        pytest.param(
            gpu_pod("p", 1000, 2),
            {
                "none": "Too few GPUs",
                "one": "Too few GPUs",
                "two": "Insufficient GPU shares",
                "full": "Too few GPUs",
            },
            id="two whole ones are not there",
        ),
        pytest.param(
            gpu_pod("p", 300, models="T4"),
            dict.fromkeys(("none", "one", "full"), "node(s) had GPUs of another model"),
            id="of one model",
        ),
        pytest.param(
            gpu_pod("p", 400, 2),
            {
                "none": "Too few GPUs",
                "one": "Too few GPUs",
                "two": "Insufficient GPU shares",
                "full": "Too few GPUs",
            },
            id="parts of two are of different ones",
        ),
    ],
)
def test_nodes_without_enough_gpus_are_rejected(wanted: Any, refused: dict[str, str]):
    cluster = GpuCluster(_NODES, _THERE)
    outcomes = verdict(cluster.made(GpuSharing), wanted, cluster.snapshot).outcomes

    found = {
        each.name: outcome.reasons[0]
        for each, outcome in zip(_NODES, outcomes, strict=True)
        if outcome.reasons
    }
    assert found == refused


def test_pods_without_gpus_are_skipped():
    cluster = GpuCluster(_NODES)

    assert cluster.made(GpuSharing).pre_filter(CycleState(), pod("p"), cluster.snapshot) is SKIP


def test_a_pod_with_an_invalid_request_is_rejected_with_the_reason():
    cluster = GpuCluster(_NODES)
    status = cluster.made(GpuSharing).pre_filter(
        CycleState(), pod("p", annotations={"alibabacloud.com/gpu-milli": "half"}), cluster.snapshot
    )

    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert "must be a number from 0 to 1000, was 'half'" in status.message


@pytest.mark.parametrize(
    ("selection", "gpu"),
    [
        pytest.param("BestFit", (1,), id="the one with the least left"),
        pytest.param("WorstFit", (2,), id="the one with the most left"),
    ],
)
def test_the_gpu_is_selected(selection: str, gpu: tuple[int, ...]):
    cluster = GpuCluster(
        [gpu_node("n", 3)], {"n": [gpu_pod("a", 500, gpus="0"), gpu_pod("b", 600, gpus="1")]}
    )
    plugin = cluster.made(GpuSharing, selection=selection)

    placed = cluster.place(plugin, gpu_pod("p", 300), "n")

    assert Gpus.of(cluster.objects).given(placed) == gpu


def test_the_random_gpu_is_constant_for_a_pod_and_differs_between_pods():
    given = set()
    for number in range(20):
        twice = []
        for _ in range(2):
            cluster = GpuCluster([gpu_node("n", 4)])
            placed = cluster.place(
                cluster.made(GpuSharing, selection="Random"), gpu_pod(f"p{number}", 300), "n"
            )
            twice.append(Gpus.of(cluster.objects).given(placed))
        assert twice[0] == twice[1]
        given.add(twice[0])

    assert given == {(0,), (1,), (2,), (3,)}


def test_an_allocated_gpu_is_taken_until_it_is_released():
    cluster = GpuCluster([gpu_node("n", 1)])
    plugin = cluster.made(GpuSharing)
    first = cluster.place(plugin, gpu_pod("first", 600), "n")

    assert verdict(plugin, gpu_pod("p", 600), cluster.snapshot).outcomes[0].reasons == (
        "Insufficient GPU shares",
    )

    plugin.unreserve(CycleState(), first, "n")
    cluster.table.remove_pod(0, first.uid)
    assert verdict(plugin, gpu_pod("p", 600), cluster.snapshot).outcomes[0].reasons == ()


def test_the_choice_of_an_earlier_attempt_is_ignored():
    cluster = GpuCluster([gpu_node("n", 2)], {"n": [gpu_pod("a", 1000, gpus="1")]})
    plugin = cluster.made(GpuSharing)

    placed = cluster.place(plugin, gpu_pod("p", 300, gpus="1"), "n")

    assert Gpus.of(cluster.objects).given(placed) == (0,)


def test_pods_without_recorded_gpus_count_on_the_fullest_gpus():
    cluster = GpuCluster(
        [gpu_node("n", 2)], {"n": [gpu_pod("a", 500, gpus="1"), gpu_pod("b", 400), gpu_pod("c", 100)]}
    )

    left = Gpus.of(cluster.objects).left(cluster.snapshot, cluster.snapshot.all_rows).left

    assert left.tolist() == [[1000, 0]]


@pytest.mark.parametrize(
    ("left", "helps"),
    [(gpu_pod("a", 100), True), (pod("a"), False)],
    ids=["that had a share", "that had none"],
)
def test_a_deleted_pod_requeues_pods_that_wait_for_gpus(left: Any, helps: bool):
    plugin = GpuCluster([]).made(GpuSharing)

    assert requeues(plugin, EventResource.ASSIGNED_POD, gpu_pod("p", 300), left, None) is helps


@pytest.mark.parametrize(
    ("new", "helps"),
    [
        pytest.param(gpu_node("n", 2, "T4"), True, id="that has them"),
        pytest.param(gpu_node("n", 1, "T4"), False, id="that has too few"),
        pytest.param(gpu_node("n", 2, "G2"), False, id="that has others"),
        pytest.param(node("n"), False, id="that has none"),
    ],
)
def test_a_node_requeues_pods_that_fit_on_it(new: Any, helps: bool):
    plugin = GpuCluster([]).made(GpuSharing)

    assert requeues(plugin, EventResource.NODE, gpu_pod("p", 1000, 2, models="T4"), None, new) is helps
