"""One built configuration: the part of the daemon that a reload replaces."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.metrics.additional import RefreshMetrics
    from scheduler.engine.ports import Time
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.runtime.registry import Registry
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.interface import Needs, Plugin
    from scheduler.snapshot import Snapshot

    Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

logger = logging.getLogger(__name__)

REFRESH = "refresh of "
FIRST_REFRESH_SECONDS = 10.0
"""How long a new generation waits for the first data of its plugins before it becomes active without them."""


@dataclass(eq=False, slots=True)
class Generation:
    """The profiles of one configuration, with the tasks that refresh their plugins' data.

    Attributes:
        configuration: the configuration that they were built from.
        frameworks: schedulerName -> profile.
        needs: the combined needs of all their plugins.
        extenders: the extenders of all profiles; None if extenders must not be called.
        clock: the time.
        registry: holds the code of the plugins.
        time: the refreshes are tasks of this engine.
    """

    configuration: Configuration
    frameworks: Mapping[str, Framework]
    needs: Needs
    extenders: Extenders | None
    clock: Clock
    registry: Registry
    time: Time
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _first: list[asyncio.Event] = field(default_factory=list)
    # (plugin, profile) -> last success, or start
    _fresh_at: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def preempts_for_resizes(self) -> bool:
        """Whether the gate InPlacePodVerticalScalingSchedulerPreemption is on."""
        return self.configuration.features.enabled("InPlacePodVerticalScalingSchedulerPreemption")

    async def close(self) -> None:
        """Release everything that only this generation needs."""
        self.stop_refreshing()
        if self.extenders is not None:
            await self.extenders.close()
        self.registry.release()

    async def refresh_once(self) -> None:
        """Refresh the data of every plugin once; a failure is logged."""
        for profile, plugin, _ in self.refreshing():
            await self.refresh(profile, plugin)

    async def refresh(self, profile: str, plugin: Plugin) -> None:
        """Refresh the data of a plugin once; a failure is logged."""
        try:
            await self.frameworks[profile].run_refresh(plugin)
        except Exception:
            logger.exception("Plugin could not refresh its data", extra={"plugin": plugin.name})

    def start_refreshing(self, spawn: Spawn, metrics: RefreshMetrics) -> None:
        """Start to refresh the data of every plugin with a refresh interval; `metrics` counts."""
        for profile, plugin, seconds in self.refreshing():
            first = asyncio.Event()
            self._first.append(first)
            name = f"{REFRESH}{plugin.name} in {profile}"
            refreshing = self.time.task(self._keep_fresh(profile, plugin, seconds, first, metrics), name)
            self._tasks.append(spawn(refreshing, name))

    async def wait_refreshed(self) -> None:
        """Wait until the first refresh of every plugin succeeded or failed, for a limited time."""
        try:
            async with asyncio.timeout(FIRST_REFRESH_SECONDS):
                for first in self._first:
                    await first.wait()
        except TimeoutError:
            fields = {"profiles": sorted(self.frameworks), "seconds": FIRST_REFRESH_SECONDS}
            logger.warning("Plugins are activated before their data were read", extra=fields)

    def stop_refreshing(self) -> None:
        """Stop the tasks of `start_refreshing`."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def refresh_ages(self) -> Iterable[tuple[tuple[str, str], float]]:
        """Return ((plugin, profile), seconds since the last successful refresh, or since the first attempt)."""
        now = self.clock.monotonic()
        return [(labels, now - at) for labels, at in self._fresh_at.items()]

    def nodes_without_data(self, snapshot: Snapshot) -> Iterable[tuple[tuple[str, str], float]]:
        """Yield ((plugin, profile), number of nodes without data) for each plugin with data about nodes."""
        for profile, plugin, _ in self.refreshing():
            number = self.frameworks[profile].nodes_without_data(plugin, snapshot)
            if number is not None:
                yield (plugin.name, profile), float(number)

    def refreshing(self) -> Iterable[tuple[str, Plugin, float]]:
        """Yield the plugins that refresh data: profile, plugin, seconds between two refreshes."""
        for profile, framework in self.frameworks.items():
            for plugin in framework.plugins.all():
                if plugin.refresh_seconds is not None:
                    yield profile, plugin, plugin.refresh_seconds

    async def _keep_fresh(
        self, profile: str, plugin: Plugin, seconds: float, first: asyncio.Event, metrics: RefreshMetrics
    ) -> None:
        fields, name = {"plugin": plugin.name, "profile": profile}, plugin.name
        metrics.began(name, profile)
        self._fresh_at[name, profile] = self.clock.monotonic()
        failures = 0
        while True:
            try:
                await self.frameworks[profile].run_refresh(plugin)
            except Exception as error:
                failures += 1
                metrics.failed(name, profile)
                if not isinstance(error, OSError):
                    logger.exception("Plugin could not refresh its data", extra=fields)
                elif failures == 1:  # an outage is logged once
                    logger.warning("Plugin could not refresh its data", extra={**fields, "error": str(error)})
            else:
                metrics.refreshed(name, profile)
                self._fresh_at[name, profile] = self.clock.monotonic()
                if failures:
                    logger.info("Plugin has fresh data again", extra={**fields, "failures": failures})
                failures = 0
            first.set()
            await asyncio.sleep(seconds)
