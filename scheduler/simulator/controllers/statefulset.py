"""Simulates the StatefulSet controller: ordinal pods, one after another, with their claims.

Source:
    kube-controller-manager v1.36, pkg/controller/statefulset/{stateful_pod_control,stateful_set_utils}.go.
    kube-controller-manager v1.36, pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, key_of, labels_of, owned_by
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import (
    RETRY_SECONDS,
    REVISION_LABEL,
    WorkloadController,
    template_hash,
)
from scheduler.simulator.kinds.pods import has_ended, is_ready

if TYPE_CHECKING:
    from collections.abc import Sequence

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


_POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


class StatefulSetController(WorkloadController):
    """Creates, replaces and deletes the pods of StatefulSets in order."""

    resources = ("statefulsets.apps", "pods")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._volumes = ClaimsOfPods(store)

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        if is_terminating(workload):
            return
        revision = f"{workload['metadata']['name']}-{template_hash(workload['spec']['template'])}"
        self._step(workload, owned, revision)
        self._report(workload, owned, revision)

    def _step(self, stateful_set: Object, pods: dict[str, Object], revision: str) -> None:
        spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
        wanted = [f"{name}-{index}" for index in range(spec.get("replicas", 0))]
        at_once = spec.get("podManagementPolicy") == "Parallel"
        for index, pod_name in enumerate(wanted):
            pod = pods.get(pod_name)
            if pod is None:
                self._create(stateful_set, index, revision)
            elif has_ended(pod):
                self.delete_pod(pod)
            if (pod is None or not _is_healthy(pod)) and not at_once:
                return
        for extra in sorted((one for one in pods if one not in wanted), key=_ordinal, reverse=True):
            self._volumes.release(stateful_set, pods[extra])
            self.delete_pod(pods[extra])
            if not at_once:
                return
        self._roll(spec, pods, wanted, revision)

    def _roll(self, spec: Object, pods: dict[str, Object], wanted: Sequence[str], revision: str) -> None:
        """Replace the last pod of an old template when all pods after it are healthy."""
        strategy = spec.get("updateStrategy", {})
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = strategy.get("rollingUpdate", {}).get("partition", 0)
        for pod_name in reversed(wanted[partition:]):
            pod = pods.get(pod_name)
            if pod is None or is_terminating(pod):
                return
            if labels_of(pod).get(REVISION_LABEL) != revision:
                self.delete_pod(pod)
                return
            if not _is_healthy(pod):
                return

    def _create(self, stateful_set: Object, index: int, revision: str) -> None:
        spec, name = stateful_set["spec"], f"{stateful_set['metadata']['name']}-{index}"
        labels = spec["template"].get("metadata", {}).get("labels", {}) | {
            REVISION_LABEL: revision,
            _POD_NAME_LABEL: name,
            _INDEX_LABEL: str(index),
        }
        named: Object = {"hostname": name, "subdomain": spec.get("serviceName", "")}
        volumes = self._volumes.make(stateful_set, index)
        if volumes is None:
            self.later(RETRY_SECONDS, self.look_again, stateful_set["metadata"]["uid"])
            return
        others = [one for one in spec["template"]["spec"].get("volumes", ()) if one["name"] not in volumes]
        if volumes or others:
            named["volumes"] = [*volumes.values(), *others]
        self.create_pod(stateful_set, {"name": name, "labels": labels}, named)

    def _report(self, stateful_set: Object, pods: dict[str, Object], revision: str) -> None:
        wanted = stateful_set["spec"].get("replicas", 0)
        live = [pod for pod in pods.values() if not is_terminating(pod)]
        updated = sum(labels_of(pod).get(REVISION_LABEL) == revision for pod in live)
        ready = sum(map(is_ready, live))
        before = stateful_set.get("status", {}).get("currentRevision", revision)
        done = updated == wanted == ready
        status = {
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
            "replicas": len(live),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "updatedReplicas": updated,
            "currentReplicas": updated if done or before == revision else len(live) - updated,
            "currentRevision": revision if done else before,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        self.store.change(stateful_set, {"status": status}, "status")


def _is_healthy(pod: Object) -> bool:
    return is_ready(pod) and not is_terminating(pod)


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
