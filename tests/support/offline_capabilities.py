"""The capabilities of plugins where nothing is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.clock import SystemClock
from scheduler.configuration.feature_gates import features_of
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.assembly import Parts
from scheduler.engine.cycle.observer import NoObserver
from scheduler.framework import Features, HttpGet, PodBinder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo


class NoBinder:
    """Binds nothing."""

    async def bind(self, pod: PodInfo, node_name: str) -> None: ...


_COMMON = Parts(SystemClock(), NoObserver(), {}).capabilities()
OFFLINE: Mapping[type, object] = {
    **{protocol: offered for protocol, offered in _COMMON.items() if protocol is not HttpGet},
    **NO_API_SERVER.capabilities(""),
    PodBinder: NoBinder(),
    Features: features_of({}),
}
"""Protocol -> its implementation."""
