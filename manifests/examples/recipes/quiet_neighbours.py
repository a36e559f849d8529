"""Keeps pods with `example.com/latency: critical` off nodes with a pod that has the label `example.com/noisy`."""

from scheduler.framework import ActionType, ClusterEvent, EventResource, EventWithHint, FilterPlugin, Status

LATENCY = "example.com/latency"
NOISY = "example.com/noisy"


class QuietNeighbours(FilterPlugin):
    name = "QuietNeighbours"
    api_version = 1

    def signature(self, pod):
        return pod.labels.get(LATENCY) == "critical"

    def events(self):
        quieter = ClusterEvent(EventResource.POD, ActionType.DELETE | ActionType.UPDATE_POD_LABEL)
        added = ClusterEvent(EventResource.NODE, ActionType.ADD)
        return [EventWithHint(quieter), EventWithHint(added)]

    def filter_node(self, state, pod, node):
        if pod.labels.get(LATENCY) != "critical":
            return None
        if any(NOISY in other.labels for other in node.pods):
            return Status.unschedulable("node(s) had a noisy pod")
        return None
