"""What another scheduler decided, as it shows in its pods."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from scheduler.objects.pod import PodInfo

_UNSCHEDULABLE: Final = "Unschedulable"


class Decided(Enum):
    """What another scheduler decided of a pod."""

    PLACED = "placed"
    WAITS = "waits"
    PREEMPTS = "preempts"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of another scheduler.

    Attributes:
        what: it was.
        pod: as it was before, on no node.
        node_name: where it was put, or nominated to; "" if it waits.
    """

    what: Decided
    pod: PodInfo
    node_name: str = ""


def decision_in(old: Any, new: Any, scheduler_name: str) -> Decision | None:
    """Return the decision of a scheduler that shows in a change of a pod; None if none does."""
    if not (isinstance(old, PodInfo) and isinstance(new, PodInfo)):
        return None
    if new.scheduler_name != scheduler_name or old.node_name or new.is_terminal:
        return None
    if new.node_name:
        return Decision(Decided.PLACED, old, new.node_name)
    nominated = new.pod.status.nominated_node_name
    if nominated and nominated != old.pod.status.nominated_node_name:
        return Decision(Decided.PREEMPTS, old, nominated)
    said = _unschedulable(new)
    if said and said != _unschedulable(old):
        return Decision(Decided.WAITS, old)
    return None


def _unschedulable(pod: PodInfo) -> str:
    """Return why a pod waits, by its status; "" if that does not say that no node can run it."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == _UNSCHEDULABLE:
            return condition.message
    return ""
