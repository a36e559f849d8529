"""Simulates the controller that releases ResourceClaims of deleted pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.simulation.cluster import MemoryCluster

CLAIMS: Final = "resource.k8s.io/v1/resourceclaims"


def give_back(cluster: MemoryCluster, pod: PodInfo) -> None:
    """Remove a deleted pod from `reservedFor` of its claims; a claim that is reserved for no pod loses its allocation."""
    status = pod.pod.status
    named = [each.resource_claim_name for each in pod.pod.spec.resource_claims]
    named += [each.resource_claim_name for each in status.resource_claim_statuses]
    if status.extended_resource_claim_status is not None:
        named.append(status.extended_resource_claim_status.resource_claim_name)
    for name in named:
        claim = None if name is None else cluster.find(CLAIMS, f"{pod.namespace}/{name}")
        if claim is None or not claim.get("status"):
            continue
        state: dict[str, Any] = dict(claim["status"])
        left = [each for each in state.get("reservedFor") or () if each.get("uid") != pod.uid]
        if len(left) == len(state.get("reservedFor") or ()):
            continue
        state["reservedFor"] = left
        if not left:
            state.pop("allocation", None)
        cluster.put_object(CLAIMS, {**claim, "status": state})
