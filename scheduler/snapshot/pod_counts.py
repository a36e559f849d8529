"""How many pods of some description each node has: one column a description, kept up to date pod by pod."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scheduler.snapshot.arrays import Column
from scheduler.snapshot.pod_classes import PodClasses
from scheduler.snapshot.rule_index import RuleIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.selectors import LabelRule
    from scheduler.snapshot.pod_classes import Alike

_COLUMNS = 1024
"""Descriptions that are kept as columns at once; the one not asked for the longest goes first."""
_DESCRIBED_BYTES = 16 * 1024 * 1024
"""What they may take beside their columns, about: one names as many values and namespaces as its author likes."""
_VALUE_BYTES = 128
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

    def matches(self, pod: Alike) -> bool:
        return (self.namespaces is None or pod.namespace in self.namespaces) and self.rule.matches(pod.labels)


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
        return (
            bool(self.parts)
            and (self.counts_terminating or not pod.is_terminating)
            and all(part.matches(pod) for part in self.parts)
        )

    def count(self, pods: Iterable[Alike]) -> int:
        """Return how many of the pods match."""
        return sum(map(self.matches, pods))

    @cached_property
    def nbytes(self) -> int:
        """How many bytes it takes, about."""
        values = 0
        for part in self.parts:
            values += len(part.namespaces or ())
            values += sum([len(requirement.values) for requirement in part.rule.requirements or ()])
        return _PART_BYTES * len(self.parts) + _VALUE_BYTES * values

    @cached_property
    def _hash(self) -> int:
        return hash((self.parts, self.counts_terminating))

    def __hash__(self) -> int:
        return self._hash


class PodCounts:
    """The columns of all descriptions that were asked for lately."""

    __slots__ = ("_classes", "_columns", "_described_bytes", "_index")

    def __init__(self) -> None:
        self._classes = PodClasses()
        self._described_bytes = 0
        self._columns: OrderedDict[PodQuery, Column[np.int64]] = OrderedDict()
        self._index: RuleIndex[PodQuery] = RuleIndex()

    def column(self, query: PodQuery, room: int) -> Column[np.int64]:
        """Return a description's column, counted now if it was not asked for lately, with room for so many rows."""
        column = self._columns.get(query)
        if column is None:
            column = self._count_all(query, room)
        self._columns.move_to_end(query)
        return column

    def _count_all(self, query: PodQuery, room: int) -> Column[np.int64]:
        column = self._columns[query] = Column(np.int64, room)
        if query.parts:
            for alike in self._classes.candidates(query.parts[0].rule):
                if query.matches(alike):
                    alike.add_to(column.cells)
            self._index.add(query.parts[0].rule, query)
        self._described_bytes += query.nbytes
        while len(self._columns) > _COLUMNS or (
            self._described_bytes > _DESCRIBED_BYTES and len(self._columns) > 1
        ):
            forgotten, _ = self._columns.popitem(last=False)
            self._described_bytes -= forgotten.nbytes
            if forgotten.parts:
                self._index.remove(forgotten.parts[0].rule, forgotten)
        return column

    @property
    def queries(self) -> tuple[PodQuery, ...]:
        """The descriptions that have a column, the one not asked for the longest first."""
        return tuple(self._columns)

    def count(self, row: int, pod: Alike, sign: int) -> None:
        """Note that a pod came to a row, or left it."""
        self._classes.count(row, pod, sign)
        for query in self._index.candidates(pod.labels):
            if query.matches(pod):
                self._columns[query].cells[row] += sign

    def move(self, pods: Iterable[Alike], *, start: int, end: int | None) -> None:
        """Note that pods are in another row now, or in none; who moves rows moves the columns too."""
        for pod in pods:
            self._classes.count(start, pod, -1)
            if end is not None:
                self._classes.count(end, pod, 1)

    def columns(self) -> Iterable[Column[np.int64]]:
        """Return all columns, for who moves rows."""
        return self._columns.values()
