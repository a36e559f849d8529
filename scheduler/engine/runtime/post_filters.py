"""Runs PostFilter plugins if no node fits a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.engine.runtime.calls import NO_OTHER, is_post_filter
from scheduler.framework.interface import ExtensionPoint, PostFilterResult
from scheduler.framework.status import Code, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.interface import PostFilterPlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


async def ask_post_filters(
    call: PluginCalls,
    plugins: Sequence[PostFilterPlugin],
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    diagnosis: Diagnosis,
) -> PostFilterResult:
    """Run plugins in order until one succeeds, fails, or returns UnschedulableAndUnresolvable.

    Returns:
        The result of that plugin; otherwise a rejection with the reasons of all plugins and the last nomination.

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
        if status.code is Code.ERROR:
            return PostFilterResult(status)
        if not status.is_rejected or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PostFilterResult(status, result.nominated_node_name)
        if result.nominated_node_name is not None:
            nominated = result.nominated_node_name
        reasons.extend(status.reasons)
        rejected_by = rejected_by or plugin.name
    return PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons), rejected_by), nominated)
