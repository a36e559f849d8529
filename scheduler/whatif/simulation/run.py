"""One simulation: a workload under one configuration, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import logging
from dataclasses import dataclass, replace
from math import inf, isfinite
from random import Random
from typing import TYPE_CHECKING

from scheduler.app.assembly import Parts
from scheduler.app.in_tree import IN_TREE
from scheduler.cycle.observer import NoObserver
from scheduler.cycle.sampling import NodeSampling, percentages_of
from scheduler.cycle.scheduling import nominated_others, schedule_pod
from scheduler.whatif.judging import place
from scheduler.whatif.offline import OfflineScheduler
from scheduler.whatif.simulation.measures import Measures
from scheduler.whatif.simulation.virtual_clock import VirtualClock
from scheduler.whatif.simulation.workload import served_by
from scheduler.whatif.typed_items import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.configuration.load import Configuration
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.whatif.simulation.measures import Result
    from scheduler.whatif.simulation.workload import Workload

logger = logging.getLogger(__name__)

_TOLD_EVERY = 200
"""So many pods come between two words of progress."""


@dataclass(slots=True)
class _Waiting:
    """A pod that came and was not placed yet."""

    came: float
    runs: float


def simulate(
    workload: Workload,
    configuration: Configuration,
    *,
    seed: int,
    first_of_equals: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Let pods come and go, and say what became of them.

    The queue, its hints and backoff, the cluster's state and the plugins are the daemon's. A decision takes no time. Room
    is not made by preemption, and members of a group are placed each by itself.

    Args:
        workload: of which pods under other schedulers' names are under the first profile's.
        configuration: whose percentageOfNodesToScore holds.
        seed: of the choice among the best nodes.
        first_of_equals: the one of the smallest name is taken of the best nodes, instead of any.
        progress: is told from time to time how many more pods came.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
    """
    if first_of_equals:
        cluster = replace(workload.cluster, nodes=sorted(workload.cluster.nodes, key=lambda node: node.name))
        workload = replace(workload, cluster=cluster)
    random = _First() if first_of_equals else Random(seed)
    return _Simulation(workload, configuration, random, progress).run()


class _First(Random):
    """Takes the first of several; rows are in the order in which nodes came."""

    def randrange(self, *_args: int) -> int:  # type: ignore[override]  # what is asked of it here
        return 0


class _Simulation:
    def __init__(
        self,
        workload: Workload,
        configuration: Configuration,
        random: Random,
        progress: Callable[[int], None],
    ) -> None:
        self._clock = VirtualClock()
        # Nothing changes but by events, so nobody is tried again without one.
        parts = Parts(self._clock, NoObserver(), IN_TREE, max_in_unschedulable_seconds=inf)
        self._scheduler = OfflineScheduler(workload.cluster, configuration, parts=parts)
        self._cache, self._queue = self._scheduler.cache, self._scheduler.queue
        self._workload = served_by(workload, list(self._scheduler.frameworks))
        handler = self._scheduler.handler_of(PODS)
        assert handler is not None
        self._pods = handler
        self._random = random
        self._sampling = NodeSampling(percentages_of(configuration.settings))
        self._waiting: dict[str, _Waiting] = {}  # pod uid -> since when
        self._departures: list[tuple[float, int, PodInfo]] = []
        self._numbers = itertools.count()
        self._measures = Measures(workload, self._cache)
        self._progress = progress

    def run(self) -> Result:
        told = 0
        for number, arrival in enumerate(self._workload.arrivals, start=1):
            self._until(arrival.at)
            self._clock.now = max(self._clock.now, arrival.at)
            self._waiting[arrival.pod.uid] = _Waiting(self._clock.now, arrival.runs)
            self._measures.came(arrival.pod)
            self._pods.on_add(arrival.pod)
            self._place_all()
            if self._workload.gives_up and arrival.pod.uid in self._waiting:
                self._pods.on_delete(arrival.pod)
                del self._waiting[arrival.pod.uid]
                self._measures.failed(arrival.pod)
            self._measures.sample(self._clock.now)
            if number - told >= _TOLD_EVERY:
                self._progress(number - told)
                told = number
        self._progress(len(self._workload.arrivals) - told)
        if not self._workload.gives_up:
            self._until(inf)
        return self._measures.result(self._clock.now, waiting=len(self._waiting))

    def _until(self, end: float) -> None:
        """Let everything happen that happens up to a time."""
        while True:
            departure = self._departures[0][0] if self._departures else inf
            deadline = self._queue.next_deadline(self._clock.now)
            at = min(departure, inf if deadline is None else deadline)
            if at > end or not isfinite(at):
                return
            self._clock.now = max(self._clock.now, at)
            while self._departures and self._departures[0][0] <= self._clock.now:
                _, _, pod = heapq.heappop(self._departures)
                self._pods.on_delete(pod)
                self._measures.went(pod)
            self._place_all()
            self._measures.sample(self._clock.now)

    def _place_all(self) -> None:
        """Try all that may be tried now."""
        self._queue.work(self._clock.now)
        while (queued := self._queue.pop()) is not None:
            self._attempt(queued)

    def _attempt(self, queued: QueuedPodInfo) -> None:
        pod, snapshot = queued.pod, self._cache.snapshot()
        decision = schedule_pod(
            self._scheduler.frameworks[pod.scheduler_name],
            pod,
            snapshot,
            nominated=nominated_others(self._scheduler.nominator, pod, snapshot),
            random=self._random,
            sampling=self._sampling,
            makes_room=False,
        )
        status, rejected_by = decision.status, frozenset(decision.diagnosis.unschedulable_plugins)
        if decision.node_name:
            status = place(self._scheduler, decision, decision.node_name)
            rejected_by = frozenset({status.plugin}) if status.plugin else frozenset()
        self._measures.attempted()
        if decision.node_name and status.is_success:
            self._placed(pod)
            return
        if not status.is_rejected:
            logger.warning("A pod failed", extra={"pod": pod.key, "error": status.message})
            self._queue.done(pod.uid)
            if self._waiting.pop(pod.uid, None) is not None:
                self._measures.failed(pod)
            return
        self._queue.add_unschedulable(
            queued,
            unschedulable_plugins=rejected_by,
            pending_plugins=frozenset(decision.diagnosis.pending_plugins),
        )

    def _placed(self, pod: PodInfo) -> None:
        self._queue.done(pod.uid)
        placed = self._cache.pod(pod.uid)
        assert placed is not None
        waited = self._waiting.pop(pod.uid, None)
        if waited is None:  # was in the file, and waits there since before the start
            return
        self._measures.placed(placed, self._clock.now - waited.came)
        if isfinite(waited.runs):
            leaves = self._clock.now + waited.runs
            heapq.heappush(self._departures, (leaves, next(self._numbers), placed))
