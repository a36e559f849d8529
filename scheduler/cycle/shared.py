"""What event handlers and cycles share: what is known of the cluster, who judges by it, and who hears of changes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduler.cycle.event_bus import EventBus
from scheduler.cycle.freeze import ClusterFreeze
from scheduler.cycle.profiles import Profiles
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.runtime.budget import LoopBudget
from scheduler.runtime.waiting_pods import WaitingPodsMap
from scheduler.state.cache import Cache
from scheduler.state.nominator import Nominator
from scheduler.steps import Steps

if TYPE_CHECKING:
    from scheduler.clock import Clock
    from scheduler.cycle.observer import CycleObserver
    from scheduler.objects.pod import PodInfo


class Shared:
    """One of each; whoever is built from it takes what it needs.

    Attributes:
        clock: the time, by which is measured.
        steps: what happens, one after another, and the time by which is decided.
        observer: counts.
        pods: `namespace/name` -> the pod as the API server last showed it, whosever it is; the watch writes it there.
        cache: the nodes, and the pods on them.
        nominator: the pods that are expected somewhere.
        profiles: what is in force.
        waiting_pods: the pods held at Permit.
        queue: the pods that are ours to place; none where others place all.
        freeze: on while the state must not change.
        bus: spreads what happens.
        budget: how long the loop may be held.
    """

    def __init__(
        self,
        clock: Clock,
        observer: CycleObserver,
        *,
        max_in_unschedulable_seconds: float = 300.0,
        slice_seconds: float = inf,
        steps: Steps | None = None,
    ) -> None:
        self.clock = clock
        self.steps = steps or Steps(clock)
        self.observer = observer
        self.pods: dict[str, PodInfo] = {}
        self.cache = Cache(in_slices=slice_seconds < inf)
        self.nominator = Nominator()
        self.profiles = Profiles()
        self.waiting_pods = WaitingPodsMap(observer)
        self.queue = SchedulingQueue(
            plugins=self.profiles,
            nominator=self.nominator,
            groups=self.cache.groups,
            steps=self.steps,
            clock=clock,
            observer=observer,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            slice_seconds=slice_seconds,
        )
        self.freeze = ClusterFreeze(self.steps)
        self.bus = EventBus(self.queue)
        self.budget = LoopBudget(clock.monotonic, stopped=self.steps.stopped)
