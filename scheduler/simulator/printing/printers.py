"""The columns `kubectl get` shows of each kind, as the server computes them.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.selectors import selector_text
from scheduler.simulator.apimachinery.tables import (
    AGE,
    NAME,
    Column,
    Printer,
    age,
    created,
)
from scheduler.simulator.printing.pods import pod_cells
from scheduler.simulator.printing.workloads import WORKLOAD_PRINTERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scheduler.simulator.apimachinery.objects import Object


def _node_cells(node: Object, now: datetime) -> list[Any]:
    status = node.get("status", {})
    ready = next((one for one in status.get("conditions", ()) if one.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if node["spec"].get("unschedulable"):
        state += ",SchedulingDisabled"
    info = status.get("nodeInfo", {})
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses", ())}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        node["metadata"]["name"],
        state,
        ",".join(_roles(node["metadata"].get("labels", {}))) or "<none>",
        created(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _roles(labels: Mapping[str, str]) -> list[str]:
    prefix = "node-role.kubernetes.io/"
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return sorted(roles - {""})


def _event_cells(event: Object, now: datetime) -> list[Any]:
    first = age(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    if "series" in event:
        last = age(event["series"].get("lastObservedTime"), now)
        count = event["series"].get("count", 0)
    involved = event.get("involvedObject", {})
    target = involved.get("kind", "").lower()
    if involved.get("name"):
        target += f"/{involved['name']}"
    source = event.get("source", {})
    component = source.get("component") or event.get("reportingComponent", "")
    instance = source.get("host") or event.get("reportingInstance", "")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        event.get("message", "").strip(),
        first,
        count,
        event["metadata"]["name"],
    ]


def _namespace_cells(namespace: Object, now: datetime) -> list[Any]:
    phase = namespace.get("status", {}).get("phase", "")
    return [namespace["metadata"]["name"], phase, created(namespace, now)]


def _service_cells(service: Object, now: datetime) -> list[Any]:
    spec = service["spec"]
    external = ",".join(spec.get("externalIPs", ())) or "<none>"
    if spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer" and external == "<none>":
        external = "<pending>"
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in spec.get("ports", ())
    ]
    selector = ",".join(f"{key}={value}" for key, value in sorted(spec.get("selector", {}).items()))
    return [
        service["metadata"]["name"],
        spec.get("type", ""),
        next(iter(spec.get("clusterIPs", ())), "<none>"),
        external,
        ",".join(ports) or "<none>",
        created(service, now),
        selector or "<none>",
    ]


def _config_map_cells(config_map: Object, now: datetime) -> list[Any]:
    entries = len(config_map.get("data", {})) + len(config_map.get("binaryData", {}))
    return [config_map["metadata"]["name"], entries, created(config_map, now)]


def _lease_cells(lease: Object, now: datetime) -> list[Any]:
    return [lease["metadata"]["name"], lease["spec"].get("holderIdentity", ""), created(lease, now)]


def _priority_class_cells(class_: Object, now: datetime) -> list[Any]:
    return [
        class_["metadata"]["name"],
        class_.get("value", 0),
        class_.get("globalDefault", False),
        created(class_, now),
        class_.get("preemptionPolicy", "PreemptLowerPriority"),
    ]


def _any_cells(obj: Object, _: datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp")]


def _network_policy_cells(policy: Object, now: datetime) -> list[Any]:
    chosen = selector_text(policy["spec"].get("podSelector") or {})
    return [policy["metadata"]["name"], chosen, created(policy, now)]


_ANYTHING: Final = Printer(
    (NAME, Column("Created At", ("V1ObjectMeta", "creationTimestamp"), "date")), _any_cells
)
_PRINTERS: Final[Mapping[str, Printer]] = {
    **WORKLOAD_PRINTERS,
    "pods": Printer(
        (
            NAME,
            Column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
            Column("Status", "The aggregate status of the containers in this pod."),
            Column(
                "Restarts",
                "The number of times the containers in this pod have been restarted and when the last container in "
                "this pod has restarted.",
            ),
            AGE,
            Column("IP", ("V1PodStatus", "podIP"), priority=1),
            Column("Node", ("V1PodSpec", "nodeName"), priority=1),
            Column("Nominated Node", ("V1PodStatus", "nominatedNodeName"), priority=1),
            Column("Readiness Gates", ("V1PodSpec", "readinessGates"), priority=1),
        ),
        pod_cells,
    ),
    "nodes": Printer(
        (
            NAME,
            Column("Status", "The status of the node"),
            Column("Roles", "The roles of the node"),
            AGE,
            Column("Version", ("V1NodeSystemInfo", "kubeletVersion")),
            Column("Internal-IP", ("V1NodeStatus", "addresses"), priority=1),
            Column("External-IP", ("V1NodeStatus", "addresses"), priority=1),
            Column("OS-Image", ("V1NodeSystemInfo", "osImage"), priority=1),
            Column("Kernel-Version", ("V1NodeSystemInfo", "kernelVersion"), priority=1),
            Column("Container-Runtime", ("V1NodeSystemInfo", "containerRuntimeVersion"), priority=1),
        ),
        _node_cells,
    ),
    "events": Printer(
        (
            Column("Last Seen", ("CoreV1Event", "lastTimestamp")),
            Column("Type", ("CoreV1Event", "type")),
            Column("Reason", ("CoreV1Event", "reason")),
            Column("Object", "The object that this event is about."),
            Column("Subobject", ("V1ObjectReference", "fieldPath"), priority=1),
            Column("Source", "The component reporting this event.", priority=1),
            Column("Message", ("CoreV1Event", "message")),
            Column("First Seen", ("CoreV1Event", "firstTimestamp"), priority=1),
            Column("Count", ("CoreV1Event", "count"), priority=1),
            Column("Name", ("V1ObjectMeta", "name"), priority=1, format="name"),
        ),
        _event_cells,
    ),
    "namespaces": Printer(
        (NAME, Column("Status", "The status of the namespace"), AGE),
        _namespace_cells,
    ),
    "networkpolicies.networking.k8s.io": Printer(
        (NAME, Column("Pod-Selector", "Which pods it is about, by their labels."), AGE), _network_policy_cells
    ),
    "services": Printer(
        (
            NAME,
            Column("Type", ("V1ServiceSpec", "type")),
            Column("Cluster-IP", ("V1ServiceSpec", "clusterIP")),
            Column("External-IP", ("V1ServiceSpec", "externalIPs")),
            Column("Port(s)", ("V1ServiceSpec", "ports")),
            AGE,
            Column("Selector", ("V1ServiceSpec", "selector"), priority=1),
        ),
        _service_cells,
    ),
    "configmaps": Printer((NAME, Column("Data", ("V1ConfigMap", "data")), AGE), _config_map_cells),
    "leases.coordination.k8s.io": Printer(
        (NAME, Column("Holder", ("V1LeaseSpec", "holderIdentity")), AGE), _lease_cells
    ),
    "priorityclasses.scheduling.k8s.io": Printer(
        (
            NAME,
            Column("Value", ("V1PriorityClass", "value"), "integer"),
            Column("Global-Default", ("V1PriorityClass", "globalDefault"), "boolean"),
            AGE,
            Column("PreemptionPolicy", ("V1PriorityClass", "preemptionPolicy")),
        ),
        _priority_class_cells,
    ),
}


def printer_of(group_resource: str) -> Printer:
    """Return how a kind is shown; kinds without columns of their own show when they were created."""
    return _PRINTERS.get(group_resource.removesuffix(".events.k8s.io"), _ANYTHING)
