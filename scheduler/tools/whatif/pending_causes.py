"""Pending pods, grouped by the causes in the messages of their schedulers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo

_HEAD = re.compile(r"0/(\d+) nodes are available: ?")
_BETWEEN = re.compile(r", (?=\d+ )")
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)
_POST_FILTER = re.compile(r"\. (?=no new claims to deallocate|preemption: )")
"""Beginning of the part from PostFilter plugins."""


class PendingCause(NamedTuple):
    """One reason.

    Attributes:
        reason: the plugin's text.
        nodes: number of nodes rejected for it; None if it concerns the pod.
    """

    reason: str
    nodes: int | None


class Causes(NamedTuple):
    """Why a pod waits.

    Attributes:
        reasons: in ascending order.
        n_nodes: number of nodes; None if the message does not contain it.
        post_filter: the message of PostFilter plugins; "" if none.
    """

    reasons: tuple[PendingCause, ...]
    n_nodes: int | None = None
    post_filter: str = ""


def causes_in(message: str) -> Causes:
    """Parse a message; one in another form is a single cause.

    Source:
        kube-scheduler v1.36, framework/types.go, FitError.Error, which builds it.
    """
    head = _HEAD.match(message)
    if head is None:
        return Causes((PendingCause(message, None),))
    filters, *post_filter = _POST_FILTER.split(message[head.end() :], maxsplit=1)
    reasons = [_cause(part) for part in _BETWEEN.split(filters.removesuffix("."))]
    return Causes(tuple(sorted(reasons)), int(head[1]), *post_filter)


def _cause(part: str) -> PendingCause:
    counted = _COUNTED.fullmatch(part)
    return PendingCause(part, None) if counted is None else PendingCause(counted[2], int(counted[1]))


_SCHEDULED: Final = "PodScheduled"


@dataclass(slots=True)
class PendingByCause:
    """Pending pods of one scheduler with the same causes.

    Attributes:
        scheduler: their `spec.schedulerName`.
        causes: reasons of nodes, or the whole message.
        nodes: for each cause, the smallest and largest number of nodes with it; (0, 0) for other causes.
        of: the largest number of nodes; 0 if the message does not contain it.
        is_expected: whether they are nominated to a node and wait for its preemption.
        pods: `namespace/name`, by waiting time.
        since: creation time of the first pod, RFC 3339.
        verdict: the verdict about the first pod, with the best remedy; "" if it was not evaluated.
        remedies: the remedies of the first pod, as in an explanation, the best first.
        reason_codes: the causes of the first pod, as in an explanation; empty if it was not evaluated.
    """

    scheduler: str
    causes: tuple[str, ...]
    nodes: list[tuple[int, int]]
    of: int
    is_expected: bool
    pods: list[str] = field(default_factory=list)
    since: str = ""
    verdict: str = ""
    remedies: Sequence[Mapping[str, Any]] = ()
    reason_codes: Sequence[Mapping[str, Any]] = ()


def by_cause(pods: Iterable[PodInfo]) -> list[PendingByCause]:
    """Group pending pods, the largest group first."""
    groups: dict[tuple[str, bool, tuple[str, ...]], PendingByCause] = {}
    for pod in sorted(pods, key=lambda pod: (pod.pod.metadata.creation_timestamp or "", pod.key)):
        counted, of = _said_of(pod)
        causes, is_expected = tuple(sorted(counted)), bool(pod.pod.status.nominated_node_name)
        group = groups.setdefault(
            (pod.scheduler_name, is_expected, causes),
            PendingByCause(
                pod.scheduler_name,
                causes,
                [(counted[cause],) * 2 for cause in causes],
                of,
                is_expected,
                since=pod.pod.metadata.creation_timestamp or "",
            ),
        )
        group.pods.append(pod.key)
        group.of = max(group.of, of)
        group.nodes = [
            (min(low, counted[cause]), max(high, counted[cause]))
            for cause, (low, high) in zip(causes, group.nodes, strict=True)
        ]
    return sorted(groups.values(), key=lambda group: (-len(group.pods), group.since))


def _said_of(pod: PodInfo) -> tuple[dict[str, int], int]:
    """Return cause -> number of nodes, and the number of all nodes; 0 for causes without nodes."""
    gates = [gate.name for gate in pod.pod.spec.scheduling_gates]
    if gates:
        return {f"scheduling gate {gate}": 0 for gate in gates}, 0
    message = last_message(pod)
    if not message and pod.group is not None:
        return {f"no message yet: --group {pod.group.key} shows their group": 0}, 0
    if not message:
        return {"no message yet: is their scheduler running?": 0}, 0
    causes = causes_in(message)
    return {cause.reason: cause.nodes or 0 for cause in causes.reasons}, causes.n_nodes or 0


def last_message(pod: PodInfo) -> str:
    """Return the last message of the pod's scheduler; "" if there is none."""
    for condition in pod.pod.status.conditions:
        if condition.type == _SCHEDULED and condition.status != "True":
            return condition.message or condition.reason
    return ""
