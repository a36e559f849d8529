"""Simulates the controllers that bind PersistentVolumeClaims and provision volumes for them.

A claim that a volume names is bound to it; a claim with a selected node gets a new volume there, at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.drivers.provisioning import keys_of_driver, node_affinity, segment_of_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.tools.whatif.simulation.cluster import MemoryCluster

    Object = Mapping[str, Any]

VOLUMES: Final = "v1/persistentvolumes"
CLAIMS: Final = "v1/persistentvolumeclaims"
_CLASSES: Final = "storage.k8s.io/v1/storageclasses"
_CSI_NODES: Final = "storage.k8s.io/v1/csinodes"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"


def bind_volumes(cluster: MemoryCluster) -> None:
    """Bind the claims of a cluster from now on, if plugins read them."""
    controller = _Volumes(cluster)
    cluster.after_write(VOLUMES, controller.look_at_volume)
    cluster.after_write(CLAIMS, controller.look_at_claim)


class _Volumes:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def look_at_volume(self, volume: Object) -> None:
        """Bind the claim that a volume names."""
        held = volume["spec"].get("claimRef")
        if held is not None:
            claim = self._cluster.find(CLAIMS, f"{held.get('namespace', '')}/{held['name']}")
            if claim is not None and _BIND_COMPLETED not in _annotations(claim):
                self._bind(claim, volume["metadata"]["name"])

    def look_at_claim(self, claim: Object) -> None:
        """Provision a volume for a claim with a selected node, and bind it."""
        node_name = _annotations(claim).get(_SELECTED_NODE)
        node = self._cluster.nodes.get(node_name or "")
        if node is None or claim["spec"].get("volumeName"):
            return
        class_ = self._cluster.find(_CLASSES, claim["spec"].get("storageClassName") or "")
        if class_ is None:
            return
        driver, metadata = class_["provisioner"], claim["metadata"]
        csi_node = self._cluster.find(_CSI_NODES, node.name)
        segment = segment_of_node(
            {"metadata": {"labels": dict(node.labels)}},
            keys_of_driver(driver, None if csi_node is None else dict(csi_node), dict(class_)),
        )
        name = f"pvc-{metadata.get('uid') or metadata['namespace'] + '-' + metadata['name']}"
        spec: dict[str, Any] = {
            "accessModes": claim["spec"].get("accessModes", []),
            "capacity": {
                "storage": claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
            },
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata.get("uid", ""),
            },
            "csi": {"driver": driver, "volumeHandle": name},
            "storageClassName": class_["metadata"]["name"],
        }
        if segment:
            spec["nodeAffinity"] = node_affinity(segment)
        self._cluster.put_object(
            VOLUMES, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}
        )

    def _bind(self, claim: Object, volume_name: str) -> None:
        metadata = claim["metadata"]
        annotations = {**_annotations(claim), _BIND_COMPLETED: "yes"}
        self._cluster.put_object(
            CLAIMS,
            {
                **claim,
                "metadata": {**metadata, "annotations": annotations},
                "spec": {**claim["spec"], "volumeName": volume_name},
                "status": {**claim.get("status", {}), "phase": "Bound"},
            },
        )


def _annotations(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}
