"""The events for which a profile's plugins are registered."""

from __future__ import annotations

from plugins.registry import IN_TREE
from scheduler.configuration.load import default
from scheduler.engine.runtime.profiles import build_frameworks
from scheduler.engine.runtime.registry import Registry
from scheduler.framework import ActionType, ClusterEvent, EventResource
from tests.support.offline_capabilities import OFFLINE


def heard_by(plugin: str) -> list[ClusterEvent]:
    built = build_frameworks(default(), Registry(IN_TREE), lambda _: OFFLINE)
    return [event.event for event in built["custom-scheduler"].events[plugin]]


TAINTED = ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_TAINT)


def test_a_plugin_that_hears_of_new_nodes_hears_of_changed_taints_too() -> None:
    assert TAINTED in heard_by("NodeResourcesFit")
    assert TAINTED in heard_by("NodeName")


def test_a_plugin_with_a_hint_of_its_own_for_taints_keeps_that_one() -> None:
    assert TAINTED not in heard_by("TaintToleration")
    assert any(TAINTED.action in event.action for event in heard_by("TaintToleration"))


def test_a_plugin_that_does_not_hear_of_nodes_hears_of_no_taints() -> None:
    assert not [event for event in heard_by("SchedulingGates") if event.resource is EventResource.NODE]
