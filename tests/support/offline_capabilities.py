"""The capabilities of plugins where nothing is carried out, and profiles with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.registry import IN_TREE
from scheduler.clock import SystemClock
from scheduler.configuration.feature_gates import features_of
from scheduler.configuration.load import default
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.assembly import Parts
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.runtime.profiles import build_in_steps
from scheduler.engine.runtime.registry import Registry
from scheduler.framework import Features, HttpGet, PodBinder
from scheduler.loop_work import run_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.engine.runtime.framework import Framework
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


def frameworks(
    configuration: Configuration | None = None,
    registry: Registry | None = None,
    capabilities: Mapping[type, object] = OFFLINE,
) -> dict[str, Framework]:
    """Build the profiles of a configuration, by default the one with the plugins of kube-scheduler."""
    steps = build_in_steps(configuration or default(), registry or Registry(IN_TREE), lambda _: capabilities)
    return run_to_end(steps)
