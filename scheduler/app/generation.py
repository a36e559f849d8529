"""One configuration, built: what of the daemon is another after a reload."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.extenders.chain import Extenders
    from scheduler.framework.interface import Needs, Plugin
    from scheduler.runtime.framework import Framework

    Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

logger = logging.getLogger(__name__)

FIRST_REFRESH_SECONDS = 10.0
"""How long a new generation waits for the first data of its plugins, before it is put to work without."""


@dataclass(eq=False, slots=True)
class Generation:
    """The profiles of one configuration, and what keeps their plugins' data fresh.

    Attributes:
        configuration: what they were built from.
        frameworks: schedulerName -> profile.
        needs: what all their plugins need together.
        extenders: the extenders of all profiles.
    """

    configuration: Configuration
    frameworks: Mapping[str, Framework]
    needs: Needs
    extenders: Extenders
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _first: list[asyncio.Event] = field(default_factory=list)

    def start_refreshing(self, spawn: Spawn) -> None:
        """Begin to refresh the data of every plugin that wants it."""
        for framework in self.frameworks.values():
            for plugin in framework.plugins.all():
                if plugin.refresh_seconds is not None:
                    first = asyncio.Event()
                    self._first.append(first)
                    refreshing = _keep_fresh(plugin, plugin.refresh_seconds, first)
                    self._tasks.append(spawn(refreshing, f"refresh {plugin.name}"))

    async def wait_refreshed(self) -> None:
        """Wait until every plugin was refreshed once, or tried to, but not for ever."""
        try:
            async with asyncio.timeout(FIRST_REFRESH_SECONDS):
                for first in self._first:
                    await first.wait()
        except TimeoutError:
            logger.warning("Plugins are put to work before their data were read", extra=self._fields())

    def stop_refreshing(self) -> None:
        """End what `start_refreshing` began."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def _fields(self) -> dict[str, object]:
        return {"profiles": sorted(self.frameworks), "seconds": FIRST_REFRESH_SECONDS}


async def _keep_fresh(plugin: Plugin, seconds: float, first: asyncio.Event) -> None:
    while True:
        try:
            await plugin.refresh()
        except Exception:
            logger.exception("Plugin could not refresh its data", extra={"plugin": plugin.name})
        first.set()
        await asyncio.sleep(seconds)
