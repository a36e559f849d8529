"""A log of the last attempts at each pod, for later explanations of their decisions.

Memory is bounded in bytes, not in pods, because an attempt has a few arrays of length n_nodes. Pending and placed pods
have separate budgets, so that a burst of placements does not evict the attempts at pending pods. These budgets contain
the last attempt at each pod. Earlier attempts have another budget, so that frequent retries evict only earlier
attempts. Derivable data are left out, and numbers use the smallest sufficient type.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from scheduler.engine.cycle.attempt import Decision
from scheduler.engine.runtime.scoring import Scores
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import FEASIBLE, NOT_EXAMINED, Diagnosis
from scheduler.framework.preemption import REPORT, preemption_summary
from scheduler.objects.caches import PARSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from scheduler.engine.runtime.scoring import PluginScores
    from scheduler.framework.preemption import PreemptionSummary
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Snapshot

PLACED_BYTES = 16 * 1024 * 1024
"""Budget of placed pods: about 1200 pods if all of 5000 nodes are feasible, 700 if only some are."""
WAITING_BYTES = 40 * 1024 * 1024
"""Budget of pending pods: about 3000 pods with 5000 nodes."""
EARLIER_BYTES = 16 * 1024 * 1024
"""Budget of the attempts before the last one, for all pods together."""
_EARLIER_OF_A_POD = 15
_RECORD_BYTES = 2048  # an attempt without its arrays and the pod's JSON; an upper bound
_COMMON_POD_BYTES = 4096  # up to this size, parsed JSON is not larger than its text
_POINTER_BYTES = 8
_REASON_BYTES = 100  # one reason in an outcome
_VICTIM_BYTES = 150  # one victim with a long name
_CANDIDATE_BYTES = 400  # one candidate node of preemption
# Outcomes per plugin whose reasons are counted; plugins with many outcomes share few reasons.
_FIRST_OUTCOMES = 16


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One attempt in the log.

    Attributes:
        at: time of the decision.
        number: the number of the attempt at the pod, from 1.
        decision: the decision; its state contains only the summary of preemption, and its scores have no best nodes.
        names: the names of the nodes, by row of the decision's arrays.
        seconds: duration of the decision.
        serial: a number that increases with each attempt at any pod.
    """

    at: datetime
    number: int
    decision: Decision
    names: Sequence[str]
    seconds: float = 0.0
    serial: int = 0


class AttemptLog:
    """The last attempts, by pod.

    Args:
        placed_bytes: budget of placed pods.
        waiting_bytes: budget of pending pods.
        earlier_bytes: budget of all attempts except the last one at each pod.

    Attributes:
        noted: the number of attempts so far.
    """

    def __init__(
        self,
        placed_bytes: int = PLACED_BYTES,
        waiting_bytes: int = WAITING_BYTES,
        earlier_bytes: int = EARLIER_BYTES,
    ) -> None:
        self._placed = _Shelf(placed_bytes)
        self._waiting = _Shelf(waiting_bytes)
        self._earlier = _Earlier(earlier_bytes)
        self._names: Sequence[str] = ()  # names of the last attempt; the next attempt usually shares them
        self.noted = 0

    def note(
        self, decision: Decision, snapshot: Snapshot, *, number: int, at: datetime, seconds: float = 0.0
    ) -> None:
        """Add an attempt that took `seconds`; it becomes the last one at its pod."""
        key, names = decision.pod.key, snapshot.names
        self.noted += 1
        kept = _Kept.of(decision, names, number, at, seconds, self.noted)
        size = kept.nbytes
        if names is not self._names:
            self._names = names
            size += _POINTER_BYTES * len(names)
        shelf, other = (self._placed, self._waiting) if decision.node_name else (self._waiting, self._placed)
        before = other.drop(key) or shelf.drop(key)
        if before is not None:
            self._earlier.put(key, *before)
        shelf.put(key, kept, size)

    def last(self, key: str) -> PastAttempt | None:
        """Return the last attempt at a pod, by `namespace/name`; None if there is none or it was evicted."""
        kept = self._last(key)
        return kept and kept.attempt()

    def of(self, key: str) -> list[PastAttempt]:
        """Return the attempts at a pod, the last one first, without attempts at an earlier pod of the same name."""
        last = self._last(key)
        if last is None:
            return []
        uid = last.pod.uid
        return [kept.attempt() for kept in (last, *self._earlier.of(key)) if kept.pod.uid == uid]

    def message(self, key: str) -> str | None:
        """Return the message of the last attempt at a pending pod; None as in `last`."""
        kept = self._waiting.get(key)
        return kept and kept.status.message

    def since(self, serial: int, most: int) -> list[PastAttempt]:
        """Return up to `most` of the latest attempts after `serial`, in order; only the last one of each pod."""
        fresh = [kept for shelf in (self._placed, self._waiting) for kept in shelf.since(serial, most)]
        fresh.sort(key=attrgetter("serial"))
        return [kept.attempt() for kept in fresh[-most:]]

    def _last(self, key: str) -> _Kept | None:
        return self._waiting.get(key) or self._placed.get(key)

    def latest(self, most: int) -> list[PodInfo]:
        """Return up to `most` of the pods that were placed last, as they were before the placement."""
        return self._placed.latest(most)

    @property
    def kept_bytes(self) -> int:
        """The approximate memory, in bytes."""
        return self._placed.bytes + self._waiting.bytes + self._earlier.bytes


class _Earlier:
    """Attempts before the last one, up to a budget; the oldest attempt is evicted first."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[int, tuple[str, _Kept, int]] = OrderedDict()  # by serial
        self._of_pod: dict[str, deque[int]] = {}  # key -> serials
        self.bytes = 0

    def put(self, key: str, kept: _Kept, size: int) -> None:
        serials = self._of_pod.setdefault(key, deque())
        serials.append(kept.serial)
        self._kept[kept.serial] = key, kept, size
        self.bytes += size
        if len(serials) > _EARLIER_OF_A_POD:
            self._drop(serials[0])
        while self.bytes > self._budget:
            self._drop(next(iter(self._kept)))

    def of(self, key: str) -> Iterator[_Kept]:
        """Yield the attempts at a pod, the latest first."""
        for serial in reversed(self._of_pod.get(key, ())):
            yield self._kept[serial][1]

    def _drop(self, serial: int) -> None:
        key, _, freed = self._kept.pop(serial)
        self.bytes -= freed
        serials = self._of_pod[key]
        serials.remove(serial)
        if not serials:
            del self._of_pod[key]


class _Shelf:
    """Attempts up to a budget; the oldest attempt is evicted first."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[str, tuple[_Kept, int]] = OrderedDict()
        self.bytes = 0

    def put(self, key: str, kept: _Kept, size: int) -> None:
        """Add an attempt at a pod that has none here."""
        self._kept[key] = (kept, size)
        self.bytes += size
        while self.bytes > self._budget:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes -= freed

    def drop(self, key: str) -> tuple[_Kept, int] | None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.bytes -= found[1]
        return found

    def latest(self, most: int) -> list[PodInfo]:
        return [kept.pod for kept, _ in islice(reversed(self._kept.values()), most)]

    def since(self, serial: int, most: int) -> Iterator[_Kept]:
        for kept, _ in islice(reversed(self._kept.values()), most):
            if kept.serial <= serial:
                return
            yield kept

    def get(self, key: str) -> _Kept | None:
        found = self._kept.get(key)
        return found and found[0]


_DIAGNOSED: Final = tuple(
    field.name
    for field in fields(Diagnosis)
    if field.name not in {"rejected_by", "index", "_counted", "_feasible"}
)
_TABLES: Final = _DIAGNOSED.index("tables")
_diagnosed = attrgetter(*_DIAGNOSED)


_NO_SCORES: Final[Mapping[str, Int64s]] = MappingProxyType({})


class _Kept(NamedTuple):
    """The stored form of an attempt.

    Attributes:
        pod, node_name, nominated_node_name: as in the decision.
        status: status of the decision, without its exception, whose frames refer to the whole cycle.
        diagnosed: the attributes of the diagnosis that `_DIAGNOSED` names.
        rejected_by: `rejected_by` of the diagnosis; None if no node was rejected.
        outcomes: `index` of the diagnosis; None if no node was rejected.
        plugins, others, base: as in the scores; `plugins` is None without scores.
        rows: the scored nodes; None if these are all feasible nodes.
        room: the summary of preemption; None if preemption did not run.
    """

    at: datetime
    number: int
    names: Sequence[str]
    pod: PodInfo
    node_name: str
    nominated_node_name: str | None
    status: Status
    diagnosed: tuple[Any, ...]
    rejected_by: NDArray[Any] | None
    outcomes: NDArray[Any] | None
    plugins: Sequence[PluginScores] | None
    others: Mapping[str, Int64s]
    base: int
    rows: NDArray[Any] | None
    room: PreemptionSummary | None
    seconds: float
    serial: int

    @classmethod
    def of(
        cls,
        decision: Decision,
        names: Sequence[str],
        number: int,
        at: datetime,
        seconds: float,
        serial: int,
    ) -> _Kept:
        diagnosis, scores = decision.diagnosis, decision.scores
        n_nodes, n_ranked = diagnosis.n_nodes, 0 if scores is None else len(scores.rows)
        rejected_by = outcomes = rows = None
        status = decision.status if decision.status.error is None else replace(decision.status, error=None)
        if n_ranked != n_nodes:
            rejected_by = _short(diagnosis.rejected_by, min(NOT_EXAMINED, -len(diagnosis.plugins)))
            outcomes = _short(diagnosis.index, max(map(len, diagnosis.tables), default=0))
            if scores is not None and n_ranked != np.count_nonzero(rejected_by == FEASIBLE):
                rows = _short(scores.rows, n_nodes)
        return cls(
            at,
            number,
            names,
            decision.pod,
            decision.node_name,
            decision.nominated_node_name,
            status,
            _diagnosed(diagnosis),
            rejected_by,
            outcomes,
            None if scores is None else scores.plugins,
            _NO_SCORES if scores is None else scores.others,
            0 if scores is None else scores.base,
            rows,
            None if decision.node_name else preemption_summary(decision.state),
            seconds,
            serial,
        )

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, without the names of nodes."""
        written = self.pod.raw_size
        size = _RECORD_BYTES + written + PARSED * max(0, written - _COMMON_POD_BYTES)
        size += sum(map(len, self.status.reasons))
        arrays: list[object] = [each.values for each in self.plugins or ()] + list(self.others.values())
        if self.rejected_by is not None:
            arrays += [self.rejected_by, self.outcomes, self.rows]
            tables = self.diagnosed[_TABLES]
            reasons = sum([len(outcome.reasons) for table in tables for outcome in table[:_FIRST_OUTCOMES]])
            size += _REASON_BYTES * reasons
        if self.room is not None:
            victims = [len(names) for names, _ in self.room.candidates.values()]
            size += _CANDIDATE_BYTES * (len(victims) + len(self.room.protected)) + _VICTIM_BYTES * sum(
                victims
            )
        return size + sum([getattr(array, "nbytes", 0) for array in arrays])

    def attempt(self) -> PastAttempt:
        """Restore the attempt."""
        fields = dict(zip(_DIAGNOSED, self.diagnosed, strict=True))
        diagnosis = Diagnosis.blank(fields["n_nodes"])
        if self.rejected_by is not None:
            fields |= {"rejected_by": self.rejected_by, "index": self.outcomes}
        for name, value in fields.items():
            setattr(diagnosis, name, value)
        scores = None
        if self.plugins is not None:
            rows: Any = diagnosis.feasible if self.rows is None else self.rows
            scores = Scores(rows, rows[:0], self.plugins, self.others, self.base)
        state = CycleState()
        if self.room is not None:
            state.write(REPORT, self.room)
        decision = Decision(
            self.pod, state, diagnosis, self.node_name, scores, self.status, self.nominated_node_name
        )
        return PastAttempt(self.at, self.number, decision, self.names, self.seconds, self.serial)


def _short(numbers: NDArray[Any], furthest: int) -> NDArray[Any]:
    """Return integers in the smallest type that contains `furthest`, the value furthest from 0; the same array, if it has this type."""
    return numbers.astype(np.min_scalar_type(furthest), copy=False)
