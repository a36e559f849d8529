"""Keeps pods off racks under maintenance: a custom resource of the plugin's own, with a status, and a metric.

A Maintenance (`example.com/v1`, cluster-scoped, with the subresource `status`) has the field `spec.rack`. Nodes have the
label `example.com/rack`. The plugin writes to `status.pods` how many pods still run on the rack.
"""

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    Outcomes,
    PluginMetrics,
    StatusSource,
    WantedStatus,
)

KIND = "example.com/v1/maintenances"
LABEL = "example.com/rack"


class RackMaintenance(FilterPlugin):
    name = "RackMaintenance"
    api_version = 1
    reads_pods = False
    needs = Needs(kinds=frozenset({KIND}), rights=frozenset({f"patch {KIND}/status"}))

    def __init__(self, *, metrics: PluginMetrics):
        self._rejected = metrics.counter(
            "example_rack_maintenance_rejections_total",
            "Attempts at pods for which a rack was left out.",
            "rack",
        )

    def events(self):
        ended = ClusterEvent(EventResource.of(KIND), ActionType.UPDATE | ActionType.DELETE)
        nodes = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return [EventWithHint(ended), EventWithHint(nodes)]

    def filter(self, state, pod, snapshot, rows):
        racks = {obj["spec"]["rack"] for obj in snapshot.objects(KIND).values()}
        for rack in racks:
            self._rejected.add(rack)
        under_maintenance = snapshot.label(LABEL).judge(lambda rack: rack in racks)
        return Outcomes.reject(under_maintenance, "node(s) were under maintenance", resolvable=False)

    def statuses(self, plugins, access):
        return [MaintenanceStatuses(access)]


class MaintenanceStatuses(StatusSource):
    kind = KIND
    object_kind = "Maintenance"

    def __init__(self, access):
        self._access = access

    async def status_of(self, objects):
        pods = {}  # rack -> number of pods
        snapshot = self._access.cluster.snapshot()
        for node in snapshot.nodes:
            rack = node.labels.get(LABEL)
            pods[rack] = pods.get(rack, 0) + int(snapshot.pod_count[snapshot.row_of(node.name)])
        return lambda _name, obj: WantedStatus({"pods": pods.get(obj["spec"]["rack"], 0)})
