"""The pods that wait for the cluster to change, found by what they wait for.

With ten thousand pods waiting, most events help none of them. So an event costs what the classes of pods cost that it
can touch, see `waiting_classes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.queue.keyed_heap import KeyedHeap
from scheduler.queue.waiting_classes import WaitingClasses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.queue.surroundings import QueuePlugins
    from scheduler.queue.waiting_classes import WaitingClass


class _Waiting(NamedTuple):
    queued: QueuedPodInfo
    profile: str
    found: WaitingClass


class UnschedulablePods:
    """Unschedulable and gated pods, by profile and class.

    A gated pod is kept by the plugin that gates it alone: while that one says no, nobody else's word counts.

    Attributes:
        events: how many events there were; they are numbered from 1.
    """

    def __init__(self, plugins: QueuePlugins) -> None:
        self.events = 0
        self._plugins = plugins
        self._waiting: dict[str, _Waiting] = {}  # uid -> pod
        self._profiles: dict[str, WaitingClasses] = {}
        self._deadlines = KeyedHeap()

    def put(self, queued: QueuedPodInfo, flush_at: float | None, *, shown: int | None = None) -> None:
        """Add a pod, or note anew whom it waits for.

        Args:
            queued: the pod.
            flush_at: when it is tried again although nothing happened; None for never.
            shown: the number of the event up to which it was shown all; None for all there were.
        """
        uid = queued.pod.uid
        self.remove(uid)
        self._file(queued, self.events if shown is None else shown)
        if flush_at is not None:
            self._deadlines.put(uid, (flush_at,))

    def refile(self, queued: QueuedPodInfo) -> None:
        """Note that a pod has another version, and was shown all events."""
        self._take(queued.pod.uid)
        self._file(queued, self.events)

    def remove(self, uid: str) -> None:
        """Take a pod out, if it is there."""
        if uid in self._waiting:
            self._deadlines.remove(uid)
            self._take(uid)

    def shown(self, uid: str) -> int | None:
        """Return the number of the event up to which a pod was shown all; None if it is not here."""
        waiting = self._waiting.get(uid)
        return None if waiting is None else waiting.found.members[uid]

    def in_turn(self) -> list[str]:
        """Return all, class by class, as an event would come to them."""
        return [
            uid for classes in self._profiles.values() for found in classes.all() for uid in found.members
        ]

    def flushes(self) -> list[tuple[str, float]]:
        """Return the pods that are tried again although nothing happens, and when, the first first."""
        return [(uid, key[0]) for uid, key in self._deadlines.in_turn()]

    def flush_at(self, uid: str, at: float) -> None:
        """Have a pod here tried again then."""
        self._deadlines.put(uid, (at,))

    @property
    def profiles(self) -> list[str]:
        """The profiles of the pods here."""
        return list(self._profiles)

    def classes(self, profile: str) -> WaitingClasses | None:
        """Return the classes of a profile, by what its plugins have registered for now; None if there are none."""
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
        """Yield the pods that are to be tried again although nothing happened, each once; they stay here."""
        while (first := self._deadlines.peek()) is not None and first[0][0] <= now:
            self._deadlines.pop()
            yield first[1]

    def next_deadline(self) -> float | None:
        """Return when `due` next has something to yield; None for never."""
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
        """Assert what always holds."""
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
