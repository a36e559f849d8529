"""Claims, volumes and what nodes can attach, for tests, as the API server would send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable

Json = dict[str, Any]

DRIVER = "disk.example.com"
"""The driver of all volumes here that say no other."""

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
    """Have a table keep all kinds of storage, and these objects of them."""
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
        modes: the access modes it asks for.
        class_name: its StorageClass.
        storage: how much it asks for.
        annotations: beside the one that says it is bound.
        owner: the pod it was made for.
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
        name: its name, and its driver's handle of it.
        labels: its labels.
        driver: its CSI driver.
        phase: its status; "Available" for one that waits for a claim.
        source: other fields of its spec, as in JSON; without `csi=None` it keeps its driver.
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
    """Return the node affinity of a volume that is reached from nodes with one of these labels."""
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
        mode: when its volumes are bound; None is one that nobody defaulted.
        provisioner: who makes its volumes.
        topologies: where: label -> values, any of which is enough.
    """
    allowed = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in each.items()]}
        for each in topologies
    ]
    found = _object("StorageClass", name) | {"provisioner": provisioner, "allowedTopologies": allowed}
    return found if mode is None else found | {"volumeBindingMode": mode}


def csi_driver(name: str = DRIVER, *, storage_capacity: bool | None = True) -> Json:
    """Return a CSIDriver that tells what room it has, or not."""
    return _object("CSIDriver", name) | {"spec": {"storageCapacity": storage_capacity}}


def storage_capacity(
    name: str, class_name: str, capacity: str | None, *, labels: Mapping[str, str] | None = None, **more: Any
) -> Json:
    """Return the CSIStorageCapacity of a class on nodes with these labels; None says that no node has access."""
    found = _object("CSIStorageCapacity", name, namespace="kube-system") | {"storageClassName": class_name}
    if labels is not None:
        found["nodeTopology"] = {"matchLabels": dict(labels)}
    return found | ({} if capacity is None else {"capacity": capacity}) | more


def csi_node(name: str, limits: Mapping[str, int | None], *, migrated: Sequence[str] = ()) -> Json:
    """Return the CSINode of a node.

    Args:
        name: the node's.
        limits: driver -> how many volumes it can attach, None where it does not say.
        migrated: the in-tree plugins whose work is done by drivers there.
    """
    drivers = [
        {"name": driver, "nodeID": name, **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else {}
    return _object("CSINode", name, annotations=annotations) | {"spec": {"drivers": drivers}}


def volume_attachment(name: str, *, node: str, volume: str | None, attacher: str = DRIVER) -> Json:
    """Return the VolumeAttachment of a PersistentVolume to a node; None is a volume without one."""
    source = {} if volume is None else {"persistentVolumeName": volume}
    spec = {"attacher": attacher, "nodeName": node, "source": source}
    return _object("VolumeAttachment", name) | {"spec": spec}


def _object(kind: str, name: str, **metadata: Any) -> Json:
    return {"apiVersion": _KINDS[kind][0], "kind": kind, "metadata": {"name": name, **metadata}}
