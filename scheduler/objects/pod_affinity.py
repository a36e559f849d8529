"""Inter-pod affinity: the terms as written, and as rules that are asked about other pods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.objects.meta import ApiStruct
from scheduler.objects.remembered import Remembered
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorError, parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    T = TypeVar("T")
    R = TypeVar("R")


class PodAffinityTerm(ApiStruct, frozen=True):
    """v1.PodAffinityTerm; matchLabelKeys and mismatchLabelKeys are in the selector already.

    The API server merges the two into `label_selector` when the pod is created.
    """

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(ApiStruct, frozen=True):
    """v1.WeightedPodAffinityTerm."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct, frozen=True):
    """v1.PodAffinity, and v1.PodAntiAffinity, which has the same fields."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


@dataclass(frozen=True)
class AffinityTerm:
    """Which pods a term means, and what "near" them means.

    Attributes:
        namespaces: where those pods are; the own namespace of the term's pod where it names none.
        namespace_rule: further namespaces, by their labels.
        rule: the pods' labels.
        topology_key: nodes with the same value of this label are near each other.
    """

    namespaces: frozenset[str]
    namespace_rule: LabelRule
    rule: LabelRule
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Say whether the term means a pod.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, AffinityTerm.Matches.
        """
        return (
            namespace in self.namespaces or self.namespace_rule.matches(namespace_labels)
        ) and self.rule.matches(labels)

    @cached_property
    def _hash(self) -> int:
        return hash((self.namespaces, self.namespace_rule, self.rule, self.topology_key))

    def __hash__(self) -> int:
        return self._hash  # asked for whenever a pod with terms comes or goes


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A term with what it counts.

    Attributes:
        term: the term.
        weight: 1 to 100 of preferred terms, 1 of required ones.
    """

    term: AffinityTerm
    weight: int = 1


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """All terms of a pod.

    Attributes:
        required_affinity: it must be near pods that all of these mean.
        required_anti_affinity: it must not be near pods that any of these means.
        preferred_affinity: it had better be near these.
        preferred_anti_affinity: it had better not.
        faults: what is wrong with lists that could not be read; such a list is empty above.
    """

    required_affinity: tuple[WeightedTerm, ...] = ()
    required_anti_affinity: tuple[WeightedTerm, ...] = ()
    preferred_affinity: tuple[WeightedTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedTerm, ...] = ()
    faults: tuple[str, ...] = ()


NO_TERMS: Final = AffinityTerms()

_KNOWN: Remembered[tuple[str, bytes, bytes], AffinityTerms] = Remembered()  # by namespace and what is written
_ENCODER = msgspec.msgpack.Encoder()


def affinity_terms(
    namespace: str, affinity: PodAffinity | None, anti_affinity: PodAffinity | None
) -> AffinityTerms:
    """Return the terms of a pod; pods that write the same share one result.

    Source:
        kube-scheduler v1.36, framework/types.go, PodInfo.Update.
    """
    if affinity is None and anti_affinity is None:
        return NO_TERMS
    key = (namespace, _ENCODER.encode(affinity), _ENCODER.encode(anti_affinity))
    found = _KNOWN.get(key)
    if found is None:
        found = _parse(namespace, affinity or PodAffinity(), anti_affinity or PodAffinity())
        _KNOWN.keep(key, found, len(key[1]) + len(key[2]))
    return found


def _parse(namespace: str, near: PodAffinity, apart: PodAffinity) -> AffinityTerms:
    faults: list[str] = []

    def required(term: PodAffinityTerm) -> WeightedTerm:
        return WeightedTerm(_term(namespace, term))

    def preferred(term: WeightedPodAffinityTerm) -> WeightedTerm:
        return WeightedTerm(_term(namespace, term.pod_affinity_term), term.weight)

    def parsed(parse: Callable[[T], R], terms: Sequence[T], kind: str) -> tuple[R, ...]:
        try:
            return tuple(map(parse, terms))
        except SelectorError as error:
            faults.append(f"{kind}: {error}")
            return ()

    return AffinityTerms(
        parsed(required, near.required_during_scheduling_ignored_during_execution, "requiredAffinityTerms"),
        parsed(
            required, apart.required_during_scheduling_ignored_during_execution, "requiredAntiAffinityTerms"
        ),
        parsed(
            preferred, near.preferred_during_scheduling_ignored_during_execution, "preferredAffinityTerms"
        ),
        parsed(
            preferred,
            apart.preferred_during_scheduling_ignored_during_execution,
            "preferredAntiAffinityTerms",
        ),
        tuple(faults),
    )


def _term(namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        frozenset({namespace} if own else term.namespaces),
        parse_label_selector(term.namespace_selector, "namespaceSelector"),
        parse_label_selector(term.label_selector, "labelSelector"),
        term.topology_key,
    )
