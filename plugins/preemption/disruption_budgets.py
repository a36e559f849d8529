"""PodDisruptionBudgets: which evictions would violate one.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from scheduler.objects.selectors import LabelSelector, SelectorError, read_label_selector
from scheduler.snapshot import Objects
from scheduler.snapshot.arrays import Column
from scheduler.snapshot.term_columns import TermColumns, conditions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Conditions, Int32s, Int64s

BUDGETS = "policy/v1/poddisruptionbudgets"

_FEW: Final = 64
"""Up to this number the budgets of a namespace are counted one by one."""
_MOST_NUMBERS: Final = 1 << 20
"""The number of label sets per namespace for which the matching budgets are cached; above it the cache is cleared."""


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """One PodDisruptionBudget.

    Attributes:
        needs: what a pod of its namespace must match to be protected.
        allowed: how many of its pods may be evicted.
        disrupted: names of pods whose eviction the API server has already counted.
    """

    needs: Conditions
    allowed: int
    disrupted: AbstractSet[str]


class NamespaceBudgets:
    """The protecting budgets of one namespace, by number.

    Attributes:
        version: of the objects that were read; 0 before all were read.
        allowed: int64, by number of a budget, how many of its pods may be evicted.
        limits: the same, for a few budgets.
    """

    __slots__ = (
        "_by_labels",
        "_columns",
        "_current",
        "_disrupted",
        "_kept_numbers",
        "_read",
        "allowed",
        "limits",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        # Key of an object -> the object, and its budget with its number; None if it protects nothing.
        self._read: dict[str, tuple[Mapping[str, Any], tuple[int, Budget] | None]] = {}
        # The object that is being read, and the rest of its steps.
        self._current: tuple[Mapping[str, Any], Generator[None, None, Budget | None]] | None = None
        self._columns = TermColumns()
        self._disrupted: dict[int, AbstractSet[str]] = {}
        self.allowed: Column[np.int64] = Column(np.int64)
        self.limits: dict[int, int] = {}
        self._by_labels: dict[frozenset[tuple[str, str]], Int32s | list[int]] = {}
        self._kept_numbers = 0

    def follow(self, version: int, found: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
        """Read the changes, at most one budget a step; an interrupted update is continued the next time."""
        for key in self._read.keys() - found.keys():
            self._forget(key)
        for key, obj in found.items():
            known = self._read.get(key)
            if known is not None and known[0] is obj:
                continue
            if known is not None:
                self._forget(key)
            if self._current is None or self._current[0] is not obj:
                self._current = obj, _read(obj)
            reading = self._current[1]
            while True:
                try:
                    next(reading)
                except StopIteration as end:
                    budget: Budget | None = end.value
                    break
                yield
            self._current = None
            self._read[key] = obj, None if budget is None else (self._add(budget), budget)
            yield
        self.version = version

    def _add(self, budget: Budget) -> int:
        self._forget_labels()
        number = self._columns.add(budget.needs)
        self.allowed.reserve(number + 1)
        self.allowed.cells[number] = self.limits[number] = budget.allowed
        if budget.disrupted:
            self._disrupted[number] = budget.disrupted
        return number

    def _forget(self, key: str) -> None:
        _, known = self._read.pop(key)
        if known is not None:
            self._forget_labels()
            number, budget = known
            self._columns.remove([(number, budget.needs.places)])
            self._disrupted.pop(number, None)
            del self.limits[number]

    def _forget_labels(self) -> None:
        self._by_labels.clear()
        self._kept_numbers = 0

    def protecting(self, pod: PodInfo) -> Int32s | list[int]:
        """Return the numbers of the budgets that protect a pod, without those that have already counted its eviction.

        The result is an array if the namespace has more than a few budgets.
        """
        numbers = self._matching(pod)
        if self._disrupted:
            counted = [number for number, names in self._disrupted.items() if pod.name in names]
            if isinstance(numbers, list):
                return [number for number in numbers if number not in counted]
            return numbers[~np.isin(numbers, counted)]
        return numbers

    def _matching(self, pod: PodInfo) -> Int32s | list[int]:
        labels = pod.labels
        if not labels:
            return []
        alike = frozenset(labels.items())
        found = self._by_labels.get(alike)
        if found is None:
            few, many = self._columns.candidates(pod.namespace, labels)
            candidates: Int32s = np.concatenate([np.array(few, dtype=np.int32), *many])
            found = self._columns.meaning(candidates, pod.namespace, labels, {}) if candidates.size else []
            if self._columns.size <= _FEW:
                found = list(map(int, found))
            self._kept_numbers += 1 + len(found)
            if self._kept_numbers > _MOST_NUMBERS:
                self._forget_labels()
            self._by_labels[alike] = found
        return found


class DisruptionBudgets:
    """The protecting budgets by namespace, read again when a budget of the namespace changes."""

    def __init__(self) -> None:
        self._objects = Objects()
        self._stores = 0
        self._read: dict[str, NamespaceBudgets] = {}

    @property
    def version(self) -> Hashable:
        """A value that changes with each change of a budget."""
        return self._stores, self._objects.changes

    def look_at(self, objects: Objects) -> None:
        """Set the store of the PodDisruptionBudgets."""
        if objects is not self._objects:
            self._objects = objects
            self._stores += 1
            self._read.clear()

    def read(self, objects: Objects, has_time: Callable[[], bool]) -> bool:
        """Read the changes as long as there is time; return whether all were read.

        There may be thousands of budgets with thousands of requirements each, and all are read before victims are chosen.
        """
        return all(has_time() for _ in self.reading(objects))

    def reading(self, objects: Objects) -> Generator[None, None, None]:
        """Read the changes, one budget a step; an interrupted update is continued the next time."""
        self.look_at(objects)
        for namespace, version in objects.versions.items():
            known = self._read.get(namespace)
            if known is None or known.version != version:
                known = self._read.setdefault(namespace, NamespaceBudgets())
                yield from known.follow(version, objects.in_namespace(namespace))

    def of(self, namespace: str) -> NamespaceBudgets | None:
        """Return the budgets of a namespace; one without a selector, or with an invalid one, protects nothing."""
        version = self._objects.version(namespace)
        known = self._read.get(namespace)
        if known is None or known.version != version:
            found = self._objects.in_namespace(namespace)
            if not found:
                self._read.pop(namespace, None)
                return None
            known = self._read.setdefault(namespace, NamespaceBudgets())
            deque(known.follow(version, found), maxlen=0)
        return known


class Evictions:
    """Counts evictions one after another, each against every budget that protects the pod."""

    def __init__(self, budgets: DisruptionBudgets) -> None:
        self._budgets = budgets
        # Namespace -> by number of a budget, how many of its pods are evicted.
        self._used: dict[str, Int64s] = {}
        self._used_of_few: dict[str, dict[int, int]] = {}

    def breaks(self, pod: PodInfo) -> bool:
        """Count a pod, and return whether its eviction violates a budget."""
        found = self._budgets.of(pod.namespace)
        if found is None:
            return False
        numbers = found.protecting(pod)
        if isinstance(numbers, list):
            return bool(numbers) and self._breaks_few(pod.namespace, numbers, found.limits)
        allowed = found.allowed.cells
        used = self._used.get(pod.namespace)
        if used is None or len(used) < len(allowed):  # budgets may have been added since the last pod
            known = np.zeros(0, dtype=np.int64) if used is None else used
            used = np.zeros(len(allowed), dtype=np.int64)
            used[: len(known)] = known
            self._used[pod.namespace] = used
        used[numbers] += 1
        return bool((used[numbers] > allowed[numbers]).any())

    def _breaks_few(self, namespace: str, numbers: list[int], limits: Mapping[int, int]) -> bool:
        used = self._used_of_few.get(namespace)
        if used is None:
            used = self._used_of_few[namespace] = {}
        breaks = False
        for number in numbers:
            used[number] = count = used.get(number, 0) + 1
            breaks = breaks or count > limits[number]
        return breaks


def _read(found: Mapping[str, Any]) -> Generator[None, None, Budget | None]:
    """Return the budget of an object, in steps; None if it protects nothing."""
    status = found.get("status") or {}
    selector = (found.get("spec") or {}).get("selector")
    try:
        written = msgspec.convert(selector, LabelSelector | None)
        if written is None:
            return None
        rule = yield from read_label_selector(written)
    except (SelectorError, msgspec.ValidationError):
        return None
    needs = conditions_of(None, rule) if rule.count else None
    if needs is None:
        return None
    return Budget(
        needs,
        status.get("disruptionsAllowed") or 0,
        frozenset(status.get("disruptedPods") or ()),
    )


def split(pods: Iterable[PodInfo], budgets: DisruptionBudgets) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return the pods whose eviction would violate a budget, and the others, both in the given order; see `Evictions`."""
    evictions = Evictions(budgets)
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        (violating if evictions.breaks(pod) else others).append(pod)
    return violating, others
