"""Evaluates an event for the waiting pods: class by class, pod by pod, in steps between which other work can run.

A pod is checked against every event once. A pod that begins to wait after an event has already been checked against
it: in the snapshot of its attempt, or when it came back. The numbers of events tell the two apart, so an event may be
evaluated later than it happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.engine.queue.hints import RequeueStrategy
from scheduler.loop_work import loop_work
from scheduler.objects.pod import PodInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.engine.queue.contents import QueueContents
    from scheduler.engine.queue.hints import Hints
    from scheduler.engine.queue.in_flight import InFlightEvent
    from scheduler.engine.queue.unschedulable import WaitingClass
    from scheduler.framework.events import ClusterEvent
    from scheduler.framework.queued_pod import QueuedPodInfo

    PreCheck = Callable[[PodInfo], bool]


class Requeue(Protocol):
    """Moves a waiting pod according to a strategy because of an event; returns whether the pod is tried again."""

    def __call__(
        self, queued: QueuedPodInfo, strategy: RequeueStrategy, event: ClusterEvent, *, shown: int
    ) -> bool: ...


class EventRequeuer:
    """Evaluates events for the waiting pods.

    Args:
        contents: the pods of the queue.
        hints: the hints of plugins.
        requeue: moves the pods.
    """

    def __init__(self, contents: QueueContents, hints: Hints, requeue: Requeue) -> None:
        self._contents, self._waiting = contents, contents.unschedulable
        self._hints = hints
        self._requeue = requeue

    @loop_work("queue", lambda recorded: f"requeueing by {recorded.event.label}")
    def requeue(self, recorded: InFlightEvent, number: int, pre_check: PreCheck | None) -> Iterator[bool]:
        """Evaluate an event for all pods that waited when it happened; yield after each step whether a pod is tried again.

        Args:
            recorded: the event.
            number: its number.
            pre_check: excludes pods for which it returns False.
        """
        event = recorded.event
        if event.is_wildcard:
            yield from self._each(list(self._waiting), recorded, number, pre_check)
            return
        about = _uid_in(recorded)
        if about in self._waiting:  # hints may return another result for it than for other pods of its class
            yield from self._each([about], recorded, number, pre_check)
        for profile in self._waiting.profiles:
            listeners = self._hints.listeners(profile, event)
            classes = self._waiting.classes(profile) if listeners else None
            if classes is not None:
                for found in classes.touched(listeners, recorded.old, recorded.new):
                    yield from self._members(found, recorded, number, pre_check, about)

    def is_relevant(self, queued: QueuedPodInfo, event: ClusterEvent) -> bool:
        """Return whether a plugin that could requeue the pod registered for the event."""
        listeners = self._hints.listeners(queued.pod.scheduler_name, event)
        if queued.is_gated:
            return queued.gating_plugin in listeners
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        return event.is_wildcard or any(plugin in listeners for plugin in rejectors)

    def _each(
        self, uids: Iterable[str], recorded: InFlightEvent, number: int, pre_check: PreCheck | None
    ) -> Iterator[bool]:
        """Call the hints for each pod."""
        for uid in uids:
            shown = self._waiting.shown(uid)
            if shown is None or shown >= number:
                continue
            queued = self._contents.pods[uid]
            if (pre_check is not None and not pre_check(queued.pod)) or not self.is_relevant(
                queued, recorded.event
            ):
                continue
            strategy = self._hints.strategy(queued, *recorded)
            yield strategy is not RequeueStrategy.SKIP and self._requeue(
                queued, strategy, recorded.event, shown=number
            )

    def _members(
        self,
        found: WaitingClass,
        recorded: InFlightEvent,
        number: int,
        pre_check: PreCheck | None,
        but: str,
    ) -> Iterator[bool]:
        """Call the hints for one pod of a class, and apply the result to all its pods except `but`."""

        def waits(uid: str, shown: int | None) -> bool:
            return (
                shown is not None
                and shown < number
                and uid != but
                and (pre_check is None or pre_check(self._contents.pods[uid].pod))
            )

        first = next((uid for uid, shown in found.members.items() if waits(uid, shown)), None)
        if first is None:
            return
        strategy = self._hints.strategy(self._contents.pods[first], *recorded)
        yield False
        if strategy is RequeueStrategy.SKIP:
            return
        for uid in list(found.members):
            # Other work ran since: a pod may have moved, or its new version was checked against the event.
            if waits(uid, found.members.get(uid)):
                yield self._requeue(self._contents.pods[uid], strategy, recorded.event, shown=number)


def _uid_in(recorded: InFlightEvent) -> str:
    """Return the uid of the pod that an event concerns; "" for another object."""
    about = recorded.old if recorded.new is None else recorded.new
    return about.uid if isinstance(about, PodInfo) else ""
