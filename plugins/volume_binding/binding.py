"""Binds a pod's volumes: assumes the changes, writes them, and waits for the PV controller and the provisioners.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, AssumePodVolumes, BindPodVolumes and what they call;
    component-helpers/storage/volume/pv_helpers.go, GetBindVolumeToClaim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plugins.volume_binding.claims import SELECTED_NODE, is_fully_bound, key_of, reach_on
from plugins.volume_binding.reachability import reaches
from plugins.volumes.storage import CLAIMS, VOLUMES, StorageObjects
from scheduler.errors import ApiError
from scheduler.framework import EventResource, Status
from scheduler.snapshot import object_key, resource_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plugins.volume_binding.node_volumes import VolumesOnNode
    from scheduler.framework import ApiWrite, Clock, ClusterObjects, KeyedLock, WaitForEvent
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim

BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of volumes that were not pre-bound to their claims."""


@dataclass(slots=True)
class VolumeChange:
    """A planned change of an object.

    Attributes:
        kind: the kind of the object.
        claim: `namespace/name` of the claim of the change: the object itself, or the claim that the volume is bound to.
        after: the object after the change; once it is written, the API server's response.
        is_assumed: whether the cache shows the object with this change.
        is_written: whether the change was written to the API server.
    """

    kind: str
    claim: str
    after: Mapping[str, Any]
    is_assumed: bool
    is_written: bool = False

    @property
    def name(self) -> str:
        return str(self.after["metadata"]["name"])

    @property
    def path(self) -> str:
        """The path of the object in the API."""
        namespace = self.after["metadata"].get("namespace")
        plural = self.kind.rpartition("/")[2]
        return (
            f"/api/v1/namespaces/{namespace}/{plural}/{self.name}"
            if namespace
            else f"/api/v1/{plural}/{self.name}"
        )

    def is_made_in(self, other: Mapping[str, Any]) -> bool:
        """Return whether a later version of the object contains this change."""
        if resource_version(other) <= resource_version(self.after):
            return False
        if other["metadata"].get("uid") != self.after["metadata"].get("uid"):
            return False
        if self.kind == VOLUMES:
            held, wanted = other["spec"].get("claimRef") or {}, self.after["spec"]["claimRef"]
            return all(held.get(field) == wanted.get(field) for field in ("namespace", "name", "uid"))
        made, wanted = (each["metadata"].get("annotations") or {} for each in (other, self.after))
        return bool(made.get(SELECTED_NODE) == wanted[SELECTED_NODE])


class _BindingFailedError(Exception):
    """The volumes cannot be bound this way; the pod has to be scheduled again."""


class VolumeBinder:
    """Binds the volumes that were chosen for a pod on its node.

    Args:
        timeout_seconds: how long to wait for volumes to be bound after everything is written.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        writer: ApiWrite,
        happenings: WaitForEvent,
        locks: KeyedLock,
        clock: Clock,
        timeout_seconds: float,
    ) -> None:
        self._objects = objects
        self._storage = StorageObjects(objects)
        self._writer = writer
        self._happenings = happenings
        self._locks = locks
        self._clock = clock
        self._timeout_seconds = timeout_seconds

    # Before and after binding.

    def assume(self, volumes: VolumesOnNode, node_name: str) -> Sequence[VolumeChange]:
        """Assume volumes and claims in the cache, so that no other pod counts on them; return the changes to write."""
        changes = [self._claimed(name, claim) for claim, name in volumes.bindings]
        changes += [self._placed(claim, node_name) for claim in volumes.provisions]
        for change in changes:
            if change.is_assumed:
                self._objects.assume(change.kind, change.after)
        return changes

    def restore(self, changes: Sequence[VolumeChange]) -> None:
        """Undo the assumed changes that were not written, unless another pod has assumed the object since."""
        for change in changes:
            key = object_key(change.after)
            shown = self._objects.objects(change.kind).get(key)
            if not change.is_written and shown is change.after:
                self._objects.restore(change.kind, key)

    def _claimed(self, name: str, claim: PersistentVolumeClaim) -> VolumeChange:
        """Return the change that binds a volume to a claim."""
        before = self._objects.objects(VOLUMES)[name]
        wanted = {
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
            "apiVersion": "v1",
            "resourceVersion": claim.metadata.resource_version,
        }
        held = before["spec"].get("claimRef")
        is_new = held is None or any(
            held.get(field) != wanted[field] for field in ("namespace", "name", "uid")
        )
        annotations = before["metadata"].get("annotations") or {}
        if held is None and BOUND_BY_CONTROLLER not in annotations:
            annotations = {**annotations, BOUND_BY_CONTROLLER: "yes"}
        after = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            **before,
            "metadata": {**before["metadata"], "annotations": annotations},
            "spec": {**before["spec"], "claimRef": wanted if is_new else held},
        }
        return VolumeChange(VOLUMES, key_of(claim), after, is_assumed=is_new)

    def _placed(self, claim: PersistentVolumeClaim, node_name: str) -> VolumeChange:
        """Return the change of a claim whose volume is to be provisioned for a node."""
        before = self._objects.objects(CLAIMS)[key_of(claim)]
        annotations = {**(before["metadata"].get("annotations") or {}), SELECTED_NODE: node_name}
        after = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            **before,
            "metadata": {**before["metadata"], "annotations": annotations},
        }
        return VolumeChange(CLAIMS, key_of(claim), after, is_assumed=True)

    # Binding, in the background.

    async def bind(self, pod: PodInfo, node_name: str, changes: Sequence[VolumeChange]) -> Status | None:
        """Write the assumed changes and wait until all claims are bound; return a failure if they will not be."""
        for change in changes:
            try:
                # Other pods of a group may write the same change of a claim that they share.
                async with self._locks.lock(change.path):
                    await self._write(change)
            except ApiError as error:
                return Status.failed(str(error), error)
        try:
            await self._wait_bound(pod, node_name, changes)
        except _BindingFailedError as error:
            return Status.failed(f"binding volumes: {error}")
        return None

    async def _write(self, change: VolumeChange) -> None:
        """Write a change, unless another pod has written the same change of the claim meanwhile.

        Raises:
            ApiError: the write was rejected, or there was no response.
        """
        shown = self._objects.objects(change.kind).get(object_key(change.after))
        if shown is not None and change.is_made_in(shown):
            change.after, change.is_written = shown, True
            return
        answer = await self._writer.api_write("PUT", change.path, change.after)
        change.after, change.is_written = answer, True
        if object_key(answer) in self._objects.objects(change.kind):
            self._objects.assume(change.kind, answer)

    async def _wait_bound(self, pod: PodInfo, node_name: str, changes: Sequence[VolumeChange]) -> None:
        """Wait until all claims are fully bound.

        Raises:
            _BindingFailedError: the claims will not be bound, or were not bound in time.
        """
        deadline = self._clock.monotonic() + self._timeout_seconds
        while not self._is_bound(pod, node_name, changes):
            left = deadline - self._clock.monotonic()
            involved = [*self._involved(pod, node_name, changes)]
            if left <= 0 or not await self._happenings.wait_for_change_of(involved, timeout_seconds=left):
                raise _BindingFailedError("context deadline exceeded")

    def _involved(
        self, pod: PodInfo, node_name: str, changes: Sequence[VolumeChange]
    ) -> Iterator[tuple[EventResource, str]]:
        """Yield the objects whose changes may end the wait."""
        yield EventResource.POD, pod.key
        yield EventResource.NODE, node_name
        yield EventResource.CSI_NODE, node_name
        for change in changes:
            yield EventResource.PERSISTENT_VOLUME_CLAIM, change.claim
            claim = self._storage.claim(change.claim)
            if change.kind == VOLUMES:
                yield EventResource.PERSISTENT_VOLUME, change.name
            if claim is not None and claim.spec.volume_name:
                yield EventResource.PERSISTENT_VOLUME, claim.spec.volume_name

    def _is_bound(self, pod: PodInfo, node_name: str, changes: Sequence[VolumeChange]) -> bool:
        """Return whether all claims are fully bound.

        Raises:
            _BindingFailedError: the claims will not be bound.

        Source:
            kube-scheduler v1.36, plugins/volumebinding/binder.go, checkBindings.
        """
        node = self._node_with(pod, node_name)
        return all(
            self._is_claim_bound_to(change, node)
            if change.kind == VOLUMES
            else self._is_claim_provisioned(change, node)
            for change in changes
        )

    def _node_with(self, pod: PodInfo, node_name: str) -> NodeObject:
        """Return the node, if the pod is still assumed on it."""
        snapshot = self._objects.snapshot()
        row = snapshot.row_of(node_name)
        if row is None:
            raise _BindingFailedError(f'failed to get node "{node_name}": node "{node_name}" not found')
        if all(each.uid != pod.uid for each in snapshot.pods_on(row)):
            raise _BindingFailedError(f'pod does not exist any more: pod "{pod.name}" not found')
        return snapshot.nodes[row]

    def _is_claim_bound_to(self, change: VolumeChange, node: NodeObject) -> bool:
        """Return whether a claim is bound, after a volume names it."""
        volume = self._storage.volume(change.name)
        if volume is None:
            raise _BindingFailedError(f'failed to check binding: persistentvolumes "{change.name}" not found')
        claim = self._storage.claim(change.claim)
        if claim is None:
            raise _BindingFailedError(
                f'failed to check binding: persistentvolumeclaims "{change.claim}" not found'
            )
        if self._is_behind(change):
            return False
        self._check_reached(volume, node, "failed to translate pv to csi: ")
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            raise _BindingFailedError(f'ClaimRef got reset for pv "{change.name}"')
        return self._is_bound_within_reach(claim, node)

    def _is_claim_provisioned(self, change: VolumeChange, node: NodeObject) -> bool:
        """Return whether a volume was provisioned and bound to a claim, after the claim names its node."""
        claim = self._storage.claim(change.claim)
        if claim is None:
            raise _BindingFailedError(
                f'failed to check provisioning pvc: persistentvolumeclaims "{change.claim}" not found'
            )
        if self._is_behind(change):
            return False
        if not claim.metadata.annotations:
            raise _BindingFailedError(f'selectedNode annotation reset for PVC "{change.name}"')
        if claim.metadata.annotations.get(SELECTED_NODE) != node.name:
            # A provisioner resets the annotation if it cannot provision the volume there.
            raise _BindingFailedError(f'provisioning failed for PVC "{change.name}"')
        return self._is_bound_within_reach(claim, node)

    def _is_bound_within_reach(self, claim: PersistentVolumeClaim, node: NodeObject) -> bool:
        """Return whether a claim is bound, to a volume that the node can reach.

        It may be another volume than the chosen one: another scheduler, or another replica, may choose one for a second pod
        of the claim at the same moment. kube-scheduler makes this check for provisioned volumes only.
        """
        if claim.spec.volume_name:
            volume = self._storage.bound_volume(claim)
            if volume is None:
                return False  # its event has not arrived yet
            self._check_reached(volume, node)
        return is_fully_bound(claim)

    def _is_behind(self, change: VolumeChange) -> bool:
        """Return whether the cache does not show an object as it was written."""
        shown = self._objects.objects(change.kind)[object_key(change.after)]
        return resource_version(shown) < resource_version(change.after)

    def _check_reached(self, volume: PersistentVolume, node: NodeObject, prefix: str = "") -> None:
        """Raise an error if a node cannot reach a volume."""
        try:
            reach = reach_on(volume, self._storage.csi_node(node.name))
        except ValueError as error:
            raise _BindingFailedError(f"{prefix}{error}") from error
        if not reaches(reach, node.labels):
            raise _BindingFailedError(
                f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node.name}": '
                "no matching NodeSelectorTerms"
            )
