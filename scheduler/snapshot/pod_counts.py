"""Counts the pods on each node that match a query: one column for each query, kept up to date for each pod."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scheduler.objects.label_index import matcher
from scheduler.objects.selectors import LabelRule
from scheduler.snapshot.arrays import Column
from scheduler.snapshot.pod_classes import PodClasses
from scheduler.snapshot.term_columns import TermColumns, conditions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.objects.label_index import Matcher
    from scheduler.objects.selectors import Requirement
    from scheduler.snapshot.pod_classes import Alike
    from scheduler.snapshot.term_columns import Conditions, Place

_COLUMNS = 1024
"""Maximum number of query columns; the least recently used column is dropped first."""
_DESCRIBED_BYTES = 16 * 1024 * 1024
"""Approximate maximum size of all queries without their columns: a query may have many values and namespaces."""
_FEW = 32
"""Up to this number of queries, each is matched with a pod separately."""
_VALUE_BYTES = 128
_REQUIREMENT_BYTES = 512
_PART_BYTES = 1024


@dataclass(frozen=True, slots=True)
class PodsIn:
    """Pods of some namespaces with some labels.

    Attributes:
        namespaces: the namespaces of the pods; None means all namespaces.
        rule: the rule for the labels of the pods.
    """

    namespaces: frozenset[str] | None
    rule: LabelRule


@dataclass(frozen=True)
class PodQuery:
    """A query for pods.

    Attributes:
        parts: the parts, which must all match; an empty query matches no pod.
        counts_terminating: whether pods that are being deleted count.
    """

    parts: tuple[PodsIn, ...]
    counts_terminating: bool = True

    def matches(self, pod: Alike) -> bool:
        if not self.parts or (pod.is_terminating and not self.counts_terminating):
            return False
        # Called for every class of pods: a loop takes half the time of all().
        for namespaces, matches in self.matchers:
            if (namespaces is not None and pod.namespace not in namespaces) or not matches(pod.labels):
                return False
        return True

    def conditions(self) -> Conditions | None:
        """Return the conditions of the query, apart from `counts_terminating`; None if no pod can match."""
        if not self.parts:
            return None
        named = [part.namespaces for part in self.parts if part.namespaces is not None]
        requirements: list[Requirement] = []
        for part in self.parts:
            if part.rule.requirements is None:
                return None
            requirements += part.rule.requirements
        return conditions_of(
            named[0].intersection(*named[1:]) if named else None, LabelRule(tuple(requirements))
        )

    def count(self, pods: Iterable[Alike]) -> int:
        """Return the number of matching pods."""
        return sum(map(self.matches, pods))

    @cached_property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        requirements = values = 0
        for part in self.parts:
            values += len(part.namespaces or ())
            requirements += len(part.rule.requirements or ())
            values += sum([len(requirement.values) for requirement in part.rule.requirements or ()])
        return _PART_BYTES * len(self.parts) + _REQUIREMENT_BYTES * requirements + _VALUE_BYTES * values

    @cached_property
    def matchers(self) -> tuple[tuple[frozenset[str] | None, Matcher], ...]:
        """The namespaces and the label matcher of each part."""
        return tuple((part.namespaces, matcher(part.rule)) for part in self.parts)

    @cached_property
    def _hash(self) -> int:
        return hash((self.parts, self.counts_terminating))

    def __hash__(self) -> int:
        return self._hash


class _Kept(NamedTuple):
    """A query with a column.

    Attributes:
        query: the query.
        column: the number of matching pods in each row.
        number: the number of the query in the index; None if no pod can match.
        places: the places of the query in the index.
    """

    query: PodQuery
    column: Column[np.int64]
    number: int | None
    places: Sequence[Place]


class PodCounts:
    """The columns of all recent queries."""

    __slots__ = ("_by_number", "_classes", "_columns", "_described_bytes", "_filed")

    def __init__(self) -> None:
        self._classes = PodClasses()
        self._described_bytes = 0
        self._columns: OrderedDict[PodQuery, _Kept] = OrderedDict()
        self._filed = TermColumns()
        self._by_number: dict[int, _Kept] = {}

    def column(self, query: PodQuery, room: int) -> Column[np.int64]:
        """Return the column of a query; a new column is counted now and gets a capacity of `room` rows."""
        kept = self._columns.get(query)
        if kept is None:
            kept = self._count_all(query, room)
        self._columns.move_to_end(query)
        return kept.column

    @property
    def classes(self) -> PodClasses:
        """The equivalence classes of pods on nodes."""
        return self._classes

    def _count_all(self, query: PodQuery, room: int) -> _Kept:
        column: Column[np.int64] = Column(np.int64, room)
        needs = query.conditions()
        kept = _Kept(
            query,
            column,
            None if needs is None else self._filed.add(needs),
            () if needs is None else needs.places,
        )
        self._columns[query] = kept
        if kept.number is not None:
            self._by_number[kept.number] = kept
            rows: list[int] = []
            entries: list[int] = []
            first = query.parts[0]
            for alike in self._classes.candidates(first.rule, first.namespaces):
                if query.matches(alike):
                    rows += alike.rows.keys()
                    entries += alike.rows.values()
            pods = self._classes.rows.pods.cells[np.array(entries, dtype=np.intp)]
            np.add.at(column.cells, np.array(rows, dtype=np.intp), pods)
        self._described_bytes += query.nbytes
        while len(self._columns) > _COLUMNS or (
            self._described_bytes > _DESCRIBED_BYTES and len(self._columns) > 1
        ):
            self._forget_oldest()
        return kept

    def _forget_oldest(self) -> None:
        query, kept = self._columns.popitem(last=False)
        self._described_bytes -= query.nbytes
        if kept.number is not None:
            del self._by_number[kept.number]
            self._filed.remove([(kept.number, kept.places)])

    @property
    def queries(self) -> tuple[PodQuery, ...]:
        """The queries that have a column, the least recently used query first."""
        return tuple(self._columns)

    def count(self, row: int, pod: Alike, sign: int) -> None:
        """Count a pod on a row, or stop counting it."""
        self._classes.count(row, pod, sign)
        if not self._by_number:
            return
        few, many = self._filed.candidates(pod.namespace, pod.labels)
        if many or len(few) > _FEW:
            candidates = np.concatenate([np.array(few, dtype=np.int32), *many])
            found = self._filed.meaning(candidates, pod.namespace, pod.labels, {}).tolist()
            matching = [self._by_number[number] for number in found]
            if pod.is_terminating:
                matching = [kept for kept in matching if kept.query.counts_terminating]
        else:
            kept_here = (self._by_number[number] for number in few)
            matching = [kept for kept in kept_here if kept.query.matches(pod)]
        for kept in matching:
            kept.column.cells[row] += sign

    def move(self, pods: Iterable[Alike], *, start: int, end: int | None) -> None:
        """Move pods to another row, or remove them; the caller moves the cells of the columns."""
        for pod in pods:
            self._classes.count(start, pod, -1)
            if end is not None:
                self._classes.count(end, pod, 1)

    def columns(self) -> Iterable[Column[np.int64]]:
        """Return all columns, for callers that move rows."""
        return [kept.column for kept in self._columns.values()]
