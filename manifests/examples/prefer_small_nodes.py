"""Keeps large machines free: of the nodes that can run a pod, the one with the fewest cpus wins."""

from scheduler.framework import ScorePlugin


class PreferSmallNodes(ScorePlugin):
    name = "PreferSmallNodes"
    api_version = 1
    reads_pods = False  # the node alone is looked at

    def signature(self, pod):
        return ""  # the score does not depend on the pod, so all pods share it

    def score_node(self, state, pod, node):
        cpus = node.allocatable.get("cpu", 0) / 1000
        return max(0, 100 - int(cpus))
