"""GpuSharing: places pods that request parts of GPUs where enough is left, and allocates the GPUs.

Source:
    hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/open_gpu_share.go. Unlike there, a pod that requests
    several GPUs gets different ones, also if it requests a part of each.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from plugins.gpu_sharing.gpus import GPU_COUNT, GPU_INDEX, GPU_MODEL, MILLI, Gpus, gpu_request, tightest
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
    ReservePlugin,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from plugins.gpu_sharing.gpus import GpuRequest
    from scheduler.framework import CycleState
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot

_OTHER_MODEL: Final = 1
_TOO_FEW: Final = 2
_NO_ROOM: Final = 3
_TABLE: Final = (
    PASS,
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) had GPUs of another model",)),
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("Too few GPUs",)),
    Outcome(Code.UNSCHEDULABLE, ("Insufficient GPU shares",)),
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
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (request.fault,))
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
            return Status(Code.UNSCHEDULABLE, ("Insufficient GPU shares",))
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
