"""The board's data about one pod or one node, on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.clock import rfc3339_micro
from scheduler.daemon.app.live_explain import (
    attempt_json,
    held_at_permit,
    in_the_queue,
    live_verdict,
    other_replica,
)
from scheduler.errors import ApiError
from scheduler.framework.interface import ExtensionPoint
from scheduler.tools.board.subject import SubjectKind
from scheduler.tools.board.tiles import flags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.engine.cycle.attempt_log import PastAttempt
    from scheduler.engine.runtime.framework import Framework
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import Toleration
    from scheduler.tools.board.subject import Subject

_MOST_FOUND = 50
_PODS_AT_A_TIME = 20_000


def pod_details(subject: Subject, key: str, number: int | None = None) -> dict[str, Any] | None:
    """Return the data about a pod (`namespace/name`); None if the pod is unknown.

    Args:
        subject: the subject of the board.
        key: the pod.
        number: number of the attempt to show; None for the last one.

    Returns:
        As JSON values: the fields of `live_explanation`; `attempts`, newest first, each with `number`, `at`, `seconds`,
        `chosen` and `message`; `weights` of the profile's plugins; the pod's requests, `labels`, `nodeSelector`,
        `tolerations` as text, its controller as `owner`, `Kind/name`, and its `group`, `namespace/name` or null. If another scheduler places the pod, the only attempt
        is an evaluation now, and `isEvaluation` is true.
    """
    pod = subject.parts.pods.get(key)
    attempts: Sequence[PastAttempt] = subject.attempts.of(key)
    if pod is None:
        if not attempts:
            return None
        pod = attempts[0].decision.pod  # deleted, but still in memory
    if not attempts and subject.judge is not None and not pod.node_name:
        evaluated = subject.judge(pod)
        attempts = [] if evaluated is None else [evaluated]
    details = next((each for each in attempts if number in {None, each.number}), None)
    framework = subject.parts.profiles.frameworks.get(pod.scheduler_name)
    group = subject.parts.profiles.group_of(pod)
    found = {
        "pod": key,
        "node": pod.node_name or None,
        "nominated": pod.pod.status.nominated_node_name or None,
        "scheduler": pod.scheduler_name,
        "replica": other_replica(subject.parts, pod),
        "priority": pod.priority,
        "since": pod.pod.metadata.creation_timestamp,
        "requests": dict(pod.resources.requests),
        "labels": dict(pod.labels),
        "owner": owner_of(pod),
        "group": None if group is None else group.key,
        "nodeSelector": dict(pod.pod.spec.node_selector),
        "tolerations": [_toleration(each) for each in pod.pod.spec.tolerations],
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in pod.pod.status.conditions
            if each.type == "PodScheduled"
        ],
        **in_the_queue(subject.parts, pod, subject.clock),
        "isEvaluation": subject.kind is not SubjectKind.DAEMON,
        "weights": {} if framework is None else _weights(framework),
        "attempts": [_line(each) for each in attempts],
        "schedulingGates": [gate.name for gate in pod.pod.spec.scheduling_gates],
        "held": held_at_permit(subject.parts, pod, subject.clock),
        "attempt": details and attempt_json(subject.parts, pod, details, subject.clock),
    }
    return {"verdict": live_verdict(subject.parts, pod, found), **found}


async def pod_events(subject: Subject, key: str) -> dict[str, Any] | None:
    """Return the events about a pod.

    Returns:
        As JSON values, `events`, newest first, or the `problem` with reading them; None if events are not available.
    """
    if subject.events is None:
        return None
    try:
        events = await subject.events(key)
    except ApiError as error:
        return {"problem": str(error)}
    return {"events": [each._asdict() for each in sorted(events, reverse=True)]}


def owner_of(pod: PodInfo) -> str:
    """Return the controller of a pod as `Kind/name`; "" if it has none."""
    references = pod.pod.metadata.owner_references
    return next((f"{each.kind}/{each.name}" for each in references if each.controller), "")


def _toleration(toleration: Toleration) -> str:
    """Return the taints that a toleration covers, as `key=value:effect`."""
    key, operator, value = toleration.key, toleration.operator, toleration.value
    sign = {"Exists": "", "Gt": ">", "Lt": "<"}.get(operator, "=")
    taints = f"{key}{sign}{value}" if key else "all taints"
    return f"{taints}:{toleration.effect}" if toleration.effect else taints


def _weights(framework: Framework) -> dict[str, int]:
    plugins = framework.plugins
    return {each.name: plugins.weights.get(each.name, 1) for each in plugins.at.get(ExtensionPoint.SCORE, ())}


def _line(attempt: PastAttempt) -> dict[str, Any]:
    decision = attempt.decision
    return {
        "number": attempt.number,
        "at": rfc3339_micro(attempt.at),
        "seconds": attempt.seconds,
        "chosen": decision.node_name or None,
        "message": "" if decision.node_name else decision.status.message,
    }


def node_details(subject: Subject, name: str) -> dict[str, Any] | None:
    """Return the data about a node and its pods, by priority; None if there is no such node."""
    snapshot = subject.parts.cache.snapshot()
    row = snapshot.row_of(name)
    if row is None:
        return None
    node = snapshot.nodes[row]
    pods = sorted(snapshot.pods_on(row), key=lambda pod: (-pod.priority, pod.key))
    paused = subject.parts.cache.pauses.rows(snapshot, at=subject.clock.monotonic())
    return {
        "node": name,
        "flags": flags_of(node),
        "rests": paused.get(row, ""),
        "replica": None
        if subject.parts.profiles.shards is None
        else subject.parts.profiles.shards.owner_of_node(name),
        "labels": dict(node.labels),
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints],
        "conditions": {each.type: each.status for each in node.node.status.conditions},
        "allocatable": dict(node.allocatable),
        "requested": {**snapshot.requested_on(row), "pods": len(pods)},
        "pods": [_on_node(pod) for pod in pods],
    }


def _on_node(pod: PodInfo) -> dict[str, Any]:
    return {"pod": pod.key, "priority": pod.priority, "requests": dict(pod.resources.requests)}


def found_pods(subject: Subject, words: str) -> Iterator[list[str]]:
    """Yield the pods whose `namespace/name` contains a text, at most 50 in all, a few milliseconds at a time."""
    keys, left = list(subject.parts.pods), _MOST_FOUND
    for start in range(0, len(keys), _PODS_AT_A_TIME):
        found = [key for key in keys[start : start + _PODS_AT_A_TIME] if words in key][:left]
        left -= len(found)
        yield found
        if not left:
            return
