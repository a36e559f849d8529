"""The pods to be scheduled: which is tried next, and when a rejected pod is tried again.

There is no loop and no waiting here: the owner calls `work` at `next_deadline`, and `pop` when it has time.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from scheduler.engine.queue.contents import BackoffQueue, QueueContents, QueueView
from scheduler.engine.queue.event_requeuer import Backlog, EventRequeuer, QueueWork
from scheduler.engine.queue.group_attempts import GroupAttempts
from scheduler.engine.queue.hints import Hints, RequeueStrategy
from scheduler.engine.queue.in_flight import InFlightEvent
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.queue.quarantine import is_changed_pod, take_quarantine_from_condition
from scheduler.framework.events import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    ActionType,
    ClusterEvent,
    EventResource,
    pod_changes,
)
from scheduler.framework.queued_pod import ITS_GROUP, QueuedPodInfo
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from scheduler.engine.ports import Time
    from scheduler.engine.queue.group_attempts import GroupAttempt
    from scheduler.engine.queue.ports import QueueObserver, QueuePlugins
    from scheduler.engine.state.nominator import Nominator
    from scheduler.engine.state.pod_groups import PodGroups
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

logger = logging.getLogger(__name__)

_MOST_MISSED = 64
"""A waiting pod is checked against at most this many events when it changes; each may call a hint of 100 microseconds."""


def pre_enqueue_refusal(
    plugins: QueuePlugins, attempts: GroupAttempts, queued: QueuedPodInfo
) -> Status | None:
    """Run PreEnqueue; return the rejection that gates the pod, and store its plugin in `queued`. None admits the pod.

    A pod that PreEnqueue admits is gated by other pods of its group as long as they keep it waiting.

    Raises:
        AssertionError: the rejection names no plugin, so no event could requeue the pod.

    Source:
        kube-scheduler v1.36, backend/queue/scheduling_queue.go, runPreEnqueuePlugins.
    """
    status = plugins.run_pre_enqueue(queued.pod)
    if queued.group is not None:
        queued.group = plugins.root_of(queued.pod)  # its tree may have grown
    if queued.group is not None:
        status = attempts.admitted(queued, status)
    if status.is_success:
        queued.gating_plugin = ""
        return None
    if not status.plugin:
        raise AssertionError(f"Pod {queued.pod.key}: PreEnqueue refused it without a plugin: {status}")
    if status.code is Code.ERROR:
        logger.error(
            "PreEnqueue failed; the pod stays gated",
            extra={"plugin": status.plugin, "pod": queued.pod.key, "error": status.message},
        )
    queued.gating_plugin = status.plugin
    if status.plugin != ITS_GROUP:
        # Also one of the rejecting plugins, so that its hints are called.
        queued.unschedulable_plugins |= {status.plugin}
        codes = {(cause.code, cause.plugin) for cause in status.causes}
        queued.reason_codes = _shared(queued.reason_codes | codes)
    return status


SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
CONFIGURATION_RELOADED = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "ConfigurationReloaded")
"""A new configuration may change the result of every pod."""

_RETRIED = frozenset({Place.ACTIVE, Place.BACKOFF})


@lru_cache(maxsize=1024)
def _rejection(plugins: frozenset[str]) -> tuple[frozenset[str], str]:
    """Return the plugins that reject a pod, and the reason for people: one object each for all such pods."""
    return plugins, f"rejected by {', '.join(sorted(plugins))}"


@lru_cache(maxsize=1024)
def _shared(reason_codes: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return one object for all equal sets, because many pods wait for the same causes."""
    return reason_codes


class SchedulingQueue(QueueView):
    """Pending pods in activeQ, in backoffQ, unschedulable, gated or in flight.

    Args:
        plugins: plugins of the active profiles. PreEnqueue runs before a pod enters activeQ or backoffQ, but not between
            the two.
        nominator: nominations of pods to nodes, including those of pods of other schedulers.
        groups: group membership; the queue adds and removes its pods.
        initial_backoff_seconds: the backoff after a first failure; doubles with each.
        max_backoff_seconds: the longest backoff; 0 disables backoff.
        max_in_unschedulable_seconds: after this time an unschedulable pod is tried again without an event.
        slice_seconds: the longest time that the queue works between two calls of `work`, and within one call; the rest
            waits for the next call. By default all work is done at once.
        time: the time by which pods wait; measures slices.
        observer: notified of what cannot be read from the queue afterwards.

    Source:
        kube-scheduler v1.36, backend/queue/scheduling_queue.go, with SchedulerQueueingHints. Without
        SchedulerPopFromBackoffQ, upstream runs PreEnqueue when a pod leaves backoffQ, not when it enters.
    """

    def __init__(
        self,
        *,
        plugins: QueuePlugins,
        nominator: Nominator,
        groups: PodGroups,
        time: Time,
        observer: QueueObserver,
        initial_backoff_seconds: float = 1.0,
        max_backoff_seconds: float = 10.0,
        max_in_unschedulable_seconds: float = 300.0,
        slice_seconds: float = inf,
    ) -> None:
        backoff = BackoffQueue(
            initial_seconds=initial_backoff_seconds, max_seconds=max_backoff_seconds, plugins=plugins
        )
        super().__init__(QueueContents(plugins=plugins, backoff=backoff, groups=groups, observer=observer))
        self._attempts = GroupAttempts(self._contents, plugins)
        self._plugins = plugins
        self._nominator = nominator
        self._time = time
        self._hints = Hints(plugins, observer=observer, time=time)
        self._requeuer = EventRequeuer(self._contents, self._hints, self._requeue_by_event)
        self._backlog = Backlog(time, slice_seconds)
        self._slice_seconds = slice_seconds
        self._max_in_unschedulable_seconds = max_in_unschedulable_seconds

    # Changes of pending pods.

    def add(self, pod: PodInfo) -> None:
        """Add a pod to be scheduled; update it if it is already here."""
        queued = self.get(pod.uid)
        if queued is None:
            self._admit(pod, UNSCHEDULABLE_POD_ADD.label)
        else:
            self.update(queued.pod, pod, pod_changes(queued.pod, pod))

    def update(self, old: PodInfo, new: PodInfo, changes: Sequence[ClusterEvent]) -> None:
        """Store a pod's new version; `changes` are `pod_changes` between the two.

        An unschedulable or gated pod is tried again if a plugin that rejected it returns Queue for a change. For a pod in
        flight the changes are recorded until it comes back. A pod that is not here is added.
        """
        if old.uid != new.uid:  # deleted and created again under the same name
            self.delete(old)
            self.add(new)
            return
        queued = self.get(new.uid)
        if queued is None:
            self._admit(new, UNSCHEDULABLE_POD_UPDATE.label)
            return

        key = self._contents.groups.note_pending(new)
        queued.group = None if key is None else self._plugins.root_of(new)
        place = self.place_of(new.uid)
        if place is Place.IN_FLIGHT:
            self._contents.in_flight.update(new.uid, new)
            for event in changes:
                self._contents.in_flight.record_for(new.uid, event, old, new)
            return
        queued.pod = new
        self._nominator.update(old, new)
        if place in _RETRIED:
            if not self._follow_quarantine(queued, old, new):
                self._contents.renew(queued)
        else:
            self._requeue_by_own_update(queued, old, new, changes)

    def delete(self, pod: PodInfo, why: str = "deleted") -> None:
        """Remove a deleted or bound pod; a pod in flight is removed when its attempt ends."""
        uid = pod.uid
        self._nominator.delete(uid)
        place = self.place_of(uid)
        if place is Place.IN_FLIGHT:
            self._contents.in_flight.update(uid, None)
        elif place is not Place.OUTSIDE:
            queued = self._contents.pods[uid]
            self._contents.drop(uid, at=self._time.monotonic(), why=why)
            if queued.group is not None:
                self._requeue_held(queued.group)

    def readd(self, pod: PodInfo, why: str) -> None:
        """Add a pod again that was found in an inconsistent state; all its remains in the queue are removed first."""
        self._contents.discard(pod.uid, at=self._time.monotonic(), why=why)
        self._admit(pod, UNSCHEDULABLE_POD_ADD.label)

    def purge(self, uid: str, why: str) -> None:
        """Remove all remains of a pod that should not be in the queue."""
        queued = self.get(uid)
        self._contents.discard(uid, at=self._time.monotonic(), why=why)
        self._nominator.delete(uid)
        if queued is not None and queued.group is not None:
            self._requeue_held(queued.group)

    def resume(
        self,
        pods: Iterable[QueuedPodInfo],
        in_turn: Iterable[tuple[str, Place]],
        flushes: Iterable[tuple[str, float]],
    ) -> None:
        """Take over the `pods` of another queue: by uid its order (`in_turn`) and its `flushes`."""
        known = {queued.pod.uid: queued for queued in pods}
        for queued in known.values():
            key = self._contents.groups.note_pending(queued.pod)
            queued.group = None if key is None else self._plugins.root_of(queued.pod)
            self._contents.pods[queued.pod.uid] = queued
            if queued.is_gated:
                note = self._attempts.note_held if queued.is_held else self._attempts.note_gated
                note(queued)
        for uid, place in in_turn:
            self._contents.resume(known[uid], place)
        for uid, at in flushes:
            self._contents.unschedulable.flush_at(uid, at)

    def try_at(self, uid: str, at: float) -> None:
        """Try a pod in flight again at a time, if its attempt fails and no event requeues it before.

        It then waits for the end of its backoff. Does nothing for a pod that is not in flight.
        """
        if uid in self._contents.in_flight:
            self._contents.pods[uid].try_at = at

    def nominate(self, uid: str, node_name: str | None) -> None:
        """Nominate a pod to a node; "" removes the nomination, None takes it from the pod's status.

        Does nothing for a pod that is unknown or was deleted while in flight.
        """
        pod = self._contents.newest(uid)
        if pod is not None:
            self._nominator.add(pod, node_name)

    # One attempt.

    def pop(self) -> QueuedPodInfo | None:
        """Remove and return the pod to be tried next; the caller must call `add_unschedulable` or `done` afterwards.

        When activeQ is empty, this is the pod that would leave backoffQ next, if it was rejected and did not fail
        with an error.
        """
        return self._contents.pop(self._time.monotonic())

    def pop_group(self, first: QueuedPodInfo) -> Generator[None, None, list[QueuedPodInfo]]:
        """Begin an attempt at a popped pod's group: remove all its pods that may be tried; one in each step.

        Pods must not be added or removed between the steps. The caller must call `end_group` afterwards if there are members.

        Returns:
            The members, including the popped pod: by descending priority, then by the time of their first attempt, those of
            an entity in arrival order. Empty if the popped pod has to wait for others of its group.

        Source:
            kube-scheduler v1.36, backend/queue/scheduling_queue.go, PopSpecificPod and the sorting of a pod group's pods.
        """
        at, key, attempts = self._time.monotonic(), self._plugins.root_of(first.pod), self._attempts
        if key is None:
            return [first]
        first.group = key
        leaves = () if attempts.is_running(key) else self._plugins.groups_with(first.pod)
        members, uids = [first], [uid for leaf in leaves for uid in self._contents.groups.pending(leaf)]
        for uid in uids:
            yield
            place = self.place_of(uid)
            if place in {Place.UNSCHEDULABLE, Place.GATED}:
                queued = self._contents.pods[uid]
                place = self._requeue(queued, RequeueStrategy.IMMEDIATELY, FORCE_ACTIVATE.label, at=at)
            if place in _RETRIED and not self._contents.pods[uid].quarantine_seconds:
                members.append(self._contents.pop_with(uid, first, at))
        if attempts.keeps_waiting(key):
            for queued in members:
                yield
                self._hold(queued, at)
            return []
        arrived = {uid: number for number, uid in enumerate(uids)} if attempts.begin(key, members) else None
        members.sort(
            key=lambda queued: (
                -queued.pod.priority,
                (queued.initial_attempt_timestamp or at) if arrived is None else arrived[queued.pod.uid],
            )
        )
        return members

    def end_group(self, key: GroupKey, *, is_placed: bool) -> Generator[None, None, None]:
        """End an attempt at a group: requeue the members that came back, and those that arrived; one in each step.

        Pods must not be added or removed between the steps. Does nothing if no attempt is running.

        Args:
            key: the group.
            is_placed: whether the attempt placed members. Then the others of an entity are tried again at once, at the
                position before the attempt.
        """
        attempt, at = self._attempts.end(key), self._time.monotonic()
        if attempt is None:
            return
        back = yield from self._returned(attempt)
        arrived = self._attempts.arrived(key)
        held = [queued for queued in arrived if queued.is_held]
        strategy = None
        if attempt.is_entity and back:
            attempt.share_result(back, arrived, is_placed=is_placed, at=at)
            if is_placed:
                strategy = RequeueStrategy.IMMEDIATELY
            else:
                least = RequeueStrategy.AFTER_BACKOFF if held else RequeueStrategy.SKIP
                strategy = yield from self._strategy_of_entity(back, least)
        for queued in back:
            yield
            uid = queued.pod.uid
            self._come_back(queued, uid, attempt.returned[uid], at, strategy)
        for queued in held:
            yield
            after = self._attempts.goes_on(queued) if strategy is None else strategy
            if queued.quarantine_seconds:
                after = RequeueStrategy.AFTER_BACKOFF
            self._requeue(queued, after, FORCE_ACTIVATE.label, at=at)

    def _returned(self, attempt: GroupAttempt) -> Generator[None, None, list[QueuedPodInfo]]:
        """Return the members that came back from an attempt and still exist."""
        back, in_flight = [], self._contents.in_flight
        for uid in attempt.returned:
            yield
            if uid in in_flight and in_flight.newest(uid) is not None:
                back.append(self._contents.pods[uid])
            else:
                self.done(uid)
        return back

    def _strategy_of_entity(
        self, members: Iterable[QueuedPodInfo], least: RequeueStrategy
    ) -> Generator[None, None, RequeueStrategy]:
        """Return how an entity goes on after the events since its members were popped: one that is helped is enough."""
        best = least
        for queued in members:
            yield
            if best is RequeueStrategy.SKIP or queued.pending_plugins:
                events = self._contents.in_flight.events_since(queued.pod.uid)
                best = max(best, self._hints.strategy_of_all(queued, events)[0])
        return best

    def add_unschedulable(
        self,
        queued: QueuedPodInfo,
        *,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
        reason_codes: frozenset[tuple[str, str]] = frozenset(),
        is_error: bool = False,
        quarantine_seconds: float = 0.0,
    ) -> Place:
        """Take back a pod whose attempt failed; ends the attempt.

        The pod becomes unschedulable, unless an event during the attempt requeues it. A pod whose group is being tried stays
        in flight until the end of that attempt.

        Args:
            queued: the pod that `pop` returned.
            unschedulable_plugins: the plugins that rejected it.
            pending_plugins: those of them that returned PENDING.
            reason_codes: (code, plugin) of each cause of the rejection.
            is_error: whether it failed for a reason other than a rejection. No event can help then, so the pod is tried
                again after a separate backoff. The same holds if no plugin is named.
            quarantine_seconds: for an error: the quarantine that replaces the backoff, unless the pod changed meanwhile; the
                caller has counted the attempt.

        Returns:
            The pod's place; OUTSIDE if it was deleted meanwhile.

        Raises:
            AssertionError: the pod is not in flight.
        """
        uid, at, in_flight = queued.pod.uid, self._time.monotonic(), self._contents.in_flight
        try:
            newest = in_flight.newest(uid)
        except KeyError:
            problem = "came back without being in flight"
            raise AssertionError(self._contents.places.objection(uid, problem)) from None
        if newest is None:
            self.done(uid)
            return Place.OUTSIDE

        is_changed = is_changed_pod(queued.pod, newest)
        queued.pod = newest
        queued.timestamp = at
        queued.quarantine_seconds = 0.0 if is_changed else quarantine_seconds
        if is_changed or not quarantine_seconds:
            queued.over_budget_count = 0
        queued.was_flushed_from_unschedulable = False
        queued.pending_plugins = frozenset() if is_error else frozenset(pending_plugins)
        rejectors = queued.pending_plugins.union(() if is_error else unschedulable_plugins)
        queued.unschedulable_plugins = rejectors
        queued.reason_codes = _shared(reason_codes)
        if rejectors:
            queued.unschedulable_count += 1
            queued.consecutive_errors_count = 0
            queued.unschedulable_plugins, why = _rejection(rejectors)
        else:
            queued.consecutive_errors_count += 1
            aside = queued.quarantine_seconds
            why = f"over budget; quarantined for {aside:.0f}s" if aside else "failed with an error"
        tried = self._attempts.of_pod
        if uid in tried and tried[uid].key == queued.group:
            tried[uid].returned[uid] = why
            return Place.IN_FLIGHT
        if queued.group is not None and not quarantine_seconds:
            self._attempts.join(queued)
        return self._come_back(queued, uid, why, at)

    def _come_back(
        self, queued: QueuedPodInfo, uid: str, why: str, at: float, strategy: RequeueStrategy | None = None
    ) -> Place:
        """Requeue a pod that came back; without a strategy by the events that happened while it was in flight."""
        in_flight = self._contents.in_flight
        if strategy is None:
            strategy, event = self._hints.strategy_of_all(queued, in_flight.events_since(uid))
            if event is not None:
                why = f"{why}; {event.label} happened meanwhile"
        in_flight.end(uid)
        return self._requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE, at=at, why=why)

    def done(self, uid: str) -> None:
        """End the attempt of a pod that was bound or dropped and needs no other. Does nothing if it has ended."""
        if uid in self._contents.in_flight:
            self._contents.in_flight.end(uid)
            self._contents.drop(uid, at=self._time.monotonic(), why="done")

    def ignore_events(self, uid: str) -> None:
        """Record that an attempt continues, but that later events cannot help it.

        A pod that is being bound can only fail with an error. Binding may take minutes, during which events would be
        recorded in vain.

        Source:
            kube-scheduler v1.36, schedule_one.go, bindingCycle, which calls Done before PreBind. Here the pod stays in
            flight until it is bound or comes back.
        """
        self._contents.in_flight.ignore_events(uid)

    def needs_time(self, uid: str, why: str) -> None:
        """Record that an attempt has no result yet and will begin again; it then sees the changes made until that time."""
        self._contents.in_flight.ignore_events(uid)
        self._contents.places.note(uid, at=self._time.monotonic(), why=why)

    def restart_attempt(self, uid: str) -> QueuedPodInfo | None:
        """Restart the attempt at a pod in flight with its newest version; end it and return None if it was deleted."""
        in_flight = self._contents.in_flight
        newest = self._contents.newest(uid)
        if newest is None:
            self.done(uid)
            return None
        queued = self._contents.pods[uid]
        queued.pod = newest
        in_flight.end(uid)
        in_flight.begin(newest)
        return queued

    # Events of other objects.

    def move_all(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        pre_check: Callable[[PodInfo], bool] | None = None,
    ) -> int:
        """Try again the pods that an event may help; pods in flight are checked against it when they come back.

        Args:
            event: the event.
            old: the object before; None for an addition.
            new: the object now; None for a deletion. With a wildcard event and a pod here, only that pod is meant.
            pre_check: excludes pods for which it returns False; does not apply to pods in flight.

        Returns:
            The number of pods that moved to activeQ or backoffQ, without those that are left for `work`.
        """
        moved, waiting = 0, self._contents.unschedulable
        if waiting or self._backlog:
            waiting.events += 1
            recorded = InFlightEvent(event, old, new)
            work = self._requeuer.requeue(recorded, waiting.events, pre_check)
            moved = self._backlog.do(QueueWork(work, waiting.events, recorded, pre_check))

        in_flight = self._contents.in_flight
        if in_flight.profiles and any(
            event.is_wildcard or self._hints.listeners(profile, event) for profile in in_flight.profiles
        ):
            in_flight.record(event, old, new)
        return moved

    def reload(
        self,
        *,
        initial_backoff_seconds: float,
        max_backoff_seconds: float,
        pops_from_backoff: bool = True,
    ) -> None:
        """Evaluate every pod again with the plugins of a new configuration.

        PreEnqueue runs for each waiting pod, and QueueSort orders it. Unschedulable pods are tried again, and so are pods in
        flight that come back. The caller must first delete the pods of schedulerNames that are no longer served.

        Args:
            initial_backoff_seconds: the backoff after a first failure; doubles with each.
            max_backoff_seconds: the longest backoff; 0 disables backoff.
            pops_from_backoff: whether pods are tried before the end of their backoff while activeQ is empty.
        """
        contents, waiting = self._contents, self._contents.unschedulable
        contents.backoff.configure(
            initial_seconds=initial_backoff_seconds,
            max_seconds=max_backoff_seconds,
            pops_early=pops_from_backoff,
        )
        if any(contents.in_flight.profiles):
            contents.in_flight.record(CONFIGURATION_RELOADED, None, None)
        self._backlog.clear()  # every pod is evaluated by the current state, whatever happened before
        waiting.events += 1
        everyone = [uid for uid, move in contents.places.inside() if move.end is not Place.IN_FLIGHT]
        recorded = InFlightEvent(CONFIGURATION_RELOADED, None, None)
        self._backlog.do(QueueWork(self._evaluate_again(everyone, waiting.events), waiting.events, recorded))

    def activate(self, uids: Iterable[str]) -> None:
        """Try pods again without further backoff; a pod in flight when it comes back."""
        at, label = self._time.monotonic(), FORCE_ACTIVATE.label
        for uid in uids:
            place = self.place_of(uid)
            if place is Place.IN_FLIGHT:
                pod = self._contents.in_flight.newest(uid)
                self._contents.in_flight.record_for(uid, FORCE_ACTIVATE, None, pod)
            elif place is Place.BACKOFF:  # it passed PreEnqueue before it entered backoffQ
                self._contents.put(self._contents.pods[uid], Place.ACTIVE, at=at, label=label)
            elif place in {Place.UNSCHEDULABLE, Place.GATED}:
                self._requeue(self._contents.pods[uid], RequeueStrategy.IMMEDIATELY, label, at=at)

    def check(self) -> None:
        """Assert the invariants."""
        super().check()
        self._attempts.check()

    @property
    def backlog(self) -> int:
        """The number of events that some of the waiting pods were not yet checked against."""
        return len(self._backlog)

    def work(self, now: float) -> None:
        """Work for one slice: first pods whose time has come, then events, in their order."""
        self.flush(now, until=self._time.stopwatch() + self._slice_seconds)
        self._backlog.take_turn()

    def flush(self, now: float, *, until: float = inf) -> int:
        """Move the pods whose backoff is over, and those that were unschedulable for too long.

        Args:
            now: the time.
            until: when to stop and leave the rest for later, by `Time.stopwatch`.

        Returns:
            The number of pods that moved to activeQ or backoffQ.

        Source:
            kube-scheduler v1.36, flushBackoffQCompleted and flushUnschedulablePodsLeftover; the latter runs there
            every 30 seconds, so a pod may wait that much longer.
        """
        moved, contents = 0, self._contents
        for uid in contents.backoff.finished(now):
            contents.put(contents.pods[uid], Place.ACTIVE, at=now, label=BACKOFF_COMPLETE)
            moved += 1
            if until < inf and self._time.is_over(until):
                return moved
        for uid in contents.unschedulable.due(now):
            queued = contents.pods[uid]
            if (
                self._requeue(queued, RequeueStrategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label, at=now)
                in _RETRIED
            ):
                queued.was_flushed_from_unschedulable = not 0 < queued.try_at <= now
                moved += 1
            if until < inf and self._time.is_over(until):
                return moved
        return moved

    def next_deadline(self, now: float) -> float | None:
        """Return when `work` next has something to do, not before `now`; None if only an event can requeue pods."""
        if self._backlog:
            return now
        deadlines = (self._contents.backoff.next_deadline(), self._contents.unschedulable.next_deadline())
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(now, min(known)) if known else None

    # Moves of a pod.

    def _admit(self, pod: PodInfo, label: str) -> None:
        at = self._time.monotonic()
        key = self._contents.groups.note_pending(pod)  # because PreEnqueue counts it
        group = None if key is None else self._plugins.root_of(pod)
        queued, strategy = QueuedPodInfo(pod, at, group=group), RequeueStrategy.IMMEDIATELY
        if take_quarantine_from_condition(queued, pod, at) or (
            group is not None and self._attempts.join(queued)
        ):
            strategy = RequeueStrategy.AFTER_BACKOFF
        if self._requeue(queued, strategy, label, at=at) in _RETRIED:
            self._nominator.add(pod)

    def _follow_quarantine(self, queued: QueuedPodInfo, old: PodInfo, new: PodInfo) -> bool:
        """Requeue a quarantined pod that changed, or take over another leader's quarantine; return whether either applied."""
        at = self._time.monotonic()
        if queued.quarantine_seconds and is_changed_pod(old, new):
            queued.quarantine_seconds, queued.over_budget_count = 0.0, 0
            self._requeue(queued, RequeueStrategy.IMMEDIATELY, UNSCHEDULABLE_POD_UPDATE.label, at=at)
            return True
        if take_quarantine_from_condition(queued, new, at):
            self._requeue(queued, RequeueStrategy.AFTER_BACKOFF, UNSCHEDULABLE_POD_UPDATE.label, at=at)
            return True
        return False

    def _requeue(
        self,
        queued: QueuedPodInfo,
        strategy: RequeueStrategy,
        label: str,
        *,
        at: float,
        why: str = "",
        shown: int | None = None,
    ) -> Place:
        """Move a pod to the place of the strategy, if PreEnqueue admits it; return the place."""
        if strategy is RequeueStrategy.SKIP:
            place = Place.UNSCHEDULABLE
        elif (refusal := pre_enqueue_refusal(self._plugins, self._attempts, queued)) is not None:
            place = Place.GATED
            if queued.is_held:
                self._attempts.note_held(queued, strategy)
            why = f"{why or label}; gated by {refusal.plugin}: {refusal.message}"
        elif strategy is RequeueStrategy.AFTER_BACKOFF and self._contents.backoff.is_backing_off(queued, at):
            place = Place.BACKOFF
        else:
            place = Place.ACTIVE
        flush_at = None if place in _RETRIED else self._flush_at(queued, at)
        return self._contents.put(queued, place, at=at, label=label, why=why, flush_at=flush_at, shown=shown)

    def _hold(self, queued: QueuedPodInfo, at: float) -> None:
        """Put a popped pod back, because it has to wait for other pods of its group."""
        queued.attempts -= 1
        queued.gating_plugin = ITS_GROUP
        self._attempts.note_held(queued)
        self._contents.in_flight.end(queued.pod.uid)
        flush_at, why = self._flush_at(queued, at), "not tried: it waits for other pods of its group"
        self._contents.put(
            queued, Place.GATED, at=at, label=SCHEDULE_ATTEMPT_FAILURE, why=why, flush_at=flush_at
        )

    def _requeue_held(self, key: GroupKey) -> None:
        """Requeue one of the pods that waited for a member that has left the queue; the others are tried with it."""
        held = None if self._attempts.keeps_waiting(key) else self._attempts.first_held(key)
        if held is not None:
            label, at = FORCE_ACTIVATE.label, self._time.monotonic()
            self._requeue(held, RequeueStrategy.AFTER_BACKOFF, label, at=at)

    def _flush_at(self, queued: QueuedPodInfo, at: float) -> float | None:
        """Return when a pod is tried again without an event.

        Never for a gated pod, unless the plugin that gates it registered for all events, or it waits for its group. A
        plugin may ask for an earlier time than the end of the longest wait: see `try_at`.
        """
        gate = queued.gating_plugin
        if gate and gate != ITS_GROUP and not self._requeuer.is_relevant(queued, UNSCHEDULABLE_TIMEOUT):
            return None
        longest = at + self._max_in_unschedulable_seconds
        return queued.try_at if at < queued.try_at < longest else longest

    def _requeue_by_event(
        self, queued: QueuedPodInfo, strategy: RequeueStrategy, event: ClusterEvent, *, shown: int
    ) -> bool:
        """Try a waiting pod again because of an event; return whether PreEnqueue admits it."""
        at = self._time.monotonic()
        return self._requeue(queued, strategy, event.label, at=at, shown=shown) in _RETRIED

    def _requeue_by_own_update(
        self, queued: QueuedPodInfo, old: PodInfo, new: PodInfo, changes: Sequence[ClusterEvent]
    ) -> None:
        """Check a waiting pod against the events that it missed, by its new version, and then against its own changes."""
        waiting = self._contents.unschedulable
        unfinished = self._backlog.since(waiting.shown(new.uid) or 0)
        if len(unfinished) > _MOST_MISSED:
            # To try the pod is cheaper, and no event is missed.
            is_tried = self._requeue_by_event(
                queued, RequeueStrategy.AFTER_BACKOFF, changes[0], shown=waiting.events
            )
            if not is_tried:
                waiting.refile(queued)
            return
        missed = [
            work.recorded
            for work in unfinished
            if work.concerns(new) and self._requeuer.is_relevant(queued, work.recorded.event)
        ]
        for recorded in (*missed, *(InFlightEvent(event, old, new) for event in changes)):
            strategy = self._hints.strategy(queued, *recorded)
            if strategy is RequeueStrategy.SKIP:
                continue
            if self._requeue_by_event(queued, strategy, recorded.event, shown=waiting.events):
                return
        waiting.refile(queued)

    def _evaluate_again(self, uids: Iterable[str], number: int) -> Iterator[bool]:
        """Move pods one by one to the places that the plugins of the active configuration determine."""
        label, waiting = CONFIGURATION_RELOADED.label, self._contents.unschedulable
        for uid in uids:
            place = self.place_of(uid)
            if place in {Place.OUTSIDE, Place.IN_FLIGHT} or (waiting.shown(uid) or 0) >= number:
                continue  # another event moved it since then
            queued, at = self._contents.pods[uid], self._time.monotonic()
            is_due = place is Place.ACTIVE or queued.quarantine_seconds > 0
            queued.quarantine_seconds, queued.over_budget_count = 0.0, 0
            strategy = RequeueStrategy.IMMEDIATELY if is_due else RequeueStrategy.AFTER_BACKOFF
            yield self._requeue(queued, strategy, label, at=at, shown=number) in _RETRIED
