"""Keeps the power that the pods of a rack draw below the limit of the rack.

A node has the label `example.com/rack`. A pod has the label `example.com/watts`: the power that it draws.
"""

from typing import ClassVar

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Outcomes,
    PluginArgs,
)

RACK = "example.com/rack"
WATTS = "example.com/watts"


class RackPowerArgs(PluginArgs):
    max_watts: int = 1000  # of each rack


class RackPower(FilterPlugin):
    name = "RackPower"
    api_version = 1
    Args: ClassVar = RackPowerArgs

    def __init__(self, *, args: RackPowerArgs):
        self._max_watts = args.max_watts

    def events(self):
        nodes = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        pods = ClusterEvent(EventResource.POD, ActionType.DELETE)
        return [EventWithHint(nodes), EventWithHint(pods)]

    def filter(self, state, pod, snapshot, rows):
        watts = watts_of(pod)
        if watts == 0:
            return Outcomes.all_pass(snapshot.n_nodes)
        drawn = {}  # rack -> watts
        for row, node in enumerate(snapshot.nodes):
            rack = node.labels.get(RACK)
            drawn[rack] = drawn.get(rack, 0) + sum(watts_of(each) for each in snapshot.pods_on(row))
        full = {rack for rack, total in drawn.items() if total + watts > self._max_watts}
        in_a_full_rack = snapshot.label(RACK).judge(lambda rack: rack in full)
        return Outcomes.reject(in_a_full_rack, "node(s) were in a rack without enough power")


def watts_of(pod):
    """Return the power that a pod draws; 0 if its label is missing or not a number."""
    text = pod.labels.get(WATTS, "")
    return int(text) if text.isdecimal() else 0
