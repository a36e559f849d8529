"""Resource claims: pods without any pass; pods with one are refused, since nothing here allocates devices yet.

A pod with claims that were ignored would start without its devices, or never. It is refused in plain words instead.
PostFilter says of the others what kube-scheduler says of them, so that messages read the same.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, PreFilter and PostFilter of a pod whose claims
    are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    PluginArgs,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework import CycleState, Diagnosis
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

NOT_ALLOCATED = "resource claims are not allocated by this scheduler yet"

_ASKED = "PreFilterDynamicResources"
_NOTHING_TO_FREE = "no new claims to deallocate"


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Arguments of DynamicResources, which have no effect before anything is allocated.

    Attributes:
        filter_timeout: how long a search for devices may take.
        binding_timeout: how long to wait for devices to be ready.
    """

    filter_timeout: str = "10s"
    binding_timeout: str = "10m0s"


class DynamicResources(PreFilterPlugin, PostFilterPlugin):
    """Keeps pods with resource claims from being placed without them."""

    name = "DynamicResources"
    api_version = 1
    Args = DynamicResourcesArgs
    keeps_rows_apart = True

    def events(self) -> Sequence[EventWithHint]:
        """Listen to the only thing about claims that changes in a pod."""
        generated = ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM
        return (EventWithHint(ClusterEvent(EventResource.POD, generated)),)

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        state.write(_ASKED, True)
        if pod.pod.spec.resource_claims:
            return Status.unschedulable(NOT_ALLOCATED, resolvable=False)
        return SKIP

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        if _ASKED not in state:
            # A plugin before it gave the pod up. Upstream fails here, and so ends PostFilter, in these words.
            return PostFilterResult(Status.failed("not found"))
        if pod.pod.spec.resource_claims:
            return PostFilterResult(Status.unschedulable("still not schedulable"))
        return PostFilterResult(Status.unschedulable(_NOTHING_TO_FREE))
