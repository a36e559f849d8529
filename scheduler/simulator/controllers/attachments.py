"""Stands in for the attach-detach controller: says of every node which volumes of drivers its pods need attached.

Source:
    kube-controller-manager v1.36, pkg/controller/volume/attachdetach, and pkg/volume/csi/csi_attacher.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, key_of
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.kinds.pods import has_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

ATTACHMENTS: Final = "volumeattachments.storage.k8s.io"


class Attachments(Controller):
    """Makes VolumeAttachments for bound claims of pods on nodes, and deletes those that no pod needs."""

    resources = ("pods", "persistentvolumeclaims")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._pods: dict[
            str, tuple[str, tuple[str, ...]]
        ] = {}  # uid of a pod -> its node, keys of its claims
        self._attached: dict[tuple[str, str], str] = {}  # (node, volume) -> attachment
        self._changed = False

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if resource != "pods":
            self._changed = True
            return
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName", "")
        claims = () if type_ == "DELETED" or has_ended(obj) or not node else tuple(claims_of(obj))
        if claims:
            self._changed |= self._pods.get(uid) != (node, claims)
            self._pods[uid] = (node, claims)
        elif self._pods.pop(uid, None) is not None:
            self._changed = True

    def act(self) -> None:
        if not self._changed:
            return
        self._changed = False
        wanted = dict(self._wanted())
        for place in [one for one in self._attached if one not in wanted]:
            name = self._attached.pop(place)
            if self.store.find(ATTACHMENTS, name) is not None:
                self.store.delete(ATTACHMENTS, name)
        for place, volume in wanted.items():
            if place not in self._attached:
                self._attached[place] = self._attach(place[0], volume)

    def _wanted(self) -> Iterator[tuple[tuple[str, str], Object]]:
        """Yield where which volumes are to be attached."""
        for node, claims in self._pods.values():
            for key in claims:
                namespace, _, name = key.partition("/")
                claim = self.store.find("persistentvolumeclaims", name, namespace)
                volume_name = "" if claim is None else claim["spec"].get("volumeName", "")
                volume = self.store.find("persistentvolumes", volume_name) if volume_name else None
                if volume is not None and self._is_attachable(volume):
                    yield (node, volume_name), volume

    def _is_attachable(self, volume: Object) -> bool:
        csi = volume["spec"].get("csi")
        if csi is None or is_terminating(volume):
            return False
        driver = self.store.find("csidrivers.storage.k8s.io", csi["driver"])
        return driver is None or bool(driver["spec"]["attachRequired"])

    def _attach(self, node: str, volume: Object) -> str:
        csi, volume_name = volume["spec"]["csi"], key_of(volume)[1]
        digest = hashlib.sha256(f"{csi['volumeHandle']}{csi['driver']}{node}".encode()).hexdigest()
        name = f"csi-{digest}"
        if self.store.find(ATTACHMENTS, name) is None:
            spec = {
                "attacher": csi["driver"],
                "nodeName": node,
                "source": {"persistentVolumeName": volume_name},
            }
            self.store.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
        return name


def claims_of(pod: Object, *, but_ephemeral: bool = False) -> Iterator[str]:
    """Yield the keys of the claims that a pod's volumes are of, on demand but those that were made for it."""
    namespace, pod_name = key_of(pod)
    for volume in pod["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield f"{namespace}/{volume['persistentVolumeClaim'].get('claimName', '')}"
        elif "ephemeral" in volume and not but_ephemeral:
            yield f"{namespace}/{pod_name}-{volume['name']}"
