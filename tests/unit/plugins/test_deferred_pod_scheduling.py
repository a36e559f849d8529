"""The plugin for resizes that a node lacks the capacity for.

Source of the cases: kube-scheduler v1.37, plugins/deferredpodscheduling/deferred_pod_scheduling_test.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.deferred_pod_scheduling import DISABLED, FITS, OTHER_NODE, DeferredPodScheduling
from scheduler.framework import SKIP, ActionType, Code, CycleState, EventResource
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import reasons, requeues

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


def pending(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}


def deferred(where: str = "n") -> PodInfo:
    return pod("p", node=where, status=pending("Deferred"))


OTHERS = [
    pytest.param(pod("p"), id="a pending pod"),
    pytest.param(pod("p", node="n"), id="a pod without a resize"),
    pytest.param(pod("p", node="n", status=pending("Infeasible")), id="an infeasible resize"),
    pytest.param(pod("p", status=pending("Deferred")), id="a pod without a node"),
]


@pytest.mark.parametrize("other", OTHERS)
def test_other_pods_are_skipped_and_permitted(other: PodInfo):
    plugin = DeferredPodScheduling()

    assert plugin.pre_filter(CycleState(), other, cluster(node("n")).snapshot()) is SKIP
    assert plugin.permit(CycleState(), other, "n") is None
    assert plugin.signature(other) is not None


def test_only_its_own_node_is_left_unless_that_disables_preemption_for_resizes():
    nodes = cluster(node("n"), node("m"), node("no", no_resize_preemption=["a.b/c"]))
    plugin = DeferredPodScheduling()

    assert reasons(plugin, deferred(), nodes) == {"m": (OTHER_NODE,), "no": (OTHER_NODE,)}
    assert reasons(plugin, deferred("no"), nodes) == {
        "n": (OTHER_NODE,),
        "m": (OTHER_NODE,),
        "no": (DISABLED,),
    }
    assert reasons(plugin, deferred("gone"), nodes).keys() == {"n", "m", "no"}


def test_rejections_cannot_be_resolved_by_preemption():
    snapshot = cluster(node("n", no_resize_preemption=["a.b/c"])).snapshot()

    outcomes = DeferredPodScheduling().filter(CycleState(), deferred(), snapshot, snapshot.all_rows)

    assert outcomes.of(0).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_the_details_name_the_owners():
    snapshot = cluster(node("n", no_resize_preemption=["a.b/c", "d"])).snapshot()

    assert DeferredPodScheduling().why(deferred(), snapshot, snapshot.node_info(0)) == [
        "disabled by a.b/c",
        "disabled by d",
    ]


def test_a_pod_whose_resize_fits_waits_for_the_kubelet():
    status = DeferredPodScheduling().permit(CycleState(), deferred(), "n")

    assert status is not None
    assert (status.code, status.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (FITS,))


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, node("n"), True, id="its node comes"),
        pytest.param(None, node("n", no_resize_preemption=["a"]), False, id="its node comes and disables it"),
        pytest.param(None, node("m"), False, id="another node comes"),
        pytest.param(node("n", no_resize_preemption=["a"]), node("n"), True, id="enabled"),
        pytest.param(
            node("n", no_resize_preemption=["a", "b"]),
            node("n", no_resize_preemption=["b"]),
            False,
            id="one owner of two",
        ),
        pytest.param(node("n"), node("n", no_resize_preemption=["a"]), False, id="disabled"),
        pytest.param(node("n"), node("n", cpu="9"), False, id="another change"),
        pytest.param(node("m", no_resize_preemption=["a"]), node("m"), False, id="enabled on another node"),
    ],
)
def test_its_node_requeues_a_pod_once_it_allows_preemption_for_resizes(old: Any, new: Any, helps: bool):
    plugin = DeferredPodScheduling()
    (registered,) = plugin.events()

    assert registered.event.action == ActionType.ADD | ActionType.UPDATE_NODE_PREEMPTION_POLICY
    assert requeues(plugin, EventResource.NODE, deferred(), old, new) is helps
