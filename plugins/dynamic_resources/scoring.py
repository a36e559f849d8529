"""Prefers nodes where pods get their first alternatives.

Source:
    kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go, computeScore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.dynamic_resources import ResourceClaim

_MOST_ALTERNATIVES = 8


def has_alternatives(claim: ResourceClaim) -> bool:
    """Return whether a claim has a request with alternatives."""
    return any(request.first_available for request in claim.spec.devices.requests)


def points(chosen: Iterable[int]) -> int:
    """Return 8 for each request that got its first alternative, 7 for its second, and so on."""
    return sum(_MOST_ALTERNATIVES - place for place in chosen)


def points_of_allocated(claim: ResourceClaim) -> int:
    """Return the points for the devices of an allocated claim."""
    assert claim.status.allocation is not None, "it is allocated"
    got = {result.request for result in claim.status.allocation.devices.results}
    return points(
        place
        for request in claim.spec.devices.requests
        for place, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in got
    )
