"""Keeps pods with the label `example.com/tier: gold` off spot nodes."""

from scheduler.framework import FilterPlugin, Status


class KeepOffSpot(FilterPlugin):
    name = "KeepOffSpot"
    api_version = 1
    reads_pods = False

    def signature(self, pod):
        return pod.labels.get("example.com/tier") == "gold"

    def filter_node(self, state, pod, node):
        if pod.labels.get("example.com/tier") == "gold" and node.labels.get("example.com/spot") == "yes":
            return Status.unschedulable("node(s) were spot nodes", resolvable=False)
        return None
