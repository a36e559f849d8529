"""Finds the pending pods that an event would requeue: the daemon's queue receives attempts, then the event.

First every pending pod gets the place in the queue that follows from its attempt. Then the event goes through the daemon's
own event handlers. A pod that moves to activeQ or backoffQ was requeued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.app.needs import trimmed
from scheduler.engine.queue.pod_places import Place
from scheduler.objects.pod import PodInfo
from scheduler.tools.whatif.watch_event import EventType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.engine.queue.scheduling_queue import SchedulingQueue
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.tools.whatif.evaluation import PodEvaluation
    from scheduler.tools.whatif.offline import OfflineScheduler
    from scheduler.tools.whatif.watch_event import FileWatchEvent

_WAITING = frozenset({Place.UNSCHEDULABLE, Place.GATED})
_RETRIED = frozenset({Place.ACTIVE, Place.BACKOFF})
_WAITS = frozenset({"unschedulable", "gated"})
"""Results of pods that wait for an event."""


def with_wakes(
    scheduler: OfflineScheduler, judged: Iterable[PodEvaluation], event: FileWatchEvent | None
) -> Iterator[Explanation]:
    """Add `requeued` to the explanation of every pending pod: whether an event would requeue it.

    Args:
        scheduler: the scheduler; the event changes it after the last pod is evaluated.
        judged: the results of `evaluation.evaluate_each` or `evaluate_in_sequence`.
        event: the next event; with None, nothing is added.
    """
    if event is None:
        yield from (each.explanation for each in judged)
        return
    attempts = _Attempts(scheduler.queue)
    explanations = []  # all of them first, because an event changes the cluster
    for each in judged:
        attempts.end(each)
        explanations.append((each.pod.uid, each.explanation))
    woken = _woken_by(scheduler, event)
    for uid, explanation in explanations:
        if explanation["result"] in _WAITS:
            explanation["requeued"] = uid in woken
        yield explanation


class _Attempts:
    """One attempt for every pod of the queue that is not gated; its result decides which events requeue the pod.

    A pod that fits stays in flight, as if it were being bound.
    """

    def __init__(self, queue: SchedulingQueue) -> None:
        self._queue = queue
        self._popped: dict[str, QueuedPodInfo] = {}  # pod uid -> pod
        while (queued := queue.pop()) is not None:
            self._popped[queued.pod.uid] = queued

    def end(self, judged: PodEvaluation) -> None:
        """Return a pod to the queue after its attempt was rejected or failed."""
        status, diagnosis = judged.status, judged.diagnosis
        queued = self._popped.get(judged.pod.uid)
        if queued is None or status.is_success:  # gated or placed
            return
        self._queue.add_unschedulable(
            queued,
            unschedulable_plugins=[status.plugin] if diagnosis is None else diagnosis.unschedulable_plugins,
            pending_plugins=() if diagnosis is None else diagnosis.pending_plugins,
            is_error=not status.is_rejected,
        )


def _woken_by(scheduler: OfflineScheduler, event: FileWatchEvent) -> frozenset[str]:
    """Process an event, and return the uids of the pending pods that it requeued."""
    queue = scheduler.queue
    waiting = [each.pod.uid for each in queue.pods() if queue.place_of(each.pod.uid) in _WAITING]
    _let_happen(scheduler, event)
    woken = {uid for uid in waiting if queue.place_of(uid) in _RETRIED}
    groups = scheduler.parts.cache.groups
    profiles = scheduler.parts.profiles
    keys = {key for each in queue.pods() if each.pod.uid in woken for key in profiles.groups_with(each.pod)}
    for key in keys:  # the first member takes the others of its group along
        woken |= {uid for uid in groups.pending(key) if not _is_kept_back(queue.get(uid))}
    return frozenset(woken)


def _is_kept_back(queued: QueuedPodInfo | None) -> bool:
    """Return whether PreEnqueue rejects a pod."""
    return queued is not None and queued.is_gated and not queued.is_held


def _let_happen(scheduler: OfflineScheduler, event: FileWatchEvent) -> None:
    needs = scheduler.needs
    handler = scheduler.handler_of(event.kind)
    if handler is None:
        return
    old, new = (trimmed(obj, needs) if isinstance(obj, PodInfo) else obj for obj in (event.old, event.obj))
    match event.type:
        case EventType.ADDED:
            handler.on_add(new)
        case EventType.MODIFIED:
            handler.on_update(old, new)
        case EventType.DELETED:
            handler.on_delete(new)
