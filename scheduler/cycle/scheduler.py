"""The loop: takes the next pod, decides, assumes, and leaves the rest to a binding task of its own.

From the snapshot to the assumed pod nothing is awaited, so nothing can change in between and no lock is needed.
Extenders are the exception: while one is asked, the gate keeps changes out.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from scheduler.cycle.attempt import Attempt, Choice
from scheduler.cycle.gate import Gate
from scheduler.cycle.scheduling import (
    nominated_others,
    run_now,
    schedule_pod,
    schedule_pod_with_extenders,
)
from scheduler.framework.status import SUCCESS, Status
from scheduler.state.pod_states import PodState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from scheduler.clock import Clock
    from scheduler.cycle.attempt_log import AttemptLog
    from scheduler.cycle.binding import BindingCycle
    from scheduler.cycle.decision import Decision
    from scheduler.cycle.failure import FailureHandler
    from scheduler.cycle.observer import CycleObserver
    from scheduler.cycle.reporting import Reporter
    from scheduler.cycle.sampling import NodeSampling
    from scheduler.extenders.chain import Extenders
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.scheduling_queue import SchedulingQueue
    from scheduler.runtime.framework import Framework
    from scheduler.runtime.waiting_pods import WaitingPodsMap
    from scheduler.state.cache import Cache

logger = logging.getLogger(__name__)

_PLUGINS_MEASURED = 0.1
"""The share of cycles that are timed plugin by plugin. Source: kube-scheduler v1.36, schedule_one.go."""
_FINISH_SECONDS = 10.0
"""How long `run` waits for bindings when it is to stop; whoever schedules next begins the others anew."""


class Scheduler:
    """Places pending pods, one after another, for as long as it runs.

    Args:
        frameworks: schedulerName -> profile.
        random: breaks ties between nodes.
        sampling: how many nodes are looked at.
        extenders: the extenders of the configuration in force.
        gate: closed while an extender is asked.
    """

    def __init__(
        self,
        *,
        frameworks: Mapping[str, Framework],
        cache: Cache,
        queue: SchedulingQueue,
        waiting_pods: WaitingPodsMap,
        binding: BindingCycle,
        failures: FailureHandler,
        reporter: Reporter,
        clock: Clock,
        random: Random,
        sampling: NodeSampling,
        attempts: AttemptLog,
        observer: CycleObserver,
        extenders: Callable[[], Extenders | None] = lambda: None,
        gate: Gate | None = None,
    ) -> None:
        self._frameworks = frameworks
        self._cache = cache
        self._queue = queue
        self._waiting_pods = waiting_pods
        self._binding = binding
        self._failures = failures
        self._reporter = reporter
        self._clock = clock
        self._random = random
        self._sampling = sampling
        self._attempts = attempts
        self._observer = observer
        self._extenders = extenders
        self._gate = gate or Gate()
        self._work = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Say that the queue may have something to do."""
        self._work.set()

    def stop(self) -> None:
        """Begin no more attempts; `run` returns when the bindings under way have ended, or after 10 seconds."""
        self._stopping = True
        self._work.set()

    async def run(self) -> None:
        """Place pods until `stop`, then finish the bindings under way."""
        async with asyncio.TaskGroup() as tasks:
            bindings: set[asyncio.Task[None]] = set()
            while not self._stopping:
                self._queue.flush(self._clock.monotonic())
                queued = self._queue.pop()
                if queued is None:
                    await self._wait_for_work()
                    continue
                choice = await self._attempt(queued)
                if choice is not None:
                    binding = tasks.create_task(self._binding.run(choice), name=f"bind {choice.pod.key}")
                    bindings.add(binding)
                    binding.add_done_callback(bindings.discard)
                # Watch events, bindings and the lease get their turn between two pods.
                await asyncio.sleep(0)
            await _finish(bindings)

    async def _attempt(self, queued: QueuedPodInfo) -> Choice | None:
        extenders = self._extenders()
        try:
            if not extenders:
                return self.schedule_one(queued)
            with self._gate.closed():
                return await self._schedule_one(queued, extenders)
        except Exception:
            logger.exception("Scheduling cycle broke", extra={"pod": queued.pod.key})
            self._binding.rescue(queued)
            return None

    async def _wait_for_work(self) -> None:
        deadline = self._queue.next_deadline(self._clock.monotonic())
        wait = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
        try:
            async with asyncio.timeout(wait):
                await self._work.wait()
        except TimeoutError:
            return
        self._work.clear()

    def schedule_one(self, queued: QueuedPodInfo) -> Choice | None:
        """Run the scheduling cycle of one pod, up to Permit, without extenders.

        Returns:
            What the binding cycle is to carry out; None if the attempt is over, with the pod where it belongs.
        """
        return run_now(self._schedule_one(queued, None))

    async def _schedule_one(self, queued: QueuedPodInfo, extenders: Extenders | None) -> Choice | None:
        began = self._clock.monotonic()
        pod = queued.pod
        framework = self._frameworks.get(pod.scheduler_name)
        if framework is None or self._is_to_be_skipped(pod):
            self._queue.done(pod.uid)
            return None
        attempt = Attempt(framework, queued, began, extenders)
        framework.measure_plugins(self._random.random() < _PLUGINS_MEASURED)
        snapshot = self._cache.snapshot()
        how: Any = {
            "nominated": nominated_others(self._queue.nominator, pod, snapshot),
            "random": self._random,
            "sampling": self._sampling,
            "avoided": self._cache.pauses.rows(snapshot, at=began),
        }
        if extenders:
            decision = await schedule_pod_with_extenders(framework, pod, snapshot, extenders=extenders, **how)
        else:
            decision = schedule_pod(framework, pod, snapshot, **how)
        self._observer.decided(queued, decision, self._clock.monotonic() - began)
        self._attempts.note(decision, snapshot, number=queued.attempts, at=self._clock.utc_now())
        if not decision.node_name:
            self._give_up(attempt, decision)
            return None
        return self._commit(attempt, decision)

    def _is_to_be_skipped(self, pod: PodInfo) -> bool:
        if pod.is_terminating:
            self._reporter.skipped(pod.scheduler_name, pod)
            return True
        # An update of the pod may have brought it back into the queue while it was being assumed.
        return self._cache.state_of(pod.uid) is not PodState.OUTSIDE

    def _give_up(self, attempt: Attempt, decision: Decision) -> None:
        self._failures.handle(
            attempt,
            decision.status,
            nominated_node_name=decision.nominated_node_name,
            unschedulable_plugins=frozenset(decision.diagnosis.unschedulable_plugins),
            pending_plugins=frozenset(decision.diagnosis.pending_plugins),
        )

    def _commit(self, attempt: Attempt, decision: Decision) -> Choice | None:
        placed = self._cache.assume(decision.pod, decision.node_name)
        self._queue.nominator.delete(placed.uid)
        disturbances = self._cache.disturbances(decision.node_name)
        choice = Choice(attempt, decision.state, placed, decision.node_name, disturbances)
        status = self._reserve_and_permit(choice)
        if not status.is_success:
            self._binding.undo(choice, status)
            return None
        return choice

    def _reserve_and_permit(self, choice: Choice) -> Status:
        framework, state, pod = choice.attempt.framework, choice.state, choice.pod
        reserved = framework.run_reserve(state, pod, choice.node_name)
        if not reserved.is_success:
            return reserved
        permitted = framework.run_permit(state, pod, choice.node_name)
        if isinstance(permitted, Status):
            return permitted
        self._waiting_pods.hold(pod, permitted)
        return SUCCESS


async def _finish(bindings: set[asyncio.Task[None]]) -> None:
    if not bindings:
        return
    _, left = await asyncio.wait(bindings, timeout=_FINISH_SECONDS)
    for binding in left:
        logger.warning("Binding cycle is abandoned", extra={"task": binding.get_name()})
        binding.cancel()
