"""Changes of objects, and watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.simulator.apimachinery.selectors import Selector
    from scheduler.simulator.storage.entries import Entry

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
