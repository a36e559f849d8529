"""Equivalence classes of pods on nodes, for matching new pod queries.

A cluster has many pods but few classes of them: the replicas of one workload have equal labels. So a new query is
matched against classes instead of pods, and usually only against classes with a label that the query requires.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from scheduler.objects.selectors import Operator
from scheduler.snapshot.arrays import Column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scheduler.objects.selectors import LabelRule
    from scheduler.snapshot.arrays import Int32s, Int64s, Rows

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
        if rule.requirements is None:
            return ()
        for requirement in rule.requirements:
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
