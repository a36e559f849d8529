"""Simulations in parallel processes: each plays a workload with one configuration."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import isfinite
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Protocol

from scheduler.tools.whatif.processes import Progress, given, progress, side_by_side
from scheduler.tools.whatif.simulation.object_versions import controller_of, goes_with_node, named
from scheduler.tools.whatif.simulation.simulation_measures import Attempts, Measures
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop, run
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    drawn,
    inflated,
    part_ends,
    served_by,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.simulation.simulation_measures import PartFigures, Result
    from scheduler.tools.whatif.simulation.workload import TimelineEvent, Workload

_REPORTED_EVERY = 200
"""Number of arrivals between two reports of progress."""
_KEEP_NAMES = frozenset({"StatefulSet"})


class PlayWitness(Protocol):
    """Observes the pods of a workload."""

    def came(self, pod: PodInfo) -> None:
        """Note that a pod arrived."""
        ...

    def placed(self, pod: PodInfo, waited_seconds: float) -> None:
        """Note that a pod was bound, `waited_seconds` after its arrival."""
        ...

    def evicted(self, pod: PodInfo) -> None:
        """Note that a pod is evicted."""
        ...

    def went(self, pod: PodInfo) -> None:
        """Note that a bound pod was removed."""
        ...

    def failed(self, pod: PodInfo) -> None:
        """Note that a pod was removed without being bound."""
        ...

    def settled(self, now: float) -> None:
        """Note that all work at this time is done."""
        ...


class Player:
    """Plays one workload; observes its pods in the cluster.

    Args:
        witness: observer of the pods.
        progress: called from time to time with the number of pods that arrived since the last call.

    Attributes:
        waiting: uid -> pending pod, and the time of its arrival.
    """

    def __init__(
        self,
        workload: Workload,
        daemon: VirtualDaemon,
        witness: PlayWitness,
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.waiting: dict[str, tuple[PodInfo, float]] = {}
        self._workload, self._loop, self._witness = workload, daemon.loop, witness
        self._daemon, self._cluster, self._progress = daemon, daemon.cluster, progress
        self._runs: dict[str, float] = {}  # uid -> run time in seconds, of pods that end
        self._running = 0  # number of placed pods that will end
        self._going_back: dict[str, Arrival] = {}  # uid of a terminating pod -> its replacement
        self._again = Counter[str]()
        self._something_ended = asyncio.Event()
        daemon.cluster.witnessed_by(self)

    async def play(self) -> None:
        """Play all changes; return when nothing happens any more."""
        workload, reported = self._workload, 0
        happenings: Iterable[Arrival | TimelineEvent] = heapq.merge(
            workload.events, workload.arrivals, key=attrgetter("at")
        )
        came = 0
        for at, batch in groupby(happenings, key=attrgetter("at")):
            await self._loop.sleep_until(at)
            for each in batch:
                if isinstance(each, Arrival):
                    self._come(each)
                    came += 1
                else:
                    each.happen(self._cluster)
            await self._loop.idle()
            if workload.gives_up:
                self._give_up()
            self._witness.settled(self._loop.time())
            if came - reported >= _REPORTED_EVERY:
                self._progress(came - reported)
                reported = came
        self._progress(came - reported)
        if not workload.gives_up:
            await self._play_out()

    async def _play_out(self) -> None:
        """Wait until all pods that end have ended and no other pod can be placed."""
        while True:
            await self._daemon.settle()
            self._witness.settled(self._loop.time())
            if not self._running:
                return
            self._something_ended.clear()
            await self._something_ended.wait()

    def _come(self, arrival: Arrival) -> None:
        pod = arrival.pod
        self.waiting[pod.uid] = pod, self._loop.time()
        if isfinite(arrival.runs):
            self._runs[pod.uid] = arrival.runs
        self._witness.came(pod)
        self._cluster.put_pod(pod)

    def _give_up(self) -> None:
        for pod, _ in list(self.waiting.values()):
            self._cluster.remove_pod(pod.key)

    # Notifications of the cluster.

    def bound(self, pod: PodInfo) -> None:
        came = self.waiting.pop(pod.uid, None)
        if came is not None:
            self._witness.placed(pod, self._loop.time() - came[1])
        runs = self._runs.get(pod.uid)
        if runs is not None:
            self._running += 1
            self._loop.call_later(runs, self._cluster.end, pod.key, pod.uid)

    def evicted(self, pod: PodInfo) -> None:
        """Create the replacement of a pod as its owner would: at once, or by the same name after the pod is gone."""
        self._witness.evicted(pod)
        owner, pod = controller_of(pod), self._cluster.resizes.as_created(pod)
        if owner is None or goes_with_node(pod):
            return
        runs = self._runs.get(pod.uid, float("inf"))
        if owner.kind in _KEEP_NAMES:
            self._going_back[pod.uid] = Arrival(pod, 0.0, runs)
            return
        self._again[pod.key] += 1
        self._come(Arrival(named(pod, f"{pod.name}-again-{self._again[pod.key]}"), 0.0, runs))

    def gone(self, pod: PodInfo) -> None:
        if self.waiting.pop(pod.uid, None) is not None:
            self._witness.failed(pod)
        elif pod.node_name:
            self._witness.went(pod)
        if self._runs.pop(pod.uid, None) is not None and pod.node_name:
            self._running -= 1
            self._something_ended.set()
        back = self._going_back.pop(pod.uid, None)
        if back is not None:
            self._again[pod.key] += 1
            self._come(Arrival(named(back.pod, pod.name, number=self._again[pod.key]), 0.0, back.runs))


def simulate(
    workload: Workload,
    configuration: Configuration,
    *,
    seed: int,
    first_of_equals: bool = False,
    max_in_unschedulable_seconds: float = 300.0,
    shards: int = 1,
    ends: Sequence[float] = (),
    part_ended: Callable[[PartFigures], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Simulate a workload, and return the result.

    The scheduler is the daemon's: its queue, cycles, preemption, groups and bindings. Its work takes no virtual time.

    Args:
        workload: the workload; pods of unknown schedulerNames get the first profile's.
        configuration: the configuration; settings for an API server have no effect.
        seed: seed for the choice among the best nodes.
        first_of_equals: choose the smallest name among the best nodes, instead of a random one.
        max_in_unschedulable_seconds: after this time a rejected pod is tried again without an event.
        shards: number of replicas that share the nodes.
        ends: the times at which the parts of the workload end, as of `part_ends`; empty for no parts.
        part_ended: called with the figures of each part after its end; an exception ends the simulation.
        progress: called from time to time with the number of pods that arrived since the last call.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        ObjectError: an object that a plugin needs is malformed.
    """
    if first_of_equals:
        cluster = replace(workload.cluster, nodes=sorted(workload.cluster.nodes, key=lambda node: node.name))
        workload = replace(workload, cluster=cluster)
    random = _First(seed) if first_of_equals else Random(seed)
    make = partial(
        VirtualDaemon,
        configuration=configuration,
        random=random,
        max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        shards=shards,
    )
    return run(_simulate(workload, make, ends, part_ended, progress))


async def _simulate(
    workload: Workload,
    make: Callable[..., VirtualDaemon],
    ends: Sequence[float],
    part_ended: Callable[[PartFigures], None],
    progress: Callable[[int], None],
) -> Result:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    attempts = Attempts()
    daemon = make(loop, observer=attempts)
    workload = served_by(workload, list(daemon.active.frameworks))
    daemon.fill(workload.cluster)
    measures = Measures(workload, daemon, attempts, ends=ends, part_ended=part_ended)
    player = Player(workload, daemon, measures, progress=progress)
    await daemon.run(player.play())
    return measures.result(loop.time(), waiting=len(player.waiting))


class _First(Random):
    """Chooses the first of several rows; rows are in the order in which nodes were added."""

    def randrange(self, *_args: int) -> int:  # type: ignore[override]  # the only method that is used
        return 0


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """One configuration with one seed.

    Attributes:
        config: path of its file, which was read before.
        seed: seed for ties and random samples.
        inflate: share of the GPU capacity up to which pods arrive; None keeps the workload.
        arrivals: number of pods to draw; None keeps the workload.
        first_of_equals: choose the smallest name among the best nodes.
        max_in_unschedulable_seconds: as of `simulate`.
        shards: as of `simulate`.
        parts: number of parts that have figures of their own; 0 for none.
        played: number of parts that are played; None for all.
    """

    config: str
    seed: int
    inflate: float | None = None
    arrivals: int | None = None
    first_of_equals: bool = False
    max_in_unschedulable_seconds: float = 300.0
    shards: int = 1
    parts: int = 0
    played: int | None = None

    def workload(self, given: Workload) -> tuple[Workload, Sequence[float]]:
        """Return the workload of this job, and the ends of its parts."""
        whole = given
        if self.inflate is not None:
            whole = inflated(given, self.inflate, self.seed)
        elif self.arrivals is not None:
            whole = drawn(given, self.arrivals, self.seed)
        if not self.parts:
            return whole, ()
        ends = part_ends(whole, self.parts)[: self.played]
        return (whole if self.played is None else until(whole, ends[-1])), ends

    def number(self, given: Workload) -> int:
        """Return the number of pods that arrive."""
        if self.arrivals is None:
            return len(self.workload(given)[0].arrivals)
        return self.arrivals if self.played is None else self.arrivals * self.played // self.parts


class Jobs(list[SimulationJob]):
    """Jobs, their configurations, and their common workload."""

    def __init__(
        self, jobs: Iterable[SimulationJob], configs: Iterable[Configuration], workload: Workload
    ) -> None:
        super().__init__(jobs)
        self.configs = {each.source: each for each in configs}
        self.workload = workload


def jobs_of(
    workload: Workload,
    configs: Sequence[Configuration],
    seeds: Iterable[int],
    *,
    inflate: float | None = None,
    arrivals: int | None = None,
    first_of_equals: bool = False,
    max_in_unschedulable_seconds: float = 300.0,
    shards: int = 1,
) -> Jobs:
    """Return a job for each configuration and seed.

    Raises:
        ValueError: the workload cannot be inflated, or has no pods to draw from.
    """
    seeds = list(seeds)
    if arrivals is not None and not workload.arrivals:
        raise ValueError("nothing to draw from: the workload has no pods")
    if inflate is not None:
        inflated(workload, inflate, seeds[0])
    return Jobs(
        [
            SimulationJob(
                config.source, seed, inflate, arrivals, first_of_equals, max_in_unschedulable_seconds, shards
            )
            for config in configs
            for seed in seeds
        ],
        configs,
        workload,
    )


def run_all(
    jobs: Jobs, *, processes: int | None = None, show: bool = False
) -> list[tuple[SimulationJob, Result]]:
    """Run simulations, some at a time, and return their results in the order of the jobs.

    Args:
        jobs: which.
        processes: number of processes; None for one per CPU.
        show: whether to show the progress on standard error.

    Raises:
        OtherProcessError: a plugin is unknown, broken, or has bad arguments; an object that a plugin needs is malformed.
    """
    shown = Progress("pods", sum(job.number(jobs.workload) for job in jobs)) if show else None
    futures = side_by_side(jobs, [partial(_run, job) for job in jobs], processes=processes, shown=shown)
    return [(job, future.result()) for job, future in zip(jobs, futures, strict=True)]


def _run(job: SimulationJob) -> Result:
    jobs: Jobs = given()
    return play(job, jobs.configs[job.config], jobs.workload, progress=progress)


def play(
    job: SimulationJob,
    configuration: Configuration,
    given: Workload,
    *,
    part_ended: Callable[[PartFigures], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Run the simulation of a job in this process; the arguments and errors are those of `simulate`."""
    workload, ends = job.workload(given)
    return simulate(
        workload,
        configuration,
        seed=job.seed,
        first_of_equals=job.first_of_equals,
        max_in_unschedulable_seconds=job.max_in_unschedulable_seconds,
        shards=job.shards,
        ends=ends,
        part_ended=part_ended,
        progress=progress,
    )
