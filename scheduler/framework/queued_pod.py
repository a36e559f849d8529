"""A pending pod, with its data in the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

ITS_GROUP: Final = "PodGroup"
"""The name that stands for a plugin if a pod is gated because it waits for other pods of its group."""


@dataclass(slots=True)
class QueuedPodInfo:
    """A pending pod in the queue; one object per pod uid, changed only by the queue.

    Times are seconds of the daemon's monotonic clock.

    Attributes:
        pod: the newest version of the pod.
        timestamp: when it last entered the queue; orders pods of equal priority.
        attempts: number of attempts, including the running one.
        initial_attempt_timestamp: time of the first attempt; None before.
        unschedulable_count: number of rejected attempts, for its backoff.
        consecutive_errors_count: number of consecutive attempts with an error, for its backoff.
        over_budget_count: number of consecutive attempts that exceeded their budget.
        quarantine_seconds: time in quarantine instead of backoff; 0 if its last attempt was within its budget.
        unschedulable_plugins: plugins that rejected it in its last attempt: their events may requeue it.
        pending_plugins: those of them that returned PENDING: their events requeue it without backoff.
        reason_codes: (code, plugin) of each cause for which its last attempt was rejected, or for which it is gated.
        gating_plugin: plugin whose PreEnqueue keeps it gated, or `ITS_GROUP`; "" for none.
        was_flushed_from_unschedulable: whether a flush without an event caused its current attempt.
        group: the group with which it is tried; None for none.
        try_at: when it is tried again without an event, if that is before the end of its wait for one; 0 for no such time.
    """

    pod: PodInfo
    timestamp: float
    attempts: int = 0
    initial_attempt_timestamp: float | None = None
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    over_budget_count: int = 0
    quarantine_seconds: float = 0.0
    unschedulable_plugins: frozenset[str] = field(default_factory=frozenset)
    pending_plugins: frozenset[str] = field(default_factory=frozenset)
    reason_codes: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    gating_plugin: str = ""
    was_flushed_from_unschedulable: bool = False
    group: GroupKey | None = None
    try_at: float = 0.0

    @property
    def is_gated(self) -> bool:
        return bool(self.gating_plugin)

    @property
    def is_held(self) -> bool:
        """Whether it waits for other pods of its group."""
        return self.gating_plugin == ITS_GROUP
