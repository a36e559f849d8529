from __future__ import annotations

import pytest

from plugins.node_unschedulable import REASON, NodeUnschedulable
from scheduler.framework import Code, EventResource
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import reasons, requeues

CORDONED, OPEN = node("cordoned", unschedulable=True), node("open")
TAINT = "node.kubernetes.io/unschedulable"


def test_cordoned_nodes_are_rejected_as_unresolvable():
    snapshot = cluster(CORDONED, OPEN).snapshot()

    outcomes = NodeUnschedulable().filter(None, pod("p"), snapshot, snapshot.all_rows)

    assert outcomes.of(0) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) were unschedulable",))
    assert outcomes.passing.tolist() == [False, True]


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param({"key": TAINT, "operator": "Exists"}, True, id="the taint, any effect"),
        pytest.param({"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}, True, id="the taint"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": TAINT, "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": TAINT, "operator": "Equal", "value": "x"}, False, id="another value"),
        pytest.param({"key": "other", "operator": "Exists"}, False, id="another taint"),
    ],
)
def test_a_pod_that_tolerates_the_cordon_taint_goes_there(toleration: dict[str, str], tolerated: bool):
    found = reasons(NodeUnschedulable(), pod("p", tolerations=[toleration]), cluster(CORDONED))

    assert found == ({} if tolerated else {"cordoned": (REASON,)})


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, OPEN, True, id="a new node"),
        pytest.param(None, CORDONED, False, id="a new cordoned node"),
        pytest.param(CORDONED, OPEN, True, id="a node was uncordoned"),
        pytest.param(OPEN, CORDONED, False, id="a node was cordoned"),
        pytest.param(OPEN, OPEN, False, id="a node stayed open"),
        pytest.param(CORDONED, CORDONED, False, id="a node stayed cordoned"),
    ],
)
def test_uncordoned_nodes_requeue_a_pod(old: object, new: object, helps: bool):
    assert requeues(NodeUnschedulable(), EventResource.NODE, pod("p"), old, new) is helps


def test_only_its_own_toleration_of_the_cordon_requeues_a_pod():
    plugin, mine = NodeUnschedulable(), pod("mine")
    tolerant = [{"key": TAINT, "operator": "Exists"}]
    unrelated = [{"key": "other", "operator": "Exists"}]

    assert requeues(plugin, EventResource.POD, mine, mine, pod("mine", tolerations=tolerant))
    assert not requeues(plugin, EventResource.POD, mine, mine, pod("mine", tolerations=unrelated))
    assert not requeues(plugin, EventResource.POD, mine, mine, pod("other", tolerations=tolerant))
