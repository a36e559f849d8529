"""Inter-pod affinity: the terms as API structs, and as rules that match other pods."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, overload
from weakref import WeakValueDictionary

import msgspec

from scheduler.loop_work import run_to_end
from scheduler.objects.caches import Remembered
from scheduler.objects.meta import ApiStruct
from scheduler.objects.selectors import (
    VALUES_OF_A_REQUIREMENT,
    LabelRule,
    LabelSelector,
    SelectorError,
    SelectorRequirement,
    read_label_selector,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

_LONG: Final = 16
"""The terms of a pod with more than this are parsed again on each access; see `LongTerms`."""


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


class AffinityTerm(msgspec.Struct, frozen=True, gc=False):
    """The pods that a term matches, and its topology.

    Attributes:
        namespaces: the namespaces of those pods; by default the namespace of the term's pod.
        namespace_rule: selects further namespaces by their labels.
        rule: selects the pods by their labels.
        topology_key: nodes with the same value of this label form a domain.
    """

    namespaces: frozenset[str]
    namespace_rule: LabelRule
    rule: LabelRule
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term matches a pod.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, AffinityTerm.Matches.
        """
        return (
            namespace in self.namespaces or self.namespace_rule.matches(namespace_labels)
        ) and self.rule.matches(labels)


class WeightedTerm(msgspec.Struct, frozen=True, gc=False):
    """A term with its weight.

    Attributes:
        term: the term.
        weight: 1 to 100 for preferred terms, 1 for required ones.
    """

    term: AffinityTerm
    weight: int = 1


class LongTerms(Sequence[WeightedTerm]):
    """One valid list of terms of a pod with very many terms.

    Each term is parsed again on each access: a list of parsed terms would take twice the memory in addition. Two lists are
    equal if they have the same digest.

    Args:
        namespace: the pod's namespace.
        written: the terms.
        digest: of the pod's affinity and namespace, and which of its lists this is.
    """

    __slots__ = ("_digest", "_namespace", "_written")

    def __init__(
        self,
        namespace: str,
        written: tuple[PodAffinityTerm, ...] | tuple[WeightedPodAffinityTerm, ...],
        digest: tuple[bytes, str],
    ) -> None:
        self._namespace, self._written, self._digest = namespace, written, digest

    @property
    def topology_keys(self) -> Iterator[str]:
        """The topology key of each term, without parsing the rest."""
        return (
            (each.pod_affinity_term if isinstance(each, WeightedPodAffinityTerm) else each).topology_key
            for each in self._written
        )

    def __len__(self) -> int:
        return len(self._written)

    @overload
    def __getitem__(self, place: int) -> WeightedTerm: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[WeightedTerm, ...]: ...
    def __getitem__(self, place: int | slice) -> WeightedTerm | tuple[WeightedTerm, ...]:
        if isinstance(place, slice):
            return tuple(_weighted(self._namespace, each) for each in self._written[place])
        return _weighted(self._namespace, self._written[place])

    def __iter__(self) -> Iterator[WeightedTerm]:
        return (_weighted(self._namespace, each) for each in self._written)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LongTerms) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class AffinityTerms:
    """All terms of a pod.

    Attributes:
        required_affinity: the pod must be near pods that match all of these.
        required_anti_affinity: the pod must not be near pods that match any of these.
        preferred_affinity: the pod prefers to be near these.
        preferred_anti_affinity: the pod prefers not to be near these.
        faults: the errors of invalid lists; such a list is empty above.
        cost: the cost of indexing the rules about labels and the namespaces, in requirements with few values.
        written: for a pod with `LongTerms`, the podAffinity and podAntiAffinity from which the terms are parsed.
    """

    required_affinity: Sequence[WeightedTerm] = ()
    required_anti_affinity: Sequence[WeightedTerm] = ()
    preferred_affinity: Sequence[WeightedTerm] = ()
    preferred_anti_affinity: Sequence[WeightedTerm] = ()
    faults: tuple[str, ...] = ()
    cost: int = field(default=0, compare=False, repr=False)
    written: tuple[PodAffinity | None, PodAffinity | None] | None = field(
        default=None, compare=False, repr=False
    )
    _hash: int | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def count(self) -> int:
        """The number of terms."""
        return sum(map(len, self._lists))

    @property
    def _lists(self) -> tuple[Sequence[WeightedTerm], ...]:
        return (
            self.required_affinity,
            self.required_anti_affinity,
            self.preferred_affinity,
            self.preferred_anti_affinity,
        )

    def __hash__(self) -> int:
        known = self._hash
        if known is None:  # the hash is needed whenever a pod with terms is added or removed
            known = hash((self._lists, self.faults))
            object.__setattr__(self, "_hash", known)
        return known


NO_TERMS: Final = AffinityTerms()

_KNOWN: Remembered[tuple[str, bytes, bytes], AffinityTerms] = Remembered()  # by namespace and encoded structs
_KNOWN_LARGE: WeakValueDictionary[bytes, AffinityTerms] = WeakValueDictionary()  # by a digest of the same
_LARGE_BYTES: Final = 32 * 1024
"""Larger terms are shared only while a pod has them."""
_ENCODER = msgspec.msgpack.Encoder()


def has_long_terms(affinity: PodAffinity | None, anti_affinity: PodAffinity | None) -> bool:
    """Return whether a pod has so many terms that they are parsed again on each access."""
    return _count(affinity) + _count(anti_affinity) > _LONG


def topology_keys(terms: Sequence[WeightedTerm]) -> tuple[str, ...]:
    """Return the topology keys of terms, each once."""
    if isinstance(terms, LongTerms):
        return tuple(dict.fromkeys(terms.topology_keys))
    return tuple(dict.fromkeys([each.term.topology_key for each in terms]))


def _count(affinity: PodAffinity | None) -> int:
    if affinity is None:
        return 0
    return len(affinity.required_during_scheduling_ignored_during_execution) + len(
        affinity.preferred_during_scheduling_ignored_during_execution
    )


def read_affinity_terms(
    namespace: str, affinity: PodAffinity | None, anti_affinity: PodAffinity | None
) -> Generator[None, None, AffinityTerms]:
    """Return the terms of a pod, in steps; pods with equal affinity share one result.

    Source:
        kube-scheduler v1.36, framework/types.go, PodInfo.Update.
    """
    if affinity is None and anti_affinity is None:
        return NO_TERMS
    key = (namespace, _ENCODER.encode(affinity), _ENCODER.encode(anti_affinity))
    size, are_long = len(key[1]) + len(key[2]), has_long_terms(affinity, anti_affinity)
    if are_long or size > _LARGE_BYTES:
        digest = sha256(_ENCODER.encode(key)).digest()
        large = _KNOWN_LARGE.get(digest)
        if large is None:
            if are_long:
                large = yield from _parse_long(namespace, affinity, anti_affinity, digest)
            else:
                large = yield from _parse(namespace, affinity or _NO_AFFINITY, anti_affinity or _NO_AFFINITY)
            _KNOWN_LARGE[digest] = large
        return large
    found = _KNOWN.get(key)
    if found is None:
        found = yield from _parse(namespace, affinity or _NO_AFFINITY, anti_affinity or _NO_AFFINITY)
        _KNOWN.keep(key, found, size)
    return found


_NO_AFFINITY: Final = PodAffinity()


def _parse(namespace: str, near: PodAffinity, apart: PodAffinity) -> Generator[None, None, AffinityTerms]:
    faults: list[str] = []
    lists: list[tuple[WeightedTerm, ...]] = []
    for kind, terms in _lists(near, apart):
        parsed: tuple[WeightedTerm, ...] = ()
        try:
            for each in terms:
                parsed = (*parsed, (yield from _read(namespace, each)))
        except SelectorError as error:
            faults.append(f"{kind}: {error}")
            parsed = ()
        lists.append(parsed)
    wanted, unwanted, liked, disliked = lists
    cost = sum([_cost(each.term) for some in lists for each in some])
    return AffinityTerms(wanted, unwanted, liked, disliked, tuple(faults), cost)


def _cost(term: AffinityTerm) -> int:
    selected = term.rule.cost + term.namespace_rule.cost
    return selected + len(term.namespaces) // VALUES_OF_A_REQUIREMENT


def _parse_long(
    namespace: str, near: PodAffinity | None, apart: PodAffinity | None, digest: bytes
) -> Generator[None, None, AffinityTerms]:
    """Return the terms of a pod that has very many, with the structs in as little memory as possible."""
    near, apart = _slimmed(near), _slimmed(apart)
    faults: list[str] = []
    lists: list[Sequence[WeightedTerm]] = []
    cost = 0
    for kind, terms in _lists(near or _NO_AFFINITY, apart or _NO_AFFINITY):
        try:
            for each in terms:
                cost += _cost((yield from _read(namespace, each)).term)
        except SelectorError as error:
            faults.append(f"{kind}: {error}")
            lists.append(())
        else:
            lists.append(LongTerms(namespace, terms, (digest, kind)) if terms else ())
    wanted, unwanted, liked, disliked = lists
    return AffinityTerms(wanted, unwanted, liked, disliked, tuple(faults), cost, (near, apart))


def _lists(
    near: PodAffinity, apart: PodAffinity
) -> tuple[tuple[str, tuple[PodAffinityTerm, ...] | tuple[WeightedPodAffinityTerm, ...]], ...]:
    """Return (upstream's name, the terms) of the four lists, in the order of `AffinityTerms`."""
    return (
        ("requiredAffinityTerms", near.required_during_scheduling_ignored_during_execution),
        ("requiredAntiAffinityTerms", apart.required_during_scheduling_ignored_during_execution),
        ("preferredAffinityTerms", near.preferred_during_scheduling_ignored_during_execution),
        ("preferredAntiAffinityTerms", apart.preferred_during_scheduling_ignored_during_execution),
    )


def _weighted(namespace: str, written: PodAffinityTerm | WeightedPodAffinityTerm) -> WeightedTerm:
    return run_to_end(_read(namespace, written))


def _read(
    namespace: str, written: PodAffinityTerm | WeightedPodAffinityTerm
) -> Generator[None, None, WeightedTerm]:
    weighted = (
        written if isinstance(written, WeightedPodAffinityTerm) else WeightedPodAffinityTerm(1, written)
    )
    term = weighted.pod_affinity_term
    of_namespace = yield from _rule(term.namespace_selector, "namespaceSelector")
    of_pod = yield from _rule(term.label_selector, "labelSelector")
    own = not term.namespaces and term.namespace_selector is None
    namespaces = _only(namespace) if own else frozenset(term.namespaces)
    return WeightedTerm(AffinityTerm(namespaces, of_namespace, of_pod, term.topology_key), weighted.weight)


def _rule(selector: LabelSelector | None, path: str) -> Generator[None, None, LabelRule]:
    return LabelRule(None) if selector is None else (yield from read_label_selector(selector, path))


@lru_cache(maxsize=1024)
def _only(namespace: str) -> frozenset[str]:
    return frozenset({namespace})


_NO_LABELS: Final[dict[str, str]] = {}


def _slimmed(affinity: PodAffinity | None) -> PodAffinity | None:
    """Return an equal struct that shares one object for each frequent string and empty part."""
    if affinity is None:
        return None
    return PodAffinity(
        tuple([_slim_term(each) for each in affinity.required_during_scheduling_ignored_during_execution]),
        tuple(
            [
                WeightedPodAffinityTerm(each.weight, _slim_term(each.pod_affinity_term))
                for each in affinity.preferred_during_scheduling_ignored_during_execution
            ]
        ),
    )


def _slim_term(term: PodAffinityTerm) -> PodAffinityTerm:
    return PodAffinityTerm(
        _slim_selector(term.label_selector),
        term.namespaces,
        sys.intern(term.topology_key),
        _slim_selector(term.namespace_selector),
    )


def _slim_selector(selector: LabelSelector | None) -> LabelSelector | None:
    if selector is None:
        return None
    if not (selector.match_labels or selector.match_expressions):
        return _EVERYTHING
    return LabelSelector(
        selector.match_labels or _NO_LABELS,
        tuple(
            [
                SelectorRequirement(each.key, sys.intern(each.operator), each.values)
                for each in selector.match_expressions
            ]
        ),
    )


_EVERYTHING: Final = LabelSelector(_NO_LABELS)
