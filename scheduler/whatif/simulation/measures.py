"""What is counted while a simulation runs, and what is told of it at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from scheduler.cycle.observer import NoObserver
from scheduler.whatif.fragmentation import fragmentation
from scheduler.whatif.simulation.workload import GPU_COUNT, gpu_capacity, gpu_milli

if TYPE_CHECKING:
    from scheduler.cycle.attempt import Decision
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Float64s, Snapshot
    from scheduler.state.cache import Cache
    from scheduler.whatif.simulation.workload import Workload

GPU: Final = "gpu"
_SAMPLES: Final = 200
_KINDS: Final = 20
"""So many of the most frequent kinds of pods count for fragmentation."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How things stood at a moment.

    Attributes:
        at: seconds since the start.
        waiting: pods.
        utilisation: resource -> share of the cluster's that is asked for.
        fragmentation: resource -> share of what is free that lies on nodes where the workload's pods do not fit, on average
            over its most frequent kinds.
    """

    at: float
    waiting: int
    utilisation: dict[str, float]
    fragmentation: dict[str, float]


class Result(msgspec.Struct, kw_only=True, rename="camel"):
    """What became of a workload.

    Attributes:
        arrived: pods.
        placed: likewise, of those.
        failed: likewise: they were gone before they were placed.
        waiting: likewise, at the end: nothing that happened made room for them.
        evicted: pods that were made to go, for others or with their nodes; those that came again for it count as arrived.
        attempts: to place a pod.
        errors: attempts that failed for another reason than want of a node.
        seconds: of virtual time.
        wait_seconds: percentile -> how long a pod waited that was placed.
        mean_utilisation: resource -> over time.
        mean_fragmentation: resource -> over time.
        samples: in the course of time.
        unallocated_gpu: percent of the GPU capacity that was asked for so far -> share of it that nobody had, where pods
            come until it is used up.
        failed_at: likewise -> pods that failed so far.
    """

    arrived: int
    placed: int
    failed: int
    waiting: int
    evicted: int
    attempts: int
    errors: int
    seconds: float
    wait_seconds: dict[str, float]
    mean_utilisation: dict[str, float]
    mean_fragmentation: dict[str, float]
    samples: list[Sample]
    unallocated_gpu: dict[int, float]
    failed_at: dict[int, float]


class Attempts(NoObserver):
    """Counts attempts at pods.

    Attributes:
        number: how many there were.
        errors: how many failed for another reason than want of a node.
    """

    def __init__(self) -> None:
        self.number = self.errors = 0

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None:
        self.number += 1

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        self.errors += result == "error"


class Measures:
    """Counts one simulation; fulfils `PlayWitness`.

    Args:
        workload: which.
        cache: the cluster as it is.
        attempts: at pods.
    """

    def __init__(self, workload: Workload, cache: Cache, attempts: Attempts) -> None:
        self._cache, self._attempts = cache, attempts
        self._gives_up = workload.gives_up
        self._capacity = gpu_capacity(workload.cluster)
        self._kinds = _kinds_of(workload)
        times = [each.at for each in workload.arrivals]
        self._step = (max(times, default=0.0) - min(times, default=0.0)) / _SAMPLES
        self._next = min(times, default=0.0)
        self._samples: list[Sample] = []
        self._waits: list[float] = []
        self._gpu_used: dict[str, int] = {}  # node name -> thousandths of GPUs that its pods asked for
        self._gpu_of: dict[str, int] = {}  # pod uid -> likewise, of those on nodes
        for pod in workload.cluster.pods:
            if pod.node_name and not pod.is_terminal:
                self._take_gpu(pod)
        self._used = 0  # of those that came
        self._arrived = self._failed = self._evicted = self._demand = 0
        self._curve: dict[
            int, list[tuple[float, int]]
        ] = {}  # percent -> unallocated share and failed, as often as pods came

    def came(self, pod: PodInfo) -> None:
        self._arrived += 1
        self._demand += gpu_milli(pod)

    def placed(self, pod: PodInfo, waited_seconds: float) -> None:
        self._waits.append(waited_seconds)
        self._take_gpu(pod)

    def evicted(self, pod: PodInfo) -> None:
        self._evicted += 1

    def failed(self, pod: PodInfo) -> None:
        self._failed += 1

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
        """Note how things stand, if it is time again."""
        if self._gives_up and self._capacity:
            # Averages over the pods that came within a percent, as the published analysis has them.
            percent = round(100 * self._demand / self._capacity)
            unallocated = 100.0 * (1.0 - self._used / self._capacity)
            self._curve.setdefault(percent, []).append((unallocated, self._failed))
        if now < self._next:
            return
        self._next = now + self._step
        snapshot = self._cache.snapshot()
        free, total = self._free(snapshot), self._total(snapshot)
        lost = fragmentation(free, self._kinds)
        self._samples.append(
            Sample(
                at=now,
                waiting=self._arrived - len(self._waits) - self._failed,
                utilisation={name: round(1.0 - float(free[name].sum() / total[name]), 6) for name in total},
                fragmentation={name: lost[name] for name in total},
            )
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
        """Return what was counted; `waiting` pods were not placed until now."""
        waits = np.array(self._waits or [0.0])
        samples = self._samples
        return Result(
            arrived=self._arrived,
            placed=len(self._waits),
            failed=self._failed,
            waiting=waiting,
            evicted=self._evicted,
            attempts=self._attempts.number,
            errors=self._attempts.errors,
            seconds=now,
            wait_seconds={
                f"p{each}": float(np.percentile(waits, each, method="higher")) for each in (50, 99, 100)
            },
            mean_utilisation=_means([each.utilisation for each in samples]),
            mean_fragmentation=_means([each.fragmentation for each in samples]),
            samples=samples,
            unallocated_gpu={
                percent: round(sum(share for share, _ in seen) / len(seen), 4)
                for percent, seen in self._curve.items()
            },
            failed_at={percent: float(seen[-1][1]) for percent, seen in self._curve.items()},
        )


def _means(each: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(sum(one[name] for one in each) / len(each), 6) for name in each[0]} if each else {}


def _kinds_of(workload: Workload) -> list[tuple[dict[str, Any], float]]:
    """Return the most frequent kinds of pods: what they ask for, and their share."""
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
