"""Rejects nodes whose drivers cannot attach the pod's additional volumes.

The node's CSINode contains the limit of each driver. A volume that several pods share counts once, and volumes attached
without a pod count too. With the feature gate VolumeLimitScaling, the node must also have the drivers of these volumes.

Source:
    kube-scheduler v1.36, plugins/nodevolumelimits/csi.go; v1.35 without DriverOptsIn. v1.37 differs only in the default
    of the gate.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plugins.volumes.attachable import UncountableError, Volumes, attachable_volumes
from plugins.volumes.attached import AttachedVolumes
from plugins.volumes.csi_migration import in_tree_plugin, inline_handle
from plugins.volumes.remedies import MOST_COMPARED
from plugins.volumes.storage import (
    CLAIM_NOT_FOUND,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUMES,
    StorageObjects,
    claims_waited_for,
    event_key,
    event_where,
)
from plugins.work_in_steps import PluginWork
from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    Change,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    Needs,
    NodesExplanation,
    Outcome,
    Outcomes,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    Remedy,
    Status,
    TimeSlice,
    no_pod_key,
)
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import CSINode, VolumeAttachment
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Volume
    from scheduler.snapshot import NodeInfo, Rows, Snapshot, UInt16s

REASON = Reason("node(s) exceed max volume count", "VolumeLimitExceeded")
_KINDS = frozenset({CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, VOLUME_ATTACHMENTS})
_NOT_INSTALLED = "CSI driver is not installed on the node"

_FULL = Outcome(Code.UNSCHEDULABLE, (REASON,))


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Compares the volumes of pods with the limits of the drivers of nodes."""

    name = "NodeVolumeLimits"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            REASON.code: "the node cannot attach as many volumes of a driver",
            "CSIDriverNotInstalled": "the CSI driver of a volume of the pod is not installed on the node",
            CLAIM_NOT_FOUND: "a PersistentVolumeClaim of the pod does not exist",
        }
    )
    needs = Needs(kinds=_KINDS)
    keeps_rows_apart = True

    def __init__(self, *, time_slice: TimeSlice, features: Features) -> None:
        self._requires_drivers = features.enabled("VolumeLimitScaling")
        if self._requires_drivers:
            self.needs = Needs(kinds=_KINDS | {CSI_DRIVERS})  # type: ignore[misc]  # per instance
        self._drivers_opt_in = features.enabled("DriverOptsIn")
        self._attached = AttachedVolumes()
        self._work = PluginWork(time_slice)

    def signature(self, pod: PodInfo) -> Hashable | None:
        # Results depend on claims and volumes, which change.
        return None if pod.storage_volumes and _counts(pod) else ()

    def events(self) -> Sequence[EventWithHint]:
        def event(
            resource: EventResource, action: ActionType, hint: Any = None, **keys: Any
        ) -> EventWithHint:
            return EventWithHint(ClusterEvent(resource, action), hint, **keys)

        add, update, delete = ActionType.ADD, ActionType.UPDATE, ActionType.DELETE
        return (
            event(EventResource.CSI_NODE, add),
            event_where(ClusterEvent(EventResource.CSI_NODE, update), _csi_node_helps),
            event(
                EventResource.POD,
                delete,
                self._after_pod_deleted,
                pod_key=no_pod_key,
                event_keys=lambda old, _: old.storage_volumes,
            ),
            event(
                EventResource.PERSISTENT_VOLUME_CLAIM,
                add,
                self._after_claim_added,
                pod_key=claims_waited_for,
                event_keys=event_key,
                waits_for_keys=claims_waited_for,
            ),
            event(
                EventResource.VOLUME_ATTACHMENT, delete, self._after_attachment_deleted, pod_key=_attachers
            ),
        )

    def _after_pod_deleted(self, pod: PodInfo, old: PodInfo, new: None) -> QueueingHint:
        was_expected = bool(old.node_name or old.pod.status.nominated_node_name)
        return QueueingHint.QUEUE if was_expected and _counts(old) else QueueingHint.SKIP

    def _after_claim_added(self, pod: PodInfo, old: None, new: Mapping[str, Any]) -> QueueingHint:
        return QueueingHint.QUEUE if object_key(new) in pod.claim_keys else QueueingHint.SKIP

    def _after_attachment_deleted(self, pod: PodInfo, old: Mapping[str, Any], new: None) -> QueueingHint:
        attacher = typed_object(old, VolumeAttachment).spec.attacher
        helps = not _attachers(pod).isdisjoint((attacher, _ANY_ATTACHER))
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        return None if node is None else list(_why_full(pod, snapshot, node))

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        """Propose a higher limit of the drivers of a node; the pod is evaluated without this plugin."""

        def change(fitting: Rows) -> Change | None:
            lacking = {
                row: list(_exceeded(pod, snapshot, snapshot.node_info(row)))
                for row in fitting[:MOST_COMPARED].tolist()
            }
            exceeded = [row for row, drivers in lacking.items() if drivers]
            if not exceeded:
                return None
            row = min(exceeded, key=lambda row: sum(each.missing for each in lacking[row]))
            node = snapshot.name_of(row)
            clauses = [
                f"driver {each.driver} could attach {each.missing} more on {node} (now {each.attached} of at most "
                f"{each.limit} are attached)"
                for each in lacking[row]
            ]
            return Change(row, " and ".join(clauses), pod)

        return NodesExplanation("", [Remedy(pod, change, without=self.name)])

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        return None if _counts(pod) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        pods = snapshot.storage
        attached = AttachedVolumes() if pods.index is None else self._attached
        self._work.begin()
        if pods.index is None:
            run_to_end(attached.follow(snapshot, pods))
        else:
            self._work.done(attached.follow(snapshot, pods.index))
        wanted = _wanted(pod, snapshot, has_csi_node=True)
        if isinstance(wanted, Outcome):
            outcomes = _refused(attached, wanted, _wanted(pod, snapshot, has_csi_node=False))
            return self._with_missing(outcomes.index, [*outcomes.table], pod, snapshot, attached, wanted)
        # This loops over the nodes whose pods with volumes differ in a dry run.
        changed = set(pods.changed_rows)
        if changed:
            changed.intersection_update(rows.tolist())
        there = {row: attached.changed(row, snapshot, pods.pods_on(row)) for row in changed}
        index, table = np.zeros(snapshot.n_nodes, dtype=np.uint16), [PASS, _FULL]
        index[attached.full(wanted, there)] = 1
        failures = {**attached.failures, **{row: on_node.failure for row, on_node in there.items()}}
        for row, failure in failures.items():
            if wanted and failure is not None and attached.has_limits[row]:
                index[row] = len(table)
                table.append(failure)
        return self._with_missing(index, table, pod, snapshot, attached, wanted)

    def _with_missing(
        self,
        index: UInt16s,
        table: list[Outcome],
        pod: PodInfo,
        snapshot: Snapshot,
        attached: AttachedVolumes,
        wanted: Volumes | Outcome,
    ) -> Outcomes:
        """Return outcomes by index and table, where a missing driver replaces the outcome of a node.

        kube-scheduler checks the drivers before the limits, in random order; here the first missing one is reported.
        """
        if self._requires_drivers:
            without = _wanted(pod, snapshot, has_csi_node=False)
            on_csi_node, elsewhere = (
                () if isinstance(each, Outcome) else each.values() for each in (wanted, without)
            )
            for driver in reversed(dict.fromkeys((*on_csi_node, *elsewhere))):
                if self._must_be_installed(driver, StorageObjects(snapshot)):
                    missing = np.where(
                        attached.has_csi_node,
                        ~attached.installed(driver) if driver in on_csi_node else False,
                        driver in elsewhere,
                    )
                    index[missing] = len(table)
                    reason = Reason(f"{driver} {_NOT_INSTALLED}", "CSIDriverNotInstalled")
                    table.append(Outcome(Code.UNSCHEDULABLE, (reason,)))
        return Outcomes(index, tuple(table))

    def _must_be_installed(self, driver: str, storage: StorageObjects) -> bool:
        known = storage.csi_driver(driver)
        return known is not None and (
            not self._drivers_opt_in or bool(known.spec.prevent_pod_scheduling_if_missing)
        )


class _Exceeded(NamedTuple):
    """A driver of a node that cannot attach all volumes of a pod.

    Attributes:
        driver: its name.
        attached: how many volumes are attached.
        limit: how many can be.
        needed: how many more the pod needs.
    """

    driver: str
    attached: int
    limit: int
    needed: int

    @property
    def missing(self) -> int:
        return self.attached + self.needed - self.limit


def _exceeded(pod: PodInfo, snapshot: Snapshot, node: NodeInfo) -> Iterator[_Exceeded]:
    """Yield the drivers of a node that cannot attach the pod's volumes; none if the volumes cannot be counted."""
    csi_node = StorageObjects(snapshot).csi_node(node.name)
    wanted = _wanted(pod, snapshot, has_csi_node=csi_node is not None)
    if csi_node is None or isinstance(wanted, Outcome):
        return  # the reason contains the fault of a claim
    there = AttachedVolumes.on_node(node.row, snapshot, node.pods)
    for driver, limit in () if there.failure else sorted(csi_node.limits.items()):
        more = [name for name, its in wanted.items() if its == driver and name not in there.volumes]
        count = there.counts.get(driver, 0)
        if more and count + len(more) > limit:
            yield _Exceeded(driver, count, limit, len(more))


def _why_full(pod: PodInfo, snapshot: Snapshot, node: NodeInfo) -> Iterator[str]:
    """Yield why the drivers of a node cannot attach the pod's volumes."""
    there = AttachedVolumes.on_node(node.row, snapshot, node.pods)
    if there.failure is not None and StorageObjects(snapshot).csi_node(node.name) is not None:
        yield f"the attached volumes of the pods on this node cannot be counted: {', '.join(there.failure.reasons)}"
    for driver, count, limit, needed in _exceeded(pod, snapshot, node):
        yield f"driver {driver} has {count} of at most {limit} volumes attached on this node, and the pod needs {needed} more"
        yield f"what would help: {count + needed - limit} fewer volumes attached there, or a higher limit in its CSINode"


def _wanted(pod: PodInfo, snapshot: Snapshot, *, has_csi_node: bool) -> Volumes | Outcome:
    """Return the volumes that a node with or without a CSINode would have to attach, or why they cannot be counted."""
    try:
        return attachable_volumes(pod, StorageObjects(snapshot), has_csi_node=has_csi_node, is_new=True)
    except UncountableError as error:
        return error.outcome


def _refused(attached: AttachedVolumes, reason: Outcome, without_driver: Volumes | Outcome) -> Outcomes:
    """Reject all nodes; but on nodes without drivers, invalid inline volumes do not matter."""
    table = [PASS, reason]
    if isinstance(without_driver, Outcome):
        table.append(without_driver)
    index = np.where(attached.has_csi_node, 1, 2 if len(table) > 2 else 0).astype(np.uint16)
    return Outcomes(index, tuple(table))


def _counts(pod: PodInfo) -> bool:
    """Return whether any volume of a pod may count against a limit."""
    return any(
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or in_tree_plugin(volume) is not None
        for volume in pod.storage_volumes
    )


_ANY_ATTACHER = "*"


def _attachers(pod: PodInfo) -> frozenset[str]:
    """Return the drivers whose limit may have rejected a pod; the drivers of claims are not resolved."""
    return frozenset(
        attacher for volume in pod.storage_volumes if (attacher := _attacher(volume)) is not None
    )


def _attacher(volume: Volume) -> str | None:
    if volume.persistent_volume_claim is not None:
        return _ANY_ATTACHER
    plugin = in_tree_plugin(volume)
    if plugin is None:
        return None
    if plugin.is_migrated:
        try:
            inline_handle(volume)
        except ValueError:
            return _ANY_ATTACHER
    return plugin.driver


def _csi_node_helps(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Return whether a driver of a node can attach more than before."""
    before = {} if old is None else typed_object(old, CSINode).limits
    after = typed_object(new, CSINode).limits
    return any(limit > before.get(driver, 0) for driver, limit in after.items())
