"""Versioned objects of each kind: current state, history and watches.

Every change, of any kind, takes the next number of one counter. The last changes of each kind are kept, so
that a watch or a list can start from an earlier version; older versions have expired.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.tools.simulator.apimachinery.status import expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.tools.simulator.apimachinery.kinds import Kind
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.selectors import Selector


class Versions:
    """The common counter of resourceVersions."""

    def __init__(self) -> None:
        self.current = 0

    def next(self) -> int:
        self.current += 1
        return self.current


class Entry:
    """One version of one object; neither it nor its dict ever changes.

    Attributes:
        key: its sort key in lists: `namespace/name`, or the name for cluster-scoped kinds.
        object: as stored.
        version: its resourceVersion.
    """

    __slots__ = ("_raw", "key", "name", "namespace", "object", "version")

    def __init__(self, key: str, namespace: str, name: str, obj: Object, version: int) -> None:
        self.key = key
        self.namespace = namespace
        self.name = name
        self.object = obj
        self.version = version
        self._raw: dict[str, bytes] = {}  # apiVersion -> JSON

    def raw(self, kind: Kind) -> bytes:
        """Return its JSON, encoded once per apiVersion."""
        raw = self._raw.get(kind.api_version)
        if raw is None:
            raw = self._raw[kind.api_version] = kind.encode(self.object)
        return raw

    def unstored(self, obj: Object) -> Entry:
        """Return a copy of the entry with another object, which is not stored."""
        return Entry(self.key, self.namespace, self.name, obj, self.version)

    def at_version(self, version: int) -> Entry:
        """Return the same object with another version."""
        metadata = self.object["metadata"] | {"resourceVersion": str(version)}
        return Entry(self.key, self.namespace, self.name, self.object | {"metadata": metadata}, version)


ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class Change:
    """One change of one object.

    Attributes:
        type: ADDED, MODIFIED or DELETED.
        entry: the object after the change; for DELETED, the last state at the version of the deletion.
        previous: the object before the change; None for ADDED.
    """

    __slots__ = ("_left", "entry", "previous", "type")

    def __init__(self, type_: str, entry: Entry, previous: Entry | None) -> None:
        self.type = type_
        self.entry = entry
        self.previous = previous
        self._left: Entry | None = None

    def seen_through(self, selector: Selector) -> tuple[str, Entry] | None:
        """Return the event for a watch with a selector, if any.

        An object that no longer matches is sent as DELETED, in the last state that matched.
        """
        if selector.selects_all:
            return self.type, self.entry
        entry, previous = self.entry, self.previous
        matches = self.type != DELETED and selector.matches(entry.namespace, entry.object)
        matched = previous is not None and selector.matches(previous.namespace, previous.object)
        if matches:
            return (MODIFIED if matched else ADDED), entry
        if not matched:
            return None
        if self.type == DELETED:
            return DELETED, entry
        assert previous is not None
        if self._left is None:
            self._left = previous.at_version(entry.version)
        return DELETED, self._left


class Watch:
    """One watch: its selector, and the events not taken yet.

    Attributes:
        selector: the objects it sees.
        is_open: False once it was ended, by its owner or because it was too slow.
    """

    __slots__ = ("_events", "_limit", "_on_ready", "is_open", "selector")

    def __init__(self, selector: Selector, on_ready: Callable[[], None], limit: int) -> None:
        self.selector = selector
        self.is_open = True
        self._on_ready = on_ready
        self._limit = limit
        self._events: list[tuple[str, Entry]] = []

    def offer(self, change: Change) -> None:
        """Add a change to its events, if the selector matches."""
        event = change.seen_through(self.selector)
        if event is None or not self.is_open:
            return
        self._events.append(event)
        if len(self._events) > self._limit:
            self.is_open = False
        if len(self._events) == 1 or not self.is_open:
            self._on_ready()

    def take(self) -> list[tuple[str, Entry]]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def end(self) -> None:
        """End the watch; its owner is notified through `on_ready`."""
        if self.is_open:
            self.is_open = False
            self._on_ready()


class Backup(NamedTuple):
    """The objects and the history of one kind at a moment."""

    entries: dict[str, Entry]
    changes: tuple[Change, ...]
    oldest: int


class Storage:
    """The objects of one kind."""

    def __init__(self, versions: Versions, history: int) -> None:
        """Start empty, with the common counter, to keep `history` changes."""
        self._versions = versions
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []  # sorted
        self._changes: deque[Change] = deque()
        self._history = history
        self._oldest = 0  # the oldest version that is still available
        self._watches: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def put(self, key: str, namespace: str, name: str, obj: Object) -> Entry:
        """Store an object; do not change it afterwards."""
        previous = self._entries.get(key)
        version = self._versions.next()
        obj["metadata"]["resourceVersion"] = str(version)
        entry = self._entries[key] = Entry(key, namespace, name, obj, version)
        if previous is None:
            insort(self._keys, key)
        self._record(Change(ADDED if previous is None else MODIFIED, entry, previous))
        return entry

    def remove(self, key: str) -> Entry:
        """Remove an object; returns its last state, at the version of the deletion."""
        previous = self._entries.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        entry = previous.at_version(self._versions.next())
        self._record(Change(DELETED, entry, previous))
        return entry

    def entries(self, selector: Selector) -> list[Entry]:
        """Return the selected entries, in the order of keys."""
        keys = self._keys
        if selector.namespace:
            start = bisect_left(keys, f"{selector.namespace}/")
            keys = keys[start : bisect_left(keys, f"{selector.namespace}0")]  # "0" follows "/"
        found = [self._entries[key] for key in keys]
        if not selector.has_predicates:
            return found
        return [entry for entry in found if selector.matches(entry.namespace, entry.object)]

    def entries_at(self, version: int, selector: Selector) -> list[Entry]:
        """Return the entries selected at an earlier version.

        Raises:
            StatusError: 410, that version is no longer kept.
        """
        if version < self._oldest:
            raise expired("The resourceVersion for the provided list is too old.")
        later = self._after(version)
        if not later:
            return self.entries(selector)
        entries = dict(self._entries)
        for change in reversed(later):
            if change.previous is None:
                del entries[change.entry.key]
            else:
                entries[change.entry.key] = change.previous
        return [
            entries[key]
            for key in sorted(entries)
            if selector.matches(entries[key].namespace, entries[key].object)
        ]

    def watch(
        self, selector: Selector, on_ready: Callable[[], None], *, after: int | None = None
    ) -> tuple[Watch, list[tuple[str, Entry]]]:
        """Start a watch.

        Args:
            selector: the objects it sees.
            on_ready: called when there are events to take, or the watch has ended.
            after: the version to continue from; None for now.

        Returns:
            The watch, and the events since `after`.

        Raises:
            StatusError: 410, that version is no longer kept.
        """
        past: Iterable[tuple[str, Entry] | None] = ()
        if after is not None:
            if after < self._oldest:
                raise expired(f"too old resource version: {after} ({self._oldest})")
            past = [change.seen_through(selector) for change in self._after(after)]
        watch = Watch(selector, on_ready, limit=self._history)
        self._watches[watch] = None
        return watch, [event for event in past if event is not None]

    def unwatch(self, watch: Watch) -> None:
        watch.is_open = False
        self._watches.pop(watch, None)

    def end_watches(self) -> None:
        """End all watches, because the kind is no longer served."""
        for watch in list(self._watches):
            watch.end()

    def compact(self) -> None:
        """Drop all history: earlier versions are no longer available."""
        self._changes.clear()
        self._oldest = self._versions.current

    def backup(self) -> Backup:
        return Backup(dict(self._entries), tuple(self._changes), self._oldest)

    def restore(self, backup: Backup) -> None:
        """Restore a backup; the counter is not changed.

        Open watches see the difference as changes, as a client would find it by a list.
        """
        before, self._entries = self._entries, dict(backup.entries)
        self._keys = sorted(self._entries)
        self._changes, self._oldest = deque(backup.changes), backup.oldest
        for change in _differences(before, self._entries):
            self._offer(change)

    def _after(self, version: int) -> list[Change]:
        if not self._changes or self._changes[-1].entry.version <= version:
            return []
        return list(dropwhile(lambda change: change.entry.version <= version, self._changes))

    def _record(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > self._history:
            self._oldest = self._changes.popleft().entry.version
        self._offer(change)

    def _offer(self, change: Change) -> None:
        for watch in list(self._watches):
            watch.offer(change)


def _differences(before: dict[str, Entry], after: dict[str, Entry]) -> Iterator[Change]:
    kept = {key for key, entry in after.items() if key in before and _uid(before[key]) == _uid(entry)}
    for key, entry in before.items():
        if key not in kept:
            yield Change(DELETED, entry, entry)
    for key, entry in after.items():
        if key not in kept:
            yield Change(ADDED, entry, None)
        elif entry is not before[key]:
            yield Change(MODIFIED, entry, before[key])


def _uid(entry: Entry) -> object:
    return entry.object["metadata"].get("uid")
