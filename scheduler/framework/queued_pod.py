"""A pending pod, with what the queue knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


@dataclass(slots=True)
class QueuedPodInfo:
    """A pending pod on its way through the queue; one object per pod uid, changed by the queue only.

    Times are seconds of the daemon's monotonic clock.

    Attributes:
        pod: the newest version of the pod.
        timestamp: when it entered the queue last, which is what equals in priority are ordered by.
        attempts: how often it was tried, the running attempt included.
        initial_attempt_timestamp: when it was tried first; None before.
        unschedulable_count: attempts that ended in a rejection, for its backoff.
        consecutive_errors_count: attempts in a row that ended in an error, for its backoff.
        over_budget_count: attempts in a row that did not end within their budget.
        put_aside_seconds: how long it waits for that instead of backing off; 0 when its last attempt did end.
        unschedulable_plugins: who rejected it in its last attempt: whose events may wake it.
        pending_plugins: the ones among them that answered PENDING: their events wake it without backoff.
        gating_plugin: whose PreEnqueue keeps it gated; "" when none does.
        was_flushed_from_unschedulable: whether its present attempt is due to the flush and no event.
    """

    pod: PodInfo
    timestamp: float
    attempts: int = 0
    initial_attempt_timestamp: float | None = None
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    over_budget_count: int = 0
    put_aside_seconds: float = 0.0
    unschedulable_plugins: frozenset[str] = field(default_factory=frozenset)
    pending_plugins: frozenset[str] = field(default_factory=frozenset)
    gating_plugin: str = ""
    was_flushed_from_unschedulable: bool = False

    @property
    def is_gated(self) -> bool:
        return bool(self.gating_plugin)
