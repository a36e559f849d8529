"""A handler behind the gate: while a cycle waits for an extender, what it is told waits as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from scheduler.client.store import Handler
    from scheduler.client.wire import ObjectIdentity
    from scheduler.cycle.gate import Gate
    from scheduler.errors import ObjectError

T = TypeVar("T")


class GatedHandler(Generic[T]):
    """Tells another handler what it is told, at once or once the gate opens."""

    def __init__(self, handler: Handler[T], gate: Gate) -> None:
        self._handler = handler
        self._gate = gate

    def on_add(self, obj: T) -> None:
        """Note an object that was not known."""
        self._gate.when_open(lambda: self._handler.on_add(obj))

    def on_update(self, old: T, new: T) -> None:
        """Note another version of an object."""
        self._gate.when_open(lambda: self._handler.on_update(old, new))

    def on_delete(self, old: T) -> None:
        """Note that an object is gone."""
        self._gate.when_open(lambda: self._handler.on_delete(old))

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        """Note a version that nobody can read."""
        self._gate.when_open(lambda: self._handler.on_undecodable(identity, error))
