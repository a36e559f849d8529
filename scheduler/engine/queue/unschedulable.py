"""The pods that wait for a change of the cluster, indexed by the events that they wait for.

Pods for which every hint returns the same are one class, and hints are called once for a class: twenty thousand pods
of one Deployment need one call. Classes are indexed by the plugins that could requeue them. Where a plugin returns the
keys of an event, they are also indexed by key: a changed label leads only to the classes that select it.

With ten thousand waiting pods, most events help none of them. An event therefore costs time only for the classes of
pods that it can help, see `WaitingClasses`.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

    from scheduler.engine.queue.hints import Listeners, Registered
    from scheduler.engine.queue.ports import QueuePlugins
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

Key = tuple[float, ...]

_SPARE = 64


class KeyedHeap:
    """Pod uids, the smallest key first; equal keys in arrival order.

    A changed or removed entry stays in the heap as a tombstone until it reaches the top or tombstones outnumber the other
    entries. Every operation is O(log n) on average, and the heap is never more than twice too large.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, str]] = []
        self._entries: dict[str, tuple[Key, int, str]] = {}  # uid -> its valid entry
        self._numbers = count()

    def put(self, uid: str, key: Key) -> None:
        """Add a pod, or change its key; a pod whose key is unchanged keeps its position among equal keys."""
        entry = self._entries.get(uid)
        if entry is not None and entry[0] == key:
            return
        entry = self._entries[uid] = (key, next(self._numbers), uid)
        heappush(self._heap, entry)
        self._sweep()

    def remove(self, uid: str) -> None:
        """Remove a pod, if present."""
        if self._entries.pop(uid, None) is not None:
            self._sweep()

    def peek(self) -> tuple[Key, str] | None:
        """Return (key, uid) of the first entry without removing it; None when empty."""
        heap, entries = self._heap, self._entries
        while heap:
            key, _, uid = heap[0]
            if entries.get(uid) is heap[0]:
                return key, uid
            heappop(heap)
        return None

    def pop(self) -> str | None:
        """Remove and return the first uid; None when empty."""
        first = self.peek()
        if first is None:
            return None
        heappop(self._heap)
        del self._entries[first[1]]
        return first[1]

    def turn_of(self, uid: str) -> int | None:
        """Return the number of entries before a pod; None if it is absent."""
        entry = self._entries.get(uid)
        return None if entry is None else sum(each < entry for each in self._entries.values())

    def in_turn(self) -> list[tuple[str, Key]]:
        """Return all pods with their keys, in order."""
        return [(uid, key) for key, _, uid in sorted(self._entries.values())]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            self._heap = list(self._entries.values())
            heapify(self._heap)


_MOST_KEYS = 64
"""A class that waits for more keys is checked at every event: a pod may name any number of them."""


class WaitingClass:
    """Pods that wait for the same events.

    Attributes:
        key: the values that they have in common.
        plugins: the plugins that could requeue them.
        members: uid -> number of the last event that the pod was checked against.
        places: the indexes that contain the class: a plugin's registration, and the keys; None for all events.
    """

    __slots__ = ("key", "members", "places", "plugins")

    def __init__(self, key: Hashable, plugins: frozenset[str]) -> None:
        self.key = key
        self.plugins = plugins
        self.members: dict[str, int] = {}
        self.places: list[tuple[_Registration, Collection[Hashable] | None]] = []


_Classes = dict[WaitingClass, None]  # an ordered set


class _Registration:
    """The classes that one registration of a plugin can requeue.

    Attributes:
        by_key: key -> classes that wait for the key.
        of_any: classes that any event may help.
    """

    __slots__ = ("by_key", "of_any")

    def __init__(self) -> None:
        self.by_key: dict[Hashable, _Classes] = {}
        self.of_any: _Classes = {}


class _Kind(NamedTuple):
    """The common values of pods with the same rejecting plugins.

    Attributes:
        plugins: the plugins that could requeue them.
        pod_keys: all that is read of the pod by hints of its rejectors; None if it is unknown for one of them.
    """

    plugins: frozenset[str]
    pod_keys: tuple[Callable[[PodInfo], Hashable], ...] | None


class WaitingClasses:
    """The classes of one profile.

    Args:
        registered: the registrations of its plugins.
    """

    def __init__(self, registered: Registered) -> None:
        self.registered = registered
        self._classes: dict[Hashable, WaitingClass] = {}
        self._by_plugin: dict[str, _Classes] = {}
        self._registrations: dict[int, _Registration] = {}  # id of a wish of `registered`
        self._kinds: dict[Hashable, _Kind] = {}
        self._failed: set[int] = set()  # ids of failed registrations, each logged once

    def key_of(self, queued: QueuedPodInfo) -> tuple[Hashable, frozenset[str]]:
        """Return the class key of a pod as it is now, and the plugins that could requeue it."""
        rejectors, pending = queued.unschedulable_plugins, queued.pending_plugins
        who = (rejectors, pending, queued.gating_plugin)
        kind = self._kinds.get(who)
        if kind is None:
            kind = self._kinds[who] = self._kind(rejectors | pending, queued.gating_plugin)
        return (who, self._read(kind, queued)), kind.plugins

    def of(self, queued: QueuedPodInfo) -> WaitingClass:
        """Return the class of a pod; the caller must add the pod to its members."""
        key, plugins = self.key_of(queued)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = WaitingClass(key, plugins)
            for plugin in plugins:
                self._by_plugin.setdefault(plugin, {})[found] = None
                for registration in self.registered.get(plugin, ()):
                    if registration.waits_for_keys is not None:
                        self._file(found, registration, queued.pod)
        return found

    def drop(self, found: WaitingClass) -> None:
        """Remove a class without members."""
        del self._classes[found.key]
        for plugin in found.plugins:
            classes = self._by_plugin[plugin]
            del classes[found]
            if not classes:
                del self._by_plugin[plugin]
        for registration, keys in found.places:
            if keys is None:
                del registration.of_any[found]
                continue
            for key in keys:
                classes = registration.by_key[key]
                del classes[found]
                if not classes:
                    del registration.by_key[key]

    def touched(self, listeners: Listeners, old: Any, new: Any) -> list[WaitingClass]:
        """Return the classes that an event may help, each once.

        Args:
            listeners: of this profile, for the event.
            old: the object before; None for an addition.
            new: the object now; None for a deletion.
        """
        found: _Classes = {}
        for plugin, registrations in listeners.items():
            classes = self._by_plugin.get(plugin)
            if classes is None:
                continue
            for registration in registrations:
                event_keys = self._event_keys(plugin, registration, old, new)
                if event_keys is None or (event_keys and registration.waits_for_keys is None):
                    found.update(classes)
                elif event_keys and (filed := self._registrations.get(id(registration))) is not None:
                    found.update(filed.of_any)
                    for key in event_keys:
                        found.update(filed.by_key.get(key, ()))
        return list(found)

    def all(self) -> list[WaitingClass]:
        """Return every class."""
        return list(self._classes.values())

    def __len__(self) -> int:
        return len(self._classes)

    def _kind(self, rejectors: frozenset[str], gating_plugin: str) -> _Kind:
        plugins = frozenset({gating_plugin}) if gating_plugin else rejectors
        hints = [
            registration.pod_key
            for plugin in sorted(rejectors)
            for registration in self.registered.get(plugin, ())
            if registration.hint is not None
        ]
        known = [pod_key for pod_key in dict.fromkeys(hints) if pod_key is not None]
        return _Kind(plugins, tuple(known) if None not in hints else None)

    def _file(self, found: WaitingClass, registration: EventWithHint, pod: PodInfo) -> None:
        filed = self._registrations.setdefault(id(registration), _Registration())
        keys = self._waits_for_keys(registration, pod)
        if keys is None:
            filed.of_any[found] = None
        else:
            for key in keys:
                filed.by_key.setdefault(key, {})[found] = None
        found.places.append((filed, keys))

    def _read(self, kind: _Kind, queued: QueuedPodInfo) -> Hashable:
        """Return all that hints read of a pod; its uid if that is unknown."""
        pod = queued.pod
        if kind.pod_keys is None:
            return pod.uid
        try:
            read = tuple([each(pod) for each in kind.pod_keys])
            hash(read)
        except Exception:
            if id(kind.pod_keys) not in self._failed:
                self._failed.add(id(kind.pod_keys))
                logger.exception(
                    "What hints read of a pod is not known; it is asked about alone",
                    extra={"pod": pod.key, "plugins": sorted(kind.plugins)},
                )
            return pod.uid
        return read

    def _event_keys(
        self, plugin: str, registration: EventWithHint, old: Any, new: Any
    ) -> Collection[Hashable] | None:
        if registration.event_keys is None or id(registration) in self._failed:
            return None
        try:
            return registration.event_keys(old, new)
        except Exception:
            self._failed.add(id(registration))
            logger.exception(
                "What an event brings is not known; everybody is asked",
                extra={"plugin": plugin, "event": registration.event.label},
            )
            return None

    def _waits_for_keys(self, registration: EventWithHint, pod: PodInfo) -> Collection[Hashable] | None:
        assert registration.waits_for_keys is not None
        if id(registration) in self._failed:
            return None
        try:
            keys = registration.waits_for_keys(pod)
            return None if keys is None or len(keys) > _MOST_KEYS else frozenset(keys)
        except Exception:
            self._failed.add(id(registration))
            logger.exception(
                "What a pod awaits is not known; it is asked about at every event",
                extra={"pod": pod.key, "event": registration.event.label},
            )
            return None

    def check(self) -> None:
        """Assert the invariants."""
        for key, found in self._classes.items():
            assert found.key == key
            assert found.members, f"class {key} is kept without pods"
            for plugin in found.plugins:
                assert found in self._by_plugin[plugin], f"class {key} is not found by {plugin}"
        filed = sum(map(len, self._by_plugin.values()))
        assert filed == sum(len(found.plugins) for found in self._classes.values())
        for registration in self._registrations.values():
            for classes in (registration.of_any, *registration.by_key.values()):
                astray = [found.key for found in classes if self._classes.get(found.key) is not found]
                assert not astray, f"classes {astray} are filed and not there"
            assert all(registration.by_key.values()), "a key is kept without classes"


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
