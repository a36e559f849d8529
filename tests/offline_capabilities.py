"""What plugins may ask for where nothing is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.app.capabilities import NoApiServer, TableObjects
from scheduler.clock import SystemClock
from scheduler.cycle.observer import NoObserver
from scheduler.cycle.preemption import ExtenderReview, NoPreemptions
from scheduler.cycle.shared import Shared
from scheduler.framework import ApiWrite, Background, ClusterObjects, PodBinder, WaitForEvent
from scheduler.framework.preemption import Preemptions, VictimReview

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo


class NoBinder:
    """Binds nothing."""

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...


_NOTHING = NoApiServer()
_SHARED = Shared(SystemClock(), NoObserver())

OFFLINE: Mapping[type, object] = {
    ApiWrite: _NOTHING,
    Background: _NOTHING,
    ClusterObjects: TableObjects(_SHARED.cache.table),
    WaitForEvent: _SHARED.bus,
    PodBinder: NoBinder(),
    Preemptions: NoPreemptions(),
    VictimReview: ExtenderReview(_SHARED.profiles),
}
"""Protocol -> what fulfils it."""
