"""Writes the statuses that the plugins of the active profiles give to objects."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from scheduler.daemon.app.capabilities import TableObjects
from scheduler.daemon.app.object_statuses import ObjectStatuses, run_in_slices
from scheduler.kube.client.watch import listed
from scheduler.loop_work import calls_plugin_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping

    from scheduler.daemon.app.assembly import Parts
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework import PluginMetrics
    from scheduler.framework.capabilities import StatusWrite
    from scheduler.framework.interface import Plugin
    from scheduler.framework.status_sources import StatusSource
    from scheduler.kube.client.events import EventRecorder
    from scheduler.kube.client.requests import Requests
    from scheduler.objects.pod import PodInfo
    from scheduler.worker_thread import Aside

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CONFIGURATION_SECONDS: Final = 1.0
"""The interval of checks whether other profiles are active."""
_AFTER_FAILURE_SECONDS: Final = 10.0
"""The time after which a source that failed is called again."""


class StatusAccess:
    """Implements `StatusAccess` of the contract.

    Args:
        parts: the objects and the clock.
        pods: namespace/name -> pod, as watched last.
        metrics: declares metrics.
        reads: lists objects.
        aside: runs work in another thread.
    """

    def __init__(
        self,
        parts: Parts,
        pods: Mapping[str, PodInfo],
        metrics: PluginMetrics,
        *,
        reads: Requests,
        aside: Aside,
    ) -> None:
        self.pods, self.metrics, self.clock = pods, metrics, parts.clock
        self.cluster = TableObjects(parts.cache.table)
        self._reads, self._aside = reads, aside

    def listed(self, path: str, selectors: Mapping[str, str]) -> AsyncIterator[bytes]:
        return listed(self._reads, path, selectors)

    async def in_slices(self, steps: Generator[None, None, T]) -> T:
        return await run_in_slices(steps)

    async def aside(self, work: Callable[[], T], what: str) -> T:
        return await self._aside(work, what)


class PluginStatuses:
    """Writes the statuses of all plugins of the active profiles, and begins again when other profiles are active.

    Args:
        parts: the objects, and the active profiles.
        access: what the sources may use.
        writes: writes the statuses.
        is_leading: whether writes are allowed now.
        recorder: recorder of events about the objects.
    """

    def __init__(
        self,
        parts: Parts,
        access: StatusAccess,
        *,
        writes: StatusWrite,
        is_leading: Callable[[], bool],
        recorder: EventRecorder,
    ) -> None:
        self._parts, self._access = parts, access
        self._writes, self._is_leading, self._recorder = writes, is_leading, recorder

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        while True:
            frameworks = self._parts.profiles.frameworks
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._write(plugin, source), name=f"status of {source.kind}")
                    for plugin, source in self._sources(frameworks.values()).values()
                ]
                while self._parts.profiles.frameworks is frameworks:  # noqa: ASYNC110 - a reload waits for nothing
                    await asyncio.sleep(_CONFIGURATION_SECONDS)
                for each in running:
                    each.cancel()

    @calls_plugin_code
    def _sources(self, frameworks: Iterable[Framework]) -> Mapping[str, tuple[str, StatusSource]]:
        """Return kind -> (name of the plugin, source); the first plugin that has a source of a kind writes it."""
        plugins: dict[type[Plugin], list[Plugin]] = {}
        for framework in frameworks:
            for plugin in framework.plugins.all():
                plugins.setdefault(type(plugin), []).append(plugin)
        found: dict[str, tuple[str, StatusSource]] = {}
        for its_class, instances in plugins.items():
            try:
                sources = {source.kind: source for source in instances[0].statuses(instances, self._access)}
            except Exception:
                logger.exception("Plugin has no statuses", extra={"plugin": its_class.name})
                continue
            for kind, source in sources.items():
                if found.setdefault(kind, (its_class.name, source))[1] is not source:
                    fields = {"kind": kind, "plugin": its_class.name, "written_by": found[kind][0]}
                    logger.warning("Two plugins have statuses of one kind", extra=fields)
        return found

    async def _write(self, plugin: str, source: StatusSource) -> NoReturn:
        """Write the statuses of one source until cancelled; a failure of the source is logged."""
        try:
            while True:
                try:
                    statuses = ObjectStatuses(
                        source,
                        self._parts,
                        writes=self._writes,
                        is_leading=self._is_leading,
                        recorder=self._recorder,
                    )
                    await statuses.run()
                except Exception:
                    fields = {"plugin": plugin, "kind": source.kind}
                    logger.exception("Plugin failed to compute statuses", extra=fields)
                    await asyncio.sleep(_AFTER_FAILURE_SECONDS)
        finally:
            source.ended()
