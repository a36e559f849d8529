"""Versioned storage of one kind: its objects, their history, and the watches.

Every change, of any kind, takes the next number of one counter. The last changes of each kind are kept, so
that a watch or a list can start from an earlier version; older versions have expired.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from scheduler.simulator.apimachinery.status import expired
from scheduler.simulator.storage.entries import Entry, Versions
from scheduler.simulator.storage.watches import ADDED, DELETED, MODIFIED, Change, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.selectors import Selector


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
