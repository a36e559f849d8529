"""Whether an event requeues a pod: the queueing hints of the plugins that rejected it decide."""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from scheduler.framework.events import QueueingHint
from scheduler.loop_work import loop_work
from scheduler.objects.pod import PodInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.engine.ports import Time
    from scheduler.engine.queue.in_flight import InFlightEvent
    from scheduler.engine.queue.ports import QueueObserver, QueuePlugins
    from scheduler.framework.events import ClusterEvent, EventWithHint
    from scheduler.framework.queued_pod import QueuedPodInfo

    Registered = Mapping[str, Sequence[EventWithHint]]  # plugin -> its registrations
    Listeners = Mapping[str, Sequence[EventWithHint]]  # plugin -> its registrations that match an event

logger = logging.getLogger(__name__)

_ERROR = "Error"


class RequeueStrategy(IntEnum):
    """The effect of an event on a waiting pod; the greatest of several wins."""

    SKIP = 0
    """It stays unschedulable."""
    AFTER_BACKOFF = 1
    """It is tried again when its backoff is over."""
    IMMEDIATELY = 2
    """It is tried again without backoff: a plugin that returned PENDING has what it waited for."""


class Hints:
    """The events that plugins registered for, and their hints.

    Source:
        kube-scheduler v1.36, backend/queue/scheduling_queue.go, isPodWorthRequeuing.
    """

    def __init__(self, plugins: QueuePlugins, *, observer: QueueObserver, time: Time) -> None:
        self._plugins = plugins
        self._observer = observer
        self._time = time
        # profile -> its registrations, and the listeners derived from them for each event
        self._listeners: dict[str, tuple[Registered, dict[ClusterEvent, Listeners]]] = {}

    def listeners(self, profile: str, event: ClusterEvent) -> Listeners:
        """Return the plugins of a profile that registered for an event, with the matching registrations."""
        registered = self._plugins.events(profile)
        known, by_event = self._listeners.get(profile, (None, {}))
        if known is not registered:  # never seen, or the profile was reloaded
            by_event = {}
            self._listeners[profile] = (registered, by_event)
        listeners = by_event.get(event)
        if listeners is None:
            listeners = by_event[event] = {
                plugin: covering
                for plugin, registrations in registered.items()
                if (
                    covering := [
                        registration for registration in registrations if registration.event.covers(event)
                    ]
                )
            }
        return listeners

    def strategy(self, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any) -> RequeueStrategy:
        """Call the hints of the plugins that rejected a pod.

        A wildcard event requeues every pod without a call of hints, or a single pod if `new` is that pod.
        """
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        if not rejectors:
            return RequeueStrategy.AFTER_BACKOFF
        if event.is_wildcard:
            for_all = new is None
            for_it = isinstance(new, PodInfo) and new.uid == queued.pod.uid
            return RequeueStrategy.AFTER_BACKOFF if for_all or for_it else RequeueStrategy.SKIP

        listeners = self.listeners(queued.pod.scheduler_name, event)
        asked = [plugin for plugin in listeners if plugin in rejectors]
        pending = queued.pending_plugins
        if pending:  # their result outweighs that of the others
            asked.sort(key=lambda plugin: plugin not in pending)
        for plugin in asked:
            for registration in listeners[plugin]:
                if self._helps(plugin, registration, queued, event, old, new):
                    return RequeueStrategy.IMMEDIATELY if plugin in pending else RequeueStrategy.AFTER_BACKOFF
        return RequeueStrategy.SKIP

    def strategy_of_all(
        self, queued: QueuedPodInfo, events: Iterable[InFlightEvent]
    ) -> tuple[RequeueStrategy, ClusterEvent | None]:
        """Evaluate events in the order in which they happened; return the strategy, and the event that decided it."""
        if not queued.unschedulable_plugins:
            return RequeueStrategy.AFTER_BACKOFF, None
        best, because = RequeueStrategy.SKIP, None
        for recorded in events:
            strategy = self.strategy(queued, *recorded)
            if strategy > best:
                best, because = strategy, recorded.event
            if best is RequeueStrategy.IMMEDIATELY or (
                best is not RequeueStrategy.SKIP and not queued.pending_plugins
            ):
                break
        return best, because

    @loop_work("queue", lambda plugin, queued: f"hint of plugin {plugin} for pod {queued.pod.key}")
    def _helps(
        self,
        plugin: str,
        registration: EventWithHint,
        queued: QueuedPodInfo,
        event: ClusterEvent,
        old: Any,
        new: Any,
    ) -> bool:
        hint = registration.hint
        if hint is None:
            self._observer.hint_asked(plugin, event.label, QueueingHint.QUEUE.value, 0.0)
            return True
        start = self._time.stopwatch()
        try:
            answer = hint(queued.pod, old, new)
            result = answer.value
        except Exception:
            # An attempt too early is cheap; a pod that is never tried again is not.
            answer, result = QueueingHint.QUEUE, _ERROR
            logger.exception(
                "Queueing hint failed; the pod is tried again",
                extra={"plugin": plugin, "pod": queued.pod.key, "event": event.label},
            )
        self._observer.hint_asked(plugin, event.label, result, self._time.stopwatch() - start)
        return answer is QueueingHint.QUEUE
