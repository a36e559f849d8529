"""The parts of a scheduler, put together once: daemon, extender, what-if and tests take what they need.

Each part is given what it needs when it is built. What a configuration may change while all of this runs is behind one
object, `Profiles`, that is handed to whoever goes by it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scheduler.app.capabilities import LoopSleep, TableObjects
from scheduler.app.needs import resource_of, trimmed
from scheduler.app.web_client import WebClient
from scheduler.client.requests import RateLimitedRequests
from scheduler.cycle.attempt_log import AttemptLog
from scheduler.cycle.binding import BindingCycle
from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.event_handlers import NodeHandler, ObjectHandler
from scheduler.cycle.failure import FailureHandler
from scheduler.cycle.freeze import ClusterFreeze
from scheduler.cycle.kubelet_rejections import KubeletRejections
from scheduler.cycle.last_look import LastLook
from scheduler.cycle.pod_handlers import PodHandler, QueueingPodHandler
from scheduler.cycle.preemption import ExtenderReview, NoPreemptions, PreemptionExecutor
from scheduler.cycle.profiles import Profiles
from scheduler.cycle.reporting import Reporter
from scheduler.cycle.scheduler import Scheduler
from scheduler.framework import (
    ClaimMetrics,
    Clock,
    ClusterObjects,
    HttpGet,
    PodActivator,
    Sleep,
    WaitForEvent,
    WaitingPods,
)
from scheduler.framework.preemption import Preemptions, VictimReview
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.profiles import build_frameworks
from scheduler.runtime.registry import Registry
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache
from scheduler.state.nominator import Nominator
from scheduler.wasm.library import GuestLibrary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from scheduler.app.tasks import Tasks
    from scheduler.client.requests import Requests
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import ClientConnection
    from scheduler.cycle.binding import PodGet
    from scheduler.cycle.observer import CycleObserver
    from scheduler.cycle.preemption import VictimWriter
    from scheduler.cycle.reporting import PodEventRecorders
    from scheduler.cycle.sampling import NodeSampling
    from scheduler.framework.interface import Needs, Plugin
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework

    Capabilities = Mapping[type, object]


class Parts:
    """A cluster's state, the profiles that judge by it, and who takes its changes in.

    That is all it takes to judge pods that others place.

    Attributes:
        cache: the nodes, and the pods on them.
        nominator: the pods that are expected somewhere.
        profiles: what is in force.
        waiting_pods: the pods held at Permit.
        freeze: on while the state must not change.
        bus: who spreads what happens.
        web: asks web servers for plugins; to be closed.
        guests: the WebAssembly guests that were compiled.
    """

    def __init__(self, clock: Clock, observer: CycleObserver, in_tree: Mapping[str, type[Plugin]]) -> None:
        self.clock = clock
        self.observer = observer
        self.cache = Cache()
        self.nominator = Nominator()
        self.profiles = Profiles()
        self.waiting_pods = WaitingPodsMap(observer)
        self.freeze = ClusterFreeze()
        self.bus = EventBus()
        self.web = WebClient()
        self.guests = GuestLibrary()
        self._in_tree = in_tree

    def build_frameworks(
        self, configuration: Configuration, own: Callable[[str], Capabilities]
    ) -> dict[str, Framework]:
        """Build every profile of a configuration, plugins included; nothing is in force by that.

        `own` is schedulerName -> the capabilities that are not the same everywhere.

        Raises:
            ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        """
        common: Capabilities = {
            ClaimMetrics: self.observer,
            Clock: self.clock,
            ClusterObjects: TableObjects(self.cache.table),
            HttpGet: self.web,
            PodActivator: self.bus,
            Preemptions: NoPreemptions(),
            Sleep: LoopSleep(),
            VictimReview: ExtenderReview(self.profiles),
            WaitForEvent: self.bus,
            WaitingPods: self.waiting_pods,
        }
        # A registry keeps what it has read; a plugin file may be another by now.
        registry = Registry(self._in_tree, self.guests)
        return build_frameworks(
            configuration, registry, lambda profile: {**common, **own(profile)}, self.observer
        )

    def fill(
        self,
        needs: Needs,
        *,
        nodes: Iterable[NodeObject] = (),
        bound_pods: Iterable[PodInfo] = (),
        others: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Take a cluster in that is known as a whole; `others` is kind -> `namespace/name` -> object."""
        for kind in needs.kinds:
            self.cache.table.watch_kind(kind).update(others.get(kind, {}))
        for node in nodes:
            self.cache.add_node(node)
        for pod in bound_pods:
            self.cache.add_pod(trimmed(pod, needs))

    # Who takes changes in.

    def node_handler(self) -> NodeHandler:
        return NodeHandler(cache=self.cache, freeze=self.freeze, bus=self.bus, observer=self.observer)

    def object_handler(self, kind: str) -> ObjectHandler:
        """Return who takes objects of a kind in that plugins need; from then on it is kept.

        Raises:
            ValueError: no kind is written like that.
        """
        return ObjectHandler(
            kind=kind,
            resource=resource_of(kind)[1],
            store=self.cache.table.watch_kind(kind),
            freeze=self.freeze,
            bus=self.bus,
            observer=self.observer,
        )

    def pod_handler(self) -> PodHandler:
        """Return who takes pods in where all are placed by others."""
        return PodHandler(
            cache=self.cache,
            nominator=self.nominator,
            freeze=self.freeze,
            bus=self.bus,
            observer=self.observer,
        )


class QueueParts(Parts):
    """Beside that, `queue`: the pods that are ours to place, after the waits that `SchedulingQueue` tells of."""

    def __init__(
        self,
        clock: Clock,
        observer: CycleObserver,
        in_tree: Mapping[str, type[Plugin]],
        *,
        initial_backoff_seconds: float = 1.0,
        max_backoff_seconds: float = 10.0,
        max_in_unschedulable_seconds: float = 300.0,
    ) -> None:
        super().__init__(clock, observer, in_tree)
        self.queue = SchedulingQueue(
            plugins=self.profiles,
            nominator=self.nominator,
            clock=clock,
            observer=observer,
            initial_backoff_seconds=initial_backoff_seconds,
            max_backoff_seconds=max_backoff_seconds,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        )
        self.bus = EventBus(self.queue)

    def queueing_pod_handler(
        self, reporter: Reporter, left_node: Callable[[PodInfo], None] = lambda _: None
    ) -> QueueingPodHandler:
        """Return who takes pods in, pending ones of our profiles to the queue."""
        return QueueingPodHandler(
            profiles=self.profiles,
            cache=self.cache,
            nominator=self.nominator,
            queue=self.queue,
            waiting_pods=self.waiting_pods,
            reporter=reporter,
            freeze=self.freeze,
            bus=self.bus,
            observer=self.observer,
            left_node=left_node,
        )


class Cycles:
    """What places the pods of a queue: from the decision to the Binding, and what may go wrong on the way.

    Args:
        recorders: who records the events of each profile.
        reader: reads a pod past every cache.
        newest: `namespace/name` -> the pod as the API server last showed it.
        is_leading: whether anything may be written now.
        tasks: for preemptions.
        random: breaks ties between nodes.
    """

    def __init__(
        self,
        parts: QueueParts,
        *,
        writer: VictimWriter,
        recorders: PodEventRecorders,
        reader: PodGet,
        newest: Callable[[str], PodInfo | None],
        is_leading: Callable[[], bool],
        tasks: Tasks,
        random: Random,
        sampling: NodeSampling,
    ) -> None:
        clock, observer = parts.clock, parts.observer
        self.sampling = sampling
        self.attempts = AttemptLog()
        self.reporter = Reporter(recorders, writer, is_leading=is_leading, newest=newest)
        self.failures = FailureHandler(parts.queue, self.reporter, newest, clock, observer)
        self.binding = BindingCycle(
            cache=parts.cache,
            queue=parts.queue,
            bus=parts.bus,
            waiting_pods=parts.waiting_pods,
            reporter=self.reporter,
            failures=self.failures,
            reader=reader,
            last_look=LastLook(parts.cache, newest),
            clock=clock,
            observer=observer,
            freeze=parts.freeze,
        )
        self.preemptions = PreemptionExecutor(
            cache=parts.cache,
            queue=parts.queue,
            nominator=parts.nominator,
            bus=parts.bus,
            waiting_pods=parts.waiting_pods,
            binding=self.binding,
            writer=writer,
            reporter=self.reporter,
            newest=newest,
            spawn=tasks.spawn,
            clock=clock,
            observer=observer,
        )
        self.rejections = KubeletRejections(
            profiles=parts.profiles,
            pauses=parts.cache.pauses,
            reader=reader,
            reporter=self.reporter,
            clock=clock,
            observer=observer,
            is_leading=is_leading,
        )
        self.pod_handler = parts.queueing_pod_handler(self.reporter, self.rejections.left)
        self.scheduler = Scheduler(
            profiles=parts.profiles,
            cache=parts.cache,
            nominator=parts.nominator,
            queue=parts.queue,
            bus=parts.bus,
            waiting_pods=parts.waiting_pods,
            binding=self.binding,
            failures=self.failures,
            reporter=self.reporter,
            clock=clock,
            random=random,
            sampling=sampling,
            attempts=self.attempts,
            observer=observer,
            freeze=parts.freeze,
        )


def limited(requests: Requests, settings: ClientConnection) -> Requests:
    """Return requests at no higher rate than is set, if one is."""
    if settings.qps <= 0:
        return requests
    return RateLimitedRequests(requests, qps=settings.qps, burst=settings.burst or math.ceil(settings.qps))
