"""The state of a pod in the cache, and every legal change of it.

OUTSIDE --assume--> ASSUMED --the watch shows it on a node--> CONFIRMED --deleted or ended--> OUTSIDE
   |                   |                                          ^
   |                   +--its binding failed--> OUTSIDE           |
   +--the watch shows it on a node, bound by whomever-------------+
"""

from __future__ import annotations

from enum import Enum


class PodState(Enum):
    """The state of a pod in the cache."""

    OUTSIDE = "outside"
    """Unknown to the cache."""
    ASSUMED = "assumed"
    """Counted on the chosen node, but not yet confirmed by the API server."""
    CONFIRMED = "confirmed"
    """Counted on the node that the API server reports."""


MOVES: dict[PodState, frozenset[PodState]] = {
    PodState.OUTSIDE: frozenset({PodState.ASSUMED, PodState.CONFIRMED}),
    PodState.ASSUMED: frozenset({PodState.CONFIRMED, PodState.OUTSIDE}),
    PodState.CONFIRMED: frozenset({PodState.CONFIRMED, PodState.OUTSIDE}),
}
