"""Keeps nodes for a team: the annotation `example.com/team` of the node must equal the label of the pod."""

from scheduler.framework import ActionType, ClusterEvent, EventResource, EventWithHint, FilterPlugin, Status

TEAM = "example.com/team"


class TeamFence(FilterPlugin):
    name = "TeamFence"
    api_version = 1
    reads_pods = False

    def signature(self, pod):
        return pod.labels.get(TEAM, "")

    def events(self):
        opened = ActionType.ADD | ActionType.UPDATE_NODE_ANNOTATION
        return [EventWithHint(ClusterEvent(EventResource.NODE, opened))]

    def filter_node(self, state, pod, node):
        team = node.annotations.get(TEAM)
        if team is None or team == pod.labels.get(TEAM):
            return None
        return Status.unschedulable("node(s) were kept for another team", resolvable=False)
