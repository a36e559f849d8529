"""What leads to the API server from plugins, alike wherever there is one: the daemon, the extender, the shadow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.app.capabilities import ApiReads, ApiWrites, Bindings, TasksInBackground
from scheduler.app.generation import Generation
from scheduler.app.needs import needs_of
from scheduler.app.tasks import Tasks
from scheduler.client.events import EventRecorders
from scheduler.client.writer import ApiWriter
from scheduler.framework import ApiGet, ApiWrite, Background, PodBinder, PodEvents

if TYPE_CHECKING:
    from random import Random

    from scheduler.app.assembly import Capabilities, Parts
    from scheduler.client.requests import Requests
    from scheduler.configuration.load import Configuration
    from scheduler.metrics import Metrics


class ApiAccess:
    """Reads from the API server and writes to it, for plugins and for who judges with them.

    Args:
        parts: who asks.
        reads: where requests are sent that change nothing.
        writes: where the others are sent.
        metrics: counts.
        random: spreads retries.

    Attributes:
        writer: what is written about pods; to be entered.
        recorders: who records the events of each profile.
        tasks: in which plugins work on, beside others; to be entered.
        background: that work.
    """

    def __init__(
        self, parts: Parts, reads: Requests, writes: Requests, *, metrics: Metrics, random: Random
    ) -> None:
        steps, clock = parts.steps, parts.clock
        self.writer = ApiWriter(writes, clock, random=random, newest=parts.pods.get, observer=metrics)
        self.recorders = EventRecorders(self.writer.queue_event, clock)
        self.tasks = Tasks()
        self.background = TasksInBackground(self.tasks, steps)
        self._parts = parts
        self._metrics = metrics
        self._reads, self._writes = ApiReads(reads, steps), ApiWrites(writes, steps)
        self._bindings = Bindings(self.writer, steps)

    def capabilities(self, profile: str) -> Capabilities:
        """Return what plugins of a profile may ask for that takes an API server."""
        return {
            ApiGet: self._reads,
            ApiWrite: self._writes,
            Background: self.background,
            PodBinder: self._bindings,
            PodEvents: self.recorders.of(profile),
        }

    def generation(self, configuration: Configuration) -> Generation:
        """Build a configuration that judges pods which others place; extenders are not asked.

        Raises:
            ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        """
        parts, registry = self._parts, self._parts.registry()
        frameworks = parts.build_frameworks(configuration, self.capabilities, registry)
        needs, refreshes = needs_of(frameworks.values()), self._metrics.refreshes
        return Generation(configuration, frameworks, needs, None, refreshes, parts.clock, registry)
