"""A running daemon's state of one pod: its last attempt, and its history in the queue."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.clock import rfc3339_micro
from scheduler.daemon.app.gauges import group_queue_state, waiting_groups
from scheduler.engine.cycle.explanation import Explainer, explain
from scheduler.engine.cycle.group_explanation import about, brief, explain_untried
from scheduler.engine.cycle.group_remedies import GroupExplainer
from scheduler.engine.cycle.hypothetical import evaluate, unplaced
from scheduler.engine.cycle.verdict import with_verdict
from scheduler.engine.queue.pod_places import Place
from scheduler.engine.sharding.shards import is_passed_on
from scheduler.framework.events import with_event_names
from scheduler.framework.reasons import Cause
from scheduler.framework.status import SUCCESS
from scheduler.objects.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from scheduler.clock import Clock
    from scheduler.daemon.app.assembly import Parts
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.engine.cycle.attempt_log import AttemptLog, PastAttempt
    from scheduler.engine.cycle.group_explanation import GroupLog, PastGroupAttempt
    from scheduler.engine.queue.pod_places import Move
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework.features import Features
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

_DETAILS_SECONDS = 0.05
"""The time for plugins' details: the next pod waits meanwhile."""


def live_explanation(daemon: Daemon, key: str, clock: Clock) -> dict[str, Any] | None:
    """Explain a pod (`namespace/name`); None if the daemon does not know it.

    Returns:
        JSON values: `verdict`, in plain words; `pod`, `node` (null if it has none), `place` in the queue,
        `causes` of its last rejection there, or of its gates, each with `code` and `plugin`, its `history`
        there, oldest entry first,
        `schedulingGates`, the current ones, `held`, the plugins that hold it at Permit, each with `until`, `group`, the state of its group while it waits with one, else null, `attempt`:
        null before the first and after it was forgotten, else `at`, `number`, its duration in `seconds`, `chosen`,
        `nominates` (the nominated node, or null) and the explanation in the format of `explain --cluster`, with `details` of
        the current state, not of the attempt (of a pod on a node that waits in the queue: the attempt at its resize); and
        `now`, for this scheduler's pods on nodes the node that they would get if
        they had none: an explanation with `node`, else null.

    Raises:
        NeedsTime: a plugin needs more than one time slice; the caller must call again.
    """
    pod, attempted = known_of(daemon.parts, daemon.cycles.attempts, key)
    if pod is None:
        return None
    parts = daemon.parts
    answer = {
        "pod": key,
        "node": pod.node_name or None,
        "replica": other_replica(parts, pod),
        **in_the_queue(parts, pod, clock),
        "schedulingGates": [gate.name for gate in pod.pod.spec.scheduling_gates],
        "group": _group(daemon, pod),
        "held": held_at_permit(parts, pod, clock),
        "attempt": attempted and attempt_json(parts, pod, attempted, clock),
        "now": _now(parts, pod, attempted, clock) if pod.node_name else None,
    }
    return {"verdict": live_verdict(parts, pod, answer), **answer}


def other_replica(parts: Parts, pod: PodInfo) -> str | None:
    """Return the name of the other replica that decides about a pending pod; None if this one does."""
    if parts.profiles.shards is None or pod.node_name or parts.profiles.shards.decides(pod):
        return None
    return parts.profiles.shards.owner_of(pod) or None


def held_at_permit(parts: Parts, pod: PodInfo, clock: Clock) -> list[dict[str, Any]]:
    """Return which plugins hold a pod at Permit: `plugin`, and `until` when, after which it rejects the pod."""
    return [
        {"plugin": plugin, "until": rfc3339_micro(clock.utc_now() + timedelta(seconds=seconds))}
        for plugin, seconds in parts.waiting_pods.seconds_left(pod.uid).items()
    ]


def live_verdict(parts: Parts, pod: PodInfo, answer: Mapping[str, Any]) -> str:
    """Return the verdict about a pod in plain words; `answer` is as of `live_explanation`."""
    now, attempt = answer.get("now"), answer["attempt"]
    is_settled = pod.node_name and (answer["place"] == Place.OUTSIDE.value or pod.has_deferred_resize)
    if is_settled and now is not None and not pod.is_terminating:
        return str(now["verdict"])
    what = _why_not_ours(parts, pod, answer) or _why_no_attempt(parts, pod, answer)
    return f"Pod {pod.key} {what}" if what else str(attempt["verdict"])


def _why_not_ours(parts: Parts, pod: PodInfo, answer: Mapping[str, Any]) -> str:
    """Return why a pod does not wait for this scheduler; "" if it does."""
    profiles = parts.profiles.frameworks
    if pod.is_terminal:
        return f"has ended ({pod.pod.status.phase})."
    if pod.is_terminating or parts.pods.get(pod.key) is None:
        return "is being deleted." if pod.is_terminating else "has ended or is deleted."
    if pod.node_name and answer["place"] == Place.OUTSIDE.value:
        return f"is on node {pod.node_name}."
    if pod.scheduler_name not in profiles:
        return not_ours(pod.scheduler_name, profiles)
    replica = answer.get("replica")
    return f"belongs to replica {replica}, which knows why it waits." if replica else ""


def _why_no_attempt(parts: Parts, pod: PodInfo, answer: Mapping[str, Any]) -> str:
    """Return what a pod waits for, if that is not a node; "" if the last attempt tells it."""
    attempt, queued = answer["attempt"], parts.queue.get(pod.uid)
    if gates := answer["schedulingGates"]:
        return f"is not attempted: it waits for its scheduling gates {', '.join(gates)}."
    if parts.profiles.shards is not None and is_passed_on(pod):
        node_name = pod.pod.status.nominated_node_name
        owner = parts.profiles.shards.owner_of_node(node_name) or "no replica yet"
        return f"fits on node {node_name}; the replica to which the node belongs ({owner}) is to bind it."
    if held := answer.get("held"):
        plugins = " and ".join(f"{each['plugin']} (until {each['until']})" for each in held)
        where = f"fits on node {attempt['chosen']}, but" if attempt and attempt["chosen"] else "fits, but"
        return f"{where} is not bound yet: it is held at Permit by {plugins}."
    if queued is not None and queued.is_gated:
        return f"is not attempted: {_why(parts, queued).message}"
    return "" if attempt is not None else f"had no attempt yet (in the queue: {answer['place']})."


def not_ours(name: str, profiles: Iterable[str]) -> str:
    """Return that a pod has a schedulerName without a profile here, and the similar one, if there is one."""
    known = list(profiles)
    return (
        f"has schedulerName {name}, which this scheduler does not serve; its profiles are "
        f"{', '.join(known)}{did_you_mean(name, known) or '.'}"
    )


def known_of(parts: Parts, attempts: AttemptLog, key: str) -> tuple[PodInfo | None, PastAttempt | None]:
    """Return a pod (`namespace/name`), also a deleted one that is not yet forgotten, and the last attempt at it."""
    pod, attempted = parts.pods.get(key), attempts.last(key)
    if pod is None and attempted is not None:
        pod = attempted.decision.pod
    return pod, attempted


def live_groups(parts: Parts, attempts: GroupLog, key: str) -> dict[str, Any] | None:
    """Explain the groups named `namespace/name`, usually one; None if the scheduler knows none.

    Returns:
        JSON values: `groups`, each with `verdict` and `remedies` as in `cycle.group_remedies`, the last attempt as in
        `cycle.group_explanation`, with `at` and `seconds`, and its place in the queue as in `gauges.group_queue_state`. For
        a group without an attempt, why its pods are gated.
    """
    known = dict.fromkeys(each for each, _, _ in waiting_groups(parts) if each.key == key)
    known |= dict.fromkeys(attempts.called(key))
    explainer = GroupExplainer(
        parts.profiles.frameworks.get, parts.pods.get, parts.clock, parts.budget, seconds=_DETAILS_SECONDS
    )
    snapshot = parts.cache.snapshot()
    others = partial(parts.nominator.others, snapshot=snapshot)
    found = [
        explainer.complete(_known_json(parts, each, attempts.last(each)), snapshot, others) for each in known
    ]
    return {"groups": found} if found else None


def _known_json(parts: Parts, key: GroupKey, attempted: PastGroupAttempt | None) -> dict[str, Any]:
    if attempted is not None:
        details = {
            "at": rfc3339_micro(attempted.at),
            "seconds": round(attempted.seconds, 6),
            **attempted.explanation,
        }
    else:
        pending = [
            queued for uid in parts.cache.groups.pending(key) if (queued := parts.queue.get(uid)) is not None
        ]
        kept_back = {queued.pod.key: _why(parts, queued) for queued in pending}
        message = next((why.message for why in kept_back.values() if why.message), None)
        details = explain_untried(key, parts.profiles.pod_group(key), "gated", message, kept_back)
    return {**details, **group_queue_state(parts, key)}


def _why(parts: Parts, queued: QueuedPodInfo) -> Status:
    """Return why a pod is gated; a success if it is not."""
    return parts.profiles.run_pre_enqueue(queued.pod) if queued.is_gated else SUCCESS


def _group(daemon: Daemon, pod: PodInfo) -> dict[str, Any] | None:
    parts, key = daemon.parts, daemon.parts.profiles.group_of(pod)
    if key is None or pod.node_name:
        return None
    attempted = daemon.cycles.group_attempts.last(key)
    if attempted is None:
        untried: dict[str, Any] = {"result": None, "message": None, "fits": 0, "causes": []}
        members = parts.cache.groups.count(key)
        return {**about(key, parts.profiles.pod_group(key)), **untried, "members": members}
    return brief(attempted.explanation)


def attempt_json(parts: Parts, pod: PodInfo, attempted: PastAttempt, clock: Clock) -> dict[str, Any]:
    """Return the explanation of one attempt, with details of rejections by the current state."""
    explanation = explain(attempted.decision, attempted.names)
    framework = parts.profiles.frameworks.get(pod.scheduler_name)
    if framework is not None and (not pod.node_name or parts.profiles.tries_resize_of(pod)):
        snapshot = parts.cache.snapshot()
        nominated = parts.nominator.others(pod, snapshot)
        explanation = _explainer(parts, framework, clock).complete(explanation, pod, snapshot, nominated)
    return with_verdict(
        {
            "at": rfc3339_micro(attempted.at),
            "number": attempted.number,
            "seconds": attempted.seconds,
            "chosen": attempted.decision.node_name or None,
            "nominates": attempted.decision.nominated_node_name or None,
            **explanation,
        }
    )


def _now(parts: Parts, pod: PodInfo, attempted: PastAttempt | None, clock: Clock) -> dict[str, Any] | None:
    """Evaluate a pod on a node as if it had none; PostFilter is not called, because it acts."""
    framework = parts.profiles.frameworks.get(pod.scheduler_name)
    if framework is None or pod.is_terminal:
        return None
    node_name, explainer = pod.node_name, _explainer(parts, framework, clock)
    snapshot = parts.cache.snapshot()
    about_node = {"node": node_name, **explainer.protections(pod, snapshot)}
    if pod.has_deferred_resize:
        others = parts.nominator.others(pod, snapshot)
        resizing = partial(explainer.resize, pod, snapshot, others, yields_to_loop=True)
        about_node |= parts.budget.run_slice(resizing)
    if attempted is not None and attempted.decision.pod.uid == pod.uid:
        pod = attempted.decision.pod.placed_on(node_name)  # complete; the cache keeps less of pods on nodes
    pod, snapshot = unplaced(pod, snapshot)
    judging = partial(
        evaluate,
        framework,
        pod,
        snapshot,
        nominated=parts.nominator.others(pod, snapshot),
        explainer=explainer,
        avoided=parts.cache.pauses.rows(snapshot, at=clock.monotonic()),
        may_preempt=False,
        yields_to_loop=True,
    )
    _, explanation = parts.budget.run_slice(judging)
    return with_verdict({**explanation, **about_node})


def _explainer(parts: Parts, framework: Framework, clock: Clock) -> Explainer:
    return Explainer(framework, clock, seconds=_DETAILS_SECONDS, budget=parts.budget)


def in_the_queue(parts: Parts, pod: PodInfo, clock: Clock) -> dict[str, Any]:
    """Return a pod's place in the queue, why it was rejected or is gated, and its history."""
    since = clock.utc_now() - timedelta(seconds=clock.monotonic())
    queued = parts.queue.get(pod.uid)
    causes = [] if queued is None else sorted(queued.reason_codes)
    return {
        "place": parts.queue.place_of(pod.uid).value,
        "causes": [Cause(code, plugin).as_json() for code, plugin in causes],
        "history": [_line(move, since, parts.features) for move in parts.queue.history(pod.uid)],
    }


def _line(move: Move, since: datetime, features: Features) -> dict[str, str]:
    return {
        "at": rfc3339_micro(since + timedelta(seconds=move.at)),
        "from": move.start.value,
        "to": move.end.value,
        "why": with_event_names(move.why, features),
    }
