"""Keeps pods out of the zones that the ConfigMap `kube-system/closed-zones` names: its keys are zones."""

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    Outcomes,
)

CONFIG_MAPS = "v1/configmaps"
ZONE = "topology.kubernetes.io/zone"


class ClosedZones(FilterPlugin):
    name = "ClosedZones"
    api_version = 1
    reads_pods = False
    needs = Needs(kinds=frozenset({CONFIG_MAPS}))

    def events(self):
        opened = ClusterEvent(EventResource.of(CONFIG_MAPS), ActionType.UPDATE | ActionType.DELETE)
        nodes = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [EventWithHint(opened), EventWithHint(nodes)]

    def filter(self, state, pod, snapshot, rows):
        closed = snapshot.objects(CONFIG_MAPS).get("kube-system/closed-zones", {}).get("data") or {}
        is_closed = snapshot.label(ZONE).judge(lambda zone: zone in closed)
        return Outcomes.reject(is_closed, "node(s) were in a closed zone", resolvable=False)
