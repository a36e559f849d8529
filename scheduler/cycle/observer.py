"""What the cycles tell those who count; metrics live elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scheduler.queue.surroundings import QueueObserver
from scheduler.runtime.instruments import Instruments, NoInstruments

if TYPE_CHECKING:
    from scheduler.cycle.attempt import Decision
    from scheduler.framework.queued_pod import QueuedPodInfo


class CycleObserver(QueueObserver, Instruments, Protocol):
    """Is told how attempts at pods went, what happened, and what came in vain.

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

    def event_handled(self, event: str, seconds: float) -> None:
        """A watch event of that label was taken in, the cache and the queue brought up to date."""
        ...

    def undecodable(self, kind: str) -> None:
        """A version of an object came that nobody can read."""
        ...

    def extender_failed(self, extender: str, verb: str) -> None:
        """An extender could not do one of `filter`, `prioritize`, `preempt` and `bind`."""
        ...

    def preemption_attempted(self) -> None:
        """Room was looked for."""
        ...

    def preempted(self, victims: int) -> None:
        """A node was chosen, on which so many pods have to leave."""
        ...

    def preemption_ended(self, result: str, seconds: float) -> None:
        """All victims were told; `result` is `success` or `error`."""
        ...

    def rejected_by_kubelet(self, reason: str) -> None:
        """A kubelet rejected a pod for a reason such as `OutOfcpu`."""
        ...


class NoObserver(NoInstruments):
    """Counts nothing."""

    def incoming(self, queue: str, event: str) -> None: ...
    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None: ...
    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None: ...
    def attempted(self, profile: str, result: str, seconds: float) -> None: ...
    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None: ...
    def event_handled(self, event: str, seconds: float) -> None: ...
    def undecodable(self, kind: str) -> None: ...
    def extender_failed(self, extender: str, verb: str) -> None: ...
    def preemption_attempted(self) -> None: ...
    def preempted(self, victims: int) -> None: ...
    def preemption_ended(self, result: str, seconds: float) -> None: ...
    def rejected_by_kubelet(self, reason: str) -> None: ...
