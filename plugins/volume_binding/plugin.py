"""Places pods where their volumes are or can be provisioned, and binds the volumes before the pod.

Source:
    kube-scheduler v1.36, plugins/volumebinding/scorer.go, and volume_binding.go, Score; v1.37 differs only in the default of
    the feature gate.
    kube-scheduler v1.36, plugins/volumebinding/volume_binding.go, also EventsToRegister and the hints it names.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plugins.node_resources.allocation import (
    MAX_SHAPE_SCORE,
    RequestedToCapacityRatio,
    UtilizationShapePoint,
    rounded,
    shape_faults,
)
from plugins.volume_binding.binding import VolumeBinder
from plugins.volume_binding.candidates import KeptCandidates
from plugins.volume_binding.claims import (
    CLAIM_OF_OTHER_POD,
    CLAIM_TERMINATING,
    MIGRATED_PLUGINS,
    find_claims,
)
from plugins.volume_binding.explaining import clause_anywhere, clauses_on, why_not_anywhere, why_not_on
from plugins.volume_binding.node_volumes import REASONS, NodeRefusal, NodeVolumes
from plugins.volumes.remedies import remedy_of_claims
from plugins.volumes.storage import (
    CLAIM_NOT_FOUND,
    CLAIM_UNBOUND,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_NOT_FOUND,
    VOLUMES,
    StorageObjects,
    claims_waited_for,
    event_key,
    event_where,
)
from plugins.work_in_steps import PluginWork
from scheduler.errors import FieldError
from scheduler.framework import (
    SKIP,
    ActionType,
    ApiWrite,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    KeyedLock,
    Needs,
    NeedsTime,
    NodesExplanation,
    PluginArgs,
    PluginMetrics,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    ReservePlugin,
    ScorePlugin,
    Status,
    TimeSlice,
    WaitForEvent,
)
from scheduler.loop_work import run_to_end
from scheduler.objects.caches import BoundedDict
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import CSIDriver, CSINode, CSIStorageCapacity, StorageClass
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from plugins.volume_binding.claims import PodClaims
    from scheduler.framework import CycleState, Outcomes
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, NodeInfo, Rows, Snapshot

DEFAULT_SHAPE: Final = (
    UtilizationShapePoint(utilization=0, score=MAX_SHAPE_SCORE),
    UtilizationShapePoint(utilization=100, score=0),
)
"""The emptiest storage is the best.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/v1/defaults.go, SetDefaults_VolumeBindingArgs.
"""


class StorageScorer:
    """Scores the utilization of storage by a line through given points of rising utilization."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._line = RequestedToCapacityRatio([(point.utilization, point.score) for point in shape])

    def score(self, found: NodeVolumes, snapshot: Snapshot, rows: Rows) -> Int64s:
        """Return int64 (n_nodes,), the mean score of the classes used on each of some nodes; 0 without any."""
        total, number = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        for use in _use_by_class(found, StorageObjects(snapshot), rows):
            # Without capacity, storage counts as full.
            has_any = use.capacity != 0
            scores = self._line.score(np.where(has_any, use.requested, 2), np.where(has_any, use.capacity, 1))
            total += np.where(use.is_used, scores, 0)
            number += use.is_used
        scored = np.zeros(snapshot.n_nodes, dtype=np.int64)
        scored[rows] = rounded(total / np.maximum(number, 1))
        return scored


class _Use:
    """The use of one class on some nodes, each (n,).

    Attributes:
        requested: int64, what the claims request, in bytes.
        capacity: int64, the size of the volumes that would be bound, or the free capacity for new ones, in bytes.
        is_used: bool, whether the class counts.
    """

    def __init__(self, n: int) -> None:
        self.requested: Int64s = np.zeros(n, dtype=np.int64)
        self.capacity: Int64s = np.zeros(n, dtype=np.int64)
        self.is_used: Bools = np.zeros(n, dtype=np.bool_)


def _use_by_class(found: NodeVolumes, storage: StorageObjects, rows: Rows) -> Iterable[_Use]:
    """Return the use of each class: on nodes with volumes to bind only these count, elsewhere the volumes to provision."""
    classes: dict[str, _Use] = {}
    binds = np.zeros(len(rows), dtype=np.bool_)
    for match in found.matches:
        names, places = match.volumes_on(rows)
        volumes = [storage.volume(name) for name in names]
        sizes = np.array([0 if each is None else each.spec.capacity.quantity.value() for each in volumes])
        of_class: dict[str, list[int]] = {}
        for number, volume in enumerate(volumes):
            of_class.setdefault("" if volume is None else volume.spec.storage_class_name, []).append(number)
        for name, numbers in of_class.items():
            there = np.isin(places, numbers)
            use = _of(classes, name, len(rows))
            use.requested[there] += match.claim.spec.resources.requests.quantity.value()
            use.capacity[there] += sizes[places[there]]
            use.is_used |= there
        binds |= places >= 0
    for claim, needed in found.provisions(rows):
        free = found.free_bytes(claim)
        if free is None:
            continue
        there = needed & ~binds & (free[rows] >= 0)
        use = _of(classes, claim.spec.storage_class_name or claim.class_name, len(rows))
        use.requested[there] += claim.spec.resources.requests.quantity.value()
        use.capacity[there] = free[rows][there]
        use.is_used |= there
    return classes.values()


def _of(classes: dict[str, _Use], name: str, n: int) -> _Use:
    found = classes.get(name)
    if found is None:
        found = classes[name] = _Use(n)
    return found


if TYPE_CHECKING:
    Object = Mapping[str, Any]


def _class_helps(old: Object | None, new: Object) -> bool:
    """Return whether a class was added, or its allowed topologies changed."""
    if old is None:
        return True
    before, after = typed_object(old, StorageClass), typed_object(new, StorageClass)
    return before.allowed_topologies != after.allowed_topologies


def _after_claim_change(pod: PodInfo, _old: Object | None, new: Object) -> QueueingHint:
    """Requeue a pod when one of its claims changes."""
    return QueueingHint.QUEUE if object_key(new) in pod.claim_keys else QueueingHint.SKIP


def _csi_node_helps(old: Object | None, new: Object) -> bool:
    """Return whether a node got new drivers, or its drivers migrated other in-tree plugins."""
    if old is None:
        return True
    before, after = typed_object(old, CSINode).metadata, typed_object(new, CSINode).metadata
    return before.annotations.get(MIGRATED_PLUGINS) != after.annotations.get(MIGRATED_PLUGINS)


def _inline_drivers(pod: PodInfo) -> frozenset[str]:
    """Return the drivers of a pod's inline volumes; upstream considers these when a driver changes."""
    return frozenset(volume.csi.driver for volume in pod.pod.spec.volumes if volume.csi is not None)


def _driver_helps(old: Object | None, new: Object) -> bool:
    """Return whether a driver has stopped reporting capacity."""
    before, after = (typed_object(each or {}, CSIDriver).spec.storage_capacity for each in (old, new))
    return bool(before) and not after


def _after_driver_change(pod: PodInfo, old: Object, new: Object) -> QueueingHint:
    helps = new["metadata"]["name"] in _inline_drivers(pod) and _driver_helps(old, new)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _capacity_helps(old: Object | None, new: Object) -> bool:
    """Return whether there is capacity for larger volumes."""
    if old is None:
        return True
    before, after = (typed_object(each, CSIStorageCapacity).largest_volume for each in (old, new))
    return after is not None and (before is None or after.value() > before.value())


_ADD_OR_UPDATE = ActionType.ADD | ActionType.UPDATE

EVENTS: Final[Sequence[EventWithHint]] = (
    event_where(ClusterEvent(EventResource.STORAGE_CLASS, _ADD_OR_UPDATE), _class_helps),
    EventWithHint(
        ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE),
        _after_claim_change,
        claims_waited_for,
        event_key,
        claims_waited_for,
    ),
    EventWithHint(ClusterEvent(EventResource.PERSISTENT_VOLUME, _ADD_OR_UPDATE)),
    EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
    event_where(ClusterEvent(EventResource.CSI_NODE, _ADD_OR_UPDATE), _csi_node_helps),
    EventWithHint(
        ClusterEvent(EventResource.CSI_DRIVER, ActionType.UPDATE),
        _after_driver_change,
        _inline_drivers,
        lambda old, new: None if _driver_helps(old, new) else (),
    ),
    event_where(ClusterEvent(EventResource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE), _capacity_helps),
)


_FOUND = "VolumeBinding"
_CHANGES = "VolumeBinding/changes"
_MOST_BEGUN = 8
"""The number of pods whose evaluation is cached while other work runs."""


class VolumeBindingArgs(PluginArgs, frozen=True):
    """Arguments of VolumeBinding.

    Attributes:
        bind_timeout_seconds: how long to wait until the volumes of a pod are bound; 0 means no wait.
        shape: the line that scores the utilization of storage; by default the emptiest storage is the best. It needs the
          feature gate StorageCapacityScoring.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateVolumeBindingArgs.
    """

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None

    def faults(self) -> Iterator[FieldError]:
        if self.bind_timeout_seconds < 0:
            problem = "invalid BindTimeoutSeconds, should not be a negative value"
            yield FieldError("bindTimeoutSeconds", f"Invalid value: {self.bind_timeout_seconds}: {problem}")
        yield from shape_faults(self.shape or DEFAULT_SHAPE, "shape")


class VolumeBinding(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin):
    """Finds nodes for the claims of pods, and volumes for the claims."""

    name = "VolumeBinding"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            CLAIM_NOT_FOUND: "a PersistentVolumeClaim of the pod does not exist",
            CLAIM_UNBOUND: "a claim of the pod, whose class binds immediately, has no volume yet",
            CLAIM_TERMINATING: "a claim of the pod is being deleted",
            CLAIM_OF_OTHER_POD: "a claim has the name of that for an ephemeral volume of the pod, and belongs to another",
            VOLUME_NOT_FOUND: "the volume of a claim of the pod does not exist",
            REASONS[NodeRefusal.NOT_REACHED].code: "a volume of the pod cannot be used on the node",
            REASONS[
                NodeRefusal.NO_VOLUME
            ].code: "no volume that fits a claim of the pod can be used on the node",
            REASONS[
                NodeRefusal.NO_ROOM
            ].code: "too little storage for a claim of the pod can be provisioned for the node",
        }
    )
    reads_pods = False
    keeps_rows_apart = True
    Args = VolumeBindingArgs
    needs = Needs(
        kinds=frozenset({CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES}),
        rights=frozenset({f"update {CLAIMS}", f"update {VOLUMES}"}),
    )

    def __init__(
        self,
        *,
        args: VolumeBindingArgs,
        objects: ClusterObjects,
        writer: ApiWrite,
        happenings: WaitForEvent,
        locks: KeyedLock,
        clock: Clock,
        time_slice: TimeSlice,
        metrics: PluginMetrics,
        features: Features,
    ) -> None:
        scores = features.enabled("StorageCapacityScoring")
        if args.shape is not None and not scores:
            problem = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
            raise ValueError(f"shape: {problem}")
        self._knows_attributes = features.enabled("VolumeAttributesClass")
        self._scorer = StorageScorer(args.shape or DEFAULT_SHAPE) if scores else None
        self._work = PluginWork(time_slice)
        # Pod uid -> an evaluation that takes longer than one time slice.
        self._begun: BoundedDict[str, NodeVolumes] = BoundedDict(_MOST_BEGUN)
        self._binder = VolumeBinder(objects, writer, happenings, locks, clock, args.bind_timeout_seconds)
        self._kept = KeptCandidates()
        self._failures = metrics.counter(
            "scheduler_volume_scheduling_stage_error_total",
            "Volume scheduling stage error count.",
            "operation",
        )

    def signature(self, pod: PodInfo) -> Hashable | None:
        """Return an equal signature for all pods without claims; results of other pods change with the volumes."""
        return None if pod.claims else ()

    def events(self) -> Sequence[EventWithHint]:
        return EVENTS

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str]:
        storage = StorageObjects(snapshot)
        claims = find_claims(pod, storage)
        if node is None or isinstance(claims, Status):
            return list(why_not_anywhere(pod, storage))
        judged = self._volumes_on_nodes(snapshot, claims)
        run_to_end(judged.judge())
        return list(why_not_on(snapshot, node, judged))

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        storage = StorageObjects(snapshot)
        claims = find_claims(pod, storage)
        if isinstance(claims, Status):
            faulty = {named.key: clause_anywhere(pod, named, storage) for named in pod.claims}
            clauses = {key: clause for key, clause in faulty.items() if clause}
            return remedy_of_claims(pod, rows, lambda _: clauses)
        judged = self._volumes_on_nodes(snapshot, claims)
        run_to_end(judged.judge())
        return remedy_of_claims(pod, rows, partial(clauses_on, snapshot=snapshot, judged=judged))

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        if not pod.claims:
            return SKIP
        storage = StorageObjects(snapshot)
        self._work.begin()
        self._work.done(storage.read(pod.claim_keys))
        claims = find_claims(pod, storage)
        if isinstance(claims, Status):
            return claims
        found = self._begun.get(pod.uid)
        if found is None or not found.go_on(snapshot, claims):
            found = self._volumes_on_nodes(snapshot, claims)
        state.write(_FOUND, found)
        return None

    def _volumes_on_nodes(self, snapshot: Snapshot, claims: PodClaims) -> NodeVolumes:
        return NodeVolumes(
            snapshot,
            claims,
            self._kept,
            scores=self._scorer is not None,
            knows_attributes=self._knows_attributes,
        )

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        found = state.read(_FOUND, NodeVolumes)
        self._work.begin()
        # Results for some rows only are of no use to the attempt that starts again.
        is_of_some_rows = snapshot.node_changes is None
        try:
            if is_of_some_rows:
                self._work.done(found.follow())
                outcomes = run_to_end(found.judge())
            else:
                outcomes = self._work.done(found.judge(), found.is_current)
        except NeedsTime:
            if not is_of_some_rows:
                found.pause()
                self._begun[pod.uid] = found
            raise
        except Exception:
            self._failures.add("predicate")
            raise
        if found.has_failed_on(rows):
            self._failures.add("predicate")
        return outcomes  # what was begun is kept: another plugin may need time in this attempt

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        """Skip Score without the feature gate StorageCapacityScoring; with it, pods without claims have a score too, 0."""
        return SKIP if self._scorer is None else None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s | int:
        if self._scorer is None or _FOUND not in state:
            return 0
        return self._scorer.score(state.read(_FOUND, NodeVolumes), snapshot, feasible)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        found = state.find(_FOUND, NodeVolumes)
        its = None if found is None else found.on(node_name)
        self._begun.pop(pod.uid, None)
        state.delete(_FOUND)  # frees arrays that are not needed while the volumes are bound
        if its is not None:
            try:
                state.write(_CHANGES, self._binder.assume(its, node_name))
            except Exception:
                self._failures.add("assume")
                raise

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._binder.restore(_changes(state))

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None if _changes(state) else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        try:
            status = await self._binder.bind(pod, node_name, _changes(state))
        except Exception:
            self._failures.add("bind")
            raise
        if status is not None:
            self._failures.add("bind")
        return status


def _changes(state: CycleState) -> Sequence[Any]:
    """Return the changes to write for the pod."""
    return state.find(_CHANGES, list) or []
