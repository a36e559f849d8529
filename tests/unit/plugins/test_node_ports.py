from __future__ import annotations

from typing import Any

import pytest

from plugins.node_ports import NodePorts
from scheduler.framework import SKIP, ActionType, Code, CycleState, EventResource
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.support.counted_labels import lines_run
from tests.unit.plugins.plugin_calls import reasons, requeues


def holding(name: str, *ports: int, where: str = "", **fields: Any) -> Any:
    container = {"name": "c", "ports": [{"hostPort": port, "protocol": "TCP"} for port in ports]}
    return pod(name, node=where, containers=[container], **fields)


def test_pods_without_ports_are_skipped():
    assert NodePorts().pre_filter(CycleState(), holding("p"), cluster().snapshot()) is SKIP


def test_nodes_with_used_ports_are_rejected_as_resolvable():
    nodes = cluster(node("a"), node("b"), node("c"),
                    pods=[holding("on-a", 80, 81, where="a"), holding("on-b", 443, where="b")])  # fmt: skip
    snapshot, state, plugin = nodes.snapshot(), CycleState(), NodePorts()
    plugin.pre_filter(state, holding("p", 22, 81), snapshot)

    outcomes = plugin.filter(state, holding("p", 22, 81), snapshot, snapshot.all_rows)

    assert outcomes.of(0) == (
        Code.UNSCHEDULABLE,
        ("node(s) didn't have free ports for the requested pod ports",),
    )
    assert outcomes.passing.tolist() == [False, True, True]


def test_a_decision_does_not_read_the_ports_of_each_node():
    def lines(nodes: int) -> int:
        names = [f"n{number}" for number in range(nodes)]
        holders = [
            holding(f"on-{name}", *range(1000 + 50 * at, 1050 + 50 * at), where=name)
            for at, name in enumerate(names)
        ]
        snapshot, state = cluster(*map(node, names), pods=holders).snapshot(), CycleState()
        wanting, plugin = holding("p", 80, 1001), NodePorts()
        plugin.pre_filter(state, wanting, snapshot)
        return lines_run(lambda: plugin.filter(state, wanting, snapshot, snapshot.all_rows))

    assert lines(50) == lines(1)


def test_a_pod_does_not_conflict_with_itself():
    assert reasons(NodePorts(), holding("p", 80, 80), cluster(node("a"))) == {}


@pytest.mark.parametrize(
    ("deleted", "helps"),
    [
        pytest.param(holding("d", 80, where="anywhere"), True, id="it held the port, on any node"),
        pytest.param(holding("d", 81, where="n"), False, id="it held another port"),
        pytest.param(holding("d", where="n"), False, id="it held none"),
        pytest.param(holding("d", 80), False, id="it was nowhere"),
        pytest.param(holding("d", 80, status={"nominatedNodeName": "n"}), True, id="it was nominated"),
    ],
)
def test_a_deleted_pod_with_the_port_requeues_a_pod_that_needs_it(deleted: Any, helps: bool):
    assert requeues(NodePorts(), EventResource.POD, holding("p", 80), deleted, None) is helps


def test_any_new_node_requeues_a_pod():
    found = {each.event.resource: (each.event.action, each.hint) for each in NodePorts().events()}

    assert found[EventResource.NODE] == (ActionType.ADD, None)
    assert found[EventResource.POD][0] is ActionType.DELETE
