"""Queueing hints: which changes of claims and pods may help a pod that DynamicResources rejected.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, isSchedulableAfterClaimChange and
    isSchedulableAfterPodChange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from plugins.dynamic_resources.extended_resources import special_claim
from plugins.dynamic_resources.pod_claims import find_claims
from scheduler.framework import QueueingHint
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugins.dynamic_resources.devices import Devices
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects

_MOST_CLAIMS: Final = 100
"""The maximum number of claims that a hint reads."""


def after_claim_change(
    claims: Objects, pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any]
) -> QueueingHint:
    """Requeue a pod whose claim appeared or changed status, and, when devices become free, any pod whose claims exist.

    Very many claims are not read for each event: such a pod is requeued too often, but no event is missed.
    """
    before, after = (_status(claim) for claim in (old, new))
    released = "allocation" in before and "allocation" not in after
    may_be_its_own = (old is None or before != after) and object_key(new) in pod.resource_claim_keys
    if not released and not may_be_its_own:
        return QueueingHint.SKIP
    if len(pod.pod.spec.resource_claims) > _MOST_CLAIMS:
        return QueueingHint.QUEUE
    found = find_claims(pod, claims)
    if isinstance(found, str):
        return QueueingHint.SKIP
    helps = released or any(held.claim.metadata.uid == new["metadata"].get("uid") for held in found)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_pod_change(claims: Objects, pod: PodInfo, _old: PodInfo | None, new: PodInfo) -> QueueingHint:
    """Requeue the pod itself once all its claims exist."""
    helps = new.uid == pod.uid and not isinstance(find_claims(new, claims), str)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_pod_left(devices: Devices, _pod: PodInfo, gone: PodInfo, _new: None) -> QueueingHint:
    """Requeue pods when another pod was not bound: unwritten allocations of its claims are free again.

    kube-scheduler lets them wait until another event occurs.
    """
    if len(gone.pod.spec.resource_claims) > _MOST_CLAIMS:
        return QueueingHint.QUEUE
    found, special = find_claims(gone, devices.claims), special_claim(gone, devices)
    helps = isinstance(found, str) or any(
        held is not None and held.claim.status.allocation is None for held in (*found, special)
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _status(claim: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a claim's status; empty fields count as absent."""
    status = (claim or {}).get("status") or {}
    return {
        name: value for name, value in status.items() if value or (name == "allocation" and value is not None)
    }
