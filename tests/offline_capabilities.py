"""What plugins may ask for where nothing is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.app.capabilities import LoopSleep, NoApiServer, TableObjects
from scheduler.clock import Clock, SystemClock
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.observer import NoObserver
from scheduler.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.cycle.profiles import Profiles
from scheduler.framework import (
    ApiGet,
    ApiWrite,
    Background,
    ClaimMetrics,
    ClusterObjects,
    PodActivator,
    PodBinder,
    PodEvents,
    Sleep,
    WaitForEvent,
)
from scheduler.framework.preemption import Preemptions, VictimReview
from scheduler.snapshot import ClusterTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo


class NoBinder:
    """Binds nothing."""

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...


_NOTHING = NoApiServer()

OFFLINE: Mapping[type, object] = {
    ApiGet: _NOTHING,
    ClaimMetrics: NoObserver(),
    PodActivator: EventBus(),
    PodEvents: _NOTHING,
    Sleep: LoopSleep(),
    ApiWrite: _NOTHING,
    Background: _NOTHING,
    Clock: SystemClock(),
    ClusterObjects: TableObjects(ClusterTable()),
    WaitForEvent: EventBus(),
    PodBinder: NoBinder(),
    Preemptions: NoPreemptions(),
    VictimReview: ExtenderReview(Profiles()),
}
"""Protocol -> what fulfils it."""
