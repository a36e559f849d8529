"""The daemon: every part built and connected, then run until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.app.capabilities import WebClient, capabilities
from scheduler.app.needs import decode_pods_for, needs_of, resource_of
from scheduler.client.events import EventRecorder
from scheduler.client.pod_reader import PodReader
from scheduler.client.reflector import Reflector
from scheduler.client.resources import NODES, PODS
from scheduler.client.writer import ApiWriter
from scheduler.cycle.binding import BindingCycle
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.event_handlers import NodeHandler, ObjectHandler, PodHandler
from scheduler.cycle.failure import FailureHandler
from scheduler.cycle.reporting import Reporter
from scheduler.cycle.sampling import NodeSampling, percentages_of
from scheduler.cycle.scheduler import Scheduler
from scheduler.metrics import Metrics
from scheduler.objects.decode import decode_node, decode_object
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from scheduler.client.connection import ApiConnection
    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.framework.interface import Plugin
    from scheduler.runtime.framework import Framework

logger = logging.getLogger(__name__)

_TERMINAL_PODS_LEFT_OUT = "status.phase!=Succeeded,status.phase!=Failed"
_DRAIN_SECONDS = 10.0


class Daemon:
    """One scheduler, connected to one API server.

    Args:
        connection: to the API server; the caller closes it.
        configuration: what to run.
        clock: the time.
        random: breaks ties, spreads retries.
        in_tree: name -> class, of plugins that need no path.

    Attributes:
        metrics: everything that is counted.
        frameworks: schedulerName -> profile.
        cache: our picture of the cluster.
        queue: the pending pods.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """

    def __init__(
        self,
        connection: ApiConnection,
        configuration: Configuration,
        *,
        clock: Clock,
        random: Random,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
    ) -> None:
        settings = configuration.settings
        self._connection = connection
        self._random = random
        self.metrics = Metrics()
        self.frameworks: dict[str, Framework] = {}
        self.cache = Cache()
        self.queue = SchedulingQueue(
            sort_key=lambda queued: self.frameworks[queued.pod.scheduler_name].sort_key(queued),
            pre_enqueue=lambda pod: self.frameworks[pod.scheduler_name].run_pre_enqueue(pod),
            hints=lambda profile: self.frameworks[profile].events,
            clock=clock,
            observer=self.metrics,
            initial_backoff_seconds=settings.pod_initial_backoff_seconds,
            max_backoff_seconds=settings.pod_max_backoff_seconds,
        )
        self._bus = EventBus(self.queue)
        self._waiting_pods = WaitingPodsMap(self.metrics)
        self._web = WebClient()
        self._writer = ApiWriter(connection, clock, random=random, observer=self.metrics)
        self._recorders = {
            profile.scheduler_name: EventRecorder(self._writer, clock, profile.scheduler_name)
            for profile in settings.profiles
        }
        self.frameworks.update(
            build_frameworks(
                configuration,
                Registry(in_tree),
                lambda profile: capabilities(
                    binder=self._writer,
                    queue=self.queue,
                    bus=self._bus,
                    waiting_pods=self._waiting_pods,
                    web=self._web,
                    events=self._recorders[profile],
                ),
                self.metrics,
            )
        )
        self._reporter = Reporter(self._recorders, self._writer)
        self._reflectors = self._build_reflectors()
        self.scheduler = self._build_cycles(clock, NodeSampling(percentages_of(settings)))
        self._bus.wake = self.scheduler.wake
        self._show_gauges()

    @property
    def has_synced(self) -> bool:
        """Whether everything that decisions rest on has been read once."""
        return all(reflector.has_synced for reflector in self._reflectors)

    def _build_reflectors(self) -> list[Reflector[Any]]:
        needs = needs_of(self.frameworks.values())
        pods = PodHandler(
            profiles=self.frameworks,
            cache=self.cache,
            queue=self.queue,
            waiting_pods=self._waiting_pods,
            bus=self._bus,
            reporter=self._reporter,
            observer=self.metrics,
        )
        self._pods = Reflector(
            self._connection,
            PODS,
            decode=decode_pods_for(needs),
            handler=pods,
            random=self._random,
            observer=self.metrics,
            field_selector=_TERMINAL_PODS_LEFT_OUT,
        )
        nodes = Reflector(
            self._connection,
            NODES,
            decode=decode_node,
            handler=NodeHandler(cache=self.cache, bus=self._bus, observer=self.metrics),
            random=self._random,
            observer=self.metrics,
        )
        others = [self._reflector_of(kind) for kind in sorted(needs.kinds)]
        return [nodes, self._pods, *others]

    def _reflector_of(self, kind: str) -> Reflector[dict[str, Any]]:
        resource, event_resource = resource_of(kind)
        handler = ObjectHandler(
            kind=kind,
            resource=event_resource,
            store=self.cache.table.watch_kind(kind),
            bus=self._bus,
            observer=self.metrics,
        )
        return Reflector(
            self._connection,
            resource,
            decode=decode_object,
            handler=handler,
            random=self._random,
            observer=self.metrics,
            optional=True,
        )

    def _build_cycles(self, clock: Clock, sampling: NodeSampling) -> Scheduler:
        failures = FailureHandler(self.queue, self._reporter, self._pods.store.get, clock, self.metrics)
        binding = BindingCycle(
            cache=self.cache,
            queue=self.queue,
            bus=self._bus,
            waiting_pods=self._waiting_pods,
            reporter=self._reporter,
            failures=failures,
            reader=PodReader(self._connection, self._random),
            clock=clock,
            observer=self.metrics,
        )
        return Scheduler(
            frameworks=self.frameworks,
            cache=self.cache,
            queue=self.queue,
            waiting_pods=self._waiting_pods,
            binding=binding,
            failures=failures,
            reporter=self._reporter,
            clock=clock,
            random=self._random,
            sampling=sampling,
            observer=self.metrics,
        )

    def _show_gauges(self) -> None:
        queue = self.queue
        show = self.metrics.watch_gauge
        show(
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type.",
            "queue",
            lambda: {
                "active": queue.active,
                "backoff": queue.backoff,
                "unschedulable": queue.unschedulable,
                "gated": queue.gated,
            },
        )
        show(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            "type",
            self.cache.counts,
        )
        show(
            "scheduler_inflight_events",
            "Number of events kept for pods that are being scheduled.",
            "event",
            lambda: dict(queue.in_flight_events),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until `stop` is set, then finish what was begun."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._web.close)
            await stack.enter_async_context(self._writer)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(reflector.run(), name=f"watch {reflector.resource}")
                    for reflector in self._reflectors
                ]
                background += [
                    tasks.create_task(recorder.run(), name=f"events of {name}")
                    for name, recorder in self._recorders.items()
                ]
                background += self._start_refreshing(tasks)
                await self._schedule(tasks, stop)
                for task in background:
                    task.cancel()

    async def _schedule(self, tasks: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        stopping = tasks.create_task(self._stop_when(stop), name="stop")
        syncing = tasks.create_task(self._wait_synced(), name="first lists")
        await asyncio.wait({stopping, syncing}, return_when=asyncio.FIRST_COMPLETED)
        if self.has_synced:
            logger.info(
                "Scheduling",
                extra={"nodes": self.cache.table.n_nodes, "profiles": sorted(self.frameworks)},
            )
            await self.scheduler.run()
        syncing.cancel()
        await self._writer.drain(_DRAIN_SECONDS)

    async def _wait_synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.wait_synced()

    async def _stop_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.scheduler.stop()

    def _start_refreshing(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[Any]]:
        plugins = [plugin for framework in self.frameworks.values() for plugin in framework.plugins.all()]
        return [
            tasks.create_task(_keep_fresh(plugin, plugin.refresh_seconds), name=f"refresh {plugin.name}")
            for plugin in plugins
            if plugin.refresh_seconds is not None
        ]


async def _keep_fresh(plugin: Plugin, seconds: float) -> None:
    while True:
        try:
            await plugin.refresh()
        except Exception:
            logger.exception("Plugin could not refresh its data", extra={"plugin": plugin.name})
        await asyncio.sleep(seconds)
