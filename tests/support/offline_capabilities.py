"""What plugins may ask for where nothing is carried out."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduler.clock import Clock, SystemClock
from scheduler.configuration.feature_gates import FeatureGates
from scheduler.daemon.app.capabilities import (
    AsyncioKeyedLock,
    LoopSleep,
    LoopTimeSlice,
    NoApiServer,
    TableObjects,
)
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.engine.cycle.shared import Shared
from scheduler.framework import (
    ApiGet,
    ApiWrite,
    Background,
    ClaimMetrics,
    ClusterObjects,
    KeyedLock,
    PodActivator,
    PodBinder,
    PodEvents,
    PodGroupMembers,
    PodGroupObjects,
    QueuedPods,
    Sleep,
    SlicedWork,
    TimeSlice,
    WaitForEvent,
    WorkloadFeatures,
)
from scheduler.framework.preemption import NominatedPods, Preemptions, VictimReview
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.replay_hooks import NO_HOOKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo


class NoBinder:
    """Binds nothing."""

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...


_NOTHING = NoApiServer()
_SHARED = Shared(SystemClock(), NoObserver())

OFFLINE: Mapping[type, object] = {
    ApiGet: _NOTHING,
    ClaimMetrics: NoObserver(),
    PodActivator: _SHARED.bus,
    PodGroupMembers: _SHARED.cache.groups,
    PodGroupObjects: _SHARED.profiles,
    PodEvents: _NOTHING,
    QueuedPods: _SHARED.queue,
    Sleep: LoopSleep(),
    KeyedLock: AsyncioKeyedLock(),
    TimeSlice: LoopTimeSlice(SystemClock(), NO_HOOKS, inf),
    ApiWrite: _NOTHING,
    Background: _NOTHING,
    Clock: SystemClock(),
    ClusterObjects: TableObjects(_SHARED.cache.table),
    SlicedWork: WithoutSlices(),
    NominatedPods: _SHARED.nominator,
    WaitForEvent: _SHARED.bus,
    WorkloadFeatures: FeatureGates(),
    PodBinder: NoBinder(),
    Preemptions: NoPreemptions(),
    VictimReview: ExtenderReview(_SHARED.profiles),
}
"""Protocol -> what fulfils it."""
