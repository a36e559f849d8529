"""Access of plugins to the API server, shared by the daemon, the extender and the shadow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.app.capabilities import ApiReads, ApiWrites, BackgroundTasks, Bindings
from scheduler.daemon.app.generation import Generation
from scheduler.daemon.app.needs import needs_of
from scheduler.daemon.app.tasks import Tasks
from scheduler.framework import ApiGet, ApiWrite, Background, PodBinder, PodEvents
from scheduler.kube.client.events import EventRecorders
from scheduler.kube.client.writer import ApiWriter

if TYPE_CHECKING:
    from random import Random

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.assembly import Capabilities, Parts
    from scheduler.daemon.metrics import Metrics
    from scheduler.kube.client.requests import Requests


class ApiAccess:
    """Reads from the API server and writes to it, for plugins.

    Args:
        parts: the scheduler's parts.
        reads: sends requests that change nothing.
        writes: sends all other requests.
        metrics: counters.
        random: spreads retries.

    Attributes:
        writer: writes about pods; must be entered.
        recorders: the event recorder of each profile.
        tasks: background tasks of plugins; must be entered.
        background: starts those tasks.
    """

    def __init__(
        self, parts: Parts, reads: Requests, writes: Requests, *, metrics: Metrics, random: Random
    ) -> None:
        hooks, clock = parts.hooks, parts.clock
        self.writer = ApiWriter(writes, clock, random=random, newest=parts.pods.get, observer=metrics)
        self.recorders = EventRecorders(self.writer.queue_event, clock)
        self.tasks = Tasks()
        self.background = BackgroundTasks(self.tasks, hooks)
        self._parts = parts
        self._metrics = metrics
        self._reads, self._writes = ApiReads(reads, hooks), ApiWrites(writes, hooks)
        self._bindings = Bindings(self.writer, hooks)

    def capabilities(self, profile: str) -> Capabilities:
        """Return the capabilities of a profile's plugins that need an API server."""
        return {
            ApiGet: self._reads,
            ApiWrite: self._writes,
            Background: self.background,
            PodBinder: self._bindings,
            PodEvents: self.recorders.of(profile),
        }

    def generation(self, configuration: Configuration) -> Generation:
        """Build a configuration that evaluates pods of another scheduler; extenders are not called.

        Raises:
            ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        """
        parts, registry = self._parts, self._parts.registry()
        frameworks = parts.build_frameworks(configuration, self.capabilities, registry)
        needs, refreshes = needs_of(frameworks.values()), self._metrics.refreshes
        return Generation(configuration, frameworks, needs, None, refreshes, parts.clock, registry)
