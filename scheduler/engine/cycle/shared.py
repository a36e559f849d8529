"""The objects that event handlers and cycles share: the state of the cluster, the queue and the event bus."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduler.engine.cycle.event_bus import EventBus
from scheduler.engine.cycle.freeze import ClusterFreeze
from scheduler.engine.cycle.profiles import Profiles
from scheduler.engine.ports import Time
from scheduler.engine.queue.scheduling_queue import SchedulingQueue
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.engine.runtime.waiting_pods import WaitingPodsMap
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator

if TYPE_CHECKING:
    from scheduler.clock import Clock
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.objects.pod import PodInfo


class Shared:
    """One instance of each shared object.

    Attributes:
        clock: the clock for measurements.
        time: the time of decisions.
        observer: receives measurements.
        pods: `namespace/name` -> last version of a pod from the watch, of all schedulers.
        cache: the nodes, and the pods on them.
        nominator: the nominated pods.
        profiles: the active profiles.
        waiting_pods: the pods held at Permit.
        queue: the pending pods of this scheduler; empty if other processes place all pods.
        freeze: active while the state must not change.
        bus: dispatches cluster events.
        budget: how long calls may hold the event loop.
    """

    def __init__(
        self,
        clock: Clock,
        observer: CycleObserver,
        *,
        max_in_unschedulable_seconds: float = 300.0,
        slice_seconds: float = inf,
        time: Time | None = None,
        budget: LoopBudget | None = None,
    ) -> None:
        self.clock = clock
        self.time = time or Time(clock)
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
            time=self.time,
            observer=observer,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            slice_seconds=slice_seconds,
        )
        self.freeze = ClusterFreeze(self.time)
        self.bus = EventBus(self.queue)
        self.budget = budget or LoopBudget(clock.monotonic)
