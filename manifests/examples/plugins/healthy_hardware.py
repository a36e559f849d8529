"""Keeps pods off nodes whose hardware is degraded although they are Ready.

A health agent reports this with a node condition, as node-problem-detector does, or with the annotation
`example.com/degraded: <what>`. A condition in `avoid` lowers the score, a condition in `refuse` rejects the node.
"""

from typing import ClassVar

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    PluginArgs,
    ScorePlugin,
    Status,
)

DEGRADED = "example.com/degraded"


class HealthyHardwareArgs(PluginArgs):
    refuse: tuple[str, ...] = ("GpuXidError", "ReadonlyFilesystem")
    avoid: tuple[str, ...] = ("CorrectableMemoryErrors", "FrequentNetworkReset")


class HealthyHardware(FilterPlugin, ScorePlugin):
    name = "HealthyHardware"
    api_version = 1
    reads_pods = False
    Args: ClassVar = HealthyHardwareArgs

    def __init__(self, *, args: HealthyHardwareArgs):
        self._refuse, self._avoid = frozenset(args.refuse), frozenset(args.avoid)

    def signature(self, pod):
        return ""  # the result does not depend on the pod

    def events(self):
        better = ActionType.ADD | ActionType.UPDATE_NODE_CONDITION | ActionType.UPDATE_NODE_ANNOTATION
        return [EventWithHint(ClusterEvent(EventResource.NODE, better))]

    def filter_node(self, state, pod, node):
        if node.annotations.get(DEGRADED) or self._refuse & troubles(node):
            return Status.unschedulable("node(s) had degraded hardware", resolvable=False)
        return None

    def score_node(self, state, pod, node):
        return max(0, 100 - 50 * len(self._avoid & troubles(node)))


def troubles(node):
    """Return the conditions of a node that are True."""
    conditions = node.object.get("status", {}).get("conditions") or ()
    return {each["type"] for each in conditions if each.get("status") == "True"}
