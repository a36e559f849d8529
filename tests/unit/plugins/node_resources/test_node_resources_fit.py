from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from plugins.node_resources.fit import NodeResourcesFit, NodeResourcesFitArgs
from scheduler.framework import ActionType, Code, CycleState, EventResource
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import faults, made, reasons, requeues, scores

GPU = "nvidia.com/gpu"


def fit(**args: Any) -> NodeResourcesFit:
    return made(NodeResourcesFit, **args)


def codes(each: Any, nodes: Any) -> list[Code]:
    plugin, state, snapshot = fit(), CycleState(), nodes.snapshot()
    plugin.pre_filter(state, each, snapshot)
    outcomes = plugin.filter(state, each, snapshot, snapshot.all_rows)
    return [outcomes.of(row).code for row in range(snapshot.n_nodes)]


def test_reasons_are_in_the_order_of_upstream():
    full = cluster(node("n", cpu="1", memory="1Gi", pods=0))
    greedy = pod(
        "p",
        cpu="2",
        memory="2Gi",
        requests={"ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi", GPU: 1, "example.com/a": 1},
    )

    assert reasons(fit(), greedy, full) == {
        "n": (
            "Too many pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient ephemeral-storage",
            "Insufficient example.com/a",
            "Insufficient hugepages-2Mi",
            "Insufficient nvidia.com/gpu",
        )
    }


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({"cpu": "2", "memory": "1Gi"}, ["needs 2 cpu, 1.5 free of 4"], id="cpu"),
        pytest.param({"memory": "6Gi"}, ["needs 6Gi memory, 3.5Gi free of 4Gi"], id="memory"),
        pytest.param(
            {"cpu": "9", "memory": "6Gi"},
            ["needs 9 cpu, 1.5 free of 4", "needs 6Gi memory, 3.5Gi free of 4Gi"],
            id="two at once, in the order of the reasons",
        ),
        pytest.param({"requests": {GPU: 9}}, [f"needs 9 {GPU}, 8 free of 8"], id="devices"),
        pytest.param(
            {"requests": {"example.com/a": 1}},
            ["needs 1 example.com/a, of which this node has none"],
            id="a resource that the node lacks",
        ),
        pytest.param({"cpu": "1500m"}, [], id="requests that fit"),
    ],
)
def test_the_missing_amount_is_reported(wanted: dict[str, Any], expected: list[str]):
    used = [pod("on", cpu="2500m", memory="512Mi", node="n")]
    snapshot = cluster(node("n", cpu="4", memory="4Gi", allocatable={GPU: "8"}), pods=used).snapshot()

    assert fit().why(pod("p", **wanted), snapshot, snapshot.node_info(0)) == expected
    assert fit().why(pod("p", **wanted), snapshot, None) is None


def test_the_pod_count_of_a_node_is_reported():
    used = [pod("on", node="n")]
    snapshot = cluster(node("n", pods=1), pods=used).snapshot()

    assert fit().why(pod("p"), snapshot, snapshot.node_info(0)) == ["has 1 pods, and is for 1"]


def test_a_pod_fits_into_exactly_the_free_amount():
    used = [pod("on", cpu="3", memory="1Gi", node="n")]
    nodes = cluster(node("n", cpu="4", memory="2Gi", pods=2), pods=used)

    assert reasons(fit(), pod("p", cpu="1", memory="1Gi"), nodes) == {}
    assert reasons(fit(), pod("p", cpu="1001m", memory="1Gi"), nodes) == {"n": ("Insufficient cpu",)}


def test_a_pod_without_requests_fits_on_an_overcommitted_node():
    nodes = cluster(node("n", cpu="1"), pods=[pod("on", cpu="9", node="n")])

    assert reasons(fit(), pod("p"), nodes) == {}


def test_a_request_above_the_allocatable_amount_is_unresolvable():
    nodes = cluster(
        node("used", cpu="4"), node("small", cpu="1"), node("full", cpu="4", pods=1), node("free", cpu="4"),
        pods=[pod("a", cpu="3", node="used"), pod("b", node="full")],
    )  # fmt: skip

    assert codes(pod("p", cpu="2"), nodes) == [
        Code.UNSCHEDULABLE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        Code.UNSCHEDULABLE,
        Code.SUCCESS,
    ]


def test_one_unresolvable_resource_makes_the_node_unresolvable():
    nodes = cluster(node("n", cpu="4", memory="1Gi", pods=0))

    assert codes(pod("p", cpu="1", memory="2Gi"), nodes) == [Code.UNSCHEDULABLE_AND_UNRESOLVABLE]


def test_negative_requests_keep_a_node_resolvable():
    odd = node("odd", cpu="1", memory="1Gi")
    nodes = cluster(odd, node("small", cpu="1"), pods=[pod("gives", cpu="-5", memory="1Gi", node="odd")])

    # What the small node lacks must not make the odd one unresolvable: it lacks memory only.
    assert codes(pod("p", cpu="2", memory="1Gi"), nodes) == [
        Code.UNSCHEDULABLE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    ]
    assert codes(pod("p", cpu="2"), nodes) == [Code.SUCCESS, Code.UNSCHEDULABLE_AND_UNRESOLVABLE]


def test_many_missing_resources_are_reported_for_each_node():
    resources = [f"example.com/r{number}" for number in range(9)]
    nodes = cluster(
        *(
            node(f"n{number}", allocatable=dict.fromkeys(resources[:number], 1))
            for number in range(len(resources) + 1)
        )
    )

    found = reasons(fit(), pod("p", requests=dict.fromkeys(resources, 1)), nodes)

    assert found == {
        f"n{number}": tuple(f"Insufficient {name}" for name in resources[number:])
        for number in range(len(resources))
    }


def test_a_resource_of_no_node_fits_only_beside_negative_requests():
    nodes = cluster(
        node("a"),
        node("b"),
        pods=[pod("odd", node="b", requests={"example.com/foo": -3, "example.com/bar": 2})],
    )

    assert reasons(fit(), pod("p", requests={"example.com/foo": 3}), nodes) == {
        "a": ("Insufficient example.com/foo",)
    }
    assert reasons(
        fit(), pod("p", requests={"example.com/bar": 1, "example.com/foo": 4}), nodes
    ) == dict.fromkeys("ab", ("Insufficient example.com/bar", "Insufficient example.com/foo"))


def test_ignored_resources_are_skipped_if_they_are_extended():
    nodes = cluster(node("n", cpu="1"))
    each = pod("p", cpu="2", requests={GPU: 1, "example.com/a": 1, "example.com/b": 1, "other.io/c": 1})
    plugin = fit(ignoredResources=["cpu", GPU], ignoredResourceGroups=["example.com"])

    assert reasons(plugin, each, nodes) == {"n": ("Insufficient cpu", "Insufficient other.io/c")}


def test_filter_without_pre_filter_is_an_error_that_names_it():
    snapshot = cluster(node("n")).snapshot()

    with pytest.raises(LookupError, match="PreFilterNodeResourcesFit"):
        fit().filter(CycleState(), pod("p"), snapshot, snapshot.all_rows)


NODES = cluster(
    node("empty", cpu="4", memory="4Gi"),
    node("half", cpu="4", memory="4Gi"),
    node("full", cpu="4", memory="4Gi"),
    pods=[pod("a", cpu="2", memory="2Gi", node="half"), pod("b", cpu="4", memory="4Gi", node="full")],
)
NEXT = pod("p", cpu="1", memory="1Gi")


def strategy(kind: str, **more: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": kind, **more}}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param({}, {"empty": 75, "half": 25, "full": 0}, id="least allocated by default"),
        pytest.param(strategy("MostAllocated"), {"empty": 25, "half": 75, "full": 100}, id="most allocated"),
        pytest.param(
            strategy(
                "RequestedToCapacityRatio",
                requestedToCapacityRatio={
                    "shape": [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}]
                },
            ),
            {"empty": 50, "half": 100, "full": 100},
            id="along a line that ends at half",
        ),
        pytest.param(
            strategy(
                "RequestedToCapacityRatio",
                requestedToCapacityRatio={
                    "shape": [{"utilization": 20, "score": 10}, {"utilization": 70, "score": 3}]
                },
            ),
            {"empty": 93, "half": 30, "full": 30},
            id="along a falling line",
        ),
    ],
)
def test_strategies(args: dict[str, Any], expected: dict[str, int]):
    assert scores(fit(**args), NEXT, NODES) == expected


def ratio(*shape: tuple[int, int]) -> NodeResourcesFit:
    points = [{"utilization": utilization, "score": score} for utilization, score in shape]
    return fit(**strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": points}))


@pytest.mark.parametrize(
    ("plugin", "memory", "score"),
    [
        pytest.param(ratio((0, 0), (100, 10)), "25Mi", 25, id="25 and 25"),
        pytest.param(ratio((0, 0), (100, 10)), "26Mi", 26, id="25 and 26, rounded half up"),
        pytest.param(ratio((0, 10), (30, 0)), "25Mi", 17, id="a falling line, divided toward zero"),
        pytest.param(ratio((50, 0), (100, 10)), "75Mi", 50, id="a score of zero does not count"),
        pytest.param(ratio((50, 0), (100, 10)), "50Mi", 0, id="nothing counts"),
        pytest.param(ratio((40, 3), (60, 7)), "100Mi", 50, id="level before and after the line"),
    ],
)
def test_a_ratio_of_cpu_and_memory(plugin: NodeResourcesFit, memory: str, score: int):
    nodes = cluster(node("n", cpu="4", memory="100Mi"))

    assert scores(plugin, pod("p", cpu="1", memory=memory), nodes) == {"n": score}


def test_weights_apply_to_resources():
    nodes = cluster(node("n", cpu="4", memory="4Gi"))
    each = pod("p", cpu="4", memory="1Gi")
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 3}]

    assert scores(fit(**strategy("LeastAllocated", resources=resources)), each, nodes) == {"n": 56}


def test_pods_without_requests_count_with_a_default_amount_in_scores():
    nodes = cluster(node("none", cpu="1", memory="2Gi"), node("one", cpu="1", memory="2Gi"),
                    pods=[pod("a", node="one")])  # fmt: skip

    assert scores(fit(), pod("p"), nodes) == {"none": 90, "one": 80}


def test_a_device_counts_only_for_pods_that_request_it():
    nodes = cluster(node("gpu", allocatable={GPU: 4}), node("plain"))
    args = strategy("MostAllocated", resources=[{"name": GPU}])

    assert scores(fit(**args), pod("p", requests={GPU: 2}), nodes) == {"gpu": 50, "plain": 0}
    assert scores(fit(**args), pod("p"), nodes) == {"gpu": 0, "plain": 0}


def test_a_node_is_scored_by_the_resources_that_it_has():
    nodes = cluster(node("no-memory", cpu="4", memory="0"))

    assert scores(fit(), pod("p", cpu="1"), nodes) == {"no-memory": 75}


def test_scores_without_pre_score_are_the_same():
    snapshot = NODES.snapshot()

    found = fit().score(CycleState(), NEXT, snapshot, snapshot.all_rows)

    assert found.tolist() == [75, 25, 0]
    assert found.dtype == np.int64


def test_the_defaults_are_those_of_upstream():
    args = NodeResourcesFitArgs()

    assert msgspec.to_builtins(args) == {
        "ignoredResources": (),
        "ignoredResourceGroups": (),
        "scoringStrategy": {
            "type": "LeastAllocated",
            "resources": ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}),
            "requestedToCapacityRatio": None,
        },
    }
    assert faults(NodeResourcesFitArgs) == []


def test_a_weight_of_zero_becomes_one_and_no_resources_become_the_default_ones():
    args = msgspec.convert(
        strategy("MostAllocated", resources=[{"name": GPU, "weight": 0}]), NodeResourcesFitArgs
    )
    usual = msgspec.convert(strategy("MostAllocated", resources=[]), NodeResourcesFitArgs)

    assert [each.weight for each in args.scoring_strategy.resources] == [1]
    assert [each.name for each in usual.scoring_strategy.resources] == ["cpu", "memory"]


RATIO = "RequestedToCapacityRatio"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param(
            {"ignoredResources": ["a b"]},
            ["ignoredResources[0]: must be a resource's name, was 'a b'"],
            id="ignored resource",
        ),
        pytest.param(
            {"ignoredResourceGroups": ["example.com", "a/b"]},
            ["ignoredResourceGroups[1]: must be the part of a resource's name before the slash, was 'a/b'"],
            id="ignored group",
        ),
        pytest.param(
            {"scoringStrategy": {}},
            [
                "scoringStrategy.type: must be one of LeastAllocated, MostAllocated, RequestedToCapacityRatio, was ''"
            ],
            id="no type",
        ),
        pytest.param(
            strategy(
                "LeastAllocated", resources=[{"name": "cpu", "weight": 101}, {"name": "memory", "weight": -1}]
            ),
            [
                "scoringStrategy.resources[0].weight: must be 1 to 100, was 101",
                "scoringStrategy.resources[1].weight: must be 1 to 100, was -1",
            ],
            id="weights",
        ),
        pytest.param(
            strategy(RATIO),
            ["scoringStrategy.requestedToCapacityRatio: must be given when type is RequestedToCapacityRatio"],
            id="no ratio",
        ),
        pytest.param(
            strategy("MostAllocated", requestedToCapacityRatio={"shape": []}),
            ["scoringStrategy.requestedToCapacityRatio: must not be given when type is MostAllocated"],
            id="a ratio of another type",
        ),
        pytest.param(
            strategy(RATIO, requestedToCapacityRatio={}),
            ["scoringStrategy.requestedToCapacityRatio.shape: at least one point must be given"],
            id="no points",
        ),
        pytest.param(
            strategy(
                RATIO,
                requestedToCapacityRatio={
                    "shape": [
                        {"utilization": 50, "score": 11},
                        {"utilization": 50, "score": -1},
                        {"utilization": 101},
                    ]
                },
            ),
            [
                "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: must rise from point to point, was 50, then 50",
                "scoringStrategy.requestedToCapacityRatio.shape[0].score: must be 0 to 10, was 11",
                "scoringStrategy.requestedToCapacityRatio.shape[1].score: must be 0 to 10, was -1",
                "scoringStrategy.requestedToCapacityRatio.shape[2].utilization: must be 0 to 100, was 101",
            ],
            id="points",
        ),
    ],
)
def test_invalid_arguments_are_all_reported_at_once_with_their_paths(
    args: dict[str, Any], expected: list[str]
):
    assert faults(NodeResourcesFitArgs, **args) == expected


def resized(name: str, cpu: str, *, allocated: str = "", **requests: Any) -> Any:
    status = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": allocated}}}]}
    return pod(name, cpu=cpu, node="n", requests=requests, status=status if allocated else None)


PENDING = pod("pending", cpu="1")


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(resized("a", "1"), None, True, id="a pod on a node went"),
        pytest.param(pod("a"), None, False, id="a pending pod went"),
        pytest.param(
            pod("a", status={"nominatedNodeName": "n"}), None, True, id="a pod nominated to a node went"
        ),
        pytest.param(resized("a", "2"), resized("a", "1"), True, id="a pod on a node requests less"),
        pytest.param(
            resized("a", "2", allocated="2"),
            resized("a", "1", allocated="2"),
            False,
            id="it has not got less yet",
        ),
        pytest.param(
            resized("a", "2", memory="2Gi"),
            resized("a", "2", memory="1Gi"),
            False,
            id="less of another resource",
        ),
        pytest.param(pod("a", cpu="2"), pod("a", cpu="1"), False, id="a pending pod requests less"),
        pytest.param(PENDING, pod("pending", cpu="500m"), True, id="the pod itself requests less"),
    ],
)
def test_pods_that_free_resources_requeue_a_pod(old: Any, new: Any, helps: bool):
    assert requeues(fit(), EventResource.POD, PENDING, old, new) is helps


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, node("n", cpu="1"), True, id="a new node"),
        pytest.param(None, node("n", cpu="999m"), False, id="a new node that is too small"),
        pytest.param(None, node("n", cpu="1", pods=0), False, id="a new node without pods"),
        pytest.param(node("n", cpu="1"), node("n", cpu="2"), True, id="a node grew"),
        pytest.param(node("n", cpu="2"), node("n", cpu="1"), False, id="a node shrank"),
        pytest.param(
            node("n", cpu="2"), node("n", cpu="2", memory="99Gi"), False, id="another resource grew"
        ),
        pytest.param(node("n", cpu="2", pods=1), node("n", cpu="2", pods=2), True, id="it takes more pods"),
        pytest.param(
            node("n", cpu="100m"), node("n", cpu="200m"), False, id="it grew and is still too small"
        ),
    ],
)
def test_nodes_with_more_capacity_requeue_a_pod(old: Any, new: Any, helps: bool):
    assert requeues(fit(), EventResource.NODE, PENDING, old, new) is helps


def test_a_node_without_an_ignored_resource_does_not_requeue_a_pod_as_upstream():
    each = pod("p", requests={GPU: 1})

    assert not requeues(fit(ignoredResources=[GPU]), EventResource.NODE, each, None, node("n"))


def device_class(name: str, resource: str | None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": resource} if resource else {}}


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, device_class("c", GPU), True, id="a new class for the resource"),
        pytest.param(None, device_class("c", "other.io/x"), False, id="a new class for another resource"),
        pytest.param(None, device_class("c", None), False, id="a new class for no resource"),
        pytest.param(None, device_class("mine", None), True, id="a new class that the pod names"),
        pytest.param(
            device_class("c", None), device_class("c", GPU), True, id="a class starts to provide the resource"
        ),
        pytest.param(device_class("c", GPU), device_class("c", GPU), False, id="a class stayed"),
        pytest.param(
            device_class("c", GPU), device_class("c", None), False, id="a class stops providing the resource"
        ),
        pytest.param(device_class("mine", GPU), device_class("mine", "other.io/x"), False, id="renamed away"),
    ],
)
def test_device_classes_with_an_extended_resource_requeue_a_pod(old: Any, new: Any, helps: bool):
    each = pod("p", requests={GPU: 1, "deviceclass.resource.kubernetes.io/mine": 1})

    assert requeues(fit(), EventResource.DEVICE_CLASS, each, old, new) is helps


def test_device_classes_requeue_no_pod_without_extended_resources_of_devices():
    found = fit(features=FakeFeatures(DRAExtendedResource=False)).events()

    assert EventResource.DEVICE_CLASS not in {each.event.resource for each in found}


def test_it_registers_for_the_events_of_upstream():
    found = {each.event.resource: each.event.action for each in fit().events()}

    assert found == {
        EventResource.POD: ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN,
        EventResource.NODE: ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE,
        EventResource.DEVICE_CLASS: ActionType.ADD | ActionType.UPDATE,
    }
