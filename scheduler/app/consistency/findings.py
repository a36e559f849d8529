"""Something that is not as it must be, and how it is put right."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class What(Enum):
    """What differs; the values are the words of a metric."""

    WATCHED = "watched"
    """What the watch has shown of an object is not what the API server says."""
    NODE = "node"
    """A node of the cache is not as the watch has shown it."""
    POD = "pod"
    """A pod on a node is not counted there as the watch has shown it, or is counted and gone."""
    OBJECT = "object"
    """An object that plugins read is not as the watch has shown it."""
    ASSUMED = "assumed"
    """A pod holds room though nobody is binding it and it is not bound."""
    PENDING = "pending"
    """A pod that is ours to place is nowhere: neither in the queue, nor in a cycle, nor being bound."""
    QUEUED = "queued"
    """A pod is in the queue that is not to be placed."""
    NOMINATED = "nominated"
    """Room is kept for a pod that waits for none."""
    PAUSE = "pause"
    """A node rests that is not there."""
    COLUMN = "column"
    """A column says something else than the node and its pods."""
    VERDICT = "verdict"
    """What is kept of a decision is not what is decided anew."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that differs. Equal to another when it says the same of the same thing.

    Attributes:
        what: what it is.
        key: of which object: `namespace/name`, or a name; for what the watch has shown with the kind before it.
        problem: in words that are the same as long as it is the same.
        mend: puts it right; to be called in the turn of the loop in which it was found. None where that takes longer.
    """

    what: What
    key: str
    problem: str
    mend: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.what.value} {self.key}: {self.problem}"
