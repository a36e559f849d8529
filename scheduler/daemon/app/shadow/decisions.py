"""Detects the decisions of another scheduler in changes of its pods."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from scheduler.objects.pod import PodInfo

_UNSCHEDULABLE: Final = "Unschedulable"


class ShadowedOutcome(Enum):
    """A kind of decision about a pod."""

    PLACED = "placed"
    WAITS = "waits"
    PREEMPTS = "preempts"


@dataclass(frozen=True, slots=True)
class ShadowedDecision:
    """A decision of another scheduler.

    Attributes:
        what: the kind of decision.
        pod: the pod before the decision, without a node.
        node_name: the chosen or nominated node; "" if the pod waits.
    """

    what: ShadowedOutcome
    pod: PodInfo
    node_name: str = ""


def decision_in(old: Any, new: Any, scheduler_name: str) -> ShadowedDecision | None:
    """Return the decision of a scheduler in a change of a pod; None if there is none."""
    if not (isinstance(old, PodInfo) and isinstance(new, PodInfo)):
        return None
    if new.scheduler_name != scheduler_name or old.node_name or new.is_terminal:
        return None
    if new.node_name:
        return ShadowedDecision(ShadowedOutcome.PLACED, old, new.node_name)
    nominated = new.pod.status.nominated_node_name
    if nominated and nominated != old.pod.status.nominated_node_name:
        return ShadowedDecision(ShadowedOutcome.PREEMPTS, old, nominated)
    message = _unschedulable(new)
    if message and message != _unschedulable(old):
        return ShadowedDecision(ShadowedOutcome.WAITS, old)
    return None


def _unschedulable(pod: PodInfo) -> str:
    """Return the message of an Unschedulable condition; "" if there is none."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == _UNSCHEDULABLE:
            return condition.message
    return ""
