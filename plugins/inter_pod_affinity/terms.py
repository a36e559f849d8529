"""A pod's own affinity terms as queries of the pods that are counted on nodes.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from scheduler.objects.pod_affinity import topology_keys
from scheduler.objects.remembered import Remembered
from scheduler.snapshot import Objects, PodQuery, PodsIn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod_affinity import AffinityTerm, AffinityTerms, WeightedTerm
    from scheduler.objects.selectors import LabelRule
    from scheduler.snapshot import Snapshot

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
        requirements: the total number of their label requirements.
    """

    affinity: PodQuery
    affinity_keys: tuple[str, ...]
    anti_affinity: tuple[CountedTerm, ...]
    preferred: tuple[CountedTerm, ...]
    requirements: int


class NamespaceLabels:
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
        self.labels = NamespaceLabels(_NOTHING)
        self._version = 0  # the version of the namespaces for which results are cached
        self._read: Remembered[AffinityTerms, IncomingTerms] = Remembered()

    def look_at(self, snapshot: Snapshot) -> None:
        """Set the store of namespaces."""
        try:
            found = snapshot.objects(NAMESPACES)
        except LookupError:
            found = _NOTHING  # an unwatched kind must not prevent the placement of pods
        version = found.version("")
        if found is not self._namespaces or version != self._version:
            self._namespaces, self._version = found, version
            self.labels = NamespaceLabels(found)
            self._read.clear()

    def selects_among_many(self, terms: AffinityTerms) -> bool:
        """Return whether `incoming` would match too many namespaces with the selectors of the terms."""
        count = len(self._namespaces)
        if count * terms.count <= _MOST_MATCHED:
            return False
        written = chain(
            terms.required_affinity,
            terms.required_anti_affinity,
            terms.preferred_affinity,
            terms.preferred_anti_affinity,
        )
        return count * sum([_selects_by_labels(each.term) for each in written]) > _MOST_MATCHED

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
                requirements=terms.requirements,
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
        if rule.requirements is None:
            return frozenset()
        return frozenset(name for name, found in self._namespaces.items() if rule.matches(_labels(found)))


def _length(terms: IncomingTerms) -> int:
    """Return the approximate length of the terms and their namespaces."""
    queries = (terms.affinity, *(each.query for each in (*terms.anti_affinity, *terms.preferred)))
    parts = [part for query in queries for part in query.parts]
    return sum([_TERM_BYTES + part.rule.length + 8 * len(part.namespaces or ()) for part in parts])


def _selects_by_labels(term: AffinityTerm) -> bool:
    """Return whether the namespaces of a term depend on the labels of all namespaces, see `TermReader`."""
    return term.namespace_rule.requirements is not None and not term.namespace_rule.matches(_NO_LABELS)


def _labels(namespace: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = namespace.get("metadata", {}).get("labels") or _NO_LABELS
    return labels
