"""The smallest volumes, claims and classes, and queries of their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.tools.simulator.a_store import AStore

Object = dict[str, Any]

DRIVER = "disk.example.com"
ZONE = "topology.kubernetes.io/zone"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def volume(name: str, size: str = "10Gi", **spec: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": name},
            **spec,
        },
    }


def claim(name: str, size: str = "1Gi", **spec: Any) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": asked | spec}


def storage_class(name: str, *, waits: bool = False, **more: Any) -> Object:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode, **more}


def using(name: str, *claims: str, **spec: Any) -> Object:
    """Return a pod with the claims as its volumes."""
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": one}} for i, one in enumerate(claims)]
    container = {"name": "c", "image": "nginx"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "volumes": volumes, **spec}}


def phase(store: AStore, resource: str, name: str) -> str:
    return str(store.get(resource, name)["status"]["phase"])


def bound_volume(store: AStore, name: str) -> str:
    """Return the volume a claim is bound to; "" if both do not say so."""
    found = store.get("persistentvolumeclaims", name)
    volume_name = found["spec"].get("volumeName", "")
    if not volume_name or found["status"]["phase"] != "Bound":
        return ""
    other = store.get("persistentvolumes", volume_name)
    is_ours = other["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    return volume_name if is_ours and other["status"]["phase"] == "Bound" else ""


def select_node(store: AStore, name: str, node: str) -> None:
    """Say of a claim which node the scheduler has chosen."""
    patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
    store.patch("persistentvolumeclaims", name, patch)


def events_of(store: AStore, name: str) -> list[str]:
    """Return the reasons of an object's events, in their order."""
    found = store.list("events", fields=f"involvedObject.name={name}")
    found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    return [str(one["reason"]) for one in found]
