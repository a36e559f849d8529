"""PodDisruptionBudgets: whose eviction would break one.

Source:
    kube-scheduler v1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.objects.matchers import matcher
from scheduler.objects.selectors import LabelSelector, SelectorError, parse_label_selector
from scheduler.snapshot import Objects
from scheduler.snapshot.rule_index import RuleIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.objects.matchers import Matcher
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import LabelRule

BUDGETS = "policy/v1/poddisruptionbudgets"

_MOST_LABELS = 4096
"""Kinds of pods of a namespace whose budgets are kept; beyond that they are found anew."""


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """One PodDisruptionBudget.

    Attributes:
        rule: which pods of its namespace it protects.
        matches: says by the labels of a pod whether it is one of them.
        allowed: how many of them may go.
        disrupted: names of pods whose eviction the API server has already counted.
    """

    rule: LabelRule
    matches: Matcher
    allowed: int
    disrupted: AbstractSet[str]


class _Namespace:
    """The budgets of one namespace.

    Attributes:
        version: of the objects that they were read from; 0 before all were.
    """

    __slots__ = ("_budgets", "_by_labels", "_index", "version")

    def __init__(self) -> None:
        self.version = 0
        # Key of an object -> the object, and what it says; None where it protects nothing.
        self._budgets: dict[str, tuple[Mapping[str, Any], Budget | None]] = {}
        self._index: RuleIndex[Budget] = RuleIndex()
        self._by_labels: dict[frozenset[tuple[str, str]], Sequence[Budget]] = {}

    def follow(self, version: int, found: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
        """Take in what changed, one budget a step; where that is not gone through to the end, it goes on the next time."""
        for key in self._budgets.keys() - found.keys():
            self._forget(key)
        for key, obj in found.items():
            known = self._budgets.get(key)
            if known is not None and known[0] is obj:
                continue
            if known is not None:
                self._forget(key)
            budget = _read(obj)
            self._budgets[key] = obj, budget
            if budget is not None:
                self._by_labels.clear()
                self._index.add(budget.rule, budget)
            yield
        self.version = version

    def _forget(self, key: str) -> None:
        _, budget = self._budgets.pop(key)
        if budget is not None:
            self._by_labels.clear()
            self._index.remove(budget.rule, budget)

    def matching(self, labels: Mapping[str, str]) -> Sequence[Budget]:
        """Return the budgets whose rule matches labels; pods alike ask once."""
        if not labels:
            return ()
        alike = frozenset(labels.items())
        found = self._by_labels.get(alike)
        if found is None:
            if len(self._by_labels) >= _MOST_LABELS:
                self._by_labels.clear()
            candidates = self._index.candidates(labels)
            found = [budget for budget in candidates if budget.matches(labels)]
            self._by_labels[alike] = found
        return found


class DisruptionBudgets:
    """The budgets that protect anything, by namespace, read again where one of the namespace changed."""

    def __init__(self) -> None:
        self._objects = Objects()
        self._read: dict[str, _Namespace] = {}

    def look_at(self, objects: Objects) -> None:
        """Note where the PodDisruptionBudgets are."""
        if objects is not self._objects:
            self._objects = objects
            self._read.clear()

    def read(self, objects: Objects, has_time: Callable[[], bool]) -> bool:
        """Read what changed for as long as there is time; return whether that was enough.

        There may be thousands of budgets, with thousands of requirements each, and all are read before victims are chosen.
        """
        self.look_at(objects)
        for namespace, version in objects.versions.items():
            known = self._read.get(namespace)
            if known is None or known.version != version:
                known = self._read.setdefault(namespace, _Namespace())
                for _ in known.follow(version, objects.in_namespace(namespace)):
                    if not has_time():
                        return False
        return True

    def protecting(self, pod: PodInfo) -> Sequence[Budget]:
        """Return those that protect a pod; one without a selector, or with one that is no rule, protects nothing."""
        namespace = pod.namespace
        version = self._objects.version(namespace)
        known = self._read.get(namespace)
        if known is None or known.version != version:
            found = self._objects.in_namespace(namespace)
            if not found:
                self._read.pop(namespace, None)
                return ()
            known = self._read.setdefault(namespace, _Namespace())
            deque(known.follow(version, found), maxlen=0)
        matching = known.matching(pod.labels)
        if not any(budget.disrupted for budget in matching):
            return matching
        return [budget for budget in matching if pod.name not in budget.disrupted]


def _read(found: Mapping[str, Any]) -> Budget | None:
    status = found.get("status") or {}
    selector = (found.get("spec") or {}).get("selector")
    try:
        rule = parse_label_selector(msgspec.convert(selector, LabelSelector | None))
    except (SelectorError, msgspec.ValidationError):
        return None
    if not rule.requirements:
        return None
    return Budget(
        rule,
        matcher(rule),
        status.get("disruptionsAllowed") or 0,
        frozenset(status.get("disruptedPods") or ()),
    )


def split(pods: Iterable[PodInfo], budgets: DisruptionBudgets) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return the pods whose eviction would break a budget, and the others, both in the order given.

    The pods are thought to go one after another, each using up every budget that protects it.
    """
    used: Counter[Budget] = Counter()  # how many of its pods have gone
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        breaks = False
        for budget in budgets.protecting(pod):
            used[budget] += 1
            breaks = breaks or used[budget] > budget.allowed
        (violating if breaks else others).append(pod)
    return violating, others
