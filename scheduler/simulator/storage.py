"""Versioned storage of one kind: its objects, what happened to them, and who watches.

Every change, of any kind, takes the next number of one counter. Of each kind the last changes are kept, so
that a watch or a list can go back to an earlier version; what lies further back has expired.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.status import expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.simulator.kinds import Kind
    from scheduler.simulator.selectors import Selector

Object = dict[str, Any]

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class Versions:
    """The one counter of resourceVersions."""

    def __init__(self) -> None:
        self.current = 0

    def next(self) -> int:
        self.current += 1
        return self.current


class Entry:
    """One version of one object; neither it nor its dict ever changes.

    Attributes:
        key: its place in listings, `namespace/name`, or the name of what has no namespace.
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
        """Return its JSON, encoded once per apiVersion it is read in."""
        raw = self._raw.get(kind.api_version)
        if raw is None:
            raw = self._raw[kind.api_version] = kind.encode(self.object)
        return raw

    def at_version(self, version: int) -> Entry:
        """Return the same object as if it had been written at another version."""
        metadata = self.object["metadata"] | {"resourceVersion": str(version)}
        return Entry(self.key, self.namespace, self.name, self.object | {"metadata": metadata}, version)


class Change:
    """One thing that happened to one object.

    Attributes:
        type: ADDED, MODIFIED or DELETED.
        entry: the object after it; of a DELETED one, the last state at the version of the deletion.
        previous: the object before it; None when it was added.
    """

    __slots__ = ("_left", "entry", "previous", "type")

    def __init__(self, type_: str, entry: Entry, previous: Entry | None) -> None:
        self.type = type_
        self.entry = entry
        self.previous = previous
        self._left: Entry | None = None

    def seen_through(self, selector: Selector) -> tuple[str, Entry] | None:
        """Return the event a watch with a selector gets, if any.

        An object that no longer matches arrives as DELETED, in the state it last matched in.
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
    """One watcher: what it selects, and the events it has not taken yet.

    Attributes:
        selector: what it sees.
        is_open: False once it was ended, by its owner or because it fell too far behind.
    """

    __slots__ = ("_events", "_limit", "_on_ready", "is_open", "selector")

    def __init__(self, selector: Selector, on_ready: Callable[[], None], limit: int) -> None:
        self.selector = selector
        self.is_open = True
        self._on_ready = on_ready
        self._limit = limit
        self._events: list[tuple[str, Entry]] = []

    def offer(self, change: Change) -> None:
        """Add a change to its events, if it selects it."""
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
        """End it; its owner is told through `on_ready`."""
        if self.is_open:
            self.is_open = False
            self._on_ready()


class Storage:
    """The objects of one kind."""

    def __init__(self, versions: Versions, history: int) -> None:
        """Start empty.

        Args:
            versions: the counter all kinds share.
            history: how many changes are kept.
        """
        self._versions = versions
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []  # sorted
        self._changes: deque[Change] = deque()
        self._history = history
        self._oldest = 0  # the oldest version that can be gone back to
        self._watches: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def put(self, key: str, namespace: str, name: str, obj: Object) -> Entry:
        """Store an object, which is not to be changed from here on."""
        previous = self._entries.get(key)
        version = self._versions.next()
        obj["metadata"]["resourceVersion"] = str(version)
        entry = self._entries[key] = Entry(key, namespace, name, obj, version)
        if previous is None:
            insort(self._keys, key)
        self._record(Change(ADDED if previous is None else MODIFIED, entry, previous))
        return entry

    def remove(self, key: str) -> Entry:
        """Take an object out; returns its last state, at the version of the deletion."""
        previous = self._entries.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        entry = previous.at_version(self._versions.next())
        self._record(Change(DELETED, entry, previous))
        return entry

    def entries(self, selector: Selector) -> list[Entry]:
        """List what is selected, in the order of keys."""
        entries = self._entries
        if selector.selects_all:
            return [entries[key] for key in self._keys]
        if not selector.namespace:
            found = [entries[key] for key in self._keys]
        else:
            start = bisect_left(self._keys, f"{selector.namespace}/")
            end = bisect_left(self._keys, f"{selector.namespace}0")  # "0" follows "/"
            found = [entries[key] for key in self._keys[start:end]]
        if not selector.has_predicates:
            return found
        return [entry for entry in found if selector.matches(entry.namespace, entry.object)]

    def entries_at(self, version: int, selector: Selector) -> list[Entry]:
        """List what was selected at an earlier version.

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
            selector: what it sees.
            on_ready: called when there is something to take, or the watch has ended.
            after: the version to go on from; None starts now.

        Returns:
            The watch, and what has happened since `after`.

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
        """End all watches: what they see is no longer served."""
        for watch in list(self._watches):
            watch.end()

    def compact(self) -> None:
        """Forget all history: no earlier version can be gone back to."""
        self._changes.clear()
        self._oldest = self._versions.current

    def _after(self, version: int) -> list[Change]:
        if not self._changes or self._changes[-1].entry.version <= version:
            return []
        return list(dropwhile(lambda change: change.entry.version <= version, self._changes))

    def _record(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > self._history:
            self._oldest = self._changes.popleft().entry.version
        for watch in list(self._watches):
            watch.offer(change)
