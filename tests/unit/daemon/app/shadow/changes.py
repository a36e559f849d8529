"""A handler that has only `turn`."""

from __future__ import annotations

from typing import Any

from scheduler.engine.cycle.event_handlers import EventHandler


class Turned(EventHandler[Any]):
    """Records the calls of `turn`; the watch does not call it."""

    def _added(self, obj: Any) -> Any: ...
    def _updated(self, old: Any, new: Any) -> Any: ...
    def _deleted(self, obj: Any) -> Any: ...
    def _undecodable(self, identity: Any, error: Any) -> None: ...
