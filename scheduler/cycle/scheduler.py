"""The loop: takes the next pod, decides, assumes, and leaves the rest to a binding task of its own.

From the snapshot to the assumed pod nothing is awaited, so nothing can change in between and no lock is needed.
Extenders are the exception, and room that is looked for for long: meanwhile a freeze keeps changes out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.cycle.attempt import AssumedPod, Attempt, Decision
from scheduler.cycle.scheduling import decide, nominated_others
from scheduler.framework.status import SUCCESS, Status
from scheduler.state.pod_states import PodState

if TYPE_CHECKING:
    from random import Random

    from scheduler.cycle.attempt_log import AttemptLog
    from scheduler.cycle.binding import BindingCycle
    from scheduler.cycle.failure import FailureHandler
    from scheduler.cycle.reporting import Reporter
    from scheduler.cycle.sampling import NodeSampling
    from scheduler.cycle.shared import Shared
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

logger = logging.getLogger(__name__)

_PLUGINS_MEASURED = 0.1
"""The share of cycles that are timed plugin by plugin. Source: kube-scheduler v1.36, schedule_one.go."""
_FINISH_SECONDS = 10.0
"""How long `run` waits for bindings when it is to stop; whoever schedules next begins the others anew."""


class Picture(Protocol):
    """What is known of the cluster, as a whole."""

    @property
    def is_behind(self) -> bool:
        """Whether to `wait` before anything is decided by it."""
        ...

    async def wait(self) -> None:
        """Wait for a moment."""
        ...


class Scheduler:
    """Places pending pods, one after another, for as long as it runs.

    Args:
        random: breaks ties between nodes.
        sampling: how many nodes are looked at.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        binding: BindingCycle,
        failures: FailureHandler,
        reporter: Reporter,
        random: Random,
        sampling: NodeSampling,
        attempts: AttemptLog,
    ) -> None:
        self._profiles, self._cache, self._nominator = shared.profiles, shared.cache, shared.nominator
        self._queue, self._waiting_pods = shared.queue, shared.waiting_pods
        self._bus, self._freeze, self._budget = shared.bus, shared.freeze, shared.budget
        self._clock, self._observer = shared.clock, shared.observer
        self._binding = binding
        self._failures = failures
        self._reporter = reporter
        self._random = random
        self._sampling = sampling
        self._attempts = attempts
        self._stopping = False
        # pod uid -> attempts under way; for a moment two, when a pod comes back from one and the next begins
        self._in_hand = Counter[str]()

    def has_in_hand(self, uid: str) -> bool:
        """Say whether an attempt at a pod is under way: somebody is at work who will bring it back, or bind it."""
        return uid in self._in_hand

    def stop(self) -> None:
        """Begin no more attempts; `run` returns when the bindings under way have ended, or after 10 seconds."""
        self._stopping = True
        self._bus.wake()

    async def run(self, picture: Picture | None = None) -> None:
        """Place pods until `stop`, then finish the bindings under way; none is begun with while the picture is behind."""
        bindings: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping:
                if picture is not None and picture.is_behind:
                    await picture.wait()
                    continue
                self._work_the_queue()
                queued = self._queue.pop()
                if queued is None:
                    await self._wait_for_work()
                    continue
                uid = queued.pod.uid
                self._in_hand[uid] += 1
                assumed = await self._budget.in_stretches(self._attempt(queued))
                if assumed is None:
                    self._put_down(uid)
                else:
                    binding = asyncio.create_task(self._binding.run(assumed), name=f"bind {assumed.pod.key}")
                    bindings.add(binding)
                    binding.add_done_callback(partial(self._bound, bindings, uid))
                # Watch events, bindings and the lease get their turn between two pods.
                await asyncio.sleep(0)
            await _finish(bindings)
        finally:
            for binding in bindings:
                binding.cancel()
            if bindings:
                await asyncio.wait(bindings)

    def _bound(self, bindings: set[asyncio.Task[None]], uid: str, binding: asyncio.Task[None]) -> None:
        bindings.discard(binding)
        self._put_down(uid)

    def _put_down(self, uid: str) -> None:
        self._in_hand[uid] -= 1
        if not self._in_hand[uid]:
            del self._in_hand[uid]

    def _work_the_queue(self) -> None:
        """Let the queue do a slice of what it has to do."""
        try:
            self._queue.work(self._clock.monotonic())
        except Exception:
            # A mistake of ours costs what one event meant for some pods; they are tried again in five minutes.
            logger.exception("The queue could not do its work")

    async def _wait_for_work(self) -> None:
        now = self._clock.monotonic()
        deadline = self._queue.next_deadline(now)
        await self._bus.wait_woken(None if deadline is None else max(0.0, deadline - now))

    # One attempt, up to Permit.

    async def _attempt(self, queued: QueuedPodInfo) -> AssumedPod | None:
        try:
            try:
                return await self.schedule_one(queued)
            finally:
                if self._freeze.is_on:
                    await self._freeze.end()
        except Exception:
            # A mistake of ours costs this attempt only.
            logger.exception("Scheduling cycle broke", extra={"pod": queued.pod.key})
            self._binding.rescue(queued)
            return None

    async def schedule_one(self, queued: QueuedPodInfo) -> AssumedPod | None:
        """Run the scheduling cycle of one pod, up to Permit; the caller ends the freeze.

        Returns:
            What the binding cycle is to carry out; None if the attempt is over, with the pod where it belongs.
        """
        attempt = self._begin(queued)
        if attempt is None:
            return None
        if attempt.extenders is not None:
            self._freeze.begin()
        snapshot = self._cache.snapshot()
        given = self._given(attempt, snapshot)
        decision = await decide(attempt.framework, queued.pod, snapshot, **given)
        return self._end(attempt, decision, snapshot)

    def _begin(self, queued: QueuedPodInfo) -> Attempt | None:
        """Begin an attempt, unless the pod is not to be placed any more."""
        framework = self._profiles.frameworks.get(queued.pod.scheduler_name)
        if framework is None or self._is_to_be_skipped(queued.pod):
            self._queue.done(queued.pod.uid)
            return None
        framework.measure_plugins(self._random.random() < _PLUGINS_MEASURED)
        return Attempt(framework, queued, self._clock.monotonic(), self._profiles.extenders)

    def _given(self, attempt: Attempt, snapshot: Snapshot) -> dict[str, Any]:
        """Return what a decision goes by beside the pod and the cluster."""
        return {
            "nominated": nominated_others(self._nominator, attempt.queued.pod, snapshot),
            "extenders": attempt.extenders,
            "random": self._random,
            "sampling": self._sampling,
            "avoided": self._cache.pauses.rows(snapshot, at=attempt.began),
        }

    def _end(self, attempt: Attempt, decision: Decision, snapshot: Snapshot) -> AssumedPod | None:
        queued = attempt.queued
        seconds = self._clock.monotonic() - attempt.began
        self._observer.decided(queued, decision, seconds)
        self._attempts.note(
            decision, snapshot, number=queued.attempts, at=self._clock.utc_now(), seconds=seconds
        )
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

    def _commit(self, attempt: Attempt, decision: Decision) -> AssumedPod | None:
        placed = self._cache.assume(decision.pod, decision.node_name)
        self._nominator.delete(placed.uid)
        disturbances = self._cache.disturbances(decision.node_name)
        decision.state.forget_rows()
        assumed = AssumedPod(attempt, decision.state, placed, decision.node_name, disturbances)
        status = self._reserve_and_permit(assumed)
        if not status.is_success:
            self._binding.undo(assumed, status)
            return None
        return assumed

    def _reserve_and_permit(self, assumed: AssumedPod) -> Status:
        framework, state, pod = assumed.attempt.framework, assumed.state, assumed.pod
        reserved = framework.run_reserve(state, pod, assumed.node_name)
        if not reserved.is_success:
            return reserved
        permitted = framework.run_permit(state, pod, assumed.node_name)
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
