"""The columns of `kubectl get`: the printer of each kind, and the columns of nodes, events, volumes and devices.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.objects.admission import class_of, is_default_class
from scheduler.tools.simulator.apimachinery.kinds import (
    AGE,
    NAME,
    Cell,
    Printer,
    PrinterColumn,
    age,
    at,
    created,
    pairs_text,
)
from scheduler.tools.simulator.apimachinery.objects import condition_of, is_terminating, labels_of
from scheduler.tools.simulator.apimachinery.selectors import selector_text
from scheduler.tools.simulator.printing.others import OTHER_PRINTERS
from scheduler.tools.simulator.printing.workloads import POD_GROUP_PRINTERS, WORKLOAD_PRINTERS, pod_cells

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scheduler.tools.simulator.apimachinery.objects import Object

_SHORT_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _phase(obj: Object, _: datetime) -> str:
    phase: str = "Terminating" if is_terminating(obj) else obj["status"].get("phase", "")
    return phase


def _modes(holder: Object) -> str:
    present = holder.get("accessModes", ())
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in present)


def _claim(volume: Object, _: datetime) -> str:
    claim = volume["spec"].get("claimRef")
    return "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}"


def _class(obj: Object, _: datetime) -> str:
    return class_of(obj) or ""


def _of_volume(read: Any) -> Cell:
    """Return a cell that is empty until a claim has a volume."""
    return lambda claim, _: read(claim["status"]) if claim["spec"].get("volumeName") else ""


def _default_name(class_: Object, _: datetime) -> str:
    name: str = class_["metadata"]["name"]
    return f"{name} (default)" if is_default_class(class_) else name


def _audiences(driver: Object, _: datetime) -> str:
    requests = driver["spec"].get("tokenRequests")
    return "<unset>" if requests is None else ",".join(one.get("audience", "") for one in requests)


def _state(claim: Object, _: datetime) -> str:
    states = ["deleted"] if is_terminating(claim) else []
    if "allocation" in claim["status"]:
        states += ["allocated", *(["reserved"] if claim["status"].get("reservedFor") else [])]
    elif not states:
        states = ["pending"]
    return ",".join(states)


_ATTRIBUTES: Final = at("spec.volumeAttributesClassName", "<unset>")
_MODE: Final = at("spec.volumeMode", "<unset>")

STORAGE_PRINTERS: Final[Mapping[str, Printer]] = {
    "persistentvolumes": Printer(
        (
            NAME,
            PrinterColumn(
                "Capacity", ("V1PersistentVolumeSpec", "capacity"), cell=at("spec.capacity.storage", "0")
            ),
            PrinterColumn(
                "Access Modes",
                ("V1PersistentVolumeSpec", "accessModes"),
                cell=lambda volume, _: _modes(volume["spec"]),
            ),
            PrinterColumn(
                "Reclaim Policy",
                ("V1PersistentVolumeSpec", "persistentVolumeReclaimPolicy"),
                cell=at("spec.persistentVolumeReclaimPolicy"),
            ),
            PrinterColumn("Status", ("V1PersistentVolumeStatus", "phase"), cell=_phase),
            PrinterColumn(
                "Claim",
                "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim.",
                cell=_claim,
            ),
            PrinterColumn("StorageClass", "StorageClass of the pv", cell=_class),
            PrinterColumn("VolumeAttributesClass", "VolumeAttributesClass of the pv", cell=_ATTRIBUTES),
            PrinterColumn("Reason", ("V1PersistentVolumeStatus", "reason"), cell=at("status.reason")),
            AGE,
            PrinterColumn("VolumeMode", ("V1PersistentVolumeSpec", "volumeMode"), priority=1, cell=_MODE),
        )
    ),
    "persistentvolumeclaims": Printer(
        (
            NAME,
            PrinterColumn("Status", ("V1PersistentVolumeClaimStatus", "phase"), cell=_phase),
            PrinterColumn(
                "Volume", ("V1PersistentVolumeClaimSpec", "volumeName"), cell=at("spec.volumeName")
            ),
            PrinterColumn(
                "Capacity",
                ("V1PersistentVolumeClaimStatus", "capacity"),
                cell=_of_volume(lambda status: status.get("capacity", {}).get("storage", "0")),
            ),
            PrinterColumn(
                "Access Modes", ("V1PersistentVolumeClaimStatus", "accessModes"), cell=_of_volume(_modes)
            ),
            PrinterColumn("StorageClass", "StorageClass of the pvc", cell=_class),
            PrinterColumn("VolumeAttributesClass", "VolumeAttributesClass of the pvc", cell=_ATTRIBUTES),
            AGE,
            PrinterColumn(
                "VolumeMode", ("V1PersistentVolumeClaimSpec", "volumeMode"), priority=1, cell=_MODE
            ),
        )
    ),
    "storageclasses.storage.k8s.io": Printer(
        (
            PrinterColumn("Name", ("V1ObjectMeta", "name"), format="name", cell=_default_name),
            PrinterColumn("Provisioner", ("V1StorageClass", "provisioner"), cell=at("provisioner")),
            PrinterColumn("ReclaimPolicy", ("V1StorageClass", "reclaimPolicy"), cell=at("reclaimPolicy")),
            PrinterColumn(
                "VolumeBindingMode", ("V1StorageClass", "volumeBindingMode"), cell=at("volumeBindingMode")
            ),
            PrinterColumn(
                "AllowVolumeExpansion",
                ("V1StorageClass", "allowVolumeExpansion"),
                cell=at("allowVolumeExpansion", False),
            ),
            AGE,
        )
    ),
    "volumeattributesclasses.storage.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("DriverName", ("V1VolumeAttributesClass", "driverName"), cell=at("driverName")),
            AGE,
        )
    ),
    "csinodes.storage.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Drivers",
                "Drivers indicates the number of CSI drivers registered on the node",
                "integer",
                cell=lambda node, _: len(node["spec"].get("drivers") or ()),
            ),
            AGE,
        )
    ),
    "csidrivers.storage.k8s.io": Printer(
        (
            NAME,
            *(
                PrinterColumn(
                    field[0].upper() + field[1:],
                    ("V1CSIDriverSpec", field),
                    "boolean",
                    cell=at(f"spec.{field}", False),
                )
                for field in ("attachRequired", "podInfoOnMount", "storageCapacity")
            ),
            PrinterColumn("TokenRequests", ("V1CSIDriverSpec", "tokenRequests"), cell=_audiences),
            PrinterColumn(
                "RequiresRepublish",
                ("V1CSIDriverSpec", "requiresRepublish"),
                "boolean",
                cell=at("spec.requiresRepublish", False),
            ),
            PrinterColumn(
                "Modes",
                ("V1CSIDriverSpec", "volumeLifecycleModes"),
                cell=lambda driver, _: ",".join(driver["spec"]["volumeLifecycleModes"]),
            ),
            AGE,
        )
    ),
    "volumeattachments.storage.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Attacher", ("V1VolumeAttachmentSpec", "attacher"), format="name", cell=at("spec.attacher")
            ),
            PrinterColumn(
                "PV",
                ("V1VolumeAttachmentSource", "persistentVolumeName"),
                cell=at("spec.source.persistentVolumeName"),
            ),
            PrinterColumn("Node", ("V1VolumeAttachmentSpec", "nodeName"), cell=at("spec.nodeName")),
            PrinterColumn(
                "Attached",
                ("V1VolumeAttachmentStatus", "attached"),
                "boolean",
                cell=at("status.attached", False),
            ),
            AGE,
        )
    ),
    "resourceclaims.resource.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "State",
                "A summary of the current state (allocated, pending, reserved, etc.).",
                cell=_state,
            ),
            AGE,
        )
    ),
    "resourceclaimtemplates.resource.k8s.io": Printer((NAME, AGE)),
    "deviceclasses.resource.k8s.io": Printer((NAME, AGE)),
    "devicetaintrules.resource.k8s.io": Printer((NAME, AGE)),
    "resourceslices.resource.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("Node", ("V1ResourceSliceSpec", "nodeName"), cell=at("spec.nodeName")),
            PrinterColumn("Driver", ("V1ResourceSliceSpec", "driver"), cell=at("spec.driver")),
            PrinterColumn("Pool", ("V1ResourcePool", "name"), cell=at("spec.pool.name")),
            AGE,
        )
    ),
}


def _node_cells(node: Object, now: datetime) -> list[Any]:
    status = node.get("status", {})
    ready = condition_of(node, "Ready")
    state = "Unknown" if not ready else "Ready" if ready.get("status") == "True" else "NotReady"
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
        ",".join(_roles(labels_of(node))) or "<none>",
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
    return [
        service["metadata"]["name"],
        spec.get("type", ""),
        next(iter(spec.get("clusterIPs", ())), "<none>"),
        external,
        ",".join(ports) or "<none>",
        created(service, now),
        pairs_text(spec.get("selector", {})),
    ]


def _entries(config_map: Object, _: datetime) -> int:
    return len(config_map.get("data", {})) + len(config_map.get("binaryData", {}))


def _chosen_pods(policy: Object, _: datetime) -> str:
    return selector_text(policy["spec"].get("podSelector") or {})


_ANYTHING: Final = Printer(
    (
        NAME,
        PrinterColumn(
            "Created At",
            ("V1ObjectMeta", "creationTimestamp"),
            "date",
            cell=at("metadata.creationTimestamp", None),
        ),
    )
)
_PRINTERS: Final[Mapping[str, Printer]] = {
    **WORKLOAD_PRINTERS,
    **STORAGE_PRINTERS,
    **OTHER_PRINTERS,
    **POD_GROUP_PRINTERS,
    "pods": Printer(
        (
            NAME,
            PrinterColumn("Ready", "The aggregate readiness state of this pod for accepting traffic."),
            PrinterColumn("Status", "The aggregate status of the containers in this pod."),
            PrinterColumn(
                "Restarts",
                "The number of times the containers in this pod have been restarted and when the last container in "
                "this pod has restarted.",
            ),
            AGE,
            PrinterColumn("IP", ("V1PodStatus", "podIP"), priority=1),
            PrinterColumn("Node", ("V1PodSpec", "nodeName"), priority=1),
            PrinterColumn("Nominated Node", ("V1PodStatus", "nominatedNodeName"), priority=1),
            PrinterColumn("Readiness Gates", ("V1PodSpec", "readinessGates"), priority=1),
        ),
        pod_cells,
    ),
    "nodes": Printer(
        (
            NAME,
            PrinterColumn("Status", "The status of the node"),
            PrinterColumn("Roles", "The roles of the node"),
            AGE,
            PrinterColumn("Version", ("V1NodeSystemInfo", "kubeletVersion")),
            PrinterColumn("Internal-IP", ("V1NodeStatus", "addresses"), priority=1),
            PrinterColumn("External-IP", ("V1NodeStatus", "addresses"), priority=1),
            PrinterColumn("OS-Image", ("V1NodeSystemInfo", "osImage"), priority=1),
            PrinterColumn("Kernel-Version", ("V1NodeSystemInfo", "kernelVersion"), priority=1),
            PrinterColumn("Container-Runtime", ("V1NodeSystemInfo", "containerRuntimeVersion"), priority=1),
        ),
        _node_cells,
    ),
    "events": Printer(
        (
            PrinterColumn("Last Seen", ("CoreV1Event", "lastTimestamp")),
            PrinterColumn("Type", ("CoreV1Event", "type")),
            PrinterColumn("Reason", ("CoreV1Event", "reason")),
            PrinterColumn("Object", "The object that this event is about."),
            PrinterColumn("Subobject", ("V1ObjectReference", "fieldPath"), priority=1),
            PrinterColumn("Source", "The component reporting this event.", priority=1),
            PrinterColumn("Message", ("CoreV1Event", "message")),
            PrinterColumn("First Seen", ("CoreV1Event", "firstTimestamp"), priority=1),
            PrinterColumn("Count", ("CoreV1Event", "count"), priority=1),
            PrinterColumn("Name", ("V1ObjectMeta", "name"), priority=1, format="name"),
        ),
        _event_cells,
    ),
    "namespaces": Printer(
        (NAME, PrinterColumn("Status", "The status of the namespace", cell=at("status.phase", "")), AGE)
    ),
    "networkpolicies.networking.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("Pod-Selector", "Which pods it is about, by their labels.", cell=_chosen_pods),
            AGE,
        )
    ),
    "services": Printer(
        (
            NAME,
            PrinterColumn("Type", ("V1ServiceSpec", "type")),
            PrinterColumn("Cluster-IP", ("V1ServiceSpec", "clusterIP")),
            PrinterColumn("External-IP", ("V1ServiceSpec", "externalIPs")),
            PrinterColumn("Port(s)", ("V1ServiceSpec", "ports")),
            AGE,
            PrinterColumn("Selector", ("V1ServiceSpec", "selector"), priority=1),
        ),
        _service_cells,
    ),
    "configmaps": Printer((NAME, PrinterColumn("Data", ("V1ConfigMap", "data"), cell=_entries), AGE)),
    "leases.coordination.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("Holder", ("V1LeaseSpec", "holderIdentity"), cell=at("spec.holderIdentity", "")),
            AGE,
        )
    ),
    "priorityclasses.scheduling.k8s.io": Printer(
        (
            NAME,
            PrinterColumn("Value", ("V1PriorityClass", "value"), "integer", cell=at("value", 0)),
            PrinterColumn(
                "Global-Default",
                ("V1PriorityClass", "globalDefault"),
                "boolean",
                cell=at("globalDefault", False),
            ),
            AGE,
            PrinterColumn(
                "PreemptionPolicy",
                ("V1PriorityClass", "preemptionPolicy"),
                cell=at("preemptionPolicy", "PreemptLowerPriority"),
            ),
        )
    ),
}


def printer_of(group_resource: str) -> Printer:
    """Return the printer of a kind; the default one shows name and creation time."""
    return _PRINTERS.get(group_resource.removesuffix(".events.k8s.io"), _ANYTHING)
