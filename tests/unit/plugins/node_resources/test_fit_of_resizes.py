"""NodeResourcesFit for pods on nodes whose resize is deferred.

Expected values follow from kube-scheduler v1.37, plugins/noderesources/fit.go, fitsRequest and
adjustDeltasToAccomodateCacheDiscrepancy: the node counts the larger of what a pod requests and has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.node_resources.fit import TOO_MANY_PODS, NodeResourcesFit
from scheduler.framework import ActionType, Code, CycleState, EventResource, QueueingHint
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import made, reasons

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

ON = FakeFeatures("1.37", InPlacePodVerticalScalingSchedulerPreemption=True)
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
GPU = "example.com/gpu"


def fit(features: FakeFeatures = ON) -> Any:
    return made(NodeResourcesFit, features=features)


def grows(cpu: str, **more: Any) -> PodInfo:
    return pod("grows", cpu=cpu, node="n", status=DEFERRED, **more)


@pytest.mark.parametrize(
    ("tried", "counted", "free", "rejected"),
    [
        pytest.param(grows("2"), grows("2"), "2", (), id="it is counted as it is"),
        pytest.param(grows("2"), grows("2"), "1", ("Insufficient cpu",), id="more is counted than there is"),
        pytest.param(grows("3"), grows("2"), "3", (), id="the rest fits"),
        pytest.param(grows("4"), grows("2"), "3", ("Insufficient cpu",), id="the rest does not fit"),
        pytest.param(grows("1"), grows("2"), "2", (), id="it shrinks"),
        pytest.param(grows("1"), grows("3"), "2", ("Insufficient cpu",), id="what shrinks is counted still"),
    ],
)
def test_only_what_a_node_does_not_count_yet_must_be_free(
    tried: PodInfo, counted: PodInfo, free: str, rejected: tuple[str, ...]
):
    nodes = cluster(node("n", cpu=free), pods=[counted])

    assert reasons(fit(), tried, nodes) == ({"n": rejected} if rejected else {})


def test_an_explanation_without_the_gate_counts_the_pod_once():
    nodes = cluster(node("n", cpu="3"), pods=[grows("2")])

    assert reasons(fit(FakeFeatures("1.36")), grows("2"), nodes) == {}


def test_other_pods_and_other_nodes_count_as_usual():
    nodes = cluster(node("n", cpu="4"), node("m", cpu="1"), pods=[grows("2"), pod("x", cpu="1", node="n")])

    assert reasons(fit(), grows("3"), nodes) == {"m": ("Insufficient cpu",)}
    assert reasons(fit(), pod("new", cpu="2"), nodes) == {
        "n": ("Insufficient cpu",),
        "m": ("Insufficient cpu",),
    }


def test_a_full_node_has_no_place_for_the_pod_itself():
    nodes = cluster(node("n", cpu="4", pods=1), pods=[grows("2")])

    assert reasons(fit(), grows("2"), nodes) == {"n": (TOO_MANY_PODS,)}


@pytest.mark.parametrize(
    ("wants", "code"),
    [
        pytest.param({"cpu": "5"}, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, id="more cpu than the node has"),
        pytest.param({"cpu": "4"}, Code.UNSCHEDULABLE, id="all of its cpu"),
        pytest.param({"cpu": "1", "requests": {GPU: "6"}}, Code.UNSCHEDULABLE, id="an extended resource"),
        pytest.param(
            {"cpu": "1", "requests": {GPU: "7"}},
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            id="as much more as the node has",
        ),
    ],
)
def test_a_resize_beyond_the_node_cannot_be_resolved(wants: dict[str, Any], code: Code):
    had = pod("grows", cpu="1", requests={GPU: "2"}, node="n", status=DEFERRED)
    other = pod("other", cpu="3", requests={GPU: "2"}, node="n")
    nodes = cluster(node("n", cpu="4", allocatable={GPU: "4"}), pods=[had, other])
    tried, state, plugin, snapshot = grows(**wants), CycleState(), fit(), nodes.snapshot()
    plugin.pre_filter(state, tried, snapshot)

    status = plugin.filter_node(state, tried, snapshot.node_info(0))

    assert status.code is code


def test_an_extended_resource_that_is_counted_already_is_not_compared():
    had = grows("1", requests={GPU: "2"})
    other = pod("other", requests={GPU: "2"}, node="n")

    assert reasons(fit(), had, cluster(node("n", allocatable={GPU: "3"}), pods=[had, other])) == {}


def test_a_resize_shares_no_result():
    assert fit().signature(grows("2")) is None
    assert fit().signature(pod("p", cpu="2")) is not None


def test_the_details_have_the_amount_that_is_missing():
    snapshot = cluster(node("n", cpu="4"), pods=[grows("2"), pod("x", cpu="1", node="n")]).snapshot()

    assert fit().why(grows("4"), snapshot, snapshot.node_info(0)) == ["needs 2 cpu, 1 free of 4"]


def deferred_since(cpu: str, wants: str) -> dict[str, Any]:
    has = {"name": "main", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
    return {"cpu": wants, "status": {**DEFERRED, "containerStatuses": [has]}}


def test_the_details_have_what_other_deferred_resizes_hold():
    there = [
        pod("a", node="n", **deferred_since("1", "2")),
        pod("b", node="n", **deferred_since("500m", "2")),
        pod("c", node="n", cpu="1"),
    ]
    snapshot = cluster(node("n", cpu="5"), pods=there).snapshot()
    info = snapshot.node_info(0)
    held = "2.5 held for the deferred resizes of default/a, default/b"

    assert fit().why(pod("new", cpu="1"), snapshot, info) == [f"needs 1 cpu, 0 free of 5, {held}"]


def hint_for(action: ActionType) -> Any:
    of_pods_and_nodes = (
        each for each in fit().events() if each.event.resource is not EventResource.DEVICE_CLASS
    )
    (registered,) = [each for each in of_pods_and_nodes if action in each.event.action]
    return registered.hint


DELETED, OTHER = None, pod("other", cpu="2", node="n")


@pytest.mark.parametrize(
    ("action", "old", "new", "helps"),
    [
        pytest.param(ActionType.DELETE, OTHER, DELETED, True, id="a pod there is deleted"),
        pytest.param(ActionType.DELETE, pod("o", cpu="2", node="m"), DELETED, False, id="one elsewhere"),
        pytest.param(
            ActionType.DELETE,
            pod("o", cpu="2", status={"nominatedNodeName": "n"}),
            DELETED,
            True,
            id="one nominated to it",
        ),
        pytest.param(
            ActionType.UPDATE_POD_SCALE_DOWN, OTHER, pod("other", cpu="1", node="n"), True, id="less there"
        ),
        pytest.param(
            ActionType.UPDATE_POD_SCALE_DOWN,
            pod("o", cpu="2", node="m"),
            pod("o", cpu="1", node="m"),
            False,
            id="less elsewhere",
        ),
        pytest.param(
            ActionType.UPDATE_POD_SCALE_UP, OTHER, pod("other", cpu="3", node="n"), True, id="more there"
        ),
        pytest.param(
            ActionType.UPDATE_POD_SCALE_UP,
            pod("o", cpu="2", node="m"),
            pod("o", cpu="3", node="m"),
            False,
            id="more elsewhere",
        ),
        pytest.param(ActionType.UPDATE_POD_SCALE_DOWN, grows("4"), grows("3"), True, id="it wants less"),
        pytest.param(ActionType.UPDATE_POD_SCALE_UP, grows("4"), grows("5"), True, id="it wants more"),
        pytest.param(
            ActionType.UPDATE_NODE_ALLOCATABLE,
            node("n", cpu="4"),
            node("n", cpu="8"),
            True,
            id="a larger node",
        ),
        pytest.param(
            ActionType.UPDATE_NODE_ALLOCATABLE,
            node("m", cpu="4"),
            node("m", cpu="8"),
            False,
            id="another larger node",
        ),
    ],
)
def test_changes_on_its_node_requeue_a_resize(action: ActionType, old: Any, new: Any, helps: bool):
    found = hint_for(action)(grows("4"), old, new)

    assert found is (QueueingHint.QUEUE if helps else QueueingHint.SKIP)


def test_pending_pods_do_not_wait_for_larger_pods():
    hint = hint_for(ActionType.UPDATE_POD_SCALE_UP)
    without = fit(FakeFeatures("1.37")).events()

    assert hint(pod("p", cpu="1"), OTHER, pod("other", cpu="3", node="n")) is QueueingHint.SKIP
    assert not [each for each in without if each.event.action is ActionType.UPDATE_POD_SCALE_UP]
