"""Measures of a simulation, such as free capacity that pods cannot use, and its result."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from math import inf, isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from scheduler.engine.cycle.observer import NoObserver
from scheduler.loop_work import run_to_end
from scheduler.tools.whatif.simulation.object_versions import goes_with_node
from scheduler.tools.whatif.simulation.workload import GPU_COUNT, gpu_capacity, gpu_milli

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Float64s, Snapshot
    from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
    from scheduler.tools.whatif.simulation.workload import Workload


def fragmentation(
    free: Mapping[str, Float64s], kinds: Iterable[tuple[Mapping[str, float], float]]
) -> dict[str, float]:
    """Return resource -> the share of free capacity on nodes that pods do not fit, averaged over kinds of pods.

    Args:
        free: resource -> free capacity, float64[nodes].
        kinds: for each kind of pods, its requests of these resources, and its share of all pods.
    """
    lost = dict.fromkeys(free, 0.0)
    for wanted, share in kinds:
        fits = np.logical_and.reduce([amounts >= wanted[name] for name, amounts in free.items()])
        for name in lost:
            lost[name] += share * float(free[name][~fits].sum())
    return {name: round(amount / max(float(free[name].sum()), 1.0), 6) for name, amount in lost.items()}


def nodes_in_use(nodes: Container[str], pods: Iterable[PodInfo]) -> set[str]:
    """Return the names of the nodes with a pod other than the node's own (DaemonSet and static pods)."""
    return {pod.node_name for pod in pods if pod.node_name in nodes and not goes_with_node(pod)}


GPU: Final = "gpu"
_SAMPLES: Final = 200
_SAMPLES_OF_PART: Final = 20
_KINDS: Final = 20
"""Number of the most frequent kinds of pods that count for fragmentation."""


class QueueShares(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shares of a queue, each the largest part of the cluster of any resource.

    Attributes:
        used: what its pods request.
        fair: its fair share.
        average: the average of `used` that its fair share depends on; None without a history.
    """

    used: float
    fair: float
    average: float | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A sample of the cluster.

    Attributes:
        at: seconds since the start.
        waiting: number of pending pods.
        in_use: number of nodes with a pod other than the node's own (DaemonSet and static pods).
        utilisation: resource -> requested share of the cluster's capacity.
        fragmentation: resource -> share of free capacity on nodes that the workload's pods do not fit, averaged over the
            most frequent kinds of pods.
        queues: the shares of queues, if a plugin has queues with fair shares.
    """

    at: float
    waiting: int
    in_use: int
    utilisation: dict[str, float]
    fragmentation: dict[str, float]
    queues: dict[str, QueueShares] = {}


class PartFigures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Figures of one part of a simulation: of the pods that arrived in it, and of the cluster during it.

    Attributes:
        end: end of the part in seconds since the start; it begins when the part before it ends.
        arrived: number of pods that arrived.
        placed: number of these that were placed.
        wait_p50: 50th percentile of their waiting times in seconds; a pending pod has waited until now.
        wait_p99: 99th percentile.
        in_use: number of nodes in use, as an average over the samples.
        fragmentation: average over the samples and over the resources.
        preemptions: number of decisions that preempted pods.
    """

    end: float
    arrived: int
    placed: int
    wait_p50: float
    wait_p99: float
    in_use: float
    fragmentation: float
    preemptions: int


class Result(msgspec.Struct, kw_only=True, rename="camel"):
    """The result of a simulation.

    Attributes:
        arrived: number of pods that arrived.
        placed: number of these that were placed.
        failed: number of these that were removed before they were placed.
        waiting: number of these that were pending at the end.
        evicted: number of pods evicted by preemption or with their node; their replacements count as arrived.
        preemptions: number of decisions that preempted pods.
        attempts: number of scheduling attempts.
        errors: number of attempts that failed with an error.
        rejected: reason code -> number of attempts that were rejected for it, most first.
        passed_on: number of pods that were placed on nodes of another replica than their own; absent with one replica.
        resizes: number of resizes that were carried out, and of pods whose resize is pending at the end, by reason.
        seconds: virtual time.
        wait_seconds: percentile -> waiting time of placed pods.
        mean_in_use: number of nodes in use, as an average over the samples.
        mean_utilisation: resource -> average over the samples.
        mean_fragmentation: resource -> average over the samples.
        samples: by time.
        parts: figures of the parts, if the simulation has parts.
        unallocated_gpu: percent of the GPU capacity that was requested so far -> share of it that was not allocated, if
            pods arrive until it is used up.
        failed_at: the same percent -> number of pods that failed so far.
    """

    arrived: int
    placed: int
    failed: int
    waiting: int
    evicted: int
    preemptions: int
    attempts: int
    errors: int
    rejected: dict[str, int] = {}
    passed_on: int | msgspec.UnsetType = msgspec.UNSET
    resizes: dict[str, int] = {}
    seconds: float
    wait_seconds: dict[str, float]
    mean_in_use: float
    mean_utilisation: dict[str, float]
    mean_fragmentation: dict[str, float]
    samples: list[Sample]
    parts: list[PartFigures] = []
    unallocated_gpu: dict[int, float]
    failed_at: dict[int, float]


class Attempts(NoObserver):
    """Counts scheduling attempts.

    Attributes:
        number: number of attempts.
        errors: number of attempts that failed with an error.
        preemptions: number of decisions that preempted pods.
        rejected: reason code -> number of attempts that were rejected for it.
    """

    def __init__(self) -> None:
        self.number = self.errors = self.preemptions = 0
        self.rejected: Counter[str] = Counter()

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None:
        self.number += 1
        if not decision.node_name:
            self.preemptions += bool(decision.nominated_node_name)
            self.rejected.update({cause.code for cause in decision.causes})

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        self.errors += result == "error"


class _Part:
    """What is measured in one part.

    Args:
        begin: its beginning, in seconds since the start; it does not belong to the part.
        end: its end, which does.
        step: seconds between two samples.
    """

    def __init__(self, begin: float, end: float, step: float) -> None:
        self.begin, self.end, self.step = begin, end, step
        self.arrived = self.placed = self.preemptions = 0
        self.waits: list[float] = []


class Measures:
    """Measures one simulation; implements `PlayWitness`.

    Args:
        workload: the workload.
        daemon: the scheduler and its cluster.
        attempts: counter of attempts.
        ends: the times at which the parts end, ascending; empty for no parts.
        part_ended: called with the figures of a part when the first change after its end is done.
    """

    def __init__(
        self,
        workload: Workload,
        daemon: VirtualDaemon,
        attempts: Attempts,
        *,
        ends: Sequence[float] = (),
        part_ended: Callable[[PartFigures], None] = lambda _: None,
    ) -> None:
        self._cache, self._pods, self._nodes = daemon.parts.cache, daemon.parts.pods, daemon.cluster.nodes
        self._profiles, self._shards, self._passed_on = daemon.parts.profiles, daemon.shards, 0
        self._now, self._attempts, self._resizes = daemon.loop.time, attempts, daemon.cluster.resizes
        self._gives_up = workload.gives_up
        self._capacity = gpu_capacity(workload.cluster)
        self._kinds = _kinds_of(workload)
        times = [each.at for each in workload.arrivals]
        self._step = (max(times, default=0.0) - min(times, default=0.0)) / _SAMPLES
        self._next = min(times, default=0.0)
        self._ends, self._part_ended = ends, part_ended
        self._parts = self._parts_of(min(times, default=0.0))
        self._reported = self._preemptions = 0
        self._pending: dict[str, float] = {}  # uid of a pending pod -> its arrival
        self._samples: list[Sample] = []
        self._waits: list[float] = []
        self._gpu_used: dict[str, int] = {}  # node name -> requested GPUs of its pods, in thousandths
        self._gpu_of: dict[str, int] = {}  # pod uid -> requested GPUs, in thousandths, of pods on nodes
        for pod in workload.cluster.pods:
            if pod.node_name and not pod.is_terminal:
                self._take_gpu(pod)
        self._used = 0  # of pods that arrived
        self._arrived = self._failed = self._evicted = self._demand = 0
        # percent -> (unallocated share, failed pods) at each arrival
        self._curve: dict[int, list[tuple[float, int]]] = {}

    def _parts_of(self, first: float) -> list[_Part]:
        """Return the parts; `first` is the time of the first arrival."""
        return [
            _Part(
                begin if number else -inf,
                end,
                (end - begin) / _SAMPLES_OF_PART if isfinite(end) else self._step,
            )
            for number, (begin, end) in enumerate(pairwise((first, *self._ends)))
        ]

    def _part_at(self, at: float) -> _Part | None:
        """Return the part with a time; None after the last one, and without parts."""
        number = bisect_left(self._ends, at)
        return self._parts[number] if number < len(self._parts) else None

    def came(self, pod: PodInfo) -> None:
        self._arrived += 1
        self._demand += gpu_milli(pod)
        at = self._pending[pod.uid] = self._now()
        part = self._part_at(at)
        if part is not None:
            part.arrived += 1

    def placed(self, pod: PodInfo, waited_seconds: float) -> None:
        self._waits.append(waited_seconds)
        self._take_gpu(pod)
        if self._shards is not None:
            self._passed_on += self._shards.are_of_two(pod, pod.node_name)
        part = self._part_at(self._pending.pop(pod.uid))
        if part is not None:
            part.placed += 1
            part.waits.append(waited_seconds)

    def evicted(self, pod: PodInfo) -> None:
        self._evicted += 1

    def failed(self, pod: PodInfo) -> None:
        self._failed += 1
        arrived = self._pending.pop(pod.uid)
        part = self._part_at(arrived)
        if part is not None:
            part.waits.append(self._now() - arrived)

    def went(self, pod: PodInfo) -> None:
        milli = self._gpu_of.pop(pod.uid, 0)
        if milli:
            self._gpu_used[pod.node_name] -= milli
            self._used -= milli

    def _take_gpu(self, pod: PodInfo) -> None:
        milli = gpu_milli(pod)
        if milli:
            self._gpu_of[pod.uid] = milli
            self._gpu_used[pod.node_name] = self._gpu_used.get(pod.node_name, 0) + milli
            self._used += milli

    def settled(self, now: float) -> None:
        """Take a sample, if it is time; report the parts that have ended."""
        if self._gives_up and self._capacity:
            # Averages over the pods that arrived within a percent, as in the published analysis.
            percent = round(100 * self._demand / self._capacity)
            unallocated = 100.0 * (1.0 - self._used / self._capacity)
            self._curve.setdefault(percent, []).append((unallocated, self._failed))
        part = self._part_at(now)
        if part is not None:
            part.preemptions += self._attempts.preemptions - self._preemptions
            self._preemptions = self._attempts.preemptions
        if now >= self._next:
            self._next = now + (self._step if part is None else part.step)
            self._samples.append(self._sample(now))
        while self._reported < len(self._parts) and now > self._parts[self._reported].end:
            self._part_ended(self._figures_of(self._parts[self._reported], now))
            self._reported += 1

    def _sample(self, now: float) -> Sample:
        snapshot = self._cache.snapshot()
        free, total = self._free(snapshot), self._total(snapshot)
        lost = fragmentation(free, self._kinds)
        return Sample(
            at=now,
            waiting=self._arrived - len(self._waits) - self._failed,
            in_use=len(nodes_in_use(self._nodes, self._pods.values())),
            utilisation={name: round(1.0 - float(free[name].sum() / total[name]), 6) for name in total},
            fragmentation={name: lost[name] for name in total},
            queues=self._shares(snapshot),
        )

    def _shares(self, snapshot: Snapshot) -> dict[str, QueueShares]:
        whole = {name: int(snapshot.allocatable[name].sum()) for name in snapshot.resources}

        def share(amounts: Mapping[str, int]) -> float:
            parts = (amount / whole[name] for name, amount in amounts.items() if whole.get(name))
            return round(max(parts, default=0.0), 6)

        found = {}
        for by_profile in self._profiles.with_quotas():
            plugins = [*by_profile.values()]
            for each in run_to_end(plugins[0].quota_usages(plugins, ())):
                if each.fair_share is not None:
                    average = None if each.average_share is None else round(each.average_share, 6)
                    found[each.key] = QueueShares(
                        used=share(each.used), fair=share(each.fair_share), average=average
                    )
        return found

    def _figures_of(self, part: _Part, now: float) -> PartFigures:
        pending = [now - at for at in self._pending.values() if part.begin < at <= part.end]
        waits = np.array([*part.waits, *pending] or [0.0])
        samples = [each for each in self._samples if part.begin < each.at <= part.end]
        shares = [fmean(each.fragmentation.values()) for each in samples if each.fragmentation]
        return PartFigures(
            end=part.end,
            arrived=part.arrived,
            placed=part.placed,
            wait_p50=_percentile(waits, 50),
            wait_p99=_percentile(waits, 99),
            in_use=round(fmean([each.in_use for each in samples]), 3) if samples else 0.0,
            fragmentation=round(fmean(shares), 6) if shares else 0.0,
            preemptions=part.preemptions,
        )

    def _total(self, snapshot: Snapshot) -> dict[str, float]:
        totals = {name: float(snapshot.allocatable[name].sum()) for name in ("cpu", "memory")}
        totals[GPU] = 1000.0 * float(snapshot.allocatable[GPU_COUNT].sum())
        return {name: total for name, total in totals.items() if total}

    def _free(self, snapshot: Snapshot) -> dict[str, Float64s]:
        free = {
            name: (snapshot.allocatable[name] - snapshot.requested[name]).astype(np.float64)
            for name in ("cpu", "memory")
        }
        gpus = 1000.0 * snapshot.allocatable[GPU_COUNT].astype(np.float64)
        for name, milli in self._gpu_used.items():
            row = snapshot.row_of(name)
            if row is not None:
                gpus[row] -= milli
        free[GPU] = gpus
        return {name: np.maximum(amounts, 0.0) for name, amounts in free.items()}

    def result(self, now: float, *, waiting: int) -> Result:
        """Return the result; `waiting` is the number of pending pods."""
        waits = np.array(self._waits or [0.0])
        samples = self._samples
        return Result(
            arrived=self._arrived,
            placed=len(self._waits),
            failed=self._failed,
            waiting=waiting,
            evicted=self._evicted,
            preemptions=self._attempts.preemptions,
            attempts=self._attempts.number,
            errors=self._attempts.errors,
            rejected=dict(sorted(self._attempts.rejected.items(), key=lambda each: (-each[1], each[0]))),
            passed_on=msgspec.UNSET if self._shards is None else self._passed_on,
            resizes=self._resizes.counts(),
            seconds=now,
            wait_seconds={f"p{each}": _percentile(waits, each) for each in (50, 99, 100)},
            mean_in_use=round(fmean([each.in_use for each in samples]), 3) if samples else 0.0,
            mean_utilisation=_means([each.utilisation for each in samples]),
            mean_fragmentation=_means([each.fragmentation for each in samples]),
            samples=samples,
            parts=[self._figures_of(part, now) for part in self._parts],
            unallocated_gpu={
                percent: round(sum(share for share, _ in seen) / len(seen), 4)
                for percent, seen in self._curve.items()
            },
            failed_at={percent: float(seen[-1][1]) for percent, seen in self._curve.items()},
        )


def _percentile(waits: Float64s, percent: int) -> float:
    return float(np.percentile(waits, percent, method="higher"))


def _means(each: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(sum(one[name] for one in each) / len(each), 6) for name in each[0]} if each else {}


def _kinds_of(workload: Workload) -> list[tuple[dict[str, Any], float]]:
    """Return the most frequent kinds of pods: their requests, and their share."""
    counts = Counter(
        (
            each.pod.resources.requests.get("cpu", 0),
            each.pod.resources.requests.get("memory", 0),
            gpu_milli(each.pod),
        )
        for each in workload.arrivals
    ).most_common(_KINDS)
    number = sum(count for _, count in counts)
    return [(dict(zip(("cpu", "memory", GPU), kind, strict=True)), count / number) for kind, count in counts]
