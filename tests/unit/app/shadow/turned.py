"""A handler that is only told of turns."""

from __future__ import annotations

from typing import Any

from scheduler.cycle.event_handlers import EventHandler


class Turned(EventHandler[Any]):
    """Says by `turn` what it does; the watch tells it nothing."""

    def _added(self, obj: Any) -> Any: ...
    def _updated(self, old: Any, new: Any) -> Any: ...
    def _deleted(self, obj: Any) -> Any: ...
    def _undecodable(self, identity: Any, error: Any) -> None: ...
