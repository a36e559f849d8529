"""Simulates the attach-detach controller: creates the VolumeAttachments that the pods of each node need.

Source:
    kube-controller-manager v1.36, pkg/controller/volume/attachdetach, and pkg/volume/csi/csi_attacher.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, key_of
from scheduler.simulator.controllers.controller import QueueController
from scheduler.simulator.kinds.pods import has_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

ATTACHMENTS: Final = "volumeattachments.storage.k8s.io"


class Attachments(QueueController):
    """Creates VolumeAttachments for bound claims of pods on nodes, and deletes those that no pod needs."""

    resources = ("pods", "persistentvolumeclaims")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._claims: dict[str, list[str]] = {}  # uid of a pod on a node -> keys of its claims
        self._users: dict[str, dict[str, str]] = {}  # key of a claim -> uid of a pod -> its node
        self._attached: dict[str, dict[str, str]] = {}  # key of a claim -> node -> attachment

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource != "pods":
            self.enqueue("/".join(key_of(obj)))
            return
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName", "")
        claims = [] if type_ == "DELETED" or has_ended(obj) or not node else list(claims_of(obj))
        for key in self._claims.pop(uid, []):
            if key not in claims:
                del self._users[key][uid]
                self.enqueue(key)
        for key in claims:
            if self._users.setdefault(key, {}).get(uid) != node:
                self._users[key][uid] = node
                self.enqueue(key)
        if claims:
            self._claims[uid] = claims

    def reconcile(self, key: str) -> None:
        volume = self._volume_of(key)
        wanted = set() if volume is None else set(self._users.get(key, {}).values())
        attached = self._attached.setdefault(key, {})
        for node in set(attached) - wanted:
            name = attached.pop(node)
            if self.store.find(ATTACHMENTS, name) is not None:
                self.store.delete(ATTACHMENTS, name)
        if volume is not None:
            attached |= {node: self._attach(node, volume) for node in sorted(wanted - set(attached))}
        if not attached:
            del self._attached[key]

    def _volume_of(self, key: str) -> Object | None:
        """Return the volume of a claim, if it has to be attached."""
        namespace, _, name = key.partition("/")
        claim = self.store.find("persistentvolumeclaims", name, namespace)
        volume_name = "" if claim is None else claim["spec"].get("volumeName", "")
        volume = self.store.find("persistentvolumes", volume_name) if volume_name else None
        if volume is None or is_terminating(volume) or "csi" not in volume["spec"]:
            return None
        driver = self.store.find("csidrivers.storage.k8s.io", volume["spec"]["csi"]["driver"])
        return volume if driver is None or driver["spec"]["attachRequired"] else None

    def _attach(self, node: str, volume: Object) -> str:
        csi = volume["spec"]["csi"]
        digest = hashlib.sha256(f"{csi['volumeHandle']}{csi['driver']}{node}".encode()).hexdigest()
        name = f"csi-{digest}"
        if self.store.find(ATTACHMENTS, name) is None:
            source = {"persistentVolumeName": key_of(volume)[1]}
            spec = {"attacher": csi["driver"], "nodeName": node, "source": source}
            self.store.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
        return name


def claims_of(pod: Object, *, but_ephemeral: bool = False) -> Iterator[str]:
    """Yield the keys of the claims of a pod's volumes, optionally without those of ephemeral volumes."""
    namespace, pod_name = key_of(pod)
    for volume in pod["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield f"{namespace}/{volume['persistentVolumeClaim'].get('claimName', '')}"
        elif "ephemeral" in volume and not but_ephemeral:
            yield f"{namespace}/{pod_name}-{volume['name']}"
