"""The claims of a StatefulSet's pods: one for each template and ordinal, with the set's retention policy.

Source:
    kube-controller-manager v1.36, pkg/controller/statefulset/{stateful_pod_control,stateful_set_utils}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import key_of, labels_of, owned_by
from scheduler.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_CLAIMS: Final = "persistentvolumeclaims"


class ClaimsOfPods:
    """Creates claims, and releases them as the retention policy requires."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make(self, stateful_set: Object, ordinal: int) -> dict[str, Object] | None:
        """Create the missing claims of a pod.

        Returns:
            The volumes of the pod for these claims, by name; None if a claim cannot be created now.
        """
        spec, (namespace, name) = stateful_set["spec"], key_of(stateful_set)
        owned = spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"
        volumes = {}
        for template in spec.get("volumeClaimTemplates", ()):
            volume = template["metadata"]["name"]
            claim = f"{volume}-{name}-{ordinal}"
            volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            if self._store.find(_CLAIMS, claim, namespace) is not None:
                continue
            labels = labels_of(template) | spec["selector"].get("matchLabels", {})
            metadata = template["metadata"] | {"name": claim, "labels": labels}
            if owned:
                metadata["ownerReferences"] = owned_by(stateful_set)
            try:
                self._store.create(
                    _CLAIMS, {"metadata": metadata, "spec": template["spec"]}, namespace=namespace
                )
            except StatusError:
                return None
        return volumes

    def release(self, stateful_set: Object, pod: Object) -> None:
        """Make a pod that is scaled down the owner of its claims, if that is the policy."""
        spec = stateful_set["spec"]
        if spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] != "Delete":
            return
        templates = {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", ())}
        namespace = key_of(pod)[0]
        for volume in pod["spec"].get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            claim = self._store.find(_CLAIMS, name, namespace) if volume["name"] in templates else None
            if claim is not None:
                self._store.change(claim, {"metadata": {"ownerReferences": owned_by(pod)}})
