"""The subject of a board: a daemon that places pods, a cluster with another scheduler, or a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from scheduler.clock import rfc3339_micro
from scheduler.tools.board.pod_events import events_of
from scheduler.tools.whatif.live_cluster import read_pod_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.metrics import Metrics
    from scheduler.engine.cycle.attempt_log import AttemptLog, PastAttempt
    from scheduler.engine.cycle.group_explanation import GroupLog
    from scheduler.engine.cycle.preemption import PastPreemption
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.board.pod_events import PodEvent


class SubjectKind(Enum):
    """Which scheduler places the pods; the page compares the values."""

    DAEMON = "daemon"
    """This process, which keeps its attempts in memory."""
    CLUSTER = "cluster"
    """Another scheduler, whose messages are read from the pods; pods are evaluated here on request."""
    FILE = "file"
    """None: each pending pod was evaluated once."""


class PendingPod(NamedTuple):
    """A pending pod, with its entry in the queue if it has one."""

    pod: PodInfo
    queued: QueuedPodInfo | None


class DecisionLog(Protocol):
    """Recent decisions.

    Attributes:
        noted: number of decisions.
    """

    @property
    def noted(self) -> int: ...

    def since(self, serial: int, most: int) -> Sequence[dict[str, Any]]:
        """Return the decisions after a serial number, at most `most` of the newest, in order."""
        ...


class DaemonDecisions:
    """The decisions of an attempt log."""

    def __init__(self, attempts: AttemptLog) -> None:
        self._attempts = attempts

    @property
    def noted(self) -> int:
        return self._attempts.noted

    def since(self, serial: int, most: int) -> Sequence[dict[str, Any]]:
        return [
            {
                "serial": each.serial,
                "at": rfc3339_micro(each.at),
                "pod": each.decision.pod.key,
                "node": each.decision.node_name or None,
                "number": each.number,
                "seconds": each.seconds,
                "message": "" if each.decision.node_name else each.decision.status.message,
            }
            for each in self._attempts.since(serial, most)
        ]


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a board.

    Attributes:
        kind: which scheduler places the pods.
        parts: the state, the profiles and the queue.
        clock: the time.
        configuration: returns the active configuration.
        attempts: attempts in memory.
        decisions: recent decisions.
        metrics: the metrics; None if there are none.
        is_leading: returns whether this process is the leader.
        events: returns the events about a pod (`namespace/name`), or raises ApiError; None if events are not available.
        judge: evaluates a pending pod without attempts; None if attempts happen by themselves.
        group_attempts: attempts at pod groups in memory.
        preemptions: the preemptions of this process, the oldest first; None if another scheduler preempts.
        read_pod: reads a pod (`namespace/name`) as JSON from the API server, or raises ApiError; None without a server.
    """

    kind: SubjectKind
    parts: Parts
    clock: Clock
    configuration: Callable[[], Configuration]
    attempts: AttemptLog
    decisions: DecisionLog
    metrics: Metrics | None = None
    is_leading: Callable[[], bool] = field(default=_always)
    events: Callable[[str], Awaitable[Sequence[PodEvent]]] | None = None
    judge: Callable[[PodInfo], PastAttempt | None] | None = None
    group_attempts: GroupLog | None = None
    preemptions: Sequence[PastPreemption] | None = None
    read_pod: Callable[[str], Awaitable[bytes]] | None = None

    def pending(self) -> list[PendingPod]:
        """Return all pending pods, and those in flight."""
        if self.kind is not SubjectKind.CLUSTER:
            return [PendingPod(queued.pod, queued) for queued in self.parts.queue.pods()]
        return [
            PendingPod(pod, None)
            for pod in self.parts.pods.values()
            if not (pod.node_name or pod.is_terminal or pod.is_terminating)
        ]


def of_daemon(daemon: Daemon, clock: Clock) -> Subject:
    """Return the subject of a daemon."""
    attempts = daemon.cycles.attempts
    return Subject(
        SubjectKind.DAEMON,
        daemon.parts,
        clock,
        lambda: daemon.configuration,
        attempts,
        DaemonDecisions(attempts),
        metrics=daemon.metrics,
        is_leading=daemon.leadership.is_leading,
        events=partial(events_of, daemon),
        group_attempts=daemon.cycles.group_attempts,
        preemptions=daemon.cycles.past_preemptions,
        read_pod=partial(read_pod_json, daemon.connection),
    )
