"""What a board shows: a daemon that places pods, a cluster that others place pods in, or a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from scheduler.board.events import events_of
from scheduler.clock import rfc3339_micro

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.app.assembly import Parts
    from scheduler.app.daemon import Daemon
    from scheduler.board.events import PodEvent
    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.cycle.attempt_log import AttemptLog, PastAttempt
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.metrics import Metrics
    from scheduler.objects.pod import PodInfo


class Kind(Enum):
    """Who places the pods; the values are the words that the page knows."""

    DAEMON = "daemon"
    """This process, which remembers its attempts."""
    CLUSTER = "cluster"
    """Others, whose words are read from the pods; what would be decided here is found out when somebody asks."""
    FILE = "file"
    """Nobody: each pending pod was judged once."""


class Pending(NamedTuple):
    """A pod that waits; without what a queue knows of it where it is in none."""

    pod: PodInfo
    queued: QueuedPodInfo | None


class Decisions(Protocol):
    """What was decided lately.

    Attributes:
        noted: how many decisions there were.
    """

    @property
    def noted(self) -> int: ...

    def since(self, serial: int, most: int) -> Sequence[dict[str, Any]]:
        """Tell of what came after so many, of the last of it at most so many, in order."""
        ...


class OwnDecisions:
    """Those that an attempt log has."""

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
    """What is shown.

    Attributes:
        kind: who places the pods.
        parts: the state, the profiles and the queue.
        clock: the time.
        configuration: gives what is in force.
        attempts: what is remembered of attempts.
        decisions: what was decided lately.
        metrics: what is counted; None where nothing is.
        is_leading: whether this process is the one that places pods.
        events: gives the events about a pod by `namespace/name`, or raises ApiError; None where there are none to be had.
        judge: decides now about a pending pod of which no attempt is remembered; None where that comes by itself.
    """

    kind: Kind
    parts: Parts
    clock: Clock
    configuration: Callable[[], Configuration]
    attempts: AttemptLog
    decisions: Decisions
    metrics: Metrics | None = None
    is_leading: Callable[[], bool] = field(default=_always)
    events: Callable[[str], Awaitable[Sequence[PodEvent]]] | None = None
    judge: Callable[[PodInfo], PastAttempt | None] | None = None

    def pending(self) -> list[Pending]:
        """Return every pod that waits, or is being placed at this moment."""
        if self.kind is not Kind.CLUSTER:
            return [Pending(queued.pod, queued) for queued in self.parts.queue.pods()]
        return [
            Pending(pod, None)
            for pod in self.parts.pods.values()
            if not (pod.node_name or pod.is_terminal or pod.is_terminating)
        ]


def of_daemon(daemon: Daemon, clock: Clock) -> Subject:
    """Show a daemon."""
    attempts = daemon.cycles.attempts
    return Subject(
        Kind.DAEMON,
        daemon.parts,
        clock,
        lambda: daemon.configuration,
        attempts,
        OwnDecisions(attempts),
        metrics=daemon.metrics,
        is_leading=daemon.leadership.is_leading,
        events=partial(events_of, daemon),
    )
