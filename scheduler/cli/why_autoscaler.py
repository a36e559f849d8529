"""What an autoscaler does for a pending pod: its last event about the pod, and the node that is to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client.resources import EVENTS, NODES
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo

_REASONS: Final = {
    "TriggeredScaleUp": "Cluster Autoscaler adds a node",
    "NotTriggerScaleUp": "Cluster Autoscaler adds no node",
    "Nominated": "Karpenter adds a node, or expects one to fit",
}
"""Reason of an event -> its meaning."""
_KARPENTER: Final = "karpenter"
_KARPENTER_FAILS: Final = "FailedScheduling"
"""Karpenter uses this reason of schedulers as well."""
_NOT_FOUND: Final = 404
_REFUSED: Final = frozenset({403, 404})


class _Source(msgspec.Struct):
    component: str = ""


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    """An Event of events.k8s.io/v1."""

    reason: str = ""
    note: str = ""
    reporting_controller: str = ""
    event_time: str | None = None
    series: _Series | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_source: _Source = msgspec.field(default_factory=_Source)

    @property
    def component(self) -> str:
        return self.reporting_controller or self.deprecated_source.component

    @property
    def at(self) -> str:
        """The time of its last occurrence, RFC 3339; "" if it has none."""
        last = None if self.series is None else self.series.last_observed_time
        return last or self.deprecated_last_timestamp or self.event_time or ""

    @property
    def meaning(self) -> str:
        """What it means for the pod; "" if it is not of an autoscaler."""
        if self.component == _KARPENTER and self.reason == _KARPENTER_FAILS:
            return "Karpenter adds no node"
        return _REASONS.get(self.reason, "")


class _Events(msgspec.Struct):
    items: list[_Event] = []


async def autoscaler_of(connection: ApiConnection, pod: PodInfo) -> dict[str, Any] | None:
    """Return the last event of an autoscaler about a pending pod as JSON values; None if there is none.

    Events that the user may not list count as none.

    Raises:
        ApiError: no answer.
    """
    selector = {"fieldSelector": f"regarding.uid={pod.uid}"}
    try:
        answer = await connection.send(Request("GET", EVENTS.path(pod.namespace), params=selector))
    except ApiError as error:
        if error.status in _REFUSED:
            return None
        raise
    events = [each for each in msgspec.json.decode(answer.body, type=_Events).items if each.meaning]
    if not events:
        return None
    last = max(events, key=lambda each: each.at)
    return {
        "meaning": last.meaning,
        "component": last.component,
        "reason": last.reason,
        "message": last.note,
        "at": last.at or None,
    }


async def missing_node(connection: ApiConnection, pod: PodInfo) -> str | None:
    """Return the node to which a pending pod is nominated if it does not exist, because it is to come or is deleted.

    Raises:
        ApiError: no answer.
    """
    name = pod.pod.status.nominated_node_name
    if not name:
        return None
    try:
        await connection.send(Request("GET", NODES.path(name=name)))
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return name
        if error.status not in _REFUSED:
            raise
    return None
