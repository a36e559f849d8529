"""The scheduling cycle of one pod in the daemon: from the queue to an assumed pod, or back with a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.cycle.attempt import AssumedPod, Attempt, Decision
from scheduler.engine.cycle.scheduling import BY_ITSELF, DecisionOptions, decide
from scheduler.engine.sharding.shards import is_passed_on
from scheduler.engine.state.cache import PodState
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import Status
from scheduler.loop_work import run_to_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from random import Random

    from scheduler.engine.cycle.attempt_log import AttemptLog
    from scheduler.engine.cycle.binding import BindingCycle
    from scheduler.engine.cycle.failure import FailureHandler
    from scheduler.engine.cycle.long_attempts import LongAttempts
    from scheduler.engine.cycle.reporting import Reporter
    from scheduler.engine.cycle.sampling import NodeSampling
    from scheduler.engine.cycle.shared import Shared
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

_PLUGINS_MEASURED = 0.1
"""The share of cycles that measure each plugin. Source: kube-scheduler v1.36, schedule_one.go."""


class PodCycle:
    """Decides about one pod at a time, and assumes it on its node.

    Args:
        random: breaks ties between nodes.
        sampling: limits the number of evaluated nodes.
        attempts: stores the decisions.
        long: stores attempts that need more time than one turn of the event loop.
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
        long: LongAttempts,
    ) -> None:
        self._shared = shared
        self._profiles, self._cache, self._nominator = shared.profiles, shared.cache, shared.nominator
        self._queue, self._waiting_pods = shared.queue, shared.waiting_pods
        self._freeze, self._clock, self._observer = shared.freeze, shared.clock, shared.observer
        self._time, self._bus = shared.time, shared.bus
        self._binding = binding
        self._failures = failures
        self._reporter = reporter
        self._random = random
        self._sampling = sampling
        self._attempts = attempts
        self._long = long

    async def schedule(self, queued: QueuedPodInfo, *, began: float | None = None) -> Sequence[AssumedPod]:
        """Run the scheduling cycle of one pod, up to Permit; the caller ends the freeze.

        Args:
            queued: the pod.
            began: the first start of the attempt, if this is a long attempt.

        Returns:
            The assumed pod for the binding cycle; empty if the attempt ended and the pod was requeued or dropped, or if
            it continues as a long attempt.
        """
        attempt = self.begin(queued, began)
        if attempt is None:
            return ()
        while True:
            try:
                return await self._schedule(attempt)
            except NeedsTime as needs:
                if self._time.has_slices():
                    self._long.take_up(attempt, needs)
                    return ()
                run_to_end(needs.steps)

    async def _schedule(self, attempt: Attempt) -> Sequence[AssumedPod]:
        if attempt.extenders is not None:
            self._freeze.begin()
        decision, snapshot = await self.decide(attempt)
        if attempt.queued.pod.node_name and decision.node_name:
            self._keep_waiting(attempt, decision, snapshot)
            return ()
        self.note(attempt, decision, snapshot)
        if not decision.node_name:
            self.give_up(attempt, decision)
            return ()
        assumed = self.assume(attempt, decision)
        try:
            status = self.reserve(assumed)
        except NeedsTime:
            self._binding.take_back(assumed)
            raise
        permitted = self.permit(assumed) if status.is_success else status
        if isinstance(permitted, Status) and not permitted.is_success:
            self._binding.undo(assumed, permitted)
            return ()
        self.hold(assumed, permitted)
        return (assumed,)

    # The steps.

    def begin(self, queued: QueuedPodInfo, began: float | None = None) -> Attempt | None:
        """Begin an attempt; return None if the pod must not be placed any more."""
        framework = self._profiles.frameworks.get(queued.pod.scheduler_name)
        if framework is None or self._is_to_be_skipped(queued.pod):
            self._queue.done(queued.pod.uid)
            return None
        framework.measure_plugins(self._random.random() < _PLUGINS_MEASURED)
        began = self._clock.monotonic() if began is None else began
        return Attempt(framework, queued, began, self._profiles.extenders)

    def _is_to_be_skipped(self, pod: PodInfo) -> bool:
        if self._shared.profiles.shards is not None and not self._shared.profiles.shards.takes(pod):
            return True
        if pod.is_terminating:
            self._reporter.skipped(pod.scheduler_name, pod)
            return True
        # An update may have returned the pod to the queue while it was being assumed.
        return self._cache.state_of(pod.uid) is not (
            PodState.CONFIRMED if pod.node_name else PodState.OUTSIDE
        )

    async def decide(
        self, attempt: Attempt, options: DecisionOptions = BY_ITSELF
    ) -> tuple[Decision, Snapshot]:
        """Decide on the current cluster, and return the snapshot too.

        If several replicas place pods, the nodes of this one are preferred, and a pod that another one passed on is tried
        only on its nominated node, without quotas: this one does not know all pods that wait for them.
        """
        snapshot = self._cache.snapshot()
        shards, pod, preferred = self._shared.profiles.shards, attempt.queued.pod, None
        nominated = self._nominator.others(pod, snapshot, options.root)
        if shards is not None and not shards.decides(pod):
            row = snapshot.row_of(pod.pod.status.nominated_node_name)
            rows = np.array([] if row is None else [row], dtype=np.intp)
            options = DecisionOptions(within=rows, may_preempt=False, with_quotas=False)
            # Pods that were passed on at the same moment would keep each other away again and again. Members of one group
            # would too: the replica that decides leaves their nominations out, as its `options` say.
            together = () if pod.group is None else self._profiles.tree_of(pod.group)
            others = {
                row: [
                    each
                    for each in nominated.get(row, ())
                    if not is_passed_on(each) and each.group not in together
                ]
                for row in rows.tolist()
            }
            nominated = {row: pods for row, pods in others.items() if pods}
        elif shards is not None and not pod.node_name:
            preferred = shards.preferred(pod, snapshot)
        decision = await decide(
            attempt.framework,
            pod,
            snapshot,
            nominated=nominated,
            random=self._random,
            extenders=attempt.extenders if options.asks_extenders else None,
            sampling=self._sampling,
            avoided=self._cache.pauses.rows(snapshot, at=self._time.monotonic()),
            attempt=attempt.queued.attempts,
            options=options,
            preferred=preferred,
        )
        if shards is not None and not shards.takes(pod):  # it may have waited for an extender
            status = Status.unschedulable("the pod belongs to another replica now")
            decision = replace(decision, node_name="", nominated_node_name=None, status=status)
        return decision, snapshot

    async def give_time(
        self, needs: NeedsTime, yield_to_loop: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Run the work of a plugin within an attempt that continues afterwards.

        Args:
            needs: the exception of the plugin.
            yield_to_loop: yields to the event loop at the end of a time slice; None runs all work at once.
        """
        if yield_to_loop is None or not self._time.has_slices():
            run_to_end(needs.steps)
            return
        for _ in needs.steps:
            await yield_to_loop()

    def note(self, attempt: Attempt, decision: Decision, snapshot: Snapshot) -> None:
        """Record a decision for metrics and explanations."""
        queued, seconds = attempt.queued, self._clock.monotonic() - attempt.began
        self._observer.decided(queued, decision, seconds)
        self._attempts.note(
            decision, snapshot, number=queued.attempts, at=self._clock.utc_now(), seconds=seconds
        )

    def give_up(self, attempt: Attempt, decision: Decision) -> None:
        """Requeue a pod that fits on no node."""
        self._failures.handle(
            attempt,
            decision.status,
            nominated_node_name=decision.nominated_node_name,
            unschedulable_plugins=frozenset(decision.diagnosis.unschedulable_plugins),
            pending_plugins=frozenset(decision.diagnosis.pending_plugins),
            causes=decision.causes,
        )

    def _keep_waiting(self, attempt: Attempt, decision: Decision, snapshot: Snapshot) -> None:
        """Requeue a pod whose resize fits on its node: it is bound already, and the kubelet resizes it.

        Permit rejects it, with the reason. Without a plugin that does, the pod is tried again after a backoff.
        """
        status = Status.unschedulable("pod resize fits")
        permitted = attempt.framework.run_permit(decision.state, decision.pod, decision.node_name)
        if isinstance(permitted, Status) and not permitted.is_success:
            status = permitted
        self.note(attempt, replace(decision, node_name="", status=status), snapshot)
        plugins = frozenset({status.plugin}) if status.plugin else frozenset()
        self._failures.handle(attempt, status, unschedulable_plugins=plugins)

    def assume(self, attempt: Attempt, decision: Decision) -> AssumedPod:
        """Assume a pod on its chosen node, or on its nominated node."""
        node_name = decision.node_name or decision.nominated_node_name
        assert node_name, f"the decision for pod {decision.pod.key} has no node"
        placed = self._cache.assume(decision.pod, node_name)
        nominated = self._nominator.node_of(placed.uid)
        self._nominator.delete(placed.uid)
        node_generation = self._cache.node_generation(node_name)
        decision.state.forget_rows()
        shards, is_passed_on = self._shared.profiles.shards, None
        if shards is not None and shards.passes_on(decision.pod, node_name):
            is_passed_on = True
        elif shards is not None and not shards.decides(attempt.queued.pod):
            is_passed_on = False
        return AssumedPod(
            attempt,
            decision.state,
            placed,
            node_name,
            node_generation,
            nominated=nominated,
            is_passed_on=is_passed_on,
        )

    def reserve(self, assumed: AssumedPod) -> Status:
        """Run Reserve plugins for an assumed pod; after a failure the caller undoes the assumption.

        Of a pod that is passed on, the replica that decides runs the plugins that enforce quotas, and the one that binds the
        others.
        """
        return assumed.attempt.framework.run_reserve(
            assumed.state, assumed.pod, assumed.node_name, of_quotas=assumed.is_passed_on
        )

    def permit(self, assumed: AssumedPod) -> Status | Mapping[str, float]:
        """Run Permit plugins; see `Framework.run_permit`.

        Of a pod that is passed on, the replica that decides runs the plugin of its group, and the one that binds the others:
        each replica that binds members would wait for those of the others.
        """
        return assumed.attempt.framework.run_permit(
            assumed.state, assumed.pod, assumed.node_name, of_group=assumed.is_passed_on
        )

    def hold(self, assumed: AssumedPod, permitted: Status | Mapping[str, float]) -> None:
        """Keep an assumption, and hold the pod at Permit if plugins request it."""
        if assumed.nominated not in {"", assumed.node_name}:
            self._bus.nomination_ended(assumed.attempt.queued.pod.placed_on(assumed.nominated))
        if not isinstance(permitted, Status):
            self._waiting_pods.hold(assumed.pod, permitted)
