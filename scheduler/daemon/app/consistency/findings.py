"""A difference found by a check, and its repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Discrepancy(Enum):
    """The kind of a difference; the values are labels of a metric."""

    WATCHED = "watched"
    """The watch has shown another version of an object than the API server has."""
    MISSED = "missed"
    """The API server has an object that the watch has not shown."""
    REDUNDANT = "redundant"
    """The watch has shown an object that the API server does not have."""
    NODE = "node"
    """A node of the cache differs from the watched node."""
    POD = "pod"
    """A pod is not counted on its node as watched, or is counted although it is deleted."""
    OBJECT = "object"
    """An object that plugins read differs from the watched object."""
    ASSUMED = "assumed"
    """A pod uses capacity although it is not bound and no binding is in progress."""
    PENDING = "pending"
    """A pod of this scheduler is neither in the queue, nor in a cycle, nor being bound."""
    QUEUED = "queued"
    """The queue contains a pod that must not be scheduled."""
    NOMINATED = "nominated"
    """Capacity is kept for a pod that does not wait."""
    PAUSE = "pause"
    """A deleted node is paused."""
    COLUMN = "column"
    """A column differs from the node and its pods."""
    VERDICT = "verdict"
    """A cached result differs from a new evaluation."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference. Two findings are equal if they have the same kind, key and problem.

    Attributes:
        what: the kind.
        key: `namespace/name` or a name of the object; for watched objects after the kind.
        problem: a description that stays the same as long as the difference does.
        repair: repairs it; must be called in the time slice in which it was found. None if the repair takes longer.
    """

    what: Discrepancy
    key: str
    problem: str
    repair: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.what.value} {self.key}: {self.problem}"
