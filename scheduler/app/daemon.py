"""The daemon: every part built and connected, then run until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from scheduler.app.capabilities import ApiReads, capabilities
from scheduler.app.failed_extenders import FailedExtenders
from scheduler.app.generation import Generation
from scheduler.app.in_tree import IN_TREE
from scheduler.app.needs import needs_of, together
from scheduler.app.reload_fields import keep_what_needs_a_restart
from scheduler.app.standby import StandbyReporter
from scheduler.app.victim_review import ExtenderReview
from scheduler.app.watches import Watches
from scheduler.app.web_client import WebClient
from scheduler.client.events import EventRecorder
from scheduler.client.leadership import Leadership, Unopposed
from scheduler.client.lease import LeaderElector, new_identity
from scheduler.client.pod_reader import ApiPodReader
from scheduler.client.requests import GuardedRequests, RateLimitedRequests, Rehearsal
from scheduler.client.writer import ApiWriter
from scheduler.cycle.attempt_log import AttemptLog
from scheduler.cycle.binding import BindingCycle
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.event_handlers import PodHandler
from scheduler.cycle.failure import FailureHandler
from scheduler.cycle.gate import Gate
from scheduler.cycle.kubelet_rejections import KubeletRejections
from scheduler.cycle.last_look import LastLook
from scheduler.cycle.preemption import PreemptionExecutor
from scheduler.cycle.sampling import NodeSampling, percentages_of
from scheduler.cycle.scheduler import Scheduler
from scheduler.errors import LeadershipLostError, SchedulerError
from scheduler.extenders.chain import Extenders
from scheduler.framework.interface import Needs
from scheduler.metrics import Metrics
from scheduler.queue.in_flight import POD_POPPED
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache
from scheduler.state.pod_states import PodState
from scheduler.wasm.library import GuestLibrary, guest_urls

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence
    from random import Random

    from scheduler.client.connection import ApiConnection
    from scheduler.client.requests import Requests
    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import ClientConnection, LeaderElection
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework

logger = logging.getLogger(__name__)

_DRAIN_SECONDS = 10.0
_NOTHING_REGISTERED: Mapping[str, Sequence[EventWithHint]] = {}


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
        self._clock = clock
        self._random = random
        self._in_tree = in_tree
        self._guests = GuestLibrary()
        self.metrics = Metrics()
        connection.observer = self.metrics.rest_client
        self.frameworks: dict[str, Framework] = {}
        self.cache = Cache()
        self.attempts = AttemptLog()
        self.queue = SchedulingQueue(
            sort_key=lambda queued: self.frameworks[queued.pod.scheduler_name].sort_key(queued),
            pre_enqueue=lambda pod: self.frameworks[pod.scheduler_name].run_pre_enqueue(pod),
            hints=self._events_of,
            clock=clock,
            observer=self.metrics,
            initial_backoff_seconds=settings.pod_initial_backoff_seconds,
            max_backoff_seconds=settings.pod_max_backoff_seconds,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        )
        self._bus = EventBus(self.queue)
        self._gate = Gate()
        self._waiting_pods = WaitingPodsMap(self.metrics)
        self._web = WebClient()
        self.leadership = Unopposed() if no_bind else self._build_leadership(settings.leader_election, clock)
        writes = self._build_writes(settings.client_connection, no_bind=no_bind)
        self._writer = ApiWriter(writes, clock, random=random, newest=self.pod, observer=self.metrics)
        self._preemptions = PreemptionExecutor(
            queue=self.queue,
            bus=self._bus,
            waiting_pods=self._waiting_pods,
            cancel_pre_bind=self._cancel_pre_bind,
            writer=self._writer,
            events=lambda profile: self._recorders[profile],
            newest=self.pod,
            is_node=lambda name: self.cache.table.row_of(name) is not None,
            spawn=self._spawn,
            clock=clock,
            observer=self.metrics,
        )
        self._review = ExtenderReview(lambda: self._generation.extenders)
        # Those of names that are served no longer stay: bindings end under them, and series of events later still.
        self._recorders: dict[str, EventRecorder] = {}
        self._generation = self._build(configuration, self._recorders)
        self._retiring: list[Generation] = []
        self._reloading = asyncio.Lock()
        self.frameworks.update(self._generation.frameworks)
        self._reporter = StandbyReporter(
            self._recorders,
            self._writer,
            is_leading=self.leadership.is_leading,
            newest=self.pod,
        )
        self._reader = ApiPodReader(connection, random)
        self.cache.pauses.configure(
            initial_seconds=settings.node_pause_initial_seconds,
            max_seconds=settings.node_pause_max_seconds,
        )
        self._rejections = KubeletRejections(
            profiles=self.frameworks,
            pauses=self.cache.pauses,
            reader=self._reader,
            reporter=self._reporter,
            clock=clock,
            observer=self.metrics,
            is_leading=self.leadership.is_leading,
        )
        self._watches = self._build_watches()
        self._sampling = NodeSampling(percentages_of(settings))
        self._binding = self._build_binding(clock)
        self.scheduler = self._build_scheduler(clock)
        self._tasks: asyncio.TaskGroup | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._bus.wake = self.scheduler.wake
        self._show_gauges()

    def pod(self, key: str) -> PodInfo | None:
        """Return a pod by `namespace/name`, as the API server last showed it."""
        return self._watches.pods.store.get(key)

    @property
    def configuration(self) -> Configuration:
        """What is in force."""
        return self._generation.configuration

    @property
    def has_synced(self) -> bool:
        """Whether everything that decisions rest on has been read once."""
        return self._watches.has_synced

    def pods(self) -> Iterable[PodInfo]:
        """Return all pods that are known and have not ended, whosever they are."""
        return self._watches.pods.store.values()

    def recorder(self, controller: str) -> EventRecorder:
        """Return a recorder of unique events about anything; what it records is written only while leading."""
        return EventRecorder(self._writer, self._clock, controller)

    def _cancel_pre_bind(self, uid: str, plugin: str, reason: str) -> bool:
        return self._binding.cancel_pre_bind(uid, plugin, reason)  # built later than who asks

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

    def _build(self, configuration: Configuration, recorders: dict[str, EventRecorder]) -> Generation:
        """Build every profile, plugins included; nothing of the daemon changes but the recorders that are given."""
        for profile in configuration.settings.profiles:
            name = profile.scheduler_name
            if name not in recorders:
                recorders[name] = EventRecorder(self._writer, self._clock, name)
        frameworks = build_frameworks(
            configuration,
            Registry(self._in_tree, self._guests),
            lambda profile: capabilities(
                binder=self._writer,
                queue=self.queue,
                bus=self._bus,
                waiting_pods=self._waiting_pods,
                web=self._web,
                api=ApiReads(self._connection),
                clock=self._clock,
                events=recorders[profile],
                preemptions=self._preemptions,
                review=self._review,
            ),
            self.metrics,
        )
        extenders = Extenders(configuration.settings.extenders, FailedExtenders(recorders, self.metrics))
        needs = together(
            [needs_of(frameworks.values()), Needs(bound_pod_objects=extenders.want_victims_whole)]
        )
        return Generation(configuration, frameworks, needs, extenders, self.metrics.refreshes, self._clock)

    def _events_of(self, profile: str) -> Mapping[str, Sequence[EventWithHint]]:
        framework = self.frameworks.get(profile)
        return _NOTHING_REGISTERED if framework is None else framework.events

    def _build_watches(self) -> Watches:
        pods = PodHandler(
            profiles=self.frameworks,
            cache=self.cache,
            queue=self.queue,
            waiting_pods=self._waiting_pods,
            bus=self._bus,
            reporter=self._reporter,
            observer=self.metrics,
            left_node=self._rejections.left,
        )
        return Watches(
            self._connection,
            profiles=self.frameworks,
            pod_handler=pods,
            cache=self.cache,
            bus=self._bus,
            metrics=self.metrics,
            random=self._random,
            needs=self._generation.needs,
            gate=self._gate,
        )

    def _build_binding(self, clock: Clock) -> BindingCycle:
        self._failures = FailureHandler(self.queue, self._reporter, self.pod, clock, self.metrics)
        return BindingCycle(
            cache=self.cache,
            queue=self.queue,
            bus=self._bus,
            waiting_pods=self._waiting_pods,
            reporter=self._reporter,
            failures=self._failures,
            reader=self._reader,
            last_look=LastLook(self.cache, self.pod),
            clock=clock,
            observer=self.metrics,
            gate=self._gate,
        )

    def _build_scheduler(self, clock: Clock) -> Scheduler:
        return Scheduler(
            frameworks=self.frameworks,
            cache=self.cache,
            queue=self.queue,
            waiting_pods=self._waiting_pods,
            binding=self._binding,
            failures=self._failures,
            reporter=self._reporter,
            clock=clock,
            random=self._random,
            sampling=self._sampling,
            attempts=self.attempts,
            observer=self.metrics,
            extenders=lambda: self._generation.extenders,
            gate=self._gate,
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

        self.metrics.watch_gauges(
            "custom_scheduler_paused_nodes",
            "Number of nodes that are avoided for a while because their kubelets rejected pods.",
            (),
            lambda: [((), float(self.cache.pauses.resting(at=self._clock.monotonic())))],
        )
        refreshes = self.metrics.refreshes
        refreshes.ages = lambda: self._generation.refresh_ages()  # noqa: PLW0108 - of whichever is in force
        refreshes.nodes_without_data = lambda: self._generation.nodes_without_data(self.cache.snapshot())

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by until elected, schedule until `stop` is set, then finish what was begun and make room.

        Raises:
            LeadershipLostError: the lease was lost on the way; nothing more is written.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._web.close)
            stack.push_async_callback(self._close_extenders)
            await stack.enter_async_context(self._writer)
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._watches.start(self._spawn)
                for name, recorder in self._recorders.items():
                    self._spawn(recorder.run(), f"events of {name}")
                self._generation.start_refreshing(self._spawn)
                self._spawn(self._rejections.run(), "kubelet rejections")
                stopping = tasks.create_task(stop.wait(), name="stop")
                is_lost = await self._prepare(tasks, stopping) and await self._lead(tasks, stopping)
                self._tasks = None
                for task in (stopping, *self._background):
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
        await self._watches.wait_synced()
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

    async def _close_extenders(self) -> None:
        for generation in (self._generation, *self._retiring):
            await generation.extenders.close()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin a task that ends with the daemon.

        Raises:
            SchedulerError: the daemon does not run, or is about to end.
        """
        if self._tasks is None:
            work.close()
            raise SchedulerError("the scheduler is not running")
        task = self._tasks.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # Another configuration.

    async def reload(self, configuration: Configuration) -> Sequence[str]:
        """Put another configuration in force, or leave everything as it is.

        Its plugins are built, what they need is read and their data are refreshed while the old ones go on. Then all
        changes at once between two scheduling cycles. What was begun under the old profiles ends under them.

        Args:
            configuration: what to run from now on.

        Returns:
            The paths of fields that were left as they are, since they take a restart.

        Raises:
            ConfigurationError: a plugin is unknown, broken, has bad arguments or needs what cannot be read.
            SchedulerError: this is not running.
        """
        async with self._reloading:
            possible, left = keep_what_needs_a_restart(configuration, self.configuration)
            if any(guest_urls(possible)):
                # They are read and compiled while the old profiles go on.
                await asyncio.to_thread(self._guests.prepare, possible)
            recorders = dict(self._recorders)
            generation = self._build(possible, recorders)
            try:
                await self._watches.grow(generation.needs)
                generation.start_refreshing(self._spawn)
                await generation.wait_refreshed()
                await self._gate.wait_open()
                self._swap(generation, recorders)
            except BaseException:
                generation.stop_refreshing()
                await generation.extenders.close()
                raise
        return left

    def _swap(self, generation: Generation, recorders: Mapping[str, EventRecorder]) -> None:
        """Take another generation; nothing here waits, so no cycle sees half of it."""
        for name in recorders.keys() - self._recorders.keys():
            self._spawn(recorders[name].run(), f"events of {name}")
        self._recorders.update(recorders)
        old, self._generation = self._generation, generation
        served, settings = frozenset(self.frameworks), generation.configuration.settings
        for pending in list(self.queue.pods()):
            pod = pending.queued.pod
            if pod.scheduler_name not in generation.frameworks:
                self.queue.delete(pod, "served by no profile any more")
                if self.cache.state_of(pod.uid) is PodState.OUTSIDE:
                    self.queue.nominator.add(pod)  # as any other scheduler's
                self._reporter.outdated(pod.key)
        self.frameworks.clear()
        self.frameworks.update(generation.frameworks)
        self._sampling.configure(percentages_of(settings))
        self.queue.reload(
            initial_backoff_seconds=settings.pod_initial_backoff_seconds,
            max_backoff_seconds=settings.pod_max_backoff_seconds,
        )
        self.cache.pauses.configure(
            initial_seconds=settings.node_pause_initial_seconds,
            max_seconds=settings.node_pause_max_seconds,
        )
        self._take_in(generation.frameworks.keys() - served)
        self.scheduler.wake()
        self._retiring.append(old)
        # Begun after the binding cycles of all choices so far, which therefore are under way when it looks.
        self._spawn(self._retire(old), "old configuration")

    def _take_in(self, names: Iterable[str]) -> None:
        """Queue the pods that waited for a name to be served."""
        names, pods = frozenset(names), self._watches.pods
        for pod in pods.store.values():
            is_pending = not (pod.node_name or pod.is_terminal)
            # One that was placed a moment ago is skipped when its turn comes.
            if pod.scheduler_name in names and is_pending and not pods.is_outdated(pod.key):
                self.queue.add(pod)

    async def _retire(self, old: Generation) -> None:
        """Let go of what only old profiles need, once no pod is being bound under them."""
        await self._binding.wait_ended(list(old.frameworks.values()))
        await old.extenders.close()
        async with self._reloading:
            old.stop_refreshing()
            self._retiring.remove(old)
            generations = (self._generation, *self._retiring)
            await self._watches.shrink(together(generation.needs for generation in generations))
