"""The pods that wait for a change of the cluster, indexed by the events that they wait for.

With ten thousand waiting pods, most events help none of them. An event therefore costs time only for the classes of
pods that it can help, see `waiting_classes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.engine.queue.keyed_heap import KeyedHeap
from scheduler.engine.queue.waiting_classes import WaitingClasses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.engine.queue.ports import QueuePlugins
    from scheduler.engine.queue.waiting_classes import WaitingClass
    from scheduler.framework.queued_pod import QueuedPodInfo


class _Waiting(NamedTuple):
    queued: QueuedPodInfo
    profile: str
    found: WaitingClass


class UnschedulablePods:
    """Unschedulable and gated pods, by profile and class.

    A gated pod waits only for the plugin that gates it; the other plugins do not matter until that one admits the pod.

    Attributes:
        events: the number of events so far; events are numbered from 1.
    """

    def __init__(self, plugins: QueuePlugins) -> None:
        self.events = 0
        self._plugins = plugins
        self._waiting: dict[str, _Waiting] = {}  # uid -> pod
        self._profiles: dict[str, WaitingClasses] = {}
        self._deadlines = KeyedHeap()

    def put(self, queued: QueuedPodInfo, flush_at: float | None, *, shown: int | None = None) -> None:
        """Add a pod, or update the plugins that it waits for.

        Args:
            queued: the pod.
            flush_at: when it is tried again without an event; None for never.
            shown: the number of the last event that it was checked against; None for the latest event.
        """
        uid = queued.pod.uid
        self.remove(uid)
        self._file(queued, self.events if shown is None else shown)
        if flush_at is not None:
            self._deadlines.put(uid, (flush_at,))

    def refile(self, queued: QueuedPodInfo) -> None:
        """Record that a pod has a new version and was checked against all events."""
        self._take(queued.pod.uid)
        self._file(queued, self.events)

    def remove(self, uid: str) -> None:
        """Remove a pod, if present."""
        if uid in self._waiting:
            self._deadlines.remove(uid)
            self._take(uid)

    def shown(self, uid: str) -> int | None:
        """Return the number of the last event that a pod was checked against; None if it is absent."""
        waiting = self._waiting.get(uid)
        return None if waiting is None else waiting.found.members[uid]

    def in_turn(self) -> list[str]:
        """Return all pods, class by class, in the order in which an event reaches them."""
        return [
            uid for classes in self._profiles.values() for found in classes.all() for uid in found.members
        ]

    def flushes(self) -> list[tuple[str, float]]:
        """Return the pods that are tried again without an event, and when, in order of time."""
        return [(uid, key[0]) for uid, key in self._deadlines.in_turn()]

    def flush_at(self, uid: str, at: float) -> None:
        """Set the time at which a pod here is tried again."""
        self._deadlines.put(uid, (at,))

    @property
    def profiles(self) -> list[str]:
        """The profiles of the pods here."""
        return list(self._profiles)

    def classes(self, profile: str) -> WaitingClasses | None:
        """Return the classes of a profile by the current registrations of its plugins; None if there are none."""
        classes = self._profiles.get(profile)
        if classes is None or classes.registered is self._plugins.events(profile):
            return classes
        pods = [each for each in self._waiting.values() if each.profile == profile]
        shown = [each.found.members[each.queued.pod.uid] for each in pods]
        for each in pods:
            self._take(each.queued.pod.uid)
        for each, number in zip(pods, shown, strict=True):
            self._file(each.queued, number)
        return self._profiles[profile]

    def due(self, now: float) -> Iterator[str]:
        """Yield the pods that are due to be tried again without an event, each once; they stay here."""
        while (first := self._deadlines.peek()) is not None and first[0][0] <= now:
            self._deadlines.pop()
            yield first[1]

    def next_deadline(self) -> float | None:
        """Return when `due` next has a pod to yield; None for never."""
        first = self._deadlines.peek()
        return None if first is None else first[0][0]

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    def __iter__(self) -> Iterator[str]:
        return iter(self._waiting)

    def _file(self, queued: QueuedPodInfo, shown: int) -> None:
        profile = queued.pod.scheduler_name
        classes = self._profiles.get(profile)
        if classes is None:
            classes = self._profiles[profile] = WaitingClasses(self._plugins.events(profile))
        found = classes.of(queued)
        found.members[queued.pod.uid] = shown
        self._waiting[queued.pod.uid] = _Waiting(queued, profile, found)

    def _take(self, uid: str) -> None:
        _, profile, found = self._waiting.pop(uid)
        del found.members[uid]
        if not found.members:
            classes = self._profiles[profile]
            classes.drop(found)
            if not classes:
                del self._profiles[profile]

    def check(self) -> None:
        """Assert the invariants."""
        members: Iterable[str] = ()
        for profile, classes in self._profiles.items():
            assert classes, f"profile {profile} is kept without pods"
            classes.check()
            for found in classes.all():
                for uid in found.members:
                    waiting = self._waiting[uid]
                    assert waiting.found is found, f"pod {uid} is in two classes"
                    assert waiting.profile == profile, f"pod {uid} is kept under profile {profile}"
                    if classes.registered is self._plugins.events(profile):
                        assert classes.key_of(waiting.queued) == (found.key, found.plugins)
                members = (*members, *found.members)
        assert sorted(members) == sorted(self._waiting)
        astray = set(self._deadlines) - set(self._waiting)
        assert not astray, f"pods {sorted(astray)} have a deadline and do not wait"
