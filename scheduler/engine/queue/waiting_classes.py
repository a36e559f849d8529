"""The waiting pods of one profile, indexed by the events that could help them.

Pods for which every hint returns the same are one class, and hints are called once for a class: twenty thousand pods
of one Deployment need one call. Classes are indexed by the plugins that could requeue them. Where a plugin returns the
keys of an event, they are also indexed by key: a changed label leads only to the classes that select it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from scheduler.engine.queue.hints import Listeners, Registered
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

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
