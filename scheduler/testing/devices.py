"""Devices, their classes and claims to them, for tests, as the API server would send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ClusterTable

Json = dict[str, Any]

DRIVER = "gpu.example.com"
"""The driver of all devices here that say no other."""

CLASS = "gpu"
"""The class of what is claimed here that says no other."""

_GROUP = "resource.k8s.io/v1"
_PLURALS = {
    "ResourceClaim": "resourceclaims",
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
}
_CREATED = "2026-03-01T08:00:00Z"


def watch_devices(table: ClusterTable, *objects: Mapping[str, Any]) -> None:
    """Have a table keep all kinds of devices, and these objects of them."""
    for plural in _PLURALS.values():
        table.watch_kind(f"{_GROUP}/{plural}")
    for each in objects:
        table.watch_kind(f"{_GROUP}/{_PLURALS[each['kind']]}")[object_key(each)] = each


def unsaved(obj: Mapping[str, Any]) -> Json:
    """Return an object as somebody would write it who has it created: without status, and what the server fills in."""
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
    """Return a DeviceClass; `expressions` are CEL, without any all devices are of the class."""
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
        node: whose devices they are; "" says nothing of nodes, `more` may.
        devices: as JSON, or how many there are: `gpu-0`, `gpu-1`, ...
        driver: whose.
        pool: its name; that of the node if not given.
        name: of the slice; made from the others if not given.
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


def exactly(name: str = "r0", count: int = 1, *, device_class: str = CLASS, **more: Any) -> Json:
    """Return a request for so many devices of a class; `more` are other fields as in JSON."""
    wanted = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": wanted}


def first_available(name: str, *classes: str) -> Json:
    """Return a request for a device of the first of some classes that has one: `s0`, `s1`, ..."""
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
        devices: their names.
        node: the only node where they can be used; "" is everywhere.
        driver: whose they are.
        pool: their pool; that of the node if not given.
        request: of the claim.
        timestamp: when they were allocated.
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
        requests: what it is for; one device of the usual class if not given.
        namespace: its namespace.
        allocated: what it was given, as `allocation` returns it.
        reserved_for: the pods that use it.
        devices: what drivers say of its devices, as in JSON.
        owner: the pod that it was made for.
        deleted: whether it is being deleted.
        version: its resourceVersion.
        uid: made from namespace and name if not given.
        metadata: further metadata as in JSON.
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
