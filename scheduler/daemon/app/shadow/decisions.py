"""Detects the decisions of another scheduler in changes of its pods."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from msgspec.structs import replace

from scheduler.objects.pod import PodInfo
from scheduler.objects.storage import pod_claims

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
        pod: the pod before the decision, without a node, and without a nomination that announced this decision.
        node_name: the chosen or nominated node; "" if the pod waits.
    """

    what: ShadowedOutcome
    pod: PodInfo
    node_name: str = ""


def decision_in(old: Any, new: Any, scheduler_name: str) -> ShadowedDecision | None:
    """Return the decision of a scheduler in a change of a pod; None if there is none.

    A nomination is a preemption if the pod did not fit. If it fits and waits at Permit or needs PreBind, kube-scheduler
    nominates the chosen node as well, and the decision is reported with the Binding.

    Source:
        kube-scheduler v1.36, schedule_one.go, bindingCycle (gate NominatedNodeNameForExpectation) and
        handleSchedulingFailure.
    """
    if not (isinstance(old, PodInfo) and isinstance(new, PodInfo)):
        return None
    if new.scheduler_name != scheduler_name or old.node_name or new.is_terminal:
        return None
    before, message = _unschedulable(old), _unschedulable(new)
    if new.node_name:
        return ShadowedDecision(ShadowedOutcome.PLACED, old if before else _not_nominated(old), new.node_name)
    did_not_fit = bool(message) and message != before
    nominated = new.pod.status.nominated_node_name
    # A repeated preemption does not change the message; nor does the choice of a node after a failed attempt.
    is_preemption = did_not_fit or (bool(message) and not _needs_pre_bind(new))
    if nominated and nominated != old.pod.status.nominated_node_name and is_preemption:
        return ShadowedDecision(ShadowedOutcome.PREEMPTS, old, nominated)
    return ShadowedDecision(ShadowedOutcome.WAITS, old) if did_not_fit else None


def _needs_pre_bind(pod: PodInfo) -> bool:
    """Return whether volumes may have to be bound, or devices reserved, before the pod is bound."""
    return bool(pod_claims(pod.pod) or pod.pod.spec.resource_claims)


def _not_nominated(pod: PodInfo) -> PodInfo:
    """Return a pending pod without its nomination."""
    if not pod.pod.status.nominated_node_name:
        return pod
    status = replace(pod.pod.status, nominated_node_name="")
    return PodInfo(replace(pod.pod, status=status), pod.raw, resources=pod.resources)


def _unschedulable(pod: PodInfo) -> str:
    """Return the message of an Unschedulable condition; "" if there is none."""
    for condition in pod.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == _UNSCHEDULABLE:
            return condition.message
    return ""
