"""Plays a workload on a cluster: pods arrive, end after their run time, and are replaced if they were evicted."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from scheduler.tools.whatif.simulation.pod_versions import named
from scheduler.tools.whatif.simulation.workload import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.simulation.timeline import TimelineEvent
    from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
    from scheduler.tools.whatif.simulation.workload import Workload

_TOLD_EVERY = 200
"""Number of arrivals between two reports of progress."""
_STAY_WITH_NODE = frozenset({"DaemonSet", "Node"})
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
        workload, told = self._workload, 0
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
            if came - told >= _TOLD_EVERY:
                self._progress(came - told)
                told = came
        self._progress(came - told)
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
        owner = next((each for each in pod.pod.metadata.owner_references if each.controller), None)
        if owner is None or owner.kind in _STAY_WITH_NODE:
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
            self._come(Arrival(named(pod, pod.name, number=self._again[pod.key]), 0.0, back.runs))
