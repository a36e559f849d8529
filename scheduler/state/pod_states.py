"""How the cache holds a pod, and every legal move between the ways.

OUTSIDE --assume--> ASSUMED --the watch shows it on a node--> CONFIRMED --deleted or ended--> OUTSIDE
   |                   |                                          ^
   |                   +--its binding failed--> OUTSIDE           |
   +--the watch shows it on a node, bound by whomever-------------+
"""

from __future__ import annotations

from enum import Enum


class PodState(Enum):
    """How the cache holds a pod."""

    OUTSIDE = "outside"
    """Not at all."""
    ASSUMED = "assumed"
    """Counted on the node we chose, though the API server has not confirmed it yet."""
    CONFIRMED = "confirmed"
    """Counted on the node the API server says."""


MOVES: dict[PodState, frozenset[PodState]] = {
    PodState.OUTSIDE: frozenset({PodState.ASSUMED, PodState.CONFIRMED}),
    PodState.ASSUMED: frozenset({PodState.CONFIRMED, PodState.OUTSIDE}),
    PodState.CONFIRMED: frozenset({PodState.CONFIRMED, PodState.OUTSIDE}),
}
