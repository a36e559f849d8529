"""Counts the pods on each node that match a query: one column for each query, kept up to date for each pod.

A cluster has many pods but few classes of them: the replicas of one workload have equal labels. So a new query is
matched against classes instead of pods, and usually only against classes with a label that the query requires.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from scheduler.objects.label_index import matcher
from scheduler.objects.selectors import LabelRule, Operator
from scheduler.snapshot.arrays import Column, most_kept
from scheduler.snapshot.term_columns import TermColumns, conditions_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scheduler.objects.label_index import Matcher
    from scheduler.objects.selectors import Requirement
    from scheduler.snapshot.arrays import Int32s, Int64s, Rows
    from scheduler.snapshot.term_columns import Conditions, Place

ClassKey = tuple[str, frozenset[tuple[str, str]] | bytes, bool]

_MOST_LABELS: Final = 64
"""Pods with more labels are not indexed by label: an entry takes about 500 bytes, and a pod may have thousands."""


class Alike(Protocol):
    """The attributes that queries read, of one pod or of a class of pods."""

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def is_terminating(self) -> bool: ...


class PodClass:
    """An equivalence class of pods.

    Attributes:
        namespace: the namespace of the pods.
        labels: the labels of each pod.
        is_terminating: whether the pods are being deleted.
        rows: row -> entry in `RowsOfClasses` with the number of pods.
        number: the number of the class; numbers of removed classes are reused.
    """

    __slots__ = ("is_terminating", "labels", "namespace", "number", "rows")

    def __init__(self, pod: Alike, number: int) -> None:
        self.namespace = pod.namespace
        self.labels = pod.labels
        self.is_terminating = pod.is_terminating
        self.rows: dict[int, int] = {}
        self.number = number


class RowsOfClasses:
    """The number of pods by class and row, as columns: one entry for each class on each of its rows.

    Attributes:
        length: entries from this position on are not in use.
        row: by entry, the row.
        number: by entry, the number of the class.
        pods: by entry, the number of pods; 0 for a free entry.
    """

    __slots__ = ("_free", "length", "number", "pods", "row")

    def __init__(self) -> None:
        self.row: Column[np.intp] = Column(np.intp)
        self.number: Column[np.int32] = Column(np.int32)
        self.pods: Column[np.int64] = Column(np.int64)
        self.length = 0
        self._free: list[int] = []

    def add(self, row: int, number: int, pods: int) -> int:
        """Add an entry for pods of a class on a row, and return its position."""
        if self._free:
            entry = self._free.pop()
        else:
            entry = self.length
            self.length += 1
            if entry == len(self.row.cells):
                for column in (self.row, self.number, self.pods):
                    column.reserve(self.length)
        self.row.cells[entry], self.number.cells[entry], self.pods.cells[entry] = row, number, pods
        return entry

    def remove(self, entry: int) -> None:
        """Free an entry whose count is 0."""
        self._free.append(entry)

    def shown(self) -> tuple[Rows, Int32s, Int64s]:
        """Return row, class and count of all entries, including free ones; the caller must not modify them."""
        return tuple(column.cells[: self.length] for column in (self.row, self.number, self.pods))  # type: ignore[return-value]


class PodClasses:
    """All classes, with an index of their labels.

    Attributes:
        rows: the rows of their pods.
        by_number: the classes; None for a free number.
        version: by number, a version that differs for each class with this number; 0 for a free number.
    """

    __slots__ = (
        "_by_label",
        "_by_namespace",
        "_classes",
        "_free",
        "_made",
        "_many_labels",
        "by_number",
        "rows",
        "version",
    )

    def __init__(self) -> None:
        self._classes: dict[ClassKey, PodClass] = {}
        self.rows = RowsOfClasses()
        self.by_number: list[PodClass | None] = []
        self.version: Column[np.int64] = Column(np.int64)
        self._made = 0
        self._free: list[int] = []
        self._many_labels: dict[PodClass, None] = {}
        self._by_label: dict[tuple[str, str], dict[PodClass, None]] = {}
        self._by_namespace: dict[str, dict[PodClass, None]] = {}

    def count(self, row: int, pod: Alike, sign: int) -> None:
        """Count a pod on a row, or stop counting it."""
        key = class_key(pod)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = self._made_for(pod)
            self._by_namespace.setdefault(pod.namespace, {})[pod_class] = None
            if len(pod.labels) > _MOST_LABELS:
                self._many_labels[pod_class] = None
            else:
                for label in pod.labels.items():
                    self._by_label.setdefault(label, {})[pod_class] = None
        rows = self.rows
        entry = pod_class.rows.get(row)
        if entry is None:
            pod_class.rows[row] = rows.add(row, pod_class.number, sign)
            return
        pods = rows.pods.cells
        pods[entry] += sign
        if pods[entry]:
            return
        rows.remove(pod_class.rows.pop(row))
        if not pod_class.rows:
            self._drop(key, pod_class)

    def _made_for(self, pod: Alike) -> PodClass:
        number = self._free.pop() if self._free else len(self.by_number)
        made = PodClass(pod, number)
        if number == len(self.by_number):
            self.by_number.append(made)
            self.version.reserve(len(self.by_number))
        else:
            self.by_number[number] = made
        self._made += 1
        self.version.cells[number] = self._made
        return made

    def _drop(self, key: ClassKey, gone: PodClass) -> None:
        del self._classes[key]
        beside = self._by_namespace[gone.namespace]
        del beside[gone]
        if not beside:
            del self._by_namespace[gone.namespace]
        self.by_number[gone.number] = None
        self.version.cells[gone.number] = 0
        self._free.append(gone.number)
        if gone in self._many_labels:
            del self._many_labels[gone]
            return
        for label in gone.labels.items():
            alike = self._by_label[label]
            del alike[gone]
            if not alike:
                del self._by_label[label]

    def of(self, pod: Alike) -> PodClass | None:
        """Return the class of a pod; None if no pod of the class is on a node."""
        return self._classes.get(class_key(pod))

    def candidates(self, rule: LabelRule, namespaces: Collection[str] | None = None) -> Iterable[PodClass]:
        """Return the classes that a label rule may match, without duplicates; some may not match.

        Args:
            rule: the rule.
            namespaces: the namespaces of interest; classes in others may be left out. None means all namespaces.
        """
        if rule.expressions is None:
            return ()
        if rule.labels:
            return chain(self._by_label.get(rule.labels[0], ()), self._many_labels)
        for requirement in rule.expressions:
            if requirement.operator is Operator.IN:  # a pod has one value of a label, so they do not overlap
                labels = ((requirement.key, value) for value in requirement.values)
                found = (pod_class for label in labels for pod_class in self._by_label.get(label, ()))
                return chain(found, self._many_labels)
        if namespaces is None:
            return self._classes.values()
        return chain.from_iterable(self._by_namespace.get(namespace, ()) for namespace in namespaces)


def class_key(pod: Alike) -> ClassKey:
    """Return the key of a pod's class."""
    labels = pod.labels
    if len(labels) <= _MOST_LABELS:
        return pod.namespace, frozenset(labels.items()), pod.is_terminating
    return pod.namespace, sha256(msgspec.msgpack.encode(sorted(labels.items()))).digest(), pod.is_terminating


_COLUMNS = 1024
"""Maximum number of query columns in small clusters; the least recently used column is dropped first."""
_CELL_BYTES = 8
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
        labels: list[tuple[str, str]] = []
        expressions: list[Requirement] = []
        for part in self.parts:
            if part.rule.expressions is None:
                return None
            labels += part.rule.labels
            expressions += part.rule.expressions
        return conditions_of(
            named[0].intersection(*named[1:]) if named else None,
            LabelRule(tuple(expressions), tuple(labels)),
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
            requirements += part.rule.count
            values += sum([len(requirement.values) for requirement in part.rule.expressions or ()])
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
        most = most_kept(_COLUMNS, room, _CELL_BYTES)
        while len(self._columns) > most or (
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
