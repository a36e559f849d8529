"""How many pods of some description each node has: one column a description, kept up to date pod by pod."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scheduler.objects.matchers import matcher
from scheduler.objects.selectors import LabelRule
from scheduler.snapshot.arrays import Column
from scheduler.snapshot.pod_classes import PodClasses
from scheduler.snapshot.term_columns import TermColumns, conditions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.objects.matchers import Matcher
    from scheduler.objects.selectors import Requirement
    from scheduler.snapshot.pod_classes import Alike
    from scheduler.snapshot.term_columns import Conditions, Place

_COLUMNS = 1024
"""Descriptions that are kept as columns at once; the one not asked for the longest goes first."""
_DESCRIBED_BYTES = 16 * 1024 * 1024
"""What they may take beside their columns, about: one names as many values and namespaces as its author likes."""
_FEW = 32
"""Up to this many descriptions are compared with a pod one by one."""
_VALUE_BYTES = 128
_REQUIREMENT_BYTES = 512
_PART_BYTES = 1024


@dataclass(frozen=True, slots=True)
class PodsIn:
    """Pods of some namespaces with some labels.

    Attributes:
        namespaces: where they are; None is everywhere.
        rule: what their labels are.
    """

    namespaces: frozenset[str] | None
    rule: LabelRule


@dataclass(frozen=True)
class PodQuery:
    """A description of pods.

    Attributes:
        parts: all must match; without any none does.
        counts_terminating: whether pods that are being deleted count.
    """

    parts: tuple[PodsIn, ...]
    counts_terminating: bool = True

    def matches(self, pod: Alike) -> bool:
        if not self.parts or (pod.is_terminating and not self.counts_terminating):
            return False
        # Asked of every kind of pods: a loop takes half the time of all().
        for namespaces, matches in self.matchers:
            if (namespaces is not None and pod.namespace not in namespaces) or not matches(pod.labels):
                return False
        return True

    def conditions(self) -> Conditions | None:
        """Return what a pod must meet to match, if it counts at all; None if none can."""
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
        """Return how many of the pods match."""
        return sum(map(self.matches, pods))

    @cached_property
    def nbytes(self) -> int:
        """How many bytes it takes, about."""
        requirements = values = 0
        for part in self.parts:
            values += len(part.namespaces or ())
            requirements += len(part.rule.requirements or ())
            values += sum([len(requirement.values) for requirement in part.rule.requirements or ()])
        return _PART_BYTES * len(self.parts) + _REQUIREMENT_BYTES * requirements + _VALUE_BYTES * values

    @cached_property
    def matchers(self) -> tuple[tuple[frozenset[str] | None, Matcher], ...]:
        """The same as `parts`: namespaces, and what says whether labels match."""
        return tuple((part.namespaces, matcher(part.rule)) for part in self.parts)

    @cached_property
    def _hash(self) -> int:
        return hash((self.parts, self.counts_terminating))

    def __hash__(self) -> int:
        return self._hash


class _Kept(NamedTuple):
    """A description that has a column.

    Attributes:
        query: it.
        column: how many pods of this description each row has.
        number: of the description where it is filed; None if no pod can match.
        places: where that is.
    """

    query: PodQuery
    column: Column[np.int64]
    number: int | None
    places: Sequence[Place]


class PodCounts:
    """The columns of all descriptions that were asked for lately."""

    __slots__ = ("_by_number", "_classes", "_columns", "_described_bytes", "_filed")

    def __init__(self) -> None:
        self._classes = PodClasses()
        self._described_bytes = 0
        self._columns: OrderedDict[PodQuery, _Kept] = OrderedDict()
        self._filed = TermColumns()
        self._by_number: dict[int, _Kept] = {}

    def column(self, query: PodQuery, room: int) -> Column[np.int64]:
        """Return a description's column, counted now if it was not asked for lately, with room for so many rows."""
        kept = self._columns.get(query)
        if kept is None:
            kept = self._count_all(query, room)
        self._columns.move_to_end(query)
        return kept.column

    @property
    def classes(self) -> PodClasses:
        """The pods on nodes, those alike as one."""
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
        """The descriptions that have a column, the one not asked for the longest first."""
        return tuple(self._columns)

    def count(self, row: int, pod: Alike, sign: int) -> None:
        """Note that a pod came to a row, or left it."""
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
        """Note that pods are in another row now, or in none; who moves rows moves the columns too."""
        for pod in pods:
            self._classes.count(start, pod, -1)
            if end is not None:
                self._classes.count(end, pod, 1)

    def columns(self) -> Iterable[Column[np.int64]]:
        """Return all columns, for who moves rows."""
        return [kept.column for kept in self._columns.values()]
