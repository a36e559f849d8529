"""Pods that wait, grouped by what their schedulers said of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler.whatif.causes import causes_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.pod import PodInfo

_SCHEDULED: Final = "PodScheduled"


@dataclass(slots=True)
class Waiting:
    """Pods that wait for one scheduler and the same causes.

    Attributes:
        scheduler: whose `spec.schedulerName` they have.
        causes: reasons of nodes, or what was said as a whole.
        nodes: of each cause the fewest and the most nodes it was said of; of others than nodes (0, 0).
        of: of how many nodes, at most; 0 where no nodes were looked at.
        is_expected: whether they are nominated to a node, where room is being made for them.
        pods: `namespace/name`, those that wait longest first.
        since: when the first of them was created, as RFC 3339.
    """

    scheduler: str
    causes: tuple[str, ...]
    nodes: list[tuple[int, int]]
    of: int
    is_expected: bool
    pods: list[str] = field(default_factory=list)
    since: str = ""


def by_cause(pods: Iterable[PodInfo]) -> list[Waiting]:
    """Group pending pods, the largest group first."""
    groups: dict[tuple[str, bool, tuple[str, ...]], Waiting] = {}
    for pod in sorted(pods, key=lambda pod: (pod.pod.metadata.creation_timestamp or "", pod.key)):
        counted, of = _said_of(pod)
        causes, is_expected = tuple(sorted(counted)), bool(pod.pod.status.nominated_node_name)
        group = groups.setdefault(
            (pod.scheduler_name, is_expected, causes),
            Waiting(
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
    """Return cause -> nodes it was said of, and of how many; what is about no nodes is of 0."""
    gates = [gate.name for gate in pod.pod.spec.scheduling_gates]
    if gates:
        return {f"scheduling gate {gate}": 0 for gate in gates}, 0
    message = said(pod)
    if not message and pod.group is not None:
        return {f"nothing was said of them yet: --group {pod.group.key} tells of their group": 0}, 0
    if not message:
        return {"nothing was said of them yet: does their scheduler run?": 0}, 0
    causes = causes_in(message)
    return {cause.reason: cause.nodes or 0 for cause in causes.reasons}, causes.n_nodes or 0


def said(pod: PodInfo) -> str:
    """Return what its scheduler said last of why a pod waits; "" where nothing was said."""
    for condition in pod.pod.status.conditions:
        if condition.type == _SCHEDULED and condition.status != "True":
            return condition.message or condition.reason
    return ""
