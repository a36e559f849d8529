"""The last attempt at each pod, as it was, so that one can ask afterwards why it went where it did, or nowhere.

Memory is bounded in bytes, not in pods, since an attempt keeps a few arrays as long as the cluster is large. Pods that
wait and pods that were placed have a budget each: a burst of placements must not push out why others wait.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scheduler.framework.cycle_state import CycleState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from scheduler.cycle.decision import Decision
    from scheduler.snapshot import Snapshot

BUDGET_BYTES = 64 * 1024 * 1024
"""For each of the two kinds: some 200 placements among 5000 nodes, or 3000 pods that wait there."""
_RECORD_BYTES = 2048  # of an attempt without its arrays, generously


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One attempt.

    Attributes:
        at: when it was decided.
        number: which attempt at the pod it was, from 1.
        decision: what was decided; without what the plugins told themselves.
        names: the nodes there were, by row of the decision's arrays.
    """

    at: datetime
    number: int
    decision: Decision
    names: Sequence[str]


class AttemptLog:
    """The last attempts, by pod.

    Args:
        budget_bytes: for pods that wait, and again for pods that were placed.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._placed = _Shelf(budget_bytes)
        self._waiting = _Shelf(budget_bytes)

    def note(self, decision: Decision, snapshot: Snapshot, *, number: int, at: datetime) -> None:
        """Keep an attempt instead of the one before at the same pod."""
        key = decision.pod.key
        kept = PastAttempt(at, number, replace(decision, state=CycleState()), snapshot.names)
        shelf, other = (self._placed, self._waiting) if decision.node_name else (self._waiting, self._placed)
        other.drop(key)
        shelf.put(key, kept, _bytes_of(decision))

    def last(self, key: str) -> PastAttempt | None:
        """Return the last attempt at a pod, by `namespace/name`; None if there was none or it is long ago."""
        return self._waiting.get(key) or self._placed.get(key)

    @property
    def kept_bytes(self) -> int:
        """About how much memory is held."""
        return self._placed.bytes + self._waiting.bytes


class _Shelf:
    """Attempts up to a budget; the oldest goes first."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[str, tuple[PastAttempt, int]] = OrderedDict()
        self.bytes = 0

    def put(self, key: str, attempted: PastAttempt, size: int) -> None:
        self.drop(key)
        self._kept[key] = (attempted, size)
        self.bytes += size
        while self.bytes > self._budget:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes -= freed

    def drop(self, key: str) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.bytes -= found[1]

    def get(self, key: str) -> PastAttempt | None:
        found = self._kept.get(key)
        return found and found[0]


def _bytes_of(decision: Decision) -> int:
    diagnosis, scores = decision.diagnosis, decision.scores
    total = _RECORD_BYTES + diagnosis.rejected_by.nbytes + diagnosis.index.nbytes
    if scores is not None:
        total += scores.nbytes
    return int(total)
