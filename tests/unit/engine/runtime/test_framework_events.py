"""The events for which a profile's plugins are registered."""

from __future__ import annotations

from scheduler.framework import ActionType, ClusterEvent, EventResource
from tests.support.offline_capabilities import frameworks


def heard_by(plugin: str) -> list[ClusterEvent]:
    built = frameworks()
    return [event.event for event in built["custom-scheduler"].events[plugin]]


TAINTED = ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_TAINT)


def test_a_plugin_registered_for_new_nodes_also_gets_changed_taints() -> None:
    assert TAINTED in heard_by("NodeResourcesFit")
    assert TAINTED in heard_by("NodeName")


def test_a_plugin_with_its_own_hint_for_taints_keeps_it() -> None:
    assert TAINTED not in heard_by("TaintToleration")
    assert any(TAINTED.action in event.action for event in heard_by("TaintToleration"))


def test_a_plugin_without_node_events_gets_no_taint_events() -> None:
    assert not [event for event in heard_by("SchedulingGates") if event.resource is EventResource.NODE]
