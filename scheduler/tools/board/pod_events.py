"""Events about a pod: those that this daemon recorded or, for another scheduler, all events in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.clock import rfc3339_micro
from scheduler.kube.client.resources import Resource
from scheduler.tools.whatif.live_cluster import read_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.kube.client.connection import ApiConnection

_EVENTS: Final = Resource("", "v1", "events", "Event", namespaced=True)


class PodEvent(NamedTuple):
    """An event about a pod.

    Attributes:
        at: time of the last occurrence.
        reason: its reason.
        note: its message.
        times: number of occurrences.
        by: the reporting component.
    """

    at: str
    reason: str
    note: str
    times: int
    by: str


async def events_of(daemon: Daemon, key: str) -> Sequence[PodEvent]:
    """Return the events that the daemon recorded about a pod (`namespace/name`) in the last minutes, without a request."""
    return [
        PodEvent(
            rfc3339_micro(each.last_observed),
            each.body.reason,
            each.body.note,
            each.count,
            each.body.reporting_controller,
        )
        for each in daemon.events_about(key)
    ]


async def events_about(connection: ApiConnection, key: str) -> Sequence[PodEvent]:
    """Read all events about a pod (`namespace/name`).

    Raises:
        ApiError: no answer, or no permission.
    """
    namespace, _, name = key.partition("/")
    selectors = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
    found = await read_objects(
        connection, _EVENTS, msgspec.json.Decoder(_Event).decode, selectors, namespace=namespace
    )
    return [each.as_pod_event() for each in found.values()]


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: str | None = None


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Source(msgspec.Struct):
    component: str = ""


class _Event(msgspec.Struct, rename="camel"):
    """A v1 Event; both the old and the new way of counting are in use."""

    metadata: _Metadata
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None
    reporting_component: str = ""
    source: _Source = msgspec.field(default_factory=_Source)

    def as_pod_event(self) -> PodEvent:
        series = self.series or _Series(self.count or 1)
        at = series.last_observed_time or self.last_timestamp or self.event_time
        by = self.reporting_component or self.source.component
        return PodEvent(
            at or self.metadata.creation_timestamp or "", self.reason, self.message, series.count, by
        )
