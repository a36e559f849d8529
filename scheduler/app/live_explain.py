"""What a running daemon knows of one pod: its last attempt as it was, and its story in the queue."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.app.group_standing import standing, waiting_groups
from scheduler.clock import rfc3339_micro
from scheduler.cycle.explanation import explain
from scheduler.cycle.group_explanation import about, brief, explain_untried
from scheduler.cycle.hypothetical import judge, unplaced
from scheduler.cycle.refusal_details import RefusalDetails
from scheduler.cycle.scheduling import nominated_others

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler.app.assembly import Parts
    from scheduler.app.daemon import Daemon
    from scheduler.clock import Clock
    from scheduler.cycle.attempt_log import AttemptLog, PastAttempt
    from scheduler.cycle.group_log import PastGroupAttempt
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.queue.places import Move
    from scheduler.runtime.framework import Framework

_DETAILS_SECONDS = 0.05
"""How long plugins are asked for details: the next pod waits meanwhile."""


def live_explanation(daemon: Daemon, key: str, clock: Clock) -> dict[str, Any] | None:
    """Tell of a pod by `namespace/name`; None if the daemon knows nothing of it.

    Returns:
        As JSON values: `pod`, `node` (where it is, or null), `place` in the queue, its `story` there, oldest first,
        `schedulingGates`, those that it has now, `group`, how the group it waits with fares, null of others, `attempt`: null before the first and after it was forgotten, else `at`,
        `number`, how many `seconds` it took, `chosen`, `nominates` (where room is made for it, or null) and the explanation in
        the shape of `explain --cluster`, whose `details` are as of now, not as of the attempt; and `now`, where a pod of ours
        that is on a node would go if it were on none: an explanation with `node`, null of other pods.

    Raises:
        NeedsTime: a plugin needs more time than one turn of the event loop; to be asked again.
    """
    pod, attempted = known_of(daemon.parts, daemon.cycles.attempts, key)
    if pod is None:
        return None
    return {
        "pod": key,
        "node": pod.node_name or None,
        **in_the_queue(daemon.parts, pod, clock),
        "schedulingGates": [gate.name for gate in pod.pod.spec.scheduling_gates],
        "group": _group(daemon, pod),
        "attempt": attempted and attempt_as_told(daemon.parts, pod, attempted, clock),
        "now": _now(daemon.parts, pod, attempted, clock) if pod.node_name else None,
    }


def known_of(parts: Parts, attempts: AttemptLog, key: str) -> tuple[PodInfo | None, PastAttempt | None]:
    """Return a pod by `namespace/name`, also one that is deleted and not yet forgotten, and the last attempt at it."""
    pod, attempted = parts.pods.get(key), attempts.last(key)
    if pod is None and attempted is not None:
        pod = attempted.decision.pod
    return pod, attempted


def live_groups(daemon: Daemon, key: str) -> dict[str, Any] | None:
    """Tell of the groups called `namespace/name`, mostly one; None if the daemon knows none.

    Returns:
        As JSON values: `groups`, each as `cycle.group_explanation` has the last attempt, with `at` and `seconds`, and as
        `group_standing.standing` has its place in the queue. Of one that was not tried yet, why its pods are kept back.
    """
    parts, attempts = daemon.parts, daemon.cycles.group_attempts
    known = dict.fromkeys(each for each, _, _ in waiting_groups(parts) if each.key == key)
    known |= dict.fromkeys(attempts.called(key))
    found = [_told(parts, each, attempts.last(each)) for each in known]
    return {"groups": found} if found else None


def _told(parts: Parts, key: GroupKey, attempted: PastGroupAttempt | None) -> dict[str, Any]:
    if attempted is not None:
        told = {
            "at": rfc3339_micro(attempted.at),
            "seconds": round(attempted.seconds, 6),
            **attempted.explanation,
        }
    else:
        pending = [
            queued for uid in parts.cache.groups.pending(key) if (queued := parts.queue.get(uid)) is not None
        ]
        kept_back = {queued.pod.key: _why(parts, queued) for queued in pending}
        message = next((why for why in kept_back.values() if why), None)
        told = explain_untried(key, parts.profiles.pod_group(key), "gated", message, kept_back)
    return {**told, **standing(parts, key)}


def _why(parts: Parts, queued: QueuedPodInfo) -> str:
    """Return why a pod is kept back; "" of one that is not."""
    return parts.profiles.run_pre_enqueue(queued.pod).message if queued.is_gated else ""


def _group(daemon: Daemon, pod: PodInfo) -> dict[str, Any] | None:
    parts, key = daemon.parts, daemon.parts.profiles.group_of(pod)
    if key is None or pod.node_name:
        return None
    attempted = daemon.cycles.group_attempts.last(key)
    if attempted is None:
        untried = {"result": None, "message": None, "fits": 0, "members": parts.cache.groups.count(key)}
        return {**about(key, parts.profiles.pod_group(key)), **untried}
    return brief(attempted.explanation)


def attempt_as_told(parts: Parts, pod: PodInfo, attempted: PastAttempt, clock: Clock) -> dict[str, Any]:
    """Tell of one attempt, the details of what was refused as of now."""
    explanation = explain(attempted.decision, attempted.names)
    framework = parts.profiles.frameworks.get(pod.scheduler_name)
    if framework is not None and not pod.node_name:
        snapshot = parts.cache.snapshot()
        nominated = nominated_others(parts.nominator, pod, snapshot)
        _details(parts, framework, clock).add_to(explanation, pod, snapshot, nominated)
    return {
        "at": rfc3339_micro(attempted.at),
        "number": attempted.number,
        "seconds": attempted.seconds,
        "chosen": attempted.decision.node_name or None,
        "nominates": attempted.decision.nominated_node_name or None,
        **explanation,
    }


def _now(parts: Parts, pod: PodInfo, attempted: PastAttempt | None, clock: Clock) -> dict[str, Any] | None:
    """Judge a pod on a node as if it were on none; PostFilter is not asked, since it acts."""
    framework = parts.profiles.frameworks.get(pod.scheduler_name)
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
        details=_details(parts, framework, clock),
        avoided=parts.cache.pauses.rows(snapshot, at=clock.monotonic()),
        makes_room=False,
        gives_way=True,
    )
    _, explanation = parts.budget.stretch(judging)
    return {**explanation, "node": node_name}


def _details(parts: Parts, framework: Framework, clock: Clock) -> RefusalDetails:
    plugins, budget = framework.plugins.all(), parts.budget
    return RefusalDetails(plugins, clock, seconds=_DETAILS_SECONDS, budget=budget)


def in_the_queue(parts: Parts, pod: PodInfo, clock: Clock) -> dict[str, Any]:
    """Tell where a pod is, and its story."""
    since = clock.utc_now() - timedelta(seconds=clock.monotonic())
    return {
        "place": parts.queue.place_of(pod.uid).value,
        "story": [_line(move, since) for move in parts.queue.story(pod.uid)],
    }


def _line(move: Move, since: datetime) -> dict[str, str]:
    return {
        "at": rfc3339_micro(since + timedelta(seconds=move.at)),
        "from": move.start.value,
        "to": move.end.value,
        "why": move.why,
    }
