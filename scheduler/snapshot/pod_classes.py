"""The pods on nodes, those alike as one: what a description of pods is asked about when it is new.

A cluster has many pods and few kinds of them: the replicas of one workload differ in no label. So a new description
is not asked about every pod, and mostly not about every kind either, since it demands some label.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from scheduler.objects.selectors import Operator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scheduler.objects.selectors import LabelRule

_Key = tuple[str, frozenset[tuple[str, str]] | bytes, bool]

_MOST_LABELS: Final = 64
"""Pods with more are few, and found by none of them: an entry for each takes some 500 bytes, and one pod may have thousands."""


class Alike(Protocol):
    """What descriptions look at: of one pod, or of all pods that are alike."""

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def is_terminating(self) -> bool: ...


class PodClass:
    """Pods that are alike.

    Attributes:
        namespace: where all of them are.
        labels: of each.
        is_terminating: whether they are being deleted.
        rows: row -> how many are there; never 0.
    """

    __slots__ = ("is_terminating", "labels", "namespace", "rows")

    def __init__(self, pod: Alike) -> None:
        self.namespace = pod.namespace
        self.labels = pod.labels
        self.is_terminating = pod.is_terminating
        self.rows: dict[int, int] = {}


class PodClasses:
    """All of them, found by their labels."""

    __slots__ = ("_by_label", "_by_namespace", "_classes", "_many_labels")

    def __init__(self) -> None:
        self._classes: dict[_Key, PodClass] = {}
        self._many_labels: dict[PodClass, None] = {}
        self._by_label: dict[tuple[str, str], dict[PodClass, None]] = {}
        self._by_namespace: dict[str, dict[PodClass, None]] = {}

    def count(self, row: int, pod: Alike, sign: int) -> None:
        """Note that a pod came to a row, or left it."""
        key = _key(pod)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(pod)
            self._by_namespace.setdefault(pod.namespace, {})[pod_class] = None
            if len(pod.labels) > _MOST_LABELS:
                self._many_labels[pod_class] = None
            else:
                for label in pod.labels.items():
                    self._by_label.setdefault(label, {})[pod_class] = None
        number = pod_class.rows.get(row, 0) + sign
        if number:
            pod_class.rows[row] = number
            return
        del pod_class.rows[row]
        if not pod_class.rows:
            self._drop(key, pod_class)

    def _drop(self, key: _Key, gone: PodClass) -> None:
        del self._classes[key]
        beside = self._by_namespace[gone.namespace]
        del beside[gone]
        if not beside:
            del self._by_namespace[gone.namespace]
        if gone in self._many_labels:
            del self._many_labels[gone]
            return
        for label in gone.labels.items():
            alike = self._by_label[label]
            del alike[gone]
            if not alike:
                del self._by_label[label]

    def candidates(self, rule: LabelRule, namespaces: Collection[str] | None = None) -> Iterable[PodClass]:
        """Return the classes that a rule about labels may match, and maybe does not; none is there twice.

        Args:
            rule: the rule.
            namespaces: where the pods are that are looked for, so that others may be left out; None is everywhere.
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


def _key(pod: Alike) -> _Key:
    labels = pod.labels
    if len(labels) <= _MOST_LABELS:
        return pod.namespace, frozenset(labels.items()), pod.is_terminating
    return pod.namespace, sha256(msgspec.msgpack.encode(sorted(labels.items()))).digest(), pod.is_terminating
