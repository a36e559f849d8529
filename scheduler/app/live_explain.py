"""What a running daemon knows of one pod: its last attempt as it was, and its story in the queue."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.clock import rfc3339_micro
from scheduler.cycle.explanation import explain
from scheduler.cycle.hypothetical import judge, unplaced
from scheduler.cycle.refusal_details import RefusalDetails
from scheduler.cycle.scheduling import nominated_others

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler.app.daemon import Daemon
    from scheduler.clock import Clock
    from scheduler.cycle.attempt_log import PastAttempt
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.places import Move
    from scheduler.runtime.framework import Framework

_DETAILS_SECONDS = 0.05
"""How long plugins are asked for details: the next pod waits meanwhile."""


def live_explanation(daemon: Daemon, key: str, clock: Clock) -> dict[str, Any] | None:
    """Tell of a pod by `namespace/name`; None if the daemon knows nothing of it.

    Returns:
        As JSON values: `pod`, `node` (where it is, or null), `place` in the queue, its `story` there, oldest first,
        `attempt`: null before the first and after it was forgotten, else `at`, `number`, `chosen`, `nominates` (where room
        is made for it, or null) and the explanation in the shape of `explain --cluster`, whose `details` are as of now,
        not as of the attempt; and `now`, where a pod of ours that is on a node would go if it were on none: an explanation
        with `node`, null of other pods.
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
        "now": _now(daemon, pod, attempted, clock) if pod.node_name else None,
    }


def _attempt(daemon: Daemon, pod: PodInfo, attempted: PastAttempt, clock: Clock) -> dict[str, Any]:
    explanation = explain(attempted.decision, attempted.names)
    framework = daemon.frameworks.get(pod.scheduler_name)
    if framework is not None and not pod.node_name:
        snapshot = daemon.parts.cache.snapshot()
        nominated = nominated_others(daemon.parts.nominator, pod, snapshot)
        _details(daemon, framework, clock).add_to(explanation, pod, snapshot, nominated)
    return {
        "at": rfc3339_micro(attempted.at),
        "number": attempted.number,
        "chosen": attempted.decision.node_name or None,
        "nominates": attempted.decision.nominated_node_name or None,
        **explanation,
    }


def _now(daemon: Daemon, pod: PodInfo, attempted: PastAttempt | None, clock: Clock) -> dict[str, Any] | None:
    """Judge a pod on a node as if it were on none; PostFilter is not asked, since it acts."""
    framework, parts = daemon.frameworks.get(pod.scheduler_name), daemon.parts
    if framework is None or pod.is_terminal:
        return None
    node_name = pod.node_name
    if attempted is not None and attempted.decision.pod.uid == pod.uid:
        pod = attempted.decision.pod.placed_on(node_name)  # whole; of pods on nodes less is kept
    pod, snapshot = unplaced(pod, parts.cache.snapshot())
    judging = partial(
        judge,
        framework,
        pod,
        snapshot,
        nominated=nominated_others(parts.nominator, pod, snapshot),
        details=_details(daemon, framework, clock),
        avoided=parts.cache.pauses.rows(snapshot, at=clock.monotonic()),
        makes_room=False,
    )
    _, explanation = parts.budget.stretch(judging)
    return {**explanation, "node": node_name}


def _details(daemon: Daemon, framework: Framework, clock: Clock) -> RefusalDetails:
    plugins, budget = framework.plugins.all(), daemon.parts.budget
    return RefusalDetails(plugins, clock, seconds=_DETAILS_SECONDS, budget=budget)


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
