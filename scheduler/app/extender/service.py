"""Answers what another scheduler asks, with the plugins of a configuration.

It watches the cluster as the daemon does and judges when it is asked. Any number of replicas may answer.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from scheduler.app.capabilities import ApiReads, capabilities
from scheduler.app.extender.binding import ExtenderBinding
from scheduler.app.extender.verdicts import Verdicts, best_total
from scheduler.app.failed_extenders import FailedExtenders
from scheduler.app.generation import Generation
from scheduler.app.in_tree import IN_TREE
from scheduler.app.needs import needs_of
from scheduler.app.victim_review import ExtenderReview
from scheduler.app.watches import Watches
from scheduler.app.web_client import WebClient
from scheduler.client.events import EventRecorder
from scheduler.client.pod_reader import ApiPodReader
from scheduler.client.requests import RateLimitedRequests
from scheduler.client.writer import ApiWriter
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.event_handlers import PodHandler
from scheduler.cycle.gate import Gate
from scheduler.cycle.preemption import NoPreemptions
from scheduler.cycle.reporting import Reporter
from scheduler.errors import ConfigurationError, FieldError, SchedulerError
from scheduler.extenders.chain import Extenders
from scheduler.metrics import Metrics
from scheduler.metrics.extender_requests import ExtenderRequestMetrics
from scheduler.queue.observer import NoObserver
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache
from scheduler.wasm.library import GuestLibrary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
    from random import Random

    from scheduler.client.connection import ApiConnection
    from scheduler.client.requests import Requests
    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import ClientConnection
    from scheduler.extenders.serving import BindingRequest, NodesRequest, PreemptionRequest
    from scheduler.extenders.wire import FilterAnswer, MetaVictims
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework

_DRAIN_SECONDS = 5.0
_NOT_SYNCED = "the extender has not read the cluster yet, or its plugins their data"


class ExtenderService:
    """Answers a scheduler's questions with the plugins of a configuration; a `Judge`.

    Args:
        connection: to the API server; the caller closes it.
        configuration: what to run.
        profile: the schedulerName of the profile that judges all pods; "" takes the only one, or, where there are
            several, the one of the pod's own schedulerName.
        clock: the time.
        random: spreads retries.
        in_tree: name -> class, of plugins that need no path.

    Attributes:
        configuration: what is run.
        metrics: everything that is counted.
        requests: counts what is asked.
        frameworks: schedulerName -> profile.
        cache: our picture of the cluster.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments; there is no such profile.
    """

    def __init__(
        self,
        connection: ApiConnection,
        configuration: Configuration,
        *,
        profile: str = "",
        clock: Clock,
        random: Random,
        in_tree: Mapping[str, type[Plugin]] = IN_TREE,
    ) -> None:
        self.configuration = configuration
        self.metrics, self.requests = Metrics(), ExtenderRequestMetrics()
        self.metrics.also(self.requests.families)
        connection.observer = self.metrics.rest_client
        self.cache = Cache()
        # Nobody is ever queued; the queue knows which pods of the other scheduler are expected where.
        self._queue = SchedulingQueue(
            sort_key=lambda _: (0.0,),
            pre_enqueue=lambda pod: self.frameworks[pod.scheduler_name].run_pre_enqueue(pod),
            hints=lambda _: {},
            clock=clock,
            observer=NoObserver(),
        )
        self._bus = EventBus(self._queue)
        self._waiting_pods = WaitingPodsMap(self.metrics)
        self._web = WebClient()
        writes = _limited(connection, configuration.settings.client_connection)
        self._writer = ApiWriter(writes, clock, random=random, newest=self.pod, observer=self.metrics)
        self._recorders = {
            each.scheduler_name: EventRecorder(self._writer, clock, each.scheduler_name)
            for each in configuration.settings.profiles
        }
        self._connection = connection
        self._has_refreshed = False
        self._generation = self._build(configuration, clock, in_tree)
        self.frameworks = self._generation.frameworks
        self._profile = checked_profile(profile, self.frameworks)
        self._watches = self._build_watches(random)
        self._verdicts = Verdicts(
            self.cache, self._queue.nominator, best_total(self.judging), self.requests.unknown_nodes
        )
        self._binding = ExtenderBinding(
            cache=self.cache,
            verdicts=self._verdicts,
            reader=ApiPodReader(connection, random),
            newest=self.pod,
            framework_of=self.framework_of,
        )
        self._show_gauges()

    @property
    def judging(self) -> Sequence[Framework]:
        """The profiles that judge any pod."""
        return judging(self._profile, self.frameworks)

    @property
    def has_synced(self) -> bool:
        """Whether everything that answers rest on has been read once, plugins' own data included if they can be."""
        return self._has_refreshed and self._watches.has_synced

    def pod(self, key: str) -> PodInfo | None:
        """Return a pod by `namespace/name`, as the API server last showed it."""
        return self._watches.pods.store.get(key)

    def framework_of(self, pod: PodInfo) -> Framework:
        """Return the profile that judges a pod.

        Raises:
            SchedulerError: there are several and none has the pod's schedulerName.
        """
        name = self._profile or pod.scheduler_name
        framework = self.frameworks.get(name)
        if framework is None:
            there = ", ".join(sorted(self.frameworks))
            raise SchedulerError(
                f"pod {pod.key}: spec.schedulerName is {name}, the profiles of the extender are {there}; "
                "give it --profile to judge all pods by one of them"
            )
        return framework

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the cluster while the block runs."""
        failure: Exception | None = None
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._web.close)
            await stack.enter_async_context(self._writer)
            async with asyncio.TaskGroup() as tasks:
                background: set[asyncio.Task[None]] = set()

                def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
                    task = tasks.create_task(work, name=name)
                    background.add(task)
                    return task

                self._watches.start(spawn)
                for name, recorder in self._recorders.items():
                    spawn(recorder.run(), f"events of {name}")
                self._generation.start_refreshing(spawn)
                spawn(self._note_refreshed(), "first refresh")
                try:
                    yield
                    await self._writer.drain(_DRAIN_SECONDS)
                except Exception as error:  # noqa: BLE001 - raised below, not as one of a group
                    failure = error
                finally:
                    for task in background:
                        task.cancel()
        if failure is not None:
            raise failure

    # What a scheduler asks.

    def filter(self, request: NodesRequest) -> FilterAnswer:
        self._check_synced()
        return self._verdicts.filter(self.framework_of(request.pod), request.pod, request.node_names)

    def prioritize(self, request: NodesRequest) -> Sequence[tuple[str, int]]:
        self._check_synced()
        return self._verdicts.prioritize(self.framework_of(request.pod), request.pod, request.node_names)

    def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
        self._check_synced()
        return self._verdicts.preempt(self.framework_of(request.pod), request.pod, request.victims)

    async def bind(self, request: BindingRequest) -> None:
        self._check_synced()
        await self._binding.bind(request)

    async def _note_refreshed(self) -> None:
        await self._generation.wait_refreshed()
        self._has_refreshed = True

    def _check_synced(self) -> None:
        if not self.has_synced:
            raise SchedulerError(_NOT_SYNCED)

    def _build(
        self, configuration: Configuration, clock: Clock, in_tree: Mapping[str, type[Plugin]]
    ) -> Generation:
        frameworks = build_frameworks(
            configuration,
            Registry(in_tree, GuestLibrary()),
            lambda profile: capabilities(
                binder=self._writer,
                queue=self._queue,
                bus=self._bus,
                waiting_pods=self._waiting_pods,
                web=self._web,
                api=ApiReads(self._connection),
                clock=clock,
                events=self._recorders[profile],
                preemptions=NoPreemptions(),
                review=ExtenderReview(lambda: None),
            ),
            self.metrics,
        )
        for framework in frameworks.values():
            framework.measure_plugins(True)  # next to a request over HTTP it costs nothing
        nobody = Extenders((), FailedExtenders(self._recorders, self.metrics))
        return Generation(
            configuration, frameworks, needs_of(frameworks.values()), nobody, self.metrics.refreshes, clock
        )

    def _build_watches(self, random: Random) -> Watches:
        nobody: frozenset[str] = frozenset()  # all pods are another scheduler's
        pods = PodHandler(
            profiles=nobody,
            cache=self.cache,
            queue=self._queue,
            waiting_pods=self._waiting_pods,
            bus=self._bus,
            reporter=Reporter({}, self._writer),
            observer=self.metrics,
        )
        return Watches(
            self._connection,
            profiles=nobody,
            pod_handler=pods,
            cache=self.cache,
            bus=self._bus,
            metrics=self.metrics,
            random=random,
            needs=self._generation.needs,
            gate=Gate(),  # no request waits with a snapshot in its hands
        )

    def _show_gauges(self) -> None:
        self.metrics.watch_gauge(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            "type",
            self.cache.counts,
        )
        refreshes = self.metrics.refreshes
        refreshes.ages = self._generation.refresh_ages
        refreshes.nodes_without_data = lambda: self._generation.nodes_without_data(self.cache.snapshot())


def _limited(connection: ApiConnection, settings: ClientConnection) -> Requests:
    if settings.qps <= 0:
        return connection
    return RateLimitedRequests(connection, qps=settings.qps, burst=settings.burst or math.ceil(settings.qps))


def checked_profile(profile: str, frameworks: Mapping[str, Framework]) -> str:
    """Return the profile that judges all pods; "" if that depends on the pod.

    Raises:
        ConfigurationError: there is no such profile.
    """
    if profile and profile not in frameworks:
        there = ", ".join(sorted(frameworks))
        raise ConfigurationError([FieldError("--profile", f"there is no {profile}; there is {there}")])
    return profile or (next(iter(frameworks)) if len(frameworks) == 1 else "")


def judging(profile: str, frameworks: Mapping[str, Framework]) -> Sequence[Framework]:
    """Return the profiles that judge any pod: the one that judges all, or, where that is "", all of them."""
    return [frameworks[profile]] if profile else list(frameworks.values())
