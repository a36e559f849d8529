"""InterPodAffinity one node and one pod at a time, from reading interpodaffinity/*.go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tests.reference.go import to_int64
from tests.reference.one_node import PASSES, Verdict
from tests.reference.topology_spread import ParseError, as_selector, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.reference.cluster_events import EventfulCluster
    from tests.reference.topology_spread import Selector

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

NOT_NEAR: Verdict = ("UnschedulableAndUnresolvable", ("node(s) didn't match pod affinity rules",))
TOO_NEAR: Verdict = ("Unschedulable", ("node(s) didn't match pod anti-affinity rules",))
UNWELCOME: Verdict = ("Unschedulable", ("node(s) didn't satisfy existing pods anti-affinity rules",))

Pairs = Counter[tuple[str, str]]
"""(topology key, value) -> count; upstream's topologyToMatchedTermCount."""


@dataclass
class Term:
    """types.go, AffinityTerm and WeightedAffinityTerm."""

    namespaces: set[str]
    selector: Selector
    key: str
    namespace_selector: Selector
    weight: int = 0

    def matches(self, pod: PodInfo, ns_labels: Mapping[str, str]) -> bool:
        if pod.namespace in self.namespaces or matches(self.namespace_selector, ns_labels):
            return matches(self.selector, pod.labels)
        return False


def get_terms(pod: PodInfo, kind: str, when: str) -> list[Term]:
    """types.go, GetAffinityTerms and GetWeightedAffinityTerms; kind as in JSON."""
    affinity = pod.pod.spec.affinity
    written: dict[str, Any] = {} if affinity is None else msgspec.json.decode(msgspec.json.encode(affinity))
    terms = []
    for each in (written.get(kind) or {}).get(when, ()):
        term = each.get("podAffinityTerm", {}) if when == PREFERRED else each
        selector = as_selector(term.get("labelSelector"))
        if not term.get("namespaces") and term.get("namespaceSelector") is None:
            namespaces = {pod.namespace}
        else:
            namespaces = set(term.get("namespaces", ()))
        ns_selector = as_selector(term.get("namespaceSelector"))
        weight = each.get("weight", 0) if when == PREFERRED else 0
        terms.append(Term(namespaces, selector, term.get("topologyKey", ""), ns_selector, weight))
    return terms


@dataclass
class PodTerms:
    """types.go, PodInfo.Update: a list that cannot be parsed is left empty, and the pod has an error."""

    required_affinity: list[Term]
    required_anti_affinity: list[Term]
    preferred_affinity: list[Term]
    preferred_anti_affinity: list[Term]
    has_error: bool

    @classmethod
    def of(cls, pod: PodInfo) -> PodTerms:
        has_error = False
        lists: list[list[Term]] = []
        for when in (REQUIRED, PREFERRED):
            for kind in ("podAffinity", "podAntiAffinity"):
                try:
                    lists.append(get_terms(pod, kind, when))
                except ParseError:
                    lists.append([])
                    has_error = True
        return cls(lists[0], lists[1], lists[2], lists[3], has_error)

    @property
    def any(self) -> bool:
        return bool(
            self.required_affinity
            or self.required_anti_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
        )


def match_all(terms: Sequence[Term], pod: PodInfo) -> bool:
    """filtering.go, podMatchesAllAffinityTerms."""
    return bool(terms) and all(term.matches(pod, {}) for term in terms)


def update(pairs: Pairs, node: NodeObject, key: str, value: int) -> None:
    if key in node.labels:
        pair = key, node.labels[key]
        pairs[pair] += value
        if pairs[pair] == 0:
            del pairs[pair]


@dataclass
class State:
    """filtering.go, preFilterState."""

    pod: PodInfo
    terms: PodTerms
    ns_labels: Mapping[str, str]
    existing_anti_affinity: Pairs = field(default_factory=Counter)
    affinity: Pairs = field(default_factory=Counter)
    anti_affinity: Pairs = field(default_factory=Counter)

    def clone(self) -> State:
        return State(
            self.pod,
            self.terms,
            self.ns_labels,
            self.existing_anti_affinity.copy(),
            self.affinity.copy(),
            self.anti_affinity.copy(),
        )

    def update_with_pod(self, other: PodInfo, node: NodeObject, multiplier: int) -> None:
        for term in PodTerms.of(other).required_anti_affinity:
            if term.matches(self.pod, self.ns_labels):
                update(self.existing_anti_affinity, node, term.key, multiplier)
        if match_all(self.terms.required_affinity, other):
            for term in self.terms.required_affinity:
                update(self.affinity, node, term.key, multiplier)
        for term in self.terms.required_anti_affinity:
            if term.matches(other, {}):
                update(self.anti_affinity, node, term.key, multiplier)


TopologyScore = dict[str, Counter[str]]


class SlowInterPodAffinity:
    def __init__(
        self, cluster: EventfulCluster, *, hard_weight: int = 1, ignores_others: bool = False
    ) -> None:
        self._cluster = cluster
        self._hard_weight = hard_weight
        self._ignores_others = ignores_others

    def _namespaces(self) -> dict[str, Mapping[str, str]]:
        objects = self._cluster.objects["v1/namespaces"]
        return {name: found["metadata"]["labels"] for name, found in objects.items()}

    def _merge(self, terms: Iterable[Term]) -> None:
        """plugin.go, mergeAffinityTermNamespacesIfNotEmpty: the selector stays, it is changed in a copy only."""
        for term in terms:
            if term.namespace_selector == []:
                continue
            for name, labels in self._namespaces().items():
                if matches(term.namespace_selector, labels):
                    term.namespaces.add(name)

    def pre_filter(self, pod: PodInfo) -> State | None:
        """PreFilter; None is Skip.

        Raises:
            ParseError: the pod is refused.
        """
        terms = PodTerms.of(pod)
        if terms.has_error:
            raise ParseError
        self._merge([*terms.required_affinity, *terms.required_anti_affinity])
        state = State(pod, terms, self._namespaces().get(pod.namespace, {}))
        for node in self._cluster.nodes.values():
            for other in self._cluster.pods_on(node.name):
                state.update_with_pod(other, node, 1)
        if not (state.existing_anti_affinity or terms.required_affinity or terms.required_anti_affinity):
            return None
        return state

    def update_with_pod(
        self, state: State, other: PodInfo, _pod: PodInfo, node: NodeObject, multiplier: int
    ) -> None:
        state.update_with_pod(other, node, multiplier)

    def filter(self, state: State, _pod: PodInfo, node: NodeObject) -> Verdict:
        if not self._satisfies_affinity(state, node):
            return NOT_NEAR
        for term in state.terms.required_anti_affinity:
            if term.key in node.labels and state.anti_affinity[term.key, node.labels[term.key]] > 0:
                return TOO_NEAR
        if any(state.existing_anti_affinity[pair] > 0 for pair in node.labels.items()):
            return UNWELCOME
        return PASSES

    def _satisfies_affinity(self, state: State, node: NodeObject) -> bool:
        pods_exist = True
        for term in state.terms.required_affinity:
            if term.key not in node.labels:
                return False
            if state.affinity.get((term.key, node.labels[term.key]), 0) <= 0:
                pods_exist = False
        if not pods_exist:
            return not state.affinity and match_all(state.terms.required_affinity, state.pod)
        return True

    def pre_score(self, pod: PodInfo, _feasible: Sequence[NodeObject]) -> TopologyScore | None:
        """PreScore; None is Skip.

        Raises:
            ParseError: scoring fails.
        """
        terms = PodTerms.of(pod)
        if terms.has_error:
            raise ParseError
        has_constraints = bool(terms.preferred_affinity or terms.preferred_anti_affinity)
        if self._ignores_others and not has_constraints:
            return None
        self._merge([*terms.preferred_affinity, *terms.preferred_anti_affinity])
        ns_labels = self._namespaces().get(pod.namespace, {})
        total: TopologyScore = {}
        for node in self._cluster.nodes.values():
            for other in self._cluster.pods_on(node.name):
                if has_constraints or PodTerms.of(other).any:
                    self._process(terms, pod, ns_labels, other, node, total)
        return total or None

    def _process(
        self,
        terms: PodTerms,
        pod: PodInfo,
        ns_labels: Mapping[str, str],
        other: PodInfo,
        node: NodeObject,
        total: TopologyScore,
    ) -> None:
        def process(term: Term, matched: PodInfo, labels: Mapping[str, str], worth: int) -> None:
            if term.matches(matched, labels) and term.key in node.labels:
                total.setdefault(term.key, Counter())[node.labels[term.key]] += worth

        others = PodTerms.of(other)
        for term in terms.preferred_affinity:
            process(term, other, {}, term.weight)
        for term in terms.preferred_anti_affinity:
            process(term, other, {}, -term.weight)
        if self._hard_weight > 0:
            for term in others.required_affinity:
                process(term, pod, ns_labels, self._hard_weight)
        for term in others.preferred_affinity:
            process(term, pod, ns_labels, term.weight)
        for term in others.preferred_anti_affinity:
            process(term, pod, ns_labels, -term.weight)

    def score(self, total: TopologyScore, _pod: PodInfo, node: NodeObject) -> int:
        return sum(values[node.labels[key]] for key, values in total.items() if key in node.labels)

    def normalize(self, _total: TopologyScore, scores: Mapping[str, int]) -> dict[str, int]:
        if not scores:
            return {}
        most, fewest = max(scores.values()), min(scores.values())
        span = most - fewest
        return {
            name: to_int64(100.0 * (float(score - fewest) / float(span))) if span > 0 else 0
            for name, score in scores.items()
        }
