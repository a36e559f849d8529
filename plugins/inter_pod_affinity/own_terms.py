"""A pod's own affinity terms, counted on nodes: a few terms separately, very many together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from scheduler.objects.pod_affinity import topology_keys
from scheduler.objects.selectors import LabelRule
from scheduler.snapshot import TalliedTerm, conditions

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from plugins.inter_pod_affinity.terms import CountedTerm, IncomingTerms
    from plugins.pod_work import PluginWork
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerm, AffinityTerms, WeightedTerm
    from scheduler.snapshot import Int64s, NamespaceLabels, PodQuery, Rows, Snapshot, Tally

MOST_ONE_BY_ONE: Final = 16
"""The terms of a pod with more than this are counted together."""
MOST_REQUIREMENTS: Final = 128
"""The terms are also counted together if they have more requirements than this."""

_NO_LABELS: Final[Mapping[str, str]] = {}
_EVERYTHING: Final = LabelRule(())

Counts = tuple[str, "Rows", "Int64s"]
"""A topology key, rows, and the weight of the pods on each of them."""
Changes = tuple[str, "Mapping[int, int]"]
"""A topology key, and row -> the difference of the weight of the pods there."""


class OwnTerms(Protocol):
    """The terms of an incoming pod, and the pods on nodes that match them.

    Attributes:
        affinity_keys: the topology keys of required affinity, each once.
        has_anti_affinity: whether there are terms of required anti-affinity.
    """

    @property
    def affinity_keys(self) -> tuple[str, ...]: ...
    @property
    def has_anti_affinity(self) -> bool: ...
    def affinity(self) -> tuple[Rows, Int64s]:
        """Return rows, and how many pods there match all terms of required affinity."""

    def anti_affinity(self) -> Iterable[Counts]:
        """Yield how many pods match the terms of required anti-affinity, without keys that no node has."""

    def preferred(self) -> Iterable[Counts]:
        """Yield the weights of the pods that match preferred terms, without keys that no node has."""

    def means_all(self, pod: PodInfo) -> bool:
        """Return whether all terms of required affinity match a pod."""

    def affinity_changes(self, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Mapping[int, int]:
        """Return row -> the difference of the number of pods that match all terms of required affinity."""

    def anti_affinity_changes(self, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Iterable[Changes]:
        """Yield differences of the number of pods that match the terms of required anti-affinity."""


class FewTerms:
    """Implements `OwnTerms` with a column of counts for each term."""

    def __init__(self, terms: IncomingTerms, snapshot: Snapshot) -> None:
        self._terms, self._snapshot = terms, snapshot
        self.affinity_keys = terms.affinity_keys
        self.has_anti_affinity = bool(terms.anti_affinity)

    def affinity(self) -> tuple[Rows, Int64s]:
        return _counted(self._snapshot.pods_matching(self._terms.affinity))

    def anti_affinity(self) -> Iterator[Counts]:
        return self._counts(self._terms.anti_affinity)

    def preferred(self) -> Iterator[Counts]:
        return self._counts(self._terms.preferred)

    def _counts(self, terms: Iterable[CountedTerm]) -> Iterator[Counts]:
        for term in terms:
            if self._snapshot.has_label(term.topology_key):
                rows, counts = _counted(self._snapshot.pods_matching(term.query))
                yield term.topology_key, rows, counts * term.weight

    def means_all(self, pod: PodInfo) -> bool:
        return self._terms.affinity.matches(pod)

    def affinity_changes(self, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Mapping[int, int]:
        return _amounts(changed, self._terms.affinity, sign)

    def anti_affinity_changes(self, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Iterator[Changes]:
        for term in self._terms.anti_affinity:
            if self._snapshot.has_label(term.topology_key):
                amounts = _amounts(changed, term.query, sign)
                if amounts:
                    yield term.topology_key, amounts


class ManyTerms:
    """Implements `OwnTerms` with a tally for each kind of terms.

    Args:
        terms: valid terms.
        namespaces: the labels of namespaces.
        snapshot: the cluster.
        work: runs slow steps; so every method may raise NeedsTime.
    """

    def __init__(
        self, terms: AffinityTerms, namespaces: NamespaceLabels, snapshot: Snapshot, work: PluginWork
    ) -> None:
        self._terms, self._namespaces, self._snapshot, self._work = terms, namespaces, snapshot, work
        self._tallies: dict[str, Tally] = {}
        self.affinity_keys = topology_keys(terms.required_affinity)
        self.has_anti_affinity = bool(terms.required_anti_affinity)

    def affinity(self) -> tuple[Rows, Int64s]:
        found = [(rows, amounts) for _, rows, amounts in self._tally(_AFFINITY).worth()]
        if not found:
            return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)
        rows, amounts = (np.concatenate(each) for each in zip(*found, strict=True))
        return rows, amounts

    def anti_affinity(self) -> Iterator[Counts]:
        return self._counts(_ANTI_AFFINITY)

    def preferred(self) -> Iterator[Counts]:
        return self._counts(_PREFERRED)

    def _counts(self, kind: str) -> Iterator[Counts]:
        for key, rows, amounts in self._tally(kind).worth():
            yield str(key), rows, amounts

    def means_all(self, pod: PodInfo) -> bool:
        return any(self._tally(_AFFINITY).worth_of([pod], self._namespaces))

    def affinity_changes(self, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Mapping[int, int]:
        return dict(self._changes(_AFFINITY, changed, sign)).get("", {})

    def anti_affinity_changes(self, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Iterable[Changes]:
        return self._changes(_ANTI_AFFINITY, changed, sign) if self.has_anti_affinity else ()

    def _changes(self, kind: str, changed: Sequence[tuple[int, PodInfo]], sign: int) -> Iterator[Changes]:
        rows, pods = np.array([row for row, _ in changed], dtype=np.intp), [pod for _, pod in changed]
        for key, places, amounts in self._tally(kind).worth_of(pods, self._namespaces):
            total = np.bincount(rows[places], weights=amounts).astype(np.int64)
            touched = np.unique(rows[places])
            yield str(key), dict(zip(touched.tolist(), (sign * total[touched]).tolist(), strict=True))

    def _tally(self, kind: str) -> Tally:
        tally = self._tallies.get(kind)
        if tally is None:
            tally = self._snapshot.tally(_TermList(self._terms, kind))
            self._work.done(tally.steps(self._namespaces))
            self._tallies[kind] = tally
        return tally


_AFFINITY: Final = "affinity"
_ANTI_AFFINITY: Final = "anti-affinity"
_PREFERRED: Final = "preferred"


@dataclass(frozen=True, slots=True)
class _TermList:
    """Implements `TallyTerms` with terms of one kind, or with those of both preferred kinds."""

    terms: AffinityTerms
    kind: str

    @property
    def key(self) -> Hashable:
        return self

    @property
    def needs_all(self) -> bool:
        return self.kind == _AFFINITY

    @property
    def counts_terminating(self) -> bool:
        return True

    @property
    def groups_are_labels(self) -> bool:
        return not self.needs_all

    @property
    def _lists(self) -> tuple[tuple[Sequence[WeightedTerm], int], ...]:
        if self.kind == _AFFINITY:
            return ((self.terms.required_affinity, 1),)
        if self.kind == _ANTI_AFFINITY:
            return ((self.terms.required_anti_affinity, 1),)
        return (self.terms.preferred_affinity, 1), (self.terms.preferred_anti_affinity, -1)

    def __len__(self) -> int:
        return sum([len(terms) for terms, _ in self._lists])

    def read(self, place: int) -> TalliedTerm:
        for terms, sign in self._lists:
            if place < len(terms):
                found = terms[place]
                group = "" if self.needs_all else found.term.topology_key
                return TalliedTerm(group, sign * found.weight, tuple(conditions(_as_counted(found.term))))
            place -= len(terms)
        raise IndexError("there are fewer terms")


def _as_counted(term: AffinityTerm) -> AffinityTerm:
    """Return a term as it counts pods: a namespace selector that matches no labels selects all, see `TermReader`."""
    if not term.namespace_rule.matches(_NO_LABELS):
        return term
    return msgspec.structs.replace(term, namespace_rule=_EVERYTHING)


def _amounts(changed: Iterable[tuple[int, PodInfo]], query: PodQuery, sign: int) -> Counter[int]:
    """Return row -> the difference of the number of pods that match a query."""
    amounts: Counter[int] = Counter()
    for row, other in changed:
        if query.matches(other):
            amounts[row] += sign
    return amounts


def _counted(counts: Int64s) -> tuple[Rows, Int64s]:
    rows = np.flatnonzero(counts)
    return rows, counts[rows]
