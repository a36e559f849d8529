"""What a running daemon knows of one pod: its last attempt as it was, and its story in the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scheduler.clock import rfc3339_micro
from scheduler.cycle.explanation import explain
from scheduler.cycle.refusal_details import RefusalDetails

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler.app.daemon import Daemon
    from scheduler.clock import Clock
    from scheduler.cycle.attempt_log import PastAttempt
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.places import Move

_DETAILS_SECONDS = 0.05
"""How long plugins are asked for details: the next pod waits meanwhile."""


def live_explanation(daemon: Daemon, key: str, clock: Clock) -> dict[str, Any] | None:
    """Tell of a pod by `namespace/name`; None if the daemon knows nothing of it.

    Returns:
        As JSON values: `pod`, `node` (where it is, or null), `place` in the queue, its `story` there, oldest first,
        and `attempt`: null before the first and after it was forgotten, else `at`, `number`, `chosen` and the
        explanation in the shape of `explain --cluster`. Its `details` are as of now, not as of the attempt.
    """
    pod = daemon.parts.pods.get(key)
    attempted = daemon.cycles.attempts.last(key)
    if pod is None:
        if attempted is None:
            return None
        pod = attempted.decision.pod  # deleted, and not yet forgotten
    return {
        "pod": key,
        "node": pod.node_name or None,
        **_in_the_queue(daemon, pod, clock),
        "attempt": attempted and _attempt(daemon, pod, attempted, clock),
    }


def _attempt(daemon: Daemon, pod: PodInfo, attempted: PastAttempt, clock: Clock) -> dict[str, Any]:
    explanation = explain(attempted.decision, attempted.names)
    framework = daemon.frameworks.get(pod.scheduler_name)
    if framework is not None and not pod.node_name:
        details = RefusalDetails(
            framework.plugins.all(), clock, seconds=_DETAILS_SECONDS, budget=daemon.parts.budget
        )
        details.add_to(explanation, pod, daemon.parts.cache.snapshot())
    return {
        "at": rfc3339_micro(attempted.at),
        "number": attempted.number,
        "chosen": attempted.decision.node_name or None,
        **explanation,
    }


def _in_the_queue(daemon: Daemon, pod: PodInfo, clock: Clock) -> dict[str, Any]:
    since = clock.utc_now() - timedelta(seconds=clock.monotonic())
    return {
        "place": daemon.parts.queue.place_of(pod.uid).value,
        "story": [_line(move, since) for move in daemon.parts.queue.story(pod.uid)],
    }


def _line(move: Move, since: datetime) -> dict[str, str]:
    return {
        "at": rfc3339_micro(since + timedelta(seconds=move.at)),
        "from": move.start.value,
        "to": move.end.value,
        "why": move.why,
    }
