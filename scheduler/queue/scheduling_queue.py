"""The pods to be scheduled: which is tried next, and when a rejected one is tried again.

There is no loop and no waiting here: the owner calls `work` when `next_deadline` says so, and `pop` when it has time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from scheduler.framework.changes import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    pod_changes,
)
from scheduler.framework.events import ActionType, ClusterEvent, EventResource
from scheduler.framework.queued_pod import QueuedPodInfo
from scheduler.queue.backlog import Backlog, Work
from scheduler.queue.backoff import BackoffQueue
from scheduler.queue.contents import Contents
from scheduler.queue.gating import pre_enqueue_refusal
from scheduler.queue.hints import Hints, Strategy
from scheduler.queue.in_flight import RecordedEvent
from scheduler.queue.places import Place
from scheduler.queue.put_aside import is_another, note_putting_aside
from scheduler.queue.view import QueueView
from scheduler.queue.waking import Waking
from scheduler.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from scheduler.clock import Clock
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.surroundings import QueueObserver, QueuePlugins
    from scheduler.state.nominator import Nominator
    from scheduler.state.pod_groups import PodGroups

SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
CONFIGURATION_RELOADED = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "ConfigurationReloaded")
"""Everything that was said of a pod may be said differently now."""

_RETRIED = frozenset({Place.ACTIVE, Place.BACKOFF})


class SchedulingQueue(QueueView):
    """Pending pods in activeQ, in backoffQ, unschedulable, gated or in flight.

    Args:
        plugins: of the profiles in force. PreEnqueue is asked whenever a pod would enter activeQ or backoffQ, but not
            from one to the other.
        nominator: which pods are nominated where; those of other schedulers as well, which are none of the queue's.
        groups: who belongs to which group; of the pods here the queue says who comes and goes.
        initial_backoff_seconds: the backoff after a first failure; doubles with each.
        max_backoff_seconds: the longest backoff; 0 turns backoff off.
        max_in_unschedulable_seconds: after which an unschedulable pod is tried again although nothing happened.
        slice_seconds: how long the queue may be at work between two calls of `work`, and in one of them; what is left
            waits for the next. By default everything is done at once.
        clock: measures.
        steps: have the time by which pods wait.
        observer: is told of what cannot be read afterwards.

    Source:
        kube-scheduler v1.36, backend/queue/scheduling_queue.go, with SchedulerQueueingHints and
        SchedulerPopFromBackoffQ on.
    """

    def __init__(
        self,
        *,
        plugins: QueuePlugins,
        nominator: Nominator,
        groups: PodGroups,
        clock: Clock,
        observer: QueueObserver,
        steps: Steps | None = None,
        initial_backoff_seconds: float = 1.0,
        max_backoff_seconds: float = 10.0,
        max_in_unschedulable_seconds: float = 300.0,
        slice_seconds: float = inf,
    ) -> None:
        backoff = BackoffQueue(
            initial_seconds=initial_backoff_seconds, max_seconds=max_backoff_seconds, plugins=plugins
        )
        super().__init__(Contents(plugins=plugins, backoff=backoff, groups=groups, observer=observer))
        self._plugins = plugins
        self._nominator = nominator
        self._steps = steps or Steps(clock)
        self._clock = self._steps.clock
        self._hints = Hints(plugins, observer=observer, clock=clock)
        self._waking = Waking(self._contents, self._hints, self._wake)
        self._backlog = Backlog(clock, slice_seconds, self._steps)
        self._measured = clock.monotonic
        self._slice_seconds = slice_seconds
        self._max_in_unschedulable_seconds = max_in_unschedulable_seconds

    # What happens to pending pods.

    def add(self, pod: PodInfo) -> None:
        """Take in a pod to be scheduled; one that is here already is updated."""
        queued = self.get(pod.uid)
        if queued is None:
            self._admit(pod, UNSCHEDULABLE_POD_ADD.label)
        else:
            self.update(queued.pod, pod, pod_changes(queued.pod, pod))

    def update(self, old: PodInfo, new: PodInfo, changes: Sequence[ClusterEvent]) -> None:
        """Take over a pod's new version; `changes` are `pod_changes` between the two.

        An unschedulable or gated pod is tried again if the plugins that rejected it see help in the change. For a
        pod in flight the change is kept until it comes back. A pod that is not here is taken in.
        """
        if old.uid != new.uid:  # deleted and made again under its name
            self.delete(old)
            self.add(new)
            return
        queued = self.get(new.uid)
        if queued is None:
            self._admit(new, UNSCHEDULABLE_POD_UPDATE.label)
            return

        self._contents.groups.note_pending(new)
        place = self.place_of(new.uid)
        if place is Place.IN_FLIGHT:
            self._contents.in_flight.update(new.uid, new)
            for event in changes:
                self._contents.in_flight.record_for(new.uid, event, old, new)
            return
        queued.pod = new
        self._nominator.update(old, new)
        if place in _RETRIED:
            if not self._follow_putting_aside(queued, old, new):
                self._contents.renew(queued)
        else:
            self._wake_by_its_update(queued, old, new, changes)

    def delete(self, pod: PodInfo, why: str = "deleted") -> None:
        """Drop a pod that was deleted, or bound by somebody; one in flight is dropped when its attempt ends."""
        uid = pod.uid
        self._nominator.delete(uid)
        place = self.place_of(uid)
        if place is Place.IN_FLIGHT:
            self._contents.in_flight.update(uid, None)
        elif place is not Place.OUTSIDE:
            self._contents.drop(uid, at=self._clock.monotonic(), why=why)

    def put_back(self, pod: PodInfo, why: str) -> None:
        """Take in anew a pod that was found where no pod may be; whatever is left of it here is thrown away."""
        self._contents.discard(pod.uid, at=self._clock.monotonic(), why=why)
        self._admit(pod, UNSCHEDULABLE_POD_ADD.label)

    def throw_out(self, uid: str, why: str) -> None:
        """Let go of whatever is left here of a pod that should not be here."""
        self._contents.discard(uid, at=self._clock.monotonic(), why=why)
        self._nominator.delete(uid)

    def resume(
        self,
        pods: Iterable[QueuedPodInfo],
        in_turn: Iterable[tuple[str, Place]],
        flushes: Iterable[tuple[str, float]],
    ) -> None:
        """Take in what another queue had: its `pods`, and by uid those that were `in_turn` and in its `flushes`."""
        known = {queued.pod.uid: queued for queued in pods}
        for queued in known.values():
            self._contents.groups.note_pending(queued.pod)
            self._contents.pods[queued.pod.uid] = queued
        for uid, place in in_turn:
            self._contents.resume(known[uid], place)
        for uid, at in flushes:
            self._contents.unschedulable.flush_at(uid, at)

    def nominate(self, uid: str, node_name: str | None) -> None:
        """Nominate a pod to a node; "" takes a nomination back, None goes by the pod's status.

        Does nothing for a pod that is not here, or was deleted while in flight.
        """
        pod = self._contents.newest(uid)
        if pod is not None:
            self._nominator.add(pod, node_name)

    # One attempt.

    def pop(self) -> QueuedPodInfo | None:
        """Take out the pod to be tried next; `add_unschedulable` or `done` must follow.

        When activeQ is empty, this is the pod that would leave backoffQ next, if it was rejected and did not fail
        with an error.
        """
        return self._contents.pop(self._clock.monotonic())

    def pop_group(self, first: QueuedPodInfo) -> Generator[None, None, list[QueuedPodInfo]]:
        """Take out, with a pod that was popped, all of its group that may be tried, wherever they wait; one a step.

        Pods must neither come nor go between the steps.

        Returns:
            The members, the popped one included: those of higher priority first, then by when they were to be tried first.

        Source:
            kube-scheduler v1.36, backend/queue/scheduling_queue.go, PopSpecificPod and the sorting of a pod group's pods.
        """
        at, key = self._clock.monotonic(), self._plugins.group_of(first.pod)
        members = [first]
        for uid in () if key is None else list(self._contents.groups.pending(key)):
            yield
            place = self.place_of(uid)
            if place in {Place.UNSCHEDULABLE, Place.GATED}:
                queued = self._contents.pods[uid]
                place = self._requeue(queued, Strategy.IMMEDIATELY, FORCE_ACTIVATE.label, at=at)
            if place in _RETRIED and not self._contents.pods[uid].put_aside_seconds:
                members.append(self._contents.pop_with(uid, first, at))
        members.sort(key=lambda queued: (-queued.pod.priority, queued.initial_attempt_timestamp or at))
        return members

    def add_unschedulable(
        self,
        queued: QueuedPodInfo,
        *,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
        is_error: bool = False,
        put_aside_seconds: float = 0.0,
    ) -> Place:
        """Take back a pod whose attempt failed; ends the attempt.

        It becomes unschedulable, unless something happened during the attempt that may help it.

        Args:
            queued: what `pop` returned.
            unschedulable_plugins: who rejected it.
            pending_plugins: the ones among them that answered PENDING.
            is_error: whether it failed for another reason than a rejection. Then no event can help, so it is
                tried again after a backoff of its own; likewise if nobody is named.
            put_aside_seconds: for an error: how long it waits instead of backing off, unless it changed meanwhile;
                the caller has counted the attempt.

        Returns:
            Where it is now; OUTSIDE if it was deleted in the meantime.

        Raises:
            AssertionError: the pod is not in flight.
        """
        uid, at, in_flight = queued.pod.uid, self._clock.monotonic(), self._contents.in_flight
        if uid not in in_flight:
            problem = "came back without being in flight"
            raise AssertionError(self._contents.places.objection(uid, problem))
        newest = in_flight.newest(uid)
        if newest is None:
            self.done(uid)
            return Place.OUTSIDE

        is_changed = is_another(queued.pod, newest)
        queued.pod = newest
        queued.timestamp = at
        queued.put_aside_seconds = 0.0 if is_changed else put_aside_seconds
        if is_changed or not put_aside_seconds:
            queued.over_budget_count = 0
        queued.was_flushed_from_unschedulable = False
        queued.pending_plugins = frozenset() if is_error else frozenset(pending_plugins)
        rejectors = queued.pending_plugins.union(() if is_error else unschedulable_plugins)
        queued.unschedulable_plugins = rejectors
        if rejectors:
            queued.unschedulable_count += 1
            queued.consecutive_errors_count = 0
            why = f"rejected by {', '.join(sorted(rejectors))}"
        else:
            queued.consecutive_errors_count += 1
            aside = queued.put_aside_seconds
            why = f"over budget; put aside for {aside:.0f}s" if aside else "failed with an error"
        # What happened while it was in flight.
        strategy, event = self._hints.strategy_of_all(queued, in_flight.events_since(uid))
        if event is not None:
            why = f"{why}; {event.label} happened meanwhile"
        in_flight.end(uid)
        return self._requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE, at=at, why=why)

    def done(self, uid: str) -> None:
        """End an attempt that needs no other: the pod was bound or dropped. Does nothing if it has ended."""
        if uid in self._contents.in_flight:
            self._contents.in_flight.end(uid)
            self._contents.drop(uid, at=self._clock.monotonic(), why="done")

    def ignore_events(self, uid: str) -> None:
        """Say that an attempt goes on, but what happens from now on cannot help it.

        A pod that is being bound can only fail with an error. Carrying the choice out may take minutes, for which
        events would be kept in vain.

        Source:
            kube-scheduler v1.36, schedule_one.go, bindingCycle, which calls Done before PreBind. Here the pod stays in
            flight until it is bound or comes back.
        """
        self._contents.in_flight.ignore_events(uid)

    def needs_time(self, uid: str, why: str) -> None:
        """Say that an attempt came to nothing yet and will begin again: what happens until then, it sees by itself."""
        self._contents.in_flight.ignore_events(uid)
        self._contents.places.note(uid, at=self._clock.monotonic(), why=why)

    def begin_again(self, uid: str) -> QueuedPodInfo | None:
        """Begin the attempt at a pod in flight again, with its newest version; None, and it ends, if it was deleted."""
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

    # What happens elsewhere.

    def move_all(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        pre_check: Callable[[PodInfo], bool] | None = None,
    ) -> int:
        """Try again the pods that an event may help; pods in flight are shown it when they come back.

        Args:
            event: what happened.
            old: the object before; None for an addition.
            new: the object now; None for a deletion. With a wildcard event and a pod here, only that pod is meant.
            pre_check: leaves out pods for which it says False; does not concern pods in flight.

        Returns:
            How many pods went to activeQ or backoffQ; those that are left for `work` are not counted.
        """
        moved, waiting = 0, self._contents.unschedulable
        if waiting or self._backlog:
            waiting.events += 1
            recorded = RecordedEvent(event, old, new)
            steps = self._waking.steps(recorded, waiting.events, pre_check)
            moved = self._backlog.do(Work(steps, waiting.events, recorded, pre_check))

        in_flight = self._contents.in_flight
        if in_flight.profiles and any(
            event.is_wildcard or self._hints.listeners(profile, event) for profile in in_flight.profiles
        ):
            in_flight.record(event, old, new)
        return moved

    def reload(self, *, initial_backoff_seconds: float, max_backoff_seconds: float) -> None:
        """Judge every pod anew: the plugins are others now.

        Who waits is asked about by PreEnqueue and takes the turn that QueueSort gives; the unschedulable are tried
        again, and so are those in flight that come back. Pods of names that are served no longer must have been
        deleted before.
        """
        contents, waiting = self._contents, self._contents.unschedulable
        contents.backoff.configure(initial_seconds=initial_backoff_seconds, max_seconds=max_backoff_seconds)
        if any(contents.in_flight.profiles):
            contents.in_flight.record(CONFIGURATION_RELOADED, None, None)
        self._backlog.clear()  # whatever happened before, everybody is judged by how things are
        waiting.events += 1
        everyone = [uid for uid, move in contents.places.inside() if move.end is not Place.IN_FLIGHT]
        recorded = RecordedEvent(CONFIGURATION_RELOADED, None, None)
        self._backlog.do(Work(self._judge_anew(everyone, waiting.events), waiting.events, recorded))

    def activate(self, uids: Iterable[str]) -> None:
        """Try pods again without further backoff; those in flight, if they come back, after it."""
        at, label = self._clock.monotonic(), FORCE_ACTIVATE.label
        for uid in uids:
            place = self.place_of(uid)
            if place is Place.IN_FLIGHT:
                pod = self._contents.in_flight.newest(uid)
                self._contents.in_flight.record_for(uid, FORCE_ACTIVATE, None, pod)
            elif place is Place.BACKOFF:  # was past PreEnqueue when it came there
                self._contents.put(self._contents.pods[uid], Place.ACTIVE, at=at, label=label)
            elif place in {Place.UNSCHEDULABLE, Place.GATED}:
                self._requeue(self._contents.pods[uid], Strategy.IMMEDIATELY, label, at=at)

    @property
    def backlog(self) -> int:
        """How many events some of the waiting pods have not been shown yet."""
        return len(self._backlog)

    def work(self, now: float) -> None:
        """Go on with what is to be done, for one slice: pods whose time has come, then events, in their order."""
        self.flush(now, until=self._measured() + self._slice_seconds)
        self._backlog.take_turn()

    def flush(self, now: float, *, until: float = inf) -> int:
        """Move on the pods whose time has come: backoff is over, or unschedulable for too long.

        Args:
            now: the time.
            until: when to leave the rest for another time, by the clock that measures.

        Returns:
            How many pods went to activeQ or backoffQ.

        Source:
            kube-scheduler v1.36, flushBackoffQCompleted and flushUnschedulablePodsLeftover; the latter runs there
            every 30 seconds, so a pod may wait that much longer.
        """
        moved, contents = 0, self._contents
        for uid in contents.backoff.finished(now):
            contents.put(contents.pods[uid], Place.ACTIVE, at=now, label=BACKOFF_COMPLETE)
            moved += 1
            if until < inf and self._steps.observed(self._measured() >= until):
                return moved
        for uid in contents.unschedulable.due(now):
            queued = contents.pods[uid]
            if self._requeue(queued, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label, at=now) in _RETRIED:
                queued.was_flushed_from_unschedulable = True
                moved += 1
            if until < inf and self._steps.observed(self._measured() >= until):
                return moved
        return moved

    def next_deadline(self, now: float) -> float | None:
        """Return when `work` next has something to do, not before `now`; None if only events can help."""
        if self._backlog:
            return now
        deadlines = (self._contents.backoff.next_deadline(), self._contents.unschedulable.next_deadline())
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(now, min(known)) if known else None

    # Where a pod goes.

    def _admit(self, pod: PodInfo, label: str) -> None:
        at = self._clock.monotonic()
        self._contents.groups.note_pending(pod)  # PreEnqueue counts it
        queued, strategy = QueuedPodInfo(pod, at), Strategy.IMMEDIATELY
        if note_putting_aside(queued, pod, at):
            strategy = Strategy.AFTER_BACKOFF
        if self._requeue(queued, strategy, label, at=at) in _RETRIED:
            self._nominator.add(pod)

    def _follow_putting_aside(self, queued: QueuedPodInfo, old: PodInfo, new: PodInfo) -> bool:
        """Try a pod at once that was put aside and has changed; put one aside that another leader did."""
        at = self._clock.monotonic()
        if queued.put_aside_seconds and is_another(old, new):
            queued.put_aside_seconds, queued.over_budget_count = 0.0, 0
            self._requeue(queued, Strategy.IMMEDIATELY, UNSCHEDULABLE_POD_UPDATE.label, at=at)
            return True
        if note_putting_aside(queued, new, at):
            self._requeue(queued, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_POD_UPDATE.label, at=at)
            return True
        return False

    def _requeue(
        self,
        queued: QueuedPodInfo,
        strategy: Strategy,
        label: str,
        *,
        at: float,
        why: str = "",
        shown: int | None = None,
    ) -> Place:
        """Put a pod where the strategy says, if PreEnqueue lets it; return the place."""
        if strategy is Strategy.SKIP:
            place = Place.UNSCHEDULABLE
        elif (refusal := pre_enqueue_refusal(self._plugins, queued)) is not None:
            place = Place.GATED
            why = f"{why or label}; gated by {refusal.plugin}: {refusal.message}"
        elif strategy is Strategy.AFTER_BACKOFF and self._contents.backoff.is_backing_off(queued, at):
            place = Place.BACKOFF
        else:
            place = Place.ACTIVE
        flush_at = None if place in _RETRIED else self._flush_at(queued, at)
        return self._contents.put(queued, place, at=at, label=label, why=why, flush_at=flush_at, shown=shown)

    def _flush_at(self, queued: QueuedPodInfo, at: float) -> float | None:
        """Return when a pod is tried again although nothing happened.

        A gated pod never, unless the plugin that gates it registered for everything.
        """
        if queued.is_gated and not self._waking.hears_of(queued, UNSCHEDULABLE_TIMEOUT):
            return None
        return at + self._max_in_unschedulable_seconds

    def _wake(self, queued: QueuedPodInfo, strategy: Strategy, event: ClusterEvent, *, shown: int) -> bool:
        """Try a waiting pod again because of an event; whether PreEnqueue lets it."""
        at = self._clock.monotonic()
        return self._requeue(queued, strategy, event.label, at=at, shown=shown) in _RETRIED

    def _wake_by_its_update(
        self, queued: QueuedPodInfo, old: PodInfo, new: PodInfo, changes: Sequence[ClusterEvent]
    ) -> None:
        """Show a waiting pod its own changes, after what it has not been shown yet, which goes by its new version."""
        waiting = self._contents.unschedulable
        shown = waiting.shown(new.uid) or 0
        missed = [
            work.recorded
            for work in self._backlog.since(shown)
            if work.concerns(new) and self._waking.hears_of(queued, work.recorded.event)
        ]
        for recorded in (*missed, *(RecordedEvent(event, old, new) for event in changes)):
            strategy = self._hints.strategy(queued, *recorded)
            if strategy is Strategy.SKIP:
                continue
            if self._wake(queued, strategy, recorded.event, shown=waiting.events):
                return
        waiting.refile(queued)

    def _judge_anew(self, uids: Iterable[str], number: int) -> Iterator[bool]:
        """Give pods the places that the plugins now in force say, one by one."""
        label, waiting = CONFIGURATION_RELOADED.label, self._contents.unschedulable
        for uid in uids:
            place = self.place_of(uid)
            if place in {Place.OUTSIDE, Place.IN_FLIGHT} or (waiting.shown(uid) or 0) >= number:
                continue  # something else happened to it since
            queued, at = self._contents.pods[uid], self._clock.monotonic()
            is_due = place is Place.ACTIVE or queued.put_aside_seconds > 0
            queued.put_aside_seconds, queued.over_budget_count = 0.0, 0
            strategy = Strategy.IMMEDIATELY if is_due else Strategy.AFTER_BACKOFF
            yield self._requeue(queued, strategy, label, at=at, shown=number) in _RETRIED
