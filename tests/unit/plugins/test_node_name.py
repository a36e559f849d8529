from __future__ import annotations

from plugins.node_name import NodeName
from scheduler.framework import ActionType
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import reasons

NODES = cluster(node("a"), node("b"))
REASON = ("node(s) didn't match the requested node name",)


def test_a_pod_that_names_no_node_may_go_anywhere():
    assert reasons(NodeName(), pod("p"), NODES) == {}


def test_a_pod_that_names_its_node_may_go_there_only():
    assert reasons(NodeName(), pod("p", nodeName="b"), NODES) == {"a": REASON}


def test_a_pod_that_names_a_node_that_is_not_there_may_go_nowhere():
    assert reasons(NodeName(), pod("p", nodeName="c"), NODES) == {"a": REASON, "b": REASON}


def test_any_new_node_wakes_a_pod():
    (registered,) = NodeName().events()

    assert registered.event.action is ActionType.ADD
    assert registered.hint is None
