"""What the queue tells those who count: metrics live elsewhere."""

from __future__ import annotations

from typing import Protocol


class QueueObserver(Protocol):
    """Is told of what cannot be read from the queue afterwards. Must neither raise nor call the queue."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered "active", "backoff" or "unschedulable" because of an event."""
        ...

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        """A plugin was asked whether an event helps a pod; the result is "Queue", "QueueSkip" or "Error"."""
        ...


class NoObserver:
    """Counts nothing."""

    def incoming(self, queue: str, event: str) -> None:
        return

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        return
