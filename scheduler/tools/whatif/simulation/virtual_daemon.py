"""The daemon's parts and cycles in virtual time, with a cluster in memory."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scheduler.daemon.app.api_access import ApiAccess
from scheduler.daemon.app.assembly import Cycles, Parts
from scheduler.daemon.app.capabilities import BackgroundTasks
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.tasks import Tasks
from scheduler.engine.cycle.sampling import NodeSampling, percentages_of
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.engine.sharding.shards import SimulatedShards
from scheduler.extensions.extenders import Extenders, HttpExtender
from scheduler.tools.whatif.documents import decoded_object
from scheduler.tools.whatif.simulation.cluster import MemoryCluster, ObjectWrites, bind_volumes
from scheduler.tools.whatif.simulation.virtual_time import EPOCH, LoopClock
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from datetime import datetime
    from random import Random

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import Extender
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.engine.runtime.budget import AttemptUsage
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.cluster_file import ClusterFile
    from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop

logger = logging.getLogger(__name__)

T = TypeVar("T")


class NoBudget(LoopBudget):
    """Calls plugins without a limit: a plugin that does not return stops the simulation."""

    def run_slice(self, function: Callable[..., T], *args: object, usage: AttemptUsage | None = None) -> T:
        return function(*args)

    def run_in_slices(self, awaitable: Awaitable[T], usage: AttemptUsage | None = None) -> Awaitable[T]:
        return awaitable

    def call(
        self, plugin: Plugin, function: Callable[..., T], *args: object, often: str = "", at: str = ""
    ) -> T:
        return function(*args)

    async def awaited(self, plugin: Plugin, function: Callable[..., Any], *args: object, at: str = "") -> Any:
        answer = function(*args)
        return await answer if hasattr(answer, "__await__") else answer


class RealExtender(HttpExtender):
    """One extender; its calls take no virtual time.

    Args:
        loop: the loop whose clock stops.
        arguments: those of `HttpExtender`.
    """

    def __init__(self, loop: VirtualTimeLoop, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._loop = loop

    async def _post(self, url: str, verb: str, body: bytes, most_bytes: int) -> bytes:
        with self._loop.held(self._seconds):
            return await super()._post(url, verb, body, most_bytes)


def without_bind(extender: Extender) -> Extender:
    """Return an extender without its bind verb: it would bind pods in a real cluster."""
    if not extender.bind_verb:
        return extender
    logger.warning(
        "Not simulated: the extender's bind verb is not called",
        extra={"extender": shown_url(extender.url_prefix)},
    )
    return msgspec.structs.replace(extender, bind_verb="")


_REFRESH_SECONDS = 10.0
"""Real time for the data of all plugins."""
_LONGEST_REFRESH_SECONDS = 300.0
"""Virtual time after which plugins are refreshed while nothing changes."""
_BUSY = (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT)
_PATIENCE_SECONDS = 400.0
"""Virtual time after the last change, beyond the longest wait of a rejected pod, at which retried pods are given up."""


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
        max_in_unschedulable_seconds: after this time a rejected pod is tried again without an event.
        shards: number of replicas that share the nodes, as in docs/sharding.md. They know of each other's placements at once,
            so one state and one queue serve all of them.

    Attributes:
        loop: the event loop.
        parts: state, profiles and queue.
        cycles: the scheduling and binding cycles.
        cluster: the cluster in memory.
        active: the profiles of the configuration.
        shards: the replicas that share the nodes; None for one replica.

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
        max_in_unschedulable_seconds: float = 300.0,
        shards: int = 1,
    ) -> None:
        settings = configuration.settings
        self.loop = loop
        clock = LoopClock(loop, epoch)
        self.parts = Parts(
            clock,
            observer,
            in_tree,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            budget=NoBudget(clock.monotonic),
        )
        self.shards: SimulatedShards | None = None
        if shards > 1:
            members = [f"shard-{number}" for number in range(shards)]
            self.shards = self.parts.profiles.shards = SimulatedShards(members, self.parts.profiles.has_quota)
        self._patience_seconds = max_in_unschedulable_seconds + _PATIENCE_SECONDS
        self.cluster = MemoryCluster(
            self.parts, loop, stop_seconds=stop_seconds, binding_seconds=binding_seconds
        )
        self._tasks = Tasks()
        writes = ObjectWrites(self.cluster, clock)
        api = ApiAccess(
            get=writes,
            write=writes,
            statuses=writes,
            background=BackgroundTasks(self._tasks),
            binder=self.cluster,
            recorders=self.cluster,
            writer=self.cluster,
            reader=self.cluster,
            spawn=self._tasks.spawn,
        )
        self.cycles = Cycles(
            self.parts,
            api,
            is_leading=lambda: True,
            random=random,
            sampling=NodeSampling(percentages_of(settings)),
        )
        extenders = Extenders(
            [without_bind(each) for each in settings.extenders],
            self.cycles.failures,
            make=lambda *arguments: RealExtender(loop, *arguments),
        )
        self.active = self.parts.build(configuration, api, self.cycles.capabilities(), extenders)
        self.parts.activate(self.active)
        self.cluster.connect(self.cycles.pod_handler, self.active.needs)
        bind_volumes(self.cluster)

    async def run(self, play: Coroutine[Any, Any, None]) -> None:
        """Schedule while a coroutine runs, then stop."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.parts.web.close)
            stack.push_async_callback(self.active.close)
            async with self._tasks:
                self._tasks.spawn(self.cycles.rejections.run(), "kubelet rejections")
                with self.loop.held(_REFRESH_SECONDS):
                    await self.active.refresh_once()
                self._tasks.spawn(self._keep_fresh(), "refreshes")
                working = self._tasks.spawn(self.cycles.scheduler.run(), "scheduling")
                await play
                self.cycles.scheduler.stop()
                await working

    async def _keep_fresh(self) -> None:
        """Refresh plugins as often as the daemon after a change of the cluster, and less and less often without one."""
        plugins = [each for each in self.active.refreshing() if each[1].refreshes_in_simulations]
        if not plugins:
            return
        soon = wait = min(seconds for _, _, seconds in plugins)
        while True:
            await asyncio.sleep(soon)
            self.cluster.changed.clear()
            for profile, plugin, _ in plugins:
                await self.active.refresh(profile, plugin)
            try:
                async with asyncio.timeout(wait):
                    await self.cluster.changed.wait()
            except TimeoutError:
                wait = min(2 * wait, _LONGEST_REFRESH_SECONDS)
            else:
                wait = soon

    def fill(self, cluster: ClusterFile) -> None:
        """Add the initial objects, as the first lists would.

        Raises:
            ObjectError: an object that a plugin needs is malformed.
        """
        for kind in sorted(self.active.needs.kinds):
            for key, raw in cluster.others.get(kind, {}).items():
                self.cluster.put_object(kind, decoded_object(raw, kind, key))
        for node in cluster.nodes:
            self.cluster.put_node(node)
        for pod in cluster.pods:
            if not pod.is_terminal:
                self.cluster.put_pod(pod)

    async def settle(self) -> None:
        """Wait until only an outside change could cause work: no pod is tried, and no pod is terminating.

        A pod that a plugin tries again at a time is waited for, for example until a protection from preemption ends. Pods
        that are retried in vain, for example after errors, are given up in the end.
        """
        changes, since = -1, 0.0
        while True:
            await self.loop.idle()
            now = self.loop.time()
            planned = [each.try_at for each in self.parts.queue.pods() if each.try_at > now]
            if not planned and not self._is_busy():
                return
            if self.cluster.changes != changes:
                changes, since = self.cluster.changes, max(planned, default=now)
            elif now - since > self._patience_seconds:
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
