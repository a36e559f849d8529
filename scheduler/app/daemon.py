"""The daemon: every part built and connected, then run until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.app.capabilities import WebClient, capabilities
from scheduler.app.needs import decode_pods_for, needs_of, resource_of
from scheduler.app.standby import StandbyReporter
from scheduler.app.timed_handler import KindLabels, NodeLabels, PodLabels, TimedHandler
from scheduler.client.events import EventRecorder
from scheduler.client.leadership import GuardedRequests, Leadership, Unopposed
from scheduler.client.lease import LeaderElector, new_identity
from scheduler.client.pod_reader import PodReader
from scheduler.client.rate_limit import RateLimitedRequests
from scheduler.client.reflector import Reflector
from scheduler.client.rehearsal import Rehearsal
from scheduler.client.resources import NODES, PODS
from scheduler.client.writer import ApiWriter
from scheduler.cycle.attempt_log import AttemptLog
from scheduler.cycle.binding import BindingCycle
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.event_handlers import NodeHandler, ObjectHandler, PodHandler
from scheduler.cycle.failure import FailureHandler
from scheduler.cycle.last_look import LastLook
from scheduler.cycle.sampling import NodeSampling, percentages_of
from scheduler.cycle.scheduler import Scheduler
from scheduler.errors import LeadershipLostError
from scheduler.metrics import Metrics
from scheduler.objects.decode import decode_node, decode_object
from scheduler.queue.in_flight import POD_POPPED
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from scheduler.client.connection import ApiConnection, Requests
    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import ClientConnection, LeaderElection
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
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
        max_in_unschedulable_seconds: after which a rejected pod is tried again though nothing happened.
        no_bind: decide, explain and count, and write nothing, not even the lease.

    Attributes:
        leadership: whether it may write: only the holder of the lease does.
        metrics: everything that is counted.
        frameworks: schedulerName -> profile.
        cache: our picture of the cluster.
        queue: the pending pods.
        attempts: the last attempt at each pod, for who asks.

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
        no_bind: bool = False,
        max_in_unschedulable_seconds: float = 300.0,
    ) -> None:
        settings = configuration.settings
        self._connection = connection
        self._random = random
        self.metrics = Metrics()
        connection.observer = self.metrics.rest_client
        self.frameworks: dict[str, Framework] = {}
        self.cache = Cache()
        self.attempts = AttemptLog()
        self.queue = SchedulingQueue(
            sort_key=lambda queued: self.frameworks[queued.pod.scheduler_name].sort_key(queued),
            pre_enqueue=lambda pod: self.frameworks[pod.scheduler_name].run_pre_enqueue(pod),
            hints=lambda profile: self.frameworks[profile].events,
            clock=clock,
            observer=self.metrics,
            initial_backoff_seconds=settings.pod_initial_backoff_seconds,
            max_backoff_seconds=settings.pod_max_backoff_seconds,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        )
        self._bus = EventBus(self.queue)
        self._waiting_pods = WaitingPodsMap(self.metrics)
        self._web = WebClient()
        self.leadership = Unopposed() if no_bind else self._build_leadership(settings.leader_election, clock)
        writes = self._build_writes(settings.client_connection, no_bind=no_bind)
        self._writer = ApiWriter(writes, clock, random=random, newest=self.pod, observer=self.metrics)
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
        self._reporter = StandbyReporter(
            self._recorders,
            self._writer,
            is_leading=self.leadership.is_leading,
            newest=self.pod,
        )
        self._reflectors = self._build_reflectors()
        self.scheduler = self._build_cycles(clock, NodeSampling(percentages_of(settings)))
        self._bus.wake = self.scheduler.wake
        self._show_gauges()

    def pod(self, key: str) -> PodInfo | None:
        """Return a pod by `namespace/name`, as the API server last showed it."""
        return self._pods.store.get(key)

    @property
    def has_synced(self) -> bool:
        """Whether everything that decisions rest on has been read once."""
        return all(reflector.has_synced for reflector in self._reflectors)

    def pods(self) -> Iterable[PodInfo]:
        """Return all pods that are known and have not ended, whosever they are."""
        return self._pods.store.values()

    def _build_writes(self, settings: ClientConnection, *, no_bind: bool) -> Requests:
        if no_bind:
            return Rehearsal()
        writes = GuardedRequests(self._connection, self.leadership.check)
        if settings.qps <= 0:
            return writes
        return RateLimitedRequests(writes, qps=settings.qps, burst=settings.burst or math.ceil(settings.qps))

    def _build_leadership(self, settings: LeaderElection, clock: Clock) -> Leadership:
        if not settings.leader_elect:
            return Unopposed()
        elector = LeaderElector(
            self._connection, settings, identity=new_identity(), clock=clock, random=self._random
        )
        self.metrics.watch_gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, "
            "1 indicates master. 'name' is the string used to identify the lease. "
            "Please make sure to group by name.",
            "name",
            lambda: {settings.resource_name: float(elector.is_leading())},
        )
        return elector

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
            handler=TimedHandler(pods, PodLabels(self.frameworks), self.metrics),
            random=self._random,
            observer=self.metrics,
            field_selector=_TERMINAL_PODS_LEFT_OUT,
        )
        node_handler = NodeHandler(cache=self.cache, bus=self._bus, observer=self.metrics)
        nodes = Reflector(
            self._connection,
            NODES,
            decode=decode_node,
            handler=TimedHandler(node_handler, NodeLabels(), self.metrics),
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
            handler=TimedHandler(
                handler, KindLabels(event_resource.value if event_resource else kind), self.metrics
            ),
            random=self._random,
            observer=self.metrics,
            optional=True,
        )

    def _build_cycles(self, clock: Clock, sampling: NodeSampling) -> Scheduler:
        failures = FailureHandler(self.queue, self._reporter, self.pod, clock, self.metrics)
        binding = BindingCycle(
            cache=self.cache,
            queue=self.queue,
            bus=self._bus,
            waiting_pods=self._waiting_pods,
            reporter=self._reporter,
            failures=failures,
            reader=PodReader(self._connection, self._random),
            last_look=LastLook(self.cache, self.pod),
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
            attempts=self.attempts,
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
            lambda: {POD_POPPED: 0, **queue.in_flight_events},
        )
        self.metrics.watch_gauges(
            "scheduler_unschedulable_pods",
            "Number of waiting pods that a plugin rejected in their last attempt, or gates.",
            ("plugin", "profile"),
            queue.rejections.items,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by until elected, schedule until `stop` is set, then finish what was begun and make room.

        Raises:
            LeadershipLostError: the lease was lost on the way; nothing more is written.
        """
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
                stopping = tasks.create_task(stop.wait(), name="stop")
                is_lost = await self._prepare(tasks, stopping) and await self._lead(tasks, stopping)
                for task in (stopping, *background):
                    task.cancel()
        if is_lost:
            raise LeadershipLostError

    async def _prepare(self, tasks: asyncio.TaskGroup, stopping: asyncio.Task[Any]) -> bool:
        """Read the cluster, then wait to be elected; whether that came before the end."""
        preparing = tasks.create_task(self._wait_elected(), name="election")
        await asyncio.wait({stopping, preparing}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            preparing.cancel()
            await asyncio.wait({preparing})
            await self.leadership.release()
        return not stopping.done()

    async def _wait_elected(self) -> None:
        for reflector in self._reflectors:
            await reflector.wait_synced()
        await self.leadership.acquire()

    async def _lead(self, tasks: asyncio.TaskGroup, stopping: asyncio.Task[Any]) -> bool:
        """Schedule until the end, or until the lease is lost, in which case everything is dropped at once.

        Returns:
            Whether the lease was lost before anybody asked for the end.
        """
        keeping = tasks.create_task(self.leadership.keep(), name="lease")
        working = tasks.create_task(self._schedule(), name="scheduling")
        stopping.add_done_callback(lambda _: self.scheduler.stop())
        await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            working.cancel()
            return not stopping.done()
        keeping.cancel()
        await asyncio.wait({keeping})
        await self.leadership.release()
        return False

    async def _schedule(self) -> None:
        logger.info(
            "Scheduling",
            extra={"nodes": self.cache.table.n_nodes, "profiles": sorted(self.frameworks)},
        )
        self._reporter.catch_up()
        await self.scheduler.run()
        await self._writer.drain(_DRAIN_SECONDS)

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
