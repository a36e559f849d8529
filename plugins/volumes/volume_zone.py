"""Restricts a pod to the zones and regions in the labels of its volumes.

Source:
    kube-scheduler v1.36, plugins/volumezone/volume_zone.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plugins.volumes.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_DELIMITER
from plugins.volumes.remedies import remedy_of_claims
from plugins.volumes.storage import (
    CLAIM_NOT_FOUND,
    CLAIM_UNBOUND,
    CLAIMS,
    STORAGE_CLASSES,
    VOLUME_NOT_FOUND,
    VOLUMES,
    StorageObjects,
    claim_not_found,
    claims_waited_for,
    class_not_found,
    event_key,
    event_where,
    is_named_by,
    named_claims,
    uses_read,
    volume_not_found,
)
from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    NodesExplanation,
    Outcomes,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    Status,
)
from scheduler.objects.storage import WAIT_FOR_FIRST_CONSUMER

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim
    from scheduler.snapshot import Bools, NodeInfo, Rows, Snapshot

REASON = Reason("node(s) had no available volume zone", "VolumeZoneMismatch")

_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_NEWER = {BETA_ZONE: ZONE, BETA_REGION: REGION}  # label -> the label that replaced it
_PRE_FILTER = "PreFilterVolumeZone"


class _Topology(NamedTuple):
    """A topology label of a volume, and its values."""

    label: str
    values: frozenset[str]


class VolumeZone(PreFilterPlugin, FilterPlugin):
    """Compares labels of bound volumes with those of nodes; nodes without any zone or region always pass."""

    name = "VolumeZone"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            REASON.code: "a volume of the pod is in another zone or region than the node",
            CLAIM_NOT_FOUND: "a PersistentVolumeClaim of the pod does not exist",
            VOLUME_NOT_FOUND: "the volume of a claim of the pod does not exist",
            CLAIM_UNBOUND: "a claim of the pod has no volume yet, or no class that binds it to one",
        }
    )
    reads_pods = False
    needs = Needs(kinds=frozenset({CLAIMS, VOLUMES, STORAGE_CLASSES}))
    keeps_rows_apart = True

    def signature(self, pod: PodInfo) -> Hashable | None:
        return None if pod.claims else ()  # results depend on claims and volumes, which change

    def events(self) -> Sequence[EventWithHint]:
        add, update = ActionType.ADD, ActionType.UPDATE
        return (
            event_where(ClusterEvent(EventResource.STORAGE_CLASS, add), _added_class_helps),
            EventWithHint(ClusterEvent(EventResource.NODE, add | ActionType.UPDATE_NODE_LABEL)),
            EventWithHint(
                ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, add | update),
                self._after_claim_change,
                uses_read,
                event_key,
                claims_waited_for,
            ),
            event_where(ClusterEvent(EventResource.PERSISTENT_VOLUME, add | update), _volume_helps),
        )

    def _after_claim_change(
        self, pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> QueueingHint:
        return QueueingHint.QUEUE if is_named_by(pod, new) else QueueingHint.SKIP

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str]:
        storage = StorageObjects(snapshot)
        if node is None:
            refused = [(name, _why_hopeless(pod, name, storage)) for name in named_claims(pod)]
            return [f"claim {name}: {problem}" for name, problem in refused if problem]
        return list(_why_elsewhere(pod, node, storage))

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        storage = StorageObjects(snapshot)

        def clauses_on(row: int) -> dict[str, str]:
            node = snapshot.node_info(row)
            found = {}
            for claim, volume, label, places, here in _elsewhere(pod, node, storage):
                where = f"without {label}" if here is None else f"of {label}={here}"
                clause = f"claim {claim} were bound to a volume {where} (now {volume}, of {places})"
                found[f"{pod.namespace}/{claim}"] = clause
            return found

        return remedy_of_claims(pod, rows, clauses_on)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        storage = StorageObjects(snapshot)
        topologies: list[_Topology] = []
        for name in named_claims(pod):
            if problem := _why_hopeless(pod, name, storage):
                return Status.unschedulable(problem, resolvable=False)
            volume = _volume_of(pod, name, storage)
            if volume is not None:
                topologies += _topologies(volume.metadata.labels)
        if not topologies:
            return SKIP
        state.write(_PRE_FILTER, topologies)
        return None

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        elsewhere = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        for topology in set(state.read(_PRE_FILTER, list)):
            elsewhere |= ~_in(snapshot, topology)
        has_any = np.zeros(snapshot.n_nodes, dtype=np.bool_)
        for label in _LABELS:
            has_any |= _has(snapshot, label)
        return Outcomes.reject(elsewhere & has_any, REASON, resolvable=False)


def _added_class_helps(_old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Return whether claims of an added class may wait for a node."""
    return new.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER


def _volume_helps(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Return whether a volume was added, or its topology labels changed."""
    return old is None or _topologies(_labels_of(old)) != _topologies(_labels_of(new))


def _why_hopeless(pod: PodInfo, name: str, storage: StorageObjects) -> str:
    """Return why a claim of a pod excludes all nodes; "" if it does not."""
    if not name:
        return Reason("PersistentVolumeClaim had no name", CLAIM_NOT_FOUND)
    claim = storage.claim(f"{pod.namespace}/{name}")
    if claim is None:
        return claim_not_found(name)
    if not claim.spec.volume_name:
        return _why_not_unbound(claim, storage)
    return "" if storage.bound_volume(claim) is not None else volume_not_found(claim.spec.volume_name)


def _volume_of(pod: PodInfo, name: str, storage: StorageObjects) -> PersistentVolume | None:
    claim = storage.claim(f"{pod.namespace}/{name}")
    return None if claim is None else storage.bound_volume(claim)


class _VolumeElsewhere(NamedTuple):
    """A volume whose label does not match a node's.

    Attributes:
        claim: the name of its claim.
        volume: its name.
        label: the label.
        places: the values of the volume's label.
        here: the value of the node's label; None if it has none.
    """

    claim: str
    volume: str
    label: str
    places: str
    here: str | None


def _elsewhere(pod: PodInfo, node: NodeInfo, storage: StorageObjects) -> Iterator[_VolumeElsewhere]:
    """Yield the volumes whose labels do not match a node's."""
    if not any(label in node.labels for label in _LABELS):
        return
    for name in named_claims(pod):
        volume = _volume_of(pod, name, storage)
        for label, values in () if volume is None else _topologies(volume.metadata.labels):
            assert volume is not None, "it has labels"
            here = node.labels.get(label, node.labels.get(_NEWER.get(label, label)))
            if here not in values:
                places = " or ".join(sorted(values))
                yield _VolumeElsewhere(name, volume.metadata.name, label, places, here)


def _why_elsewhere(pod: PodInfo, node: NodeInfo, storage: StorageObjects) -> Iterator[str]:
    """Yield why the volumes of a pod keep it from a node."""
    for claim, volume, label, places, here in _elsewhere(pod, node, storage):
        has = f"no {label}" if here is None else f"{label}={here}"
        yield f"claim {claim} is bound to volume {volume}, whose label {label} is {places}; this node has {has}"
        yield f"what would help: free capacity on a node with {label}={places}, since the volume cannot move"


def _why_not_unbound(claim: PersistentVolumeClaim, storage: StorageObjects) -> str:
    """Return why a claim without a volume cannot be left to VolumeBinding; "" if it can."""
    name = claim.class_name
    if not name:
        return Reason("PersistentVolumeClaim had no pv name and storageClass name", CLAIM_UNBOUND)
    storage_class = storage.storage_class(name)
    if storage_class is None:
        return Reason(class_not_found(name), CLAIM_UNBOUND)
    if storage_class.volume_binding_mode is None:
        return Reason(f'VolumeBindingMode not set for StorageClass "{name}"', CLAIM_UNBOUND)
    is_late = storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    return "" if is_late else Reason("PersistentVolume had no name", CLAIM_UNBOUND)


def _labels_of(volume: Mapping[str, Any]) -> Mapping[str, str]:
    return volume["metadata"].get("labels") or {}


def _topologies(labels: Mapping[str, str]) -> list[_Topology]:
    """Return the topologies of a volume with these labels; a label with an empty item in its list is ignored.

    Source:
        kube-scheduler v1.36, cloud-provider/volume/helpers/zones.go, LabelZonesToSet.
    """
    found = (
        _Topology(label, frozenset(zone.strip() for zone in labels[label].split(ZONES_DELIMITER)))
        for label in _LABELS
        if label in labels
    )
    return [topology for topology in found if "" not in topology.values]


def _in(snapshot: Snapshot, topology: _Topology) -> Bools:
    """Return bool (n_nodes,), where a node has one of the values; an old label matches its new name too."""
    label, values = topology
    inside = snapshot.label(label).judge(values.__contains__)
    if label in _NEWER:
        inside |= ~_has(snapshot, label) & snapshot.label(_NEWER[label]).judge(values.__contains__)
    return inside


def _has(snapshot: Snapshot, label: str) -> Bools:
    return snapshot.label(label).judge(lambda value: value is not None)
