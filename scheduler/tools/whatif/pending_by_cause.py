"""Pending pods, grouped by the messages of their schedulers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler.tools.whatif.pending_causes import causes_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.pod import PodInfo

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
    """

    scheduler: str
    causes: tuple[str, ...]
    nodes: list[tuple[int, int]]
    of: int
    is_expected: bool
    pods: list[str] = field(default_factory=list)
    since: str = ""


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
    message = said(pod)
    if not message and pod.group is not None:
        return {f"no message yet: --group {pod.group.key} shows their group": 0}, 0
    if not message:
        return {"no message yet: is their scheduler running?": 0}, 0
    causes = causes_in(message)
    return {cause.reason: cause.nodes or 0 for cause in causes.reasons}, causes.n_nodes or 0


def said(pod: PodInfo) -> str:
    """Return the last message of the pod's scheduler; "" if there is none."""
    for condition in pod.pod.status.conditions:
        if condition.type == _SCHEDULED and condition.status != "True":
            return condition.message or condition.reason
    return ""
