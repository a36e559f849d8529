from __future__ import annotations

from plugins.node_name import NodeName
from scheduler.framework import ActionType
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import reasons

NODES = cluster(node("a"), node("b"))
REASON = ("node(s) didn't match the requested node name",)


def test_a_pod_without_a_node_name_goes_anywhere():
    assert reasons(NodeName(), pod("p"), NODES) == {}


def test_a_pod_with_a_node_name_goes_there_only():
    assert reasons(NodeName(), pod("p", nodeName="b"), NODES) == {"a": REASON}


def test_a_pod_with_the_name_of_a_missing_node_goes_nowhere():
    assert reasons(NodeName(), pod("p", nodeName="c"), NODES) == {"a": REASON, "b": REASON}


def test_any_new_node_requeues_a_pod():
    (registered,) = NodeName().events()

    assert registered.event.action is ActionType.ADD
    assert registered.hint is None
