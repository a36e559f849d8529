"""PostFilter: no node can run the pod; whose arrangements count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.framework.interface import PostFilterResult
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.status import Code, Status
from scheduler.runtime.answers import is_post_filter
from scheduler.runtime.calls import NO_OTHER, is_worded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.interface import PostFilterPlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.calls import PluginCalls
    from scheduler.snapshot import Snapshot


async def ask_post_filters(
    call: PluginCalls,
    plugins: Sequence[PostFilterPlugin],
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    diagnosis: Diagnosis,
) -> PostFilterResult:
    """Ask one plugin after another until one succeeds, fails, or knows that nothing helps.

    Returns:
        What that one said, or a rejection with the reasons of all and the last nomination any of them spoke of.

    Source:
        kube-scheduler v1.36, framework/runtime/framework.go, RunPostFilterPlugins.
    """
    reasons: list[str] = []
    rejected_by = ""
    nominated: str | None = None
    for plugin in plugins:
        result = await call.perhaps_awaited(
            plugin,
            ExtensionPoint.POST_FILTER,
            plugin.post_filter,
            state,
            pod,
            snapshot,
            diagnosis,
            expects=is_post_filter,
            allows=NO_OTHER,
        )
        if isinstance(result, Status):
            return PostFilterResult(result)
        status = call.completed(plugin, ExtensionPoint.POST_FILTER, result.status)
        if result.status.code is Code.ERROR and is_worded(result.status):
            # It ends the point in its own words, which follow those of the plugins that refused the pod.
            return PostFilterResult(replace(result.status, plugin=plugin.name))
        if status.code is Code.ERROR:
            return PostFilterResult(status)
        if not status.is_rejected or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PostFilterResult(status, result.nominated_node_name)
        if result.nominated_node_name is not None:
            nominated = result.nominated_node_name
        reasons.extend(status.reasons)
        rejected_by = rejected_by or plugin.name
    return PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons), rejected_by), nominated)
