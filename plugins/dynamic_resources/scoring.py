"""Prefers nodes where pods get the alternatives that they named first.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, computeScore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim

_MOST_ALTERNATIVES = 8


def has_alternatives(claim: ResourceClaim) -> bool:
    """Say whether a claim would be content with one of several things."""
    return any(request.first_available for request in claim.spec.devices.requests)


def points(given: Iterable[tuple[ResourceClaim, AllocationResult]]) -> int:
    """Return 8 for each request of the claims that got its first alternative, 7 for its second, and so on."""
    total = 0
    for claim, allocation in given:
        chosen = {result.request for result in allocation.devices.results}
        for request in claim.spec.devices.requests:
            for place, alternative in enumerate(request.first_available):
                if f"{request.name}/{alternative.name}" in chosen:
                    total += _MOST_ALTERNATIVES - place
    return total
