"""What the cycles tell those who count; metrics live elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scheduler.cycle.decision import Decision
    from scheduler.framework.queued_pod import QueuedPodInfo


class CycleObserver(Protocol):
    """Is told how attempts at pods went, and what came in vain.

    Must neither raise nor change anything. Times are in seconds.
    """

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None:
        """The scheduling cycle of a pod has decided, for good or ill, in so much time."""
        ...

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        """An attempt ended as "scheduled", "unschedulable" or "error", so long after it began."""
        ...

    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None:
        """A pod is bound."""
        ...

    def binding(self, change: int) -> None:
        """A binding cycle began (1) or ended (-1)."""
        ...

    def undecodable(self, kind: str) -> None:
        """A version of an object came that nobody can read."""
        ...


class NoObserver:
    """Counts nothing."""

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None: ...
    def attempted(self, profile: str, result: str, seconds: float) -> None: ...
    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None: ...
    def binding(self, change: int) -> None: ...
    def undecodable(self, kind: str) -> None: ...
