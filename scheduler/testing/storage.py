"""Claims, volumes and attach limits of nodes for tests, as the API server sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable

Json = dict[str, Any]

DRIVER = "disk.example.com"
"""The default driver of volumes."""

_KINDS = {
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "PersistentVolume": ("v1", "persistentvolumes"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "CSINode": ("storage.k8s.io/v1", "csinodes"),
    "CSIDriver": ("storage.k8s.io/v1", "csidrivers"),
    "CSIStorageCapacity": ("storage.k8s.io/v1", "csistoragecapacities"),
    "VolumeAttachment": ("storage.k8s.io/v1", "volumeattachments"),
}  # kind -> version, plural


def watch_storage(table: ClusterTable, *objects: Json) -> None:
    """Make a table keep all kinds of storage, and add these objects."""
    for version, plural in _KINDS.values():
        table.watch_kind(f"{version}/{plural}")
    for each in objects:
        version, plural = _KINDS[each["kind"]]
        table.watch_kind(f"{version}/{plural}")[object_key(each)] = each


def mounted(*claims: str) -> list[Json]:
    """Return the volumes of a pod that uses these claims."""
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]


def claim(
    name: str,
    volume: str = "",
    *,
    namespace: str = "default",
    modes: Sequence[str] = ("ReadWriteOnce",),
    class_name: str | None = None,
    storage: str = "1Gi",
    annotations: Mapping[str, str] | None = None,
    owner: PodInfo | None = None,
    **more: Any,
) -> Json:
    """Return a PersistentVolumeClaim.

    Args:
        name: its name.
        volume: the PersistentVolume it is bound to; "" for none yet.
        namespace: its namespace.
        modes: its access modes.
        class_name: its StorageClass.
        storage: its requested size.
        annotations: annotations beside the one that marks it as bound.
        owner: the pod that it was created for.
        more: other fields of its spec, as in JSON.
    """
    spec: Json = {"accessModes": list(modes), "resources": {"requests": {"storage": storage}}, **more}
    metadata: Json = {"annotations": dict(annotations or {}), "uid": f"uid-of-claim-{name}"}
    if class_name is not None:
        spec["storageClassName"] = class_name
    if volume:
        spec["volumeName"] = volume
        metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
        ]
    status = {"phase": "Bound" if volume else "Pending"}
    return _object("PersistentVolumeClaim", name, namespace=namespace, **metadata) | {
        "spec": spec,
        "status": status,
    }


def volume(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    driver: str = DRIVER,
    phase: str = "Bound",
    **source: Any,
) -> Json:
    """Return a PersistentVolume.

    Args:
        name: its name, and its volume handle.
        labels: its labels.
        driver: its CSI driver.
        phase: its phase; "Available" for an unbound volume.
        source: other fields of its spec, as in JSON; `csi=None` removes its driver.
    """
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": driver, "volumeHandle": name},
        **source,
    }
    return _object("PersistentVolume", name, labels=dict(labels or {})) | {
        "spec": {field: value for field, value in spec.items() if value is not None},
        "status": {"phase": phase},
    }


def only_on(key: str, *values: str) -> Json:
    """Return the node affinity of a volume that nodes with one of these labels can access."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def storage_class(
    name: str,
    *,
    mode: str | None = "WaitForFirstConsumer",
    provisioner: str = DRIVER,
    topologies: Sequence[Mapping[str, Sequence[str]]] = (),
) -> Json:
    """Return a StorageClass.

    Args:
        name: its name.
        mode: its volumeBindingMode; None for none.
        provisioner: its provisioner.
        topologies: allowed topologies: label -> values; one of them is enough.
    """
    allowed = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in each.items()]}
        for each in topologies
    ]
    found = _object("StorageClass", name) | {"provisioner": provisioner, "allowedTopologies": allowed}
    return found if mode is None else found | {"volumeBindingMode": mode}


def csi_driver(name: str = DRIVER, *, storage_capacity: bool | None = True) -> Json:
    """Return a CSIDriver that reports its storage capacity, or not."""
    return _object("CSIDriver", name) | {"spec": {"storageCapacity": storage_capacity}}


def storage_capacity(
    name: str, class_name: str, capacity: str | None, *, labels: Mapping[str, str] | None = None, **more: Any
) -> Json:
    """Return the CSIStorageCapacity of a class on nodes with these labels; without labels, no node has access."""
    found = _object("CSIStorageCapacity", name, namespace="kube-system") | {"storageClassName": class_name}
    if labels is not None:
        found["nodeTopology"] = {"matchLabels": dict(labels)}
    return found | ({} if capacity is None else {"capacity": capacity}) | more


def csi_node(name: str, limits: Mapping[str, int | None], *, migrated: Sequence[str] = ()) -> Json:
    """Return the CSINode of a node.

    Args:
        name: name of the node.
        limits: driver -> number of volumes that it can attach; None for no limit.
        migrated: in-tree plugins that are migrated to drivers.
    """
    drivers = [
        {"name": driver, "nodeID": name, **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else {}
    return _object("CSINode", name, annotations=annotations) | {"spec": {"drivers": drivers}}


def volume_attachment(name: str, *, node: str, volume: str | None, attacher: str = DRIVER) -> Json:
    """Return the VolumeAttachment of a PersistentVolume to a node; None for an inline volume."""
    source = {} if volume is None else {"persistentVolumeName": volume}
    spec = {"attacher": attacher, "nodeName": node, "source": source}
    return _object("VolumeAttachment", name) | {"spec": spec}


def _object(kind: str, name: str, **metadata: Any) -> Json:
    return {"apiVersion": _KINDS[kind][0], "kind": kind, "metadata": {"name": name, **metadata}}
