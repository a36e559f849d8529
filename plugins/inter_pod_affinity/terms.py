"""A pod's own affinity terms as queries, counted on nodes and added up by topology domain.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np

from plugins.pod_topology_spread.constraints import lacking
from scheduler.objects.caches import Remembered
from scheduler.objects.pod_affinity import topology_keys
from scheduler.objects.selectors import LabelRule
from scheduler.snapshot import Objects, PodQuery, PodsIn, TalliedTerm, conditions

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from plugins.work_in_steps import PluginWork
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerm, AffinityTerms, WeightedTerm
    from scheduler.snapshot import Bools, Int64s, Interned, NamespaceLabels, Rows, Snapshot, Tally

NAMESPACES: Final = "v1/namespaces"

_MOST_MATCHED: Final = 4096
"""Maximum number of namespaces that are matched with the selectors of a pod's terms at once: about 4 ms."""
_TERM_BYTES = 128
"""The approximate length of a term, without its namespaces."""
_NOTHING: Final = Objects()
_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class CountedTerm:
    """One term.

    Attributes:
        topology_key: nodes with the same value of this label are near each other.
        query: the pods that the term matches.
        weight: the weight of one such pod; negative for anti-affinity.
    """

    topology_key: str
    query: PodQuery
    weight: int = 1


@dataclass(frozen=True, slots=True)
class IncomingTerms:
    """All terms of an incoming pod.

    Attributes:
        affinity: the pods that match all terms of required affinity; none without such terms.
        affinity_keys: the topology keys of those terms, each once.
        anti_affinity: the terms of required anti-affinity.
        preferred: the terms of both preferred kinds.
    """

    affinity: PodQuery
    affinity_keys: tuple[str, ...]
    anti_affinity: tuple[CountedTerm, ...]
    preferred: tuple[CountedTerm, ...]


class KnownNamespaceLabels:
    """The labels of namespaces, as long as none of them changes."""

    def __init__(self, namespaces: Objects) -> None:
        self._namespaces = namespaces

    def of(self, namespace: str) -> Mapping[str, str]:
        """Return a namespace's labels; an unknown namespace has none."""
        found = self._namespaces.get(namespace)
        return _NO_LABELS if found is None else _labels(found)


class TermReader:
    """Resolves the namespaces of terms; pods with equal terms share one result.

    Attributes:
        labels: the labels of namespaces; another object after each change.
    """

    def __init__(self) -> None:
        self._namespaces = _NOTHING
        self.labels = KnownNamespaceLabels(_NOTHING)
        self._version = 0  # the version of the namespaces for which results are cached
        self._read: Remembered[AffinityTerms, IncomingTerms] = Remembered()

    def look_at(self, snapshot: Snapshot) -> None:
        """Set the store of namespaces."""
        found = snapshot.watched_objects(NAMESPACES)
        version = found.version("")
        if found is not self._namespaces or version != self._version:
            self._namespaces, self._version = found, version
            self.labels = KnownNamespaceLabels(found)
            self._read.clear()

    def selects_among_many(self, terms: AffinityTerms) -> bool:
        """Return whether `incoming` would match too many namespaces with the selectors of the terms."""
        written = chain(
            terms.required_affinity,
            terms.required_anti_affinity,
            terms.preferred_affinity,
            terms.preferred_anti_affinity,
        )
        asked = [each.term.namespace_rule for each in written if _selects_by_labels(each.term)]
        return len(self._namespaces) * sum([each.count for each in asked]) > _MOST_MATCHED

    def incoming(self, terms: AffinityTerms) -> IncomingTerms:
        """Return the terms of an incoming pod."""
        found = self._read.get(terms)
        if found is None:
            found = IncomingTerms(
                affinity=PodQuery(tuple(self._pods(each.term) for each in terms.required_affinity)),
                affinity_keys=topology_keys(terms.required_affinity),
                anti_affinity=self._counted(terms.required_anti_affinity, 1),
                preferred=(
                    *self._counted(terms.preferred_affinity, 1),
                    *self._counted(terms.preferred_anti_affinity, -1),
                ),
            )
            self._read.keep(terms, found, _length(found))
        return found

    def _counted(self, terms: Sequence[WeightedTerm], sign: int) -> tuple[CountedTerm, ...]:
        return tuple(
            CountedTerm(each.term.topology_key, PodQuery((self._pods(each.term),)), sign * each.weight)
            for each in terms
        )

    def _pods(self, term: AffinityTerm) -> PodsIn:
        """Return the pods that a term matches.

        Upstream adds the namespaces that the selector selects to the named ones, and then also evaluates the selector as if
        no namespace had labels. So a selector that matches without labels, such as an empty one or one that requires a
        label's absence, selects all namespaces.
        """
        if term.namespace_rule.matches(_NO_LABELS):
            return PodsIn(None, term.rule)
        return PodsIn(term.namespaces | self._chosen(term.namespace_rule), term.rule)

    def _chosen(self, rule: LabelRule) -> frozenset[str]:
        if rule.expressions is None:
            return frozenset()
        return frozenset(name for name, found in self._namespaces.items() if rule.matches(_labels(found)))


def _length(terms: IncomingTerms) -> int:
    """Return the approximate length of the terms and their namespaces."""
    queries = (terms.affinity, *(each.query for each in (*terms.anti_affinity, *terms.preferred)))
    parts = [part for query in queries for part in query.parts]
    return sum([_TERM_BYTES + part.rule.length + 8 * len(part.namespaces or ()) for part in parts])


def _selects_by_labels(term: AffinityTerm) -> bool:
    """Return whether the namespaces of a term depend on the labels of all namespaces, see `TermReader`."""
    return term.namespace_rule.expressions is not None and not term.namespace_rule.matches(_NO_LABELS)


def _labels(namespace: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = namespace.get("metadata", {}).get("labels") or _NO_LABELS
    return labels


MOST_ONE_BY_ONE: Final = 16
"""The terms of a pod with more than this are counted together."""
MOST_REQUIREMENTS: Final = 128
"""The terms are also counted together if they have more requirements than this."""
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
    rows = np.flatnonzero(counts != 0)  # a fifth of the time of a search in the numbers
    return rows, counts[rows]


_FEW: Final = 4
"""If fewer than one of this number of domains has pods, their pods are added one by one."""


class Domains:
    """A number for each value of a label, with differences for single rows.

    A change on a row is visible from that row only: all other rows see their domain as it was counted, even if they
    share it.
    """

    __slots__ = ("_changes", "_label", "_numbers")

    def __init__(self, label: Interned[str | None], numbers: Int64s, changes: Counter[int]) -> None:
        self._label = label
        self._numbers = numbers  # by the label's code; 0 for nodes without the label
        self._changes = changes  # row -> the difference of its domain, visible from this row only

    @classmethod
    def empty(cls, label: Interned[str | None]) -> Self:
        """Return domains that all have 0."""
        return cls(label, np.zeros(len(label.values), dtype=np.int64), Counter())

    @classmethod
    def added_up(cls, label: Interned[str | None], rows: Rows, amounts: Int64s) -> Self | None:
        """Add amounts of rows to their domains; None if no row has the label, so that there is no domain."""
        codes, none = label.codes[rows], label.values.index(None)
        if not (codes != none).any():
            return None
        if _FEW * len(rows) < len(label.values):
            numbers = np.zeros(len(label.values), dtype=np.int64)
            np.add.at(numbers, codes, amounts)
        else:  # such sums are exact in 64-bit floating point
            numbers = np.bincount(codes, weights=amounts, minlength=len(label.values)).astype(np.int64)
        numbers[none] = 0
        return cls(label, numbers, Counter())

    def clone(self) -> Self:
        return type(self)(self._label, self._numbers, self._changes.copy())

    def change(self, amounts: Mapping[int, int]) -> None:
        """Add row -> amount to the domain of each row, visible from that row; a row without the label has none."""
        changed = np.fromiter(amounts, dtype=np.intp, count=len(amounts))
        labelled = self._label.codes[changed] != self._label.values.index(None)
        for row in changed[labelled].tolist():
            self._changes[row] += amounts[row]

    @property
    def count(self) -> int:
        """The number of domains."""
        return len(self._numbers)

    def content(self) -> tuple[Sequence[str | None], bytes, tuple[tuple[int, int], ...]]:
        """Return a value that is equal for equal domains of one label while no node changes; linear in the domains."""
        return self._label.values, self._numbers.tobytes(), tuple(self._changes.items())

    @property
    def lacking(self) -> Bools:
        """Bool (n_nodes,), where nodes lack the label."""
        return lacking(self._label)

    def are_positive(self) -> Bools:
        """Return bool (n_nodes,), where `here` is positive; the domains are compared, which are fewer than the nodes."""
        positive = self._label.where(self._numbers > 0)
        if self._changes:
            rows, amounts = self._changed()
            positive[rows] = self._numbers[self._label.codes[rows]] + amounts > 0
        return positive

    def here(self) -> Int64s:
        """Return the number of each node's domain, (n_nodes,); 0 where the node lacks the label."""
        here: Int64s = self._numbers.take(self._label.codes)
        if self._changes:
            rows, amounts = self._changed()
            here[rows] += amounts
        return here

    def occupied(self) -> Int64s | int:
        """Return how many domains have a number other than 0, seen from each node, (n_nodes,), or one number for all."""
        everywhere = int(np.count_nonzero(self._numbers))
        if self._changes:
            seen = np.full(len(self._label.codes), everywhere, dtype=np.int64)
            rows, amounts = self._changed()
            before = self._numbers[self._label.codes[rows]]
            seen[rows] += (before + amounts != 0).astype(np.int64) - (before != 0)
            return seen
        return everywhere

    def _changed(self) -> tuple[Rows, Int64s]:
        count = len(self._changes)
        rows = np.fromiter(self._changes, dtype=np.intp, count=count)
        return rows, np.fromiter(self._changes.values(), dtype=np.int64, count=count)


def added_up(snapshot: Snapshot, found: Iterable[tuple[str, Rows, Int64s]]) -> dict[str, Domains]:
    """Add up amounts by topology key.

    Args:
        snapshot: the cluster.
        found: (topology key, rows, amount for each of them); keys and rows may repeat.

    Returns:
            Topology key -> domains; only keys with an amount, even 0, on a node with that label.
    """
    by_key: defaultdict[str, list[tuple[Rows, Int64s]]] = defaultdict(list)
    for key, rows, amounts in found:
        if rows.size:
            by_key[key].append((rows, amounts))
    domains = {}
    for key, parts in by_key.items():
        all_rows, all_amounts = (
            parts[0] if len(parts) == 1 else (np.concatenate(each) for each in zip(*parts, strict=True))
        )
        of_key = Domains.added_up(snapshot.label(key), all_rows, all_amounts)
        if of_key is not None:
            domains[key] = of_key
    return domains
