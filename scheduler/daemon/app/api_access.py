"""The access of a scheduler to the API server: connected in the daemon, the extender and the shadow, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.capabilities import ApiReads, ApiWrites, BackgroundTasks, NoApiServer, StatusWrites
from scheduler.daemon.app.tasks import Tasks
from scheduler.framework import ApiGet, ApiWrite, Background, PodBinder, PodEvents, StatusWrite
from scheduler.kube.client.events import EventRecorders
from scheduler.kube.client.requests import ApiPodReader, RetriedRequests, TimeLimitedRequests
from scheduler.kube.client.writer import ApiWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from random import Random

    from scheduler.daemon.metrics import Metrics
    from scheduler.engine.cycle.shared import Shared
    from scheduler.engine.ports import PodEventRecorders, PodReader, PodWriter
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.requests import Requests

    Capabilities = Mapping[type, object]
    """Protocol -> its implementation."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """All access of a scheduler to the API server.

    Attributes:
        get: reads for plugins.
        write: writes of plugins.
        statuses: statuses that plugins write.
        background: background tasks of plugins.
        binder: binds pods.
        recorders: the event recorder of each profile.
        writer: writes about pods.
        reader: reads a pod past every cache.
        spawn: starts a task that ends with the scheduler.
    """

    get: ApiGet
    write: ApiWrite
    statuses: StatusWrite
    background: Background
    binder: PodBinder
    recorders: PodEventRecorders
    writer: PodWriter
    reader: PodReader
    spawn: Callable[[Coroutine[Any, Any, None], str], object]

    def capabilities(self, profile: str) -> Capabilities:
        """Return the capabilities of a profile's plugins that need an API server."""
        return {
            ApiGet: self.get,
            ApiWrite: self.write,
            StatusWrite: self.statuses,
            Background: self.background,
            PodBinder: self.binder,
            PodEvents: self.recorders.of(profile),
        }


_NOTHING = NoApiServer()
NO_API_SERVER = ApiAccess(
    get=_NOTHING,
    write=_NOTHING,
    statuses=_NOTHING,
    background=_NOTHING,
    binder=_NOTHING,
    recorders=_NOTHING,
    writer=_NOTHING,
    reader=_NOTHING,
    spawn=_NOTHING.start,
)


class ApiClient:
    """Reads from the API server and writes to it.

    Args:
        shared: the scheduler's shared objects.
        connection: sends requests that change nothing.
        writes: sends all other requests.
        metrics: counters.
        random: spreads retries.
        limit_seconds: writes about pods take effect within this time, or never; None for no limit.

    Attributes:
        writer: writes about pods; must be entered.
        recorders: the event recorder of each profile; must be run.
        tasks: background tasks; must be entered.
        background: starts those of plugins.
        access: all access, for the assembly.
    """

    def __init__(
        self,
        shared: Shared,
        connection: ApiConnection,
        writes: Requests,
        *,
        metrics: Metrics,
        random: Random,
        limit_seconds: float | None = None,
    ) -> None:
        of_pods = writes if limit_seconds is None else TimeLimitedRequests(writes, limit_seconds)
        self.writer = ApiWriter(
            of_pods, shared.clock, random=random, newest=shared.pods.get, observer=metrics
        )
        self.recorders = EventRecorders(self.writer.queue_event, shared.clock)
        self.tasks = Tasks()
        self.background = BackgroundTasks(self.tasks, shared.time)
        self.access = ApiAccess(
            get=ApiReads(RetriedRequests(connection)),
            write=ApiWrites(RetriedRequests(writes)),
            statuses=StatusWrites(self.writer, shared.cache.table, connection.versions),
            background=self.background,
            binder=self.writer,
            recorders=self.recorders,
            writer=self.writer,
            reader=ApiPodReader(connection, random),
            spawn=self.tasks.spawn,
        )
