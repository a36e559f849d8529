"""Devices, DeviceClasses and ResourceClaims for tests, as the API server sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable

Json = dict[str, Any]

DRIVER = "gpu.example.com"
"""The default driver of devices."""

CLASS = "gpu"
"""The default DeviceClass of requests."""

_GROUP = "resource.k8s.io/v1"
_PLURALS = {
    "ResourceClaim": "resourceclaims",
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
}
_CREATED = "2026-03-01T08:00:00Z"


def watch_devices(table: ClusterTable, *objects: Mapping[str, Any]) -> None:
    """Make a table keep all kinds of devices, and add these objects."""
    for plural in _PLURALS.values():
        table.watch_kind(f"{_GROUP}/{plural}")
    for each in objects:
        table.watch_kind(f"{_GROUP}/{_PLURALS[each['kind']]}")[object_key(each)] = each


def unsaved(obj: Mapping[str, Any]) -> Json:
    """Return an object as a user would create it: without status and fields that the server sets."""
    filled_in = {"uid", "resourceVersion", "creationTimestamp"}
    metadata = {name: value for name, value in obj["metadata"].items() if name not in filled_in}
    return {name: value for name, value in obj.items() if name != "status"} | {"metadata": metadata}


def claims_of(*names: str) -> list[Json]:
    """Return spec.resourceClaims of a pod that uses these claims."""
    return [{"name": f"c{number}", "resourceClaimName": name} for number, name in enumerate(names)]


def device_class(
    name: str = CLASS,
    *expressions: str,
    extended_resource: str | None = None,
    created: str = _CREATED,
    version: int = 1,
) -> Json:
    """Return a DeviceClass; `expressions` are CEL; without any, the class contains all devices."""
    spec: Json = {"selectors": [{"cel": {"expression": each}} for each in expressions]}
    if extended_resource is not None:
        spec["extendedResourceName"] = extended_resource
    metadata = _metadata(name, version) | {"creationTimestamp": created}
    return {"apiVersion": _GROUP, "kind": "DeviceClass", "metadata": metadata, "spec": spec}


def resource_slice(
    node: str = "",
    devices: int | Sequence[Mapping[str, Any]] = 1,
    *,
    driver: str = DRIVER,
    pool: str = "",
    name: str = "",
    version: int = 1,
    **more: Any,
) -> Json:
    """Return the only ResourceSlice of a pool.

    Args:
        node: the node of the devices; "" for none; `more` may select nodes.
        devices: the devices as JSON, or their number: `gpu-0`, `gpu-1`, ...
        driver: their driver.
        pool: name of the pool; by default that of the node.
        name: name of the slice; by default made from the others.
        version: its resourceVersion.
        more: other fields of its spec, as in JSON.
    """
    pool = pool or node or "shared"
    if isinstance(devices, int):
        devices = [{"name": f"gpu-{number}"} for number in range(devices)]
    spec: Json = {
        "driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices),
        **({"nodeName": node} if node else {}),
        **more,
    }
    metadata = _metadata(name or f"{pool}-{driver}", version)
    return {"apiVersion": _GROUP, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def taint_rule(
    name: str, selector: Mapping[str, str] | None, key: str = "broken", *, effect: str = "NoSchedule"
) -> Json:
    """Return a DeviceTaintRule for the devices with the selector's driver, pool and device; None for no selector."""
    spec: Json = {"taint": {"key": key, "effect": effect}}
    if selector is not None:
        spec["deviceSelector"] = dict(selector)
    return {"apiVersion": _GROUP, "kind": "DeviceTaintRule", "metadata": _metadata(name, 1), "spec": spec}


def exactly(name: str = "r0", count: int = 1, *, device_class: str = CLASS, **more: Any) -> Json:
    """Return a request for a number of devices of a class; `more` are other fields, as in JSON."""
    wanted = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": wanted}


def first_available(name: str, *classes: str) -> Json:
    """Return a request for a device of the first class that has one; the subrequests are named `s0`, `s1`, ..."""
    alternatives = [
        {
            "name": f"s{number}",
            "deviceClassName": each,
            "allocationMode": "ExactCount",
            "count": 1,
        }
        for number, each in enumerate(classes)
    ]
    return {"name": name, "firstAvailable": alternatives}


def allocation(
    *devices: str,
    node: str = "",
    driver: str = DRIVER,
    pool: str = "",
    request: str = "r0",
    timestamp: str = "",
    **more: Any,
) -> Json:
    """Return an AllocationResult.

    Args:
        devices: names of the devices.
        node: the only node that can use them; "" for all nodes.
        driver: their driver.
        pool: their pool; by default that of the node.
        request: the request of the claim.
        timestamp: time of the allocation.
        more: other fields of each device's result, as in JSON.
    """
    results = [
        {"request": request, "driver": driver, "pool": pool or node, "device": device, **more}
        for device in devices
    ]
    found: Json = {"devices": {"results": results}}
    if node:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        found["nodeSelector"] = {"nodeSelectorTerms": [term]}
    if timestamp:
        found["allocationTimestamp"] = timestamp
    return found


def resource_claim(
    name: str,
    *requests: Mapping[str, Any],
    namespace: str = "default",
    allocated: Mapping[str, Any] | None = None,
    reserved_for: Iterable[PodInfo] = (),
    devices: Sequence[Mapping[str, Any]] = (),
    owner: PodInfo | None = None,
    deleted: bool = False,
    version: int = 1,
    uid: str = "",
    **metadata: Any,
) -> Json:
    """Return a ResourceClaim.

    Args:
        name: its name.
        requests: its requests; by default one device of the default class.
        namespace: its namespace.
        allocated: its allocation, as `allocation` returns it.
        reserved_for: pods that use it.
        devices: status of its devices from drivers, as in JSON.
        owner: the pod that it was created for.
        deleted: whether it is being deleted.
        version: its resourceVersion.
        uid: its uid; made from namespace and name if not given.
        metadata: other metadata, as in JSON.
    """
    meta: Json = {
        **_metadata(name, version),
        "namespace": namespace,
        "uid": uid or f"uid-of-{namespace}-{name}",
        **metadata,
    }
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
        ]
    if deleted:
        meta["deletionTimestamp"] = _CREATED
    status: Json = {}
    if allocated is not None:
        status["allocation"] = allocated
    if reserved := [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in reserved_for]:
        status["reservedFor"] = reserved
    if devices:
        status["devices"] = list(devices)
    return {
        "apiVersion": _GROUP,
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": list(requests or (exactly(),))}},
        "status": status,
    }


def _metadata(name: str, version: int) -> Json:
    return {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version)}
