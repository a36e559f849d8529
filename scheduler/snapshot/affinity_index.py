"""The affinity terms of the pods on nodes: which there are, which mean a given pod, and where their pods are."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.objects.pod_affinity import NO_TERMS
from scheduler.snapshot.rule_index import RuleIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerms, WeightedTerm
    from scheduler.snapshot.arrays import Int64s, Rows
    from scheduler.snapshot.names_in_use import NamesInUse

_FEW_ROWS = 256


class TermKind(Enum):
    """The four lists of terms a pod can have; the values are the attributes of AffinityTerms."""

    REQUIRED_AFFINITY = "required_affinity"
    REQUIRED_ANTI_AFFINITY = "required_anti_affinity"
    PREFERRED_AFFINITY = "preferred_affinity"
    PREFERRED_ANTI_AFFINITY = "preferred_anti_affinity"

    def of(self, terms: AffinityTerms) -> tuple[WeightedTerm, ...]:
        """Return a pod's terms of this kind."""
        of_kind: tuple[WeightedTerm, ...] = getattr(terms, self.value)
        return of_kind


class TermsInUse(Protocol):
    """The terms of one kind that pods on nodes have."""

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Sequence[WeightedTerm]:
        """Return the distinct terms that mean a pod with these labels, in a namespace with those.

        Without those whose topology key no node has.
        """

    def holders(self, term: WeightedTerm) -> tuple[Rows, Int64s]:
        """Return the rows with pods that have the term, in no order, and how often it occurs in each."""


class RowCounts:
    """A number per row, most of them 0."""

    __slots__ = ("_few", "_many", "_shown")

    def __init__(self) -> None:
        self._shown: tuple[Rows, Int64s] | None = None  # as long as nothing is added
        self._few: dict[int, int] = {}
        self._many: Int64s | None = None  # once there are more than a few

    def add(self, row: int, amount: int) -> None:
        """Add to a row's number."""
        self._shown = None
        if self._many is not None:
            if row >= len(self._many):
                self._many = np.concatenate([self._many, np.zeros(max(row, 64), dtype=np.int64)])
            self._many[row] += amount
            return
        count = self._few.get(row, 0) + amount
        if count:
            self._few[row] = count
        else:
            del self._few[row]
        if len(self._few) > _FEW_ROWS:
            self._many = np.zeros(max(self._few) + 1, dtype=np.int64)
            self._many[list(self._few)] = list(self._few.values())
            self._few = {}

    def arrays(self) -> tuple[Rows, Int64s]:
        """Return the rows whose number is not 0, and their numbers, to be looked at only."""
        if self._shown is None:
            self._shown = self._arrays()
        return self._shown

    def _arrays(self) -> tuple[Rows, Int64s]:
        if self._many is not None:
            rows = np.flatnonzero(self._many)
            return rows, self._many[rows]
        length = len(self._few)
        return (
            np.fromiter(self._few.keys(), dtype=np.intp, count=length),
            np.fromiter(self._few.values(), dtype=np.int64, count=length),
        )


class TermIndex:
    """The terms of one kind; see `TermsInUse`.

    Terms whose topology key no node has put nobody near anybody, so they are found only once a node has it.

    Args:
        keys: the label keys that nodes have; `show` and `hide` tell when they change.
    """

    __slots__ = ("_index", "_keys", "_of_key", "_rows", "_uses")

    def __init__(self, keys: NamesInUse) -> None:
        self._keys = keys
        self._index: RuleIndex[WeightedTerm] = RuleIndex()
        self._of_key: dict[str, dict[WeightedTerm, None]] = {}
        self._rows: dict[WeightedTerm, RowCounts] = {}
        self._uses: Counter[WeightedTerm] = Counter()

    def count(self, row: int, terms: Iterable[WeightedTerm], sign: int) -> None:
        """Note that a pod with these terms came to a row, or left it."""
        for term in terms:
            if not self._uses[term]:
                self._add(term)
            self._uses[term] += sign
            self._rows[term].add(row, sign)
            if not self._uses[term]:
                self._remove(term)

    def _add(self, term: WeightedTerm) -> None:
        key = term.term.topology_key
        self._rows[term] = RowCounts()
        self._of_key.setdefault(key, {})[term] = None
        if key in self._keys:
            self._index.add(term.term.rule, term)

    def _remove(self, term: WeightedTerm) -> None:
        key = term.term.topology_key
        del self._uses[term], self._rows[term], self._of_key[key][term]
        if not self._of_key[key]:
            del self._of_key[key]
        if key in self._keys:
            self._index.remove(term.term.rule, term)

    def show(self, key: str) -> None:
        """Note that a first node has a label key."""
        for term in self._of_key.get(key, ()):
            self._index.add(term.term.rule, term)

    def hide(self, key: str) -> None:
        """Note that no node has a label key any more."""
        for term in self._of_key.get(key, ()):
            self._index.remove(term.term.rule, term)

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Sequence[WeightedTerm]:
        if not self._rows:
            return ()
        return [
            term
            for term in self._index.candidates(labels)
            if term.term.matches(namespace, labels, namespace_labels)
        ]

    def terms(self) -> Iterable[WeightedTerm]:
        """Return the distinct terms there are."""
        return self._rows.keys()

    def holders(self, term: WeightedTerm) -> tuple[Rows, Int64s]:
        counts = self._rows.get(term)
        return RowCounts().arrays() if counts is None else counts.arrays()


class AffinityIndex:
    """The terms of all kinds."""

    __slots__ = ("_of_kind",)

    def __init__(self, keys: NamesInUse) -> None:
        self._of_kind = {kind: TermIndex(keys) for kind in TermKind}

    def of(self, kind: TermKind) -> TermIndex:
        return self._of_kind[kind]

    def show(self, key: str) -> None:
        """Note that a first node has a label key."""
        for index in self._of_kind.values():
            index.show(key)

    def hide(self, key: str) -> None:
        """Note that no node has a label key any more."""
        for index in self._of_kind.values():
            index.hide(key)

    def count(self, row: int, pod: PodInfo, sign: int) -> None:
        """Note that a pod came to a row, or left it."""
        terms = pod.affinity_terms
        if terms is not NO_TERMS:
            for kind, index in self._of_kind.items():
                index.count(row, kind.of(terms), sign)


class ChangedTerms:
    """Terms in use, with the pods of some rows exchanged."""

    def __init__(self, base: TermsInUse, kind: TermKind, changes: Iterable[tuple[int, PodInfo, int]]) -> None:
        self._base = base
        self._changes: defaultdict[WeightedTerm, Counter[int]] = defaultdict(Counter)
        for row, pod, sign in changes:
            for term in kind.of(pod.affinity_terms):
                self._changes[term][row] += sign

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Sequence[WeightedTerm]:
        found = dict.fromkeys(self._base.matching(namespace, labels, namespace_labels))
        found.update(
            (term, None) for term in self._changes if term.term.matches(namespace, labels, namespace_labels)
        )
        return [term for term in found if term not in self._changes or self.holders(term)[0].size]

    def holders(self, term: WeightedTerm) -> tuple[Rows, Int64s]:
        rows, counts = self._base.holders(term)
        changes = self._changes.get(term)
        if changes is None:
            return rows, counts
        total = Counter(dict(zip(rows.tolist(), counts.tolist(), strict=True)))
        total.update(changes)
        held = RowCounts()
        for row, count in total.items():
            if count:
                held.add(row, count)
        return held.arrays()


class TakenTerms:
    """Terms in use on some rows only."""

    def __init__(self, base: TermsInUse, rows: Rows, n_base: int) -> None:
        self._base = base
        self._new_row = np.full(n_base, -1, dtype=np.intp)
        self._new_row[rows] = np.arange(len(rows), dtype=np.intp)

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Sequence[WeightedTerm]:
        found = self._base.matching(namespace, labels, namespace_labels)
        return [term for term in found if self.holders(term)[0].size]

    def holders(self, term: WeightedTerm) -> tuple[Rows, Int64s]:
        rows, counts = self._base.holders(term)
        taken = self._new_row[rows]
        here = taken >= 0
        return taken[here], counts[here]
