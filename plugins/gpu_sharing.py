"""GpuSharing: places pods that request parts of GPUs where enough is left, and allocates the GPUs.

Source:
    hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/open_gpu_share.go. Unlike there, a pod that requests
    several GPUs gets different ones, also if it requests a part of each.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    ApiWrite,
    ClusterEvent,
    ClusterObjects,
    Code,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    Outcome,
    Outcomes,
    PluginArgs,
    PreBindPlugin,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    ReservePlugin,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, ChangeLog, Int64s, Rows, Snapshot

MILLI: Final = 1000
"""A whole GPU."""
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
"""Annotation of a pod: the thousandths of each of its GPUs; 1000, if only the number is given."""
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
"""Annotation of a pod: the number of GPUs; 1, if only the thousandths are given. On a node it is a resource."""
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
"""Annotation of a pod: the accepted models, as in `V100M16|V100M32`. On a node it is a label."""
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
"""Annotation of a pod with allocated GPUs: their indexes on its node, as in `0-3`."""


class GpuRequest(NamedTuple):
    """The GPU request of one pod.

    Attributes:
        milli: of each GPU, in thousandths.
        number: the number of different GPUs; 0 for a pod without GPUs.
        models: the accepted models; any, if empty.
        fault: the error in the annotations, if any.
    """

    milli: int = 0
    number: int = 0
    models: frozenset[str] = frozenset()
    fault: str = ""

    @property
    def total(self) -> int:
        """The sum over all GPUs, in thousandths."""
        return self.milli * self.number

    @property
    def is_share(self) -> bool:
        """Whether it requests a part of one GPU."""
        return self.number == 1 and self.milli < MILLI


NOTHING: Final = GpuRequest()


def gpu_request(pod: PodInfo) -> GpuRequest:
    """Return the request in the annotations of a pod; `NOTHING` without GPUs, one with a `fault` if they are malformed."""
    annotations = pod.annotations
    if GPU_MILLI not in annotations and GPU_COUNT not in annotations:
        return NOTHING
    return _read(
        annotations.get(GPU_MILLI, str(MILLI)),
        annotations.get(GPU_COUNT, "1"),
        annotations.get(GPU_MODEL, ""),
    )


@lru_cache(maxsize=4096)
def _read(milli: str, count: str, models: str) -> GpuRequest:
    for name, text, most in ((GPU_MILLI, milli, MILLI), (GPU_COUNT, count, 1024)):
        if not (text.isascii() and text.isdigit() and int(text[:8]) <= most):
            return GpuRequest(fault=f"annotation {name} must be a number from 0 to {most}, was {text!r:.80}")
    if not int(milli) or not int(count):
        return NOTHING
    return GpuRequest(int(milli), int(count), frozenset(filter(None, models.split("|"))))


def given_gpus(pod: PodInfo) -> tuple[int, ...] | None:
    """Return the GPUs of its node that a pod has, by its annotation; None without one."""
    text = pod.annotations.get(GPU_INDEX, "")
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part[:8]) for part in parts)


_STORE: Final = "custom-scheduler.io/v1/gpushares"
"""Not a kind of the API server: all plugins of a scheduler share the store under this name."""
_MOST_FORGOTTEN: Final = 4096
_MOST_WHOLE: Final = 62


class GpusLeft(NamedTuple):
    """The GPUs of a snapshot's nodes.

    Attributes:
        left: int64 (n_nodes, width), free thousandths; 0 where a node has no such GPU.
        counts: int64 (n_nodes,), how many GPUs a node has.
        kinds: int64 (n_nodes,), a bit set of the kinds of pods with GPUs on the node: see `kind_of`.
    """

    left: Int64s
    counts: Int64s
    kinds: Int64s

    def fitting(self, request: GpuRequest) -> Bools:
        """Return bool (n_nodes,), whether enough GPUs have enough left."""
        fitting: Bools = (self.left >= max(request.milli, 1)).sum(axis=1) >= request.number
        return fitting


def kind_of(request: GpuRequest) -> int:
    """Return a bit for pods that share a GPU, and one for each number of whole GPUs."""
    return 1 if request.is_share else 1 << min(request.number, _MOST_WHOLE)


def tightest(left: Int64s, request: GpuRequest) -> Int64s:
    """Return int64 (m, count), for each of m nodes (m, width) the GPUs that fit with the least left, the first of equals."""
    spare = np.where(left >= request.milli, left, MILLI + 1)
    return np.argsort(spare, axis=1, kind="stable")[:, : request.number]


class Gpus:
    """The GPUs of each pod, for all plugins of a scheduler.

    A pod placed by another scheduler without its GPUs in an annotation counts as if it had the GPUs that fit tightest.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._given: dict[str, tuple[int, ...]] = {}  # pod uid -> GPUs of its node
        self._log: ChangeLog | None = None
        self._seen = 0
        self._known = _blank(0, 0)

    @classmethod
    def of(cls, objects: ClusterObjects) -> Gpus:
        """Return the state that all plugins of a scheduler share."""
        return objects.objects(_STORE).companion(cls, lambda: cls(objects))

    def left(self, snapshot: Snapshot, rows: Rows) -> GpusLeft:
        """Return what is left of each GPU; other rows than these may be outdated."""
        if snapshot.taken is not None:
            whole = self._objects.snapshot()
            log, taken = snapshot.taken
            if whole.changes is log:
                known = self.left(whole, whole.all_rows)
                return GpusLeft(known.left[taken], known.counts[taken], known.kinds[taken])
        if snapshot.changes is None:  # a hypothetical snapshot
            found = _blank(snapshot.n_nodes, _width(snapshot))
            self._count(found, snapshot, rows.tolist())
            return found
        log = snapshot.changes
        changed = log.since(self._seen) if self._log is log else None
        known = self._known
        if changed is None or known.left.shape != (snapshot.n_nodes, _width(snapshot)):
            known = self._known = _blank(snapshot.n_nodes, _width(snapshot))
            changed = range(snapshot.n_nodes)
        # This loops over all nodes at first, and after more changes than the log holds.
        self._count(known, snapshot, {row for row in changed if row < snapshot.n_nodes})
        self._log, self._seen = log, log.end
        if len(self._given) > _MOST_FORGOTTEN + 2 * int(snapshot.pod_count.sum()):
            self._forget_gone(snapshot)
        return known

    def left_without(self, pod: PodInfo, snapshot: Snapshot, row: int) -> Int64s:
        """Return int64 (width,), what would be left on one node without a pod."""
        others = [other for other in snapshot.pods_on(row) if other.uid != pod.uid]
        return self._on_node(_count_of(snapshot, row), _width(snapshot), others)[0]

    def give(self, pod: PodInfo, gpus: Iterable[int]) -> None:
        """Record the GPUs of a pod."""
        self._given[pod.uid] = tuple(sorted(gpus))

    def is_given(self, pod: PodInfo) -> bool:
        """Return whether GPUs were chosen for a pod in this attempt."""
        return pod.uid in self._given

    def given(self, pod: PodInfo) -> tuple[int, ...] | None:
        """Return the GPUs of its node that a pod has; None if unknown."""
        return self._given.get(pod.uid) or given_gpus(pod)

    def take_back(self, pod: PodInfo) -> None:
        """Remove the record of a pod's GPUs."""
        self._given.pop(pod.uid, None)

    def _forget_gone(self, snapshot: Snapshot) -> None:
        # This loops over all nodes, once for thousands of pods.
        there = {pod.uid for row in range(snapshot.n_nodes) for pod in snapshot.pods_on(row)}
        self._given = {uid: gpus for uid, gpus in self._given.items() if uid in there}

    def _count(self, known: GpusLeft, snapshot: Snapshot, rows: Collection[int]) -> None:
        for row in rows:
            count = known.counts[row] = _count_of(snapshot, row)
            if count:
                left, kinds = self._on_node(count, known.left.shape[1], snapshot.pods_on(row))
                known.left[row], known.kinds[row] = left, kinds
            else:
                known.left[row], known.kinds[row] = 0, 0

    def _on_node(self, count: int, width: int, pods: Iterable[PodInfo]) -> tuple[Int64s, int]:
        left, kinds = np.zeros(width, dtype=np.int64), 0
        left[:count] = MILLI
        unknown: list[PodInfo] = []
        for pod in pods:
            request = gpu_request(pod)
            if not request.number:
                continue
            kinds |= kind_of(request)
            gpus = self.given(pod)
            if gpus is None:
                unknown.append(pod)
            else:
                left[[gpu for gpu in gpus if gpu < width]] -= request.milli
        for pod in sorted(unknown, key=lambda each: each.uid):
            request = gpu_request(pod)
            if request.number <= width:
                left[tightest(left[None, :], request)[0]] -= request.milli
        return np.maximum(left, 0), kinds


def _blank(n_nodes: int, width: int) -> GpusLeft:
    return GpusLeft(
        np.zeros((n_nodes, width), dtype=np.int64),
        np.zeros(n_nodes, dtype=np.int64),
        np.zeros(n_nodes, dtype=np.int64),
    )


def _width(snapshot: Snapshot) -> int:
    return int(snapshot.allocatable[GPU_COUNT].max(initial=1))


def _count_of(snapshot: Snapshot, row: int) -> int:
    offered: Mapping[str, int] = snapshot.nodes[row].allocatable
    return max(0, offered.get(GPU_COUNT, 0))


NO_SHARE: Final = Reason("Insufficient GPU shares", "InsufficientGpuShares")

_OTHER_MODEL: Final = 1
_TOO_FEW: Final = 2
_NO_ROOM: Final = 3
_TABLE: Final = (
    PASS,
    Outcome(
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        (Reason("node(s) had GPUs of another model", "GpuModelMismatch"),),
    ),
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (Reason("Too few GPUs", "TooFewGpus"),)),
    Outcome(Code.UNSCHEDULABLE, (NO_SHARE,)),
)


class GpuSharingArgs(PluginArgs, frozen=True):
    """Arguments of GpuSharing.

    Attributes:
        selection: which GPU a pod that shares one gets: the one with the least left, with the most left, or a random one.
    """

    selection: Literal["BestFit", "WorstFit", "Random"] = "BestFit"


class GpuSharing(PreFilterPlugin, FilterPlugin, ReservePlugin, PreBindPlugin):
    """Counts GPUs in thousandths, and allocates GPUs of the chosen node to pods."""

    name = "GpuSharing"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            "GpuModelMismatch": "the GPUs of the node are of another model",
            "TooFewGpus": "the node has fewer GPUs than the pod requests",
            NO_SHARE.code: "the GPUs of the node have less left than the pod requests",
            "InvalidGpuRequest": "an annotation of the pod is invalid",
        }
    )
    Args = GpuSharingArgs
    needs = Needs(bound_pod_annotations=True, rights=frozenset({"patch v1/pods"}))

    def __init__(self, *, args: GpuSharingArgs, objects: ClusterObjects, api: ApiWrite) -> None:
        self._selection = args.selection
        self._objects = objects
        self._api = api
        self._gpus = Gpus.of(objects)

    def signature(self, pod: PodInfo) -> Hashable:
        return gpu_request(pod)

    def events(self) -> Sequence[EventWithHint]:
        pod = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)
        node = ClusterEvent(
            EventResource.NODE,
            ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE | ActionType.UPDATE_NODE_LABEL,
        )
        return (
            EventWithHint(pod, _after_pod_left, gpu_request),
            EventWithHint(node, _after_node_change, gpu_request),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        request = gpu_request(pod)
        if request.fault:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (Reason(request.fault, "InvalidGpuRequest"),))
        return None if request.number else SKIP

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        request = gpu_request(pod)
        gpus = self._gpus.left(snapshot, rows)
        index = np.where(gpus.fitting(request), 0, _NO_ROOM)
        index[gpus.counts < request.number] = _TOO_FEW
        index[~of_wanted_model(request, snapshot)] = _OTHER_MODEL
        return Outcomes(index.astype(np.uint16), _TABLE)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        request, snapshot = gpu_request(pod), self._objects.snapshot()
        row = snapshot.row_of(node_name)
        if not request.number or row is None or self._gpus.is_given(pod):
            return None
        left = self._gpus.left_without(pod, snapshot, row)
        if np.count_nonzero(left >= request.milli) < request.number:
            return Status(Code.UNSCHEDULABLE, (NO_SHARE,))
        self._gpus.give(pod, self._selected(pod, request, left))
        return None

    def _selected(self, pod: PodInfo, request: GpuRequest, left: Int64s) -> list[int]:
        fitting = np.flatnonzero(left >= request.milli)
        if not request.is_share or self._selection == "BestFit":
            chosen: list[int] = tightest(left[None, :], request)[0].tolist()
            return chosen
        if self._selection == "WorstFit":
            return [int(fitting[left[fitting].argmax()])]
        return [Random(pod.uid).choice(fitting.tolist())]  # the same in every attempt at the pod

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._gpus.take_back(pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None if gpu_request(pod).number else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write the pod's GPUs into an annotation, for the node's device plugin and for other schedulers."""
        gpus = self._gpus.given(pod) or ()
        body = {"metadata": {"uid": pod.uid, "annotations": {GPU_INDEX: "-".join(map(str, gpus))}}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        await self._api.api_write("PATCH", path, body, content_type="application/merge-patch+json")
        return None


def of_wanted_model(request: GpuRequest, snapshot: Snapshot) -> Bools:
    """Return bool (n_nodes,), where the request accepts the model of the GPUs."""
    if not request.models:
        return np.ones(snapshot.n_nodes, dtype=np.bool_)
    return snapshot.label(GPU_MODEL).among(request.models)


def _after_pod_left(_pod: PodInfo, old: PodInfo, _new: PodInfo | None) -> QueueingHint:
    return QueueingHint.QUEUE if gpu_request(old).number else QueueingHint.SKIP


def _after_node_change(pod: PodInfo, _old: NodeObject | None, new: NodeObject) -> QueueingHint:
    request = gpu_request(pod)
    has_enough = new.allocatable.get(GPU_COUNT, 0) >= request.number and request.milli <= MILLI
    will_do = not request.models or new.labels.get(GPU_MODEL) in request.models
    return QueueingHint.QUEUE if has_enough and will_do else QueueingHint.SKIP
