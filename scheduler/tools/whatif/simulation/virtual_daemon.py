"""The daemon's parts and cycles in virtual time, with a cluster in memory."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from math import inf
from typing import TYPE_CHECKING

from scheduler.daemon.app.assembly import Cycles, Parts
from scheduler.daemon.app.capabilities import BackgroundTasks
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.needs import needs_of, together
from scheduler.daemon.app.tasks import Tasks
from scheduler.engine.cycle.sampling import NodeSampling, percentages_of
from scheduler.engine.cycle.time_slices import TimeSlices
from scheduler.engine.queue.pod_places import Place
from scheduler.extensions.extenders.chain import Extenders
from scheduler.framework import ApiGet, ApiWrite, Background, PodBinder, PodEvents, SlicedWork
from scheduler.framework.preemption import Preemptions
from scheduler.tools.whatif.simulation.cluster import MemoryCluster
from scheduler.tools.whatif.simulation.no_budget import NoBudget
from scheduler.tools.whatif.simulation.real_extender import RealExtender, without_bind
from scheduler.tools.whatif.simulation.virtual_time import EPOCH, LoopClock
from scheduler.tools.whatif.simulation.volume_binder import bind_volumes
from scheduler.tools.whatif.simulation.writes import ObjectWrites
from scheduler.tools.whatif.typed_items import decoded_object

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from datetime import datetime
    from random import Random
    from typing import Any

    from scheduler.configuration.load import Configuration
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.cluster_file import ClusterFile
    from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop

logger = logging.getLogger(__name__)

_REFRESH_SECONDS = 10.0
"""Real time for the data of one plugin."""
_BUSY = (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT)
_PATIENCE_SECONDS = 700.0
"""Virtual time after the last change at which retried pods are given up; longer than a pod may wait unschedulable."""


class VirtualDaemon:
    """One scheduler; changes of `cluster` reach it at once, and it decides before time advances.

    Args:
        loop: the event loop.
        configuration: the configuration; settings for an API server have no effect.
        random: breaks ties.
        observer: observes decisions.
        in_tree: the in-tree plugins.
        epoch: time when the loop's time is 0.
        stop_seconds, binding_seconds: those of `MemoryCluster`.

    Attributes:
        loop: the event loop.
        parts: state, profiles and queue.
        cycles: the scheduling and binding cycles.
        cluster: the cluster in memory.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """

    def __init__(
        self,
        loop: VirtualTimeLoop,
        configuration: Configuration,
        *,
        random: Random,
        observer: CycleObserver,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
        epoch: datetime = EPOCH,
        stop_seconds: float = inf,
        binding_seconds: Callable[[PodInfo], float] | None = None,
    ) -> None:
        settings = configuration.settings
        self.loop = loop
        self.parts = Parts(LoopClock(loop, epoch), observer, in_tree)
        self.parts.budget = NoBudget(self.parts.clock.monotonic)
        self.parts.configure(settings)
        self.cluster = MemoryCluster(
            self.parts, loop, stop_seconds=stop_seconds, binding_seconds=binding_seconds
        )
        self._tasks = Tasks()
        self.cycles = Cycles(
            self.parts,
            writer=self.cluster,
            recorders=self.cluster,
            reader=self.cluster,
            is_leading=lambda: True,
            tasks=self._tasks,
            random=random,
            sampling=NodeSampling(percentages_of(settings)),
        )
        writes, background = ObjectWrites(self.cluster), BackgroundTasks(self._tasks)
        self.frameworks = self.parts.build_frameworks(
            configuration,
            lambda _profile: {
                ApiGet: writes,
                ApiWrite: writes,
                Background: background,
                SlicedWork: TimeSlices(self.parts.freeze, self.parts.clock),
                PodBinder: self.cluster,
                PodEvents: self.cluster,
                Preemptions: self.cycles.preemptions,
            },
        )
        self._extenders = Extenders(
            [without_bind(each) for each in settings.extenders],
            self.cycles.failures,
            make=lambda *arguments: RealExtender(loop, *arguments),
        )
        self._needs = together([needs_of(self.frameworks.values()), self._extenders.needs])
        self.parts.profiles.swap(self.frameworks, self._extenders)
        self.cluster.connect(self.cycles.pod_handler, self._needs)
        bind_volumes(self.cluster)

    async def run(self, play: Coroutine[Any, Any, None]) -> None:
        """Schedule while a coroutine runs, then stop."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.parts.web.close)
            stack.push_async_callback(self._extenders.close)
            async with self._tasks:
                self._tasks.spawn(self.cycles.rejections.run(), "kubelet rejections")
                await self._refresh()
                working = self._tasks.spawn(self.cycles.scheduler.run(), "scheduling")
                await play
                self.cycles.scheduler.stop()
                await working

    def fill(self, cluster: ClusterFile) -> None:
        """Add the initial objects, as the first lists would.

        Raises:
            ObjectError: an object that a plugin needs is malformed.
        """
        for kind in sorted(self._needs.kinds):
            for key, raw in cluster.others.get(kind, {}).items():
                self.cluster.put_object(kind, decoded_object(raw, kind, key))
        for node in cluster.nodes:
            self.cluster.put_node(node)
        for pod in cluster.pods:
            if not pod.is_terminal:
                self.cluster.put_pod(pod)

    async def settle(self) -> None:
        """Wait until only an outside change could cause work: no pod is tried, and no pod is terminating.

        Pods that are retried in vain, for example after errors, are given up in the end.
        """
        changes, since = -1, 0.0
        while True:
            await self.loop.idle()
            if not self._is_busy():
                return
            if self.cluster.changes != changes:
                changes, since = self.cluster.changes, self.loop.time()
            elif self.loop.time() - since > _PATIENCE_SECONDS:
                return
            await asyncio.sleep(1.0)

    def _is_busy(self) -> bool:
        queue = self.parts.queue
        return bool(
            self.cluster.leaving
            or self.cycles.binding.under_way
            or any(queue.count(place) for place in _BUSY)
            or queue.backlog
        )

    async def _refresh(self) -> None:
        """Let plugins fetch their background data once."""
        for framework in self.frameworks.values():
            for plugin in framework.plugins.all():
                if plugin.refresh_seconds is not None:
                    try:
                        with self.loop.held(_REFRESH_SECONDS):
                            await framework.run_refresh(plugin)
                    except Exception:
                        logger.exception("Plugin could not refresh its data", extra={"plugin": plugin.name})
