"""Places pods near other pods, or away from them, by their affinity and anti-affinity.

Source:
    kube-scheduler v1.36, plugins/interpodaffinity: plugin.go, filtering.go, scoring.go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.inter_pod_affinity.explaining import AffinityExplanation
from plugins.inter_pod_affinity.terms import (
    MOST_ONE_BY_ONE,
    MOST_REQUIREMENTS,
    NAMESPACES,
    Domains,
    FewTerms,
    ManyTerms,
    TermReader,
    added_up,
)
from plugins.work_in_steps import PluginWork
from scheduler.errors import FieldError
from scheduler.framework import (
    MAX_NODE_SCORE,
    PASS,
    SKIP,
    ActionType,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    Needs,
    NodesExplanation,
    Outcome,
    Outcomes,
    PluginArgs,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    Reason,
    ScorePlugin,
    Status,
    TimeSlice,
)
from scheduler.objects.label_index import keys_of_changes, keys_of_labels, keys_of_rule
from scheduler.objects.pod_affinity import topology_keys
from scheduler.snapshot import TermKind, put_where, shared

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from plugins.inter_pod_affinity.terms import Counts, OwnTerms
    from scheduler.framework import CycleState
    from scheduler.objects.label_index import LabelKey
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_affinity import AffinityTerms, WeightedTerm
    from scheduler.snapshot import Bools, Int64s, NodeInfo, Rows, Snapshot, TermsThatMean

_ANYBODY: Final = ""  # a key of every pod event, whatever its labels are
_OWN: Final = "own"  # prefix of keys for the waiting pod's own labels
_NO_LABELS: Final[Mapping[str, str]] = {}
_MOST_TERMS: Final = 100
_MANY_LABELS: Final = 256
"""The maximum number of terms that a hint checks."""
_MOST_REQUIREMENTS: Final = 256
"""A hint does not evaluate a term with more requirements."""


def after_pod_change(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
    """Return whether an added, deleted or relabelled pod may help a waiting one."""
    if old is not None and new is not None and new.uid == pod.uid:
        return QueueingHint.QUEUE  # its own labels changed: other pods' terms may not match it any more
    if any(each is not None and not _is_placed(each) for each in (new, old)):
        return QueueingHint.SKIP
    terms = pod.affinity_terms
    if terms.faults:
        return QueueingHint.QUEUE
    wanted, unwanted = terms.required_affinity, terms.required_anti_affinity
    if old is None:
        assert new is not None, "something came or went"
        helps = _may_match(wanted, new)
    elif new is None:
        others = old.affinity_terms
        helps = (
            _may_match(unwanted, old) or bool(others.faults) or _may_match(others.required_anti_affinity, pod)
        )
    else:
        helps = (_may_match(wanted, new) and not _do_match(wanted, old)) or (
            _may_match(unwanted, old) and not _do_match(unwanted, new)
        )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_pod_change_before_1_36(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
    """Return whether another pod on a node that was added, deleted or relabelled may help a waiting one.

    Nominated pods, the pod's own labels and the anti-affinity of deleted pods do not count.

    Source:
        kube-scheduler v1.34 and v1.35, plugins/interpodaffinity/plugin.go, isSchedulableAfterPodChange.
    """
    if not all(each is None or each.node_name for each in (old, new)):
        return QueueingHint.SKIP
    terms = pod.affinity_terms
    if old is None or new is not None or terms.faults:
        return after_pod_change(pod, old, new)
    helps = _may_match(terms.required_anti_affinity, old)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_pod_change_since_1_37(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
    """Return whether a pod may help a waiting one; of several terms of anti-affinity, one is enough.

    Source:
        Pull request #139161 for kube-scheduler v1.37; plugins/interpodaffinity/filtering.go, podMatchesAnyAffinityTerms.
    """
    if after_pod_change(pod, old, new) is QueueingHint.QUEUE:
        return QueueingHint.QUEUE
    if old is None or not all(each is None or _is_placed(each) for each in (old, new)):
        return QueueingHint.SKIP
    unwanted = pod.affinity_terms.required_anti_affinity
    if new is None:
        helps = _any_may_match(unwanted, old) or _any_may_match(
            old.affinity_terms.required_anti_affinity, pod
        )
    else:
        helps = any(_may_match((each,), old) and not _may_match((each,), new) for each in unwanted)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
    """Return whether an added or relabelled node may help a waiting pod."""
    terms = pod.affinity_terms
    if terms.faults:
        return QueueingHint.QUEUE
    wanted, unwanted = topology_keys(terms.required_affinity), topology_keys(terms.required_anti_affinity)
    if old is None:
        helps = bool(unwanted) or any(key in new.labels for key in wanted)
    else:
        before, after = old.labels, new.labels
        # A node without the label has no domain: it never satisfies affinity, and never violates anti-affinity.
        helps = any(key in after and before.get(key) != after[key] for key in wanted) or any(
            key in before and before[key] != after.get(key) for key in unwanted
        )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def alike(pod: PodInfo) -> Hashable:
    """Return all fields of a waiting pod that the hints read."""
    return pod.affinity_terms, pod.namespace, frozenset(pod.labels.items())


def brought_by_pod(old: PodInfo | None, new: PodInfo | None) -> set[Hashable] | None:
    """Return the keys of a pod event: the pod's labels, and the pods that its anti-affinity excluded."""
    keys: set[Hashable] = set()
    for each in (old, new):
        if each is not None:
            if not _is_placed(each):
                return set()
            keys.add(_ANYBODY)  # some pods wait for the absence of a label
            keys.update(keys_of_labels(each.labels))
    if old is not None and new is None:
        others = old.affinity_terms
        if others.faults or len(others.required_anti_affinity) > _MOST_TERMS:
            return None
        for unwanted in others.required_anti_affinity:
            kept_away = keys_of_rule(unwanted.term.rule)
            if kept_away is None:
                return None
            keys.update((_OWN, key) for key in kept_away)
    return keys


def awaited_of_pods(pod: PodInfo) -> set[Hashable] | None:
    """Return the labels one of which another pod must have, and the pod's own, which another pod may exclude."""
    terms = pod.affinity_terms
    if terms.faults:
        return None
    if len(terms.required_anti_affinity) > _MOST_TERMS:
        return None
    keys: set[Hashable] = {(_OWN, key) for key in keys_of_labels(pod.labels)}
    # Another pod must match all terms of affinity, so the first one is enough.
    for each in (*terms.required_affinity[:1], *terms.required_anti_affinity):
        wanted = keys_of_rule(each.term.rule)
        if wanted is None:
            return None
        keys |= wanted
    return keys


def brought_by_node(old: NodeObject | None, new: NodeObject) -> set[LabelKey] | None:
    """Return the new or changed labels of a node; an added node may help any pod with anti-affinity."""
    return None if old is None else set(keys_of_changes(old.labels, new.labels))


def awaited_of_nodes(pod: PodInfo) -> set[LabelKey] | None:
    """Return the topology keys of a pod's required terms."""
    terms = pod.affinity_terms
    if terms.faults:
        return None
    return {*topology_keys(terms.required_affinity), *topology_keys(terms.required_anti_affinity)}


def _is_placed(pod: PodInfo) -> bool:
    """Return whether a pod is on a node or nominated to one."""
    return bool(pod.node_name or pod.pod.status.nominated_node_name)


def _may_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Return whether there are terms and all may match a pod.

    As in kube-scheduler, a namespace selector that requires a label matches no pod here: a pod that waits for pods of such
    namespaces is not requeued by them. A hint is called for each waiting pod, so it checks only the first terms, and no term with
    very many requirements; beyond, the pod is requeued.

    Source:
        kube-scheduler v1.36, plugins/interpodaffinity/filtering.go, podMatchesAllAffinityTerms.
    """
    return bool(terms) and all(
        _is_long(each) or each.term.matches(pod.namespace, pod.labels, _NO_LABELS)
        for each in islice(terms, _MOST_TERMS)
    )


def _any_may_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Return whether one of some terms may match a pod; see `_may_match`."""
    return len(terms) > _MOST_TERMS or any(_may_match((each,), pod) for each in terms)


def _do_match(terms: Sequence[WeightedTerm], pod: PodInfo) -> bool:
    """Return whether there certainly are terms and all match a pod."""
    return len(terms) <= _MOST_TERMS and not any(map(_is_long, terms)) and _may_match(terms, pod)


def _is_long(each: WeightedTerm) -> bool:
    rules = each.term.rule, each.term.namespace_rule
    return sum([rule.count for rule in rules]) > _MOST_REQUIREMENTS


REASON_AFFINITY = Reason("node(s) didn't match pod affinity rules", "PodAffinityMismatch")
REASON_ANTI_AFFINITY = Reason("node(s) didn't match pod anti-affinity rules", "PodAntiAffinityConflict")
REASON_EXISTING_ANTI_AFFINITY = Reason(
    "node(s) didn't satisfy existing pods anti-affinity rules", "ExistingPodAntiAffinityConflict"
)

INVALID_POD_AFFINITY: Final = "InvalidPodAffinity"

_TABLE: Final = (
    PASS,
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_AFFINITY,)),
    Outcome(Code.UNSCHEDULABLE, (REASON_ANTI_AFFINITY,)),
    Outcome(Code.UNSCHEDULABLE, (REASON_EXISTING_ANTI_AFFINITY,)),
)
_FAR: Final = 1
_NEAR: Final = 2
_UNWELCOME: Final = 3


class AffinityState:
    """The pods that matter to one pod by domain, with the changes since they were counted."""

    def __init__(
        self,
        own: OwnTerms,
        others: TermsThatMean,
        affinity: tuple[Domains, ...],
        anti_affinity: dict[str, Domains],
        existing_anti_affinity: dict[str, Domains],
    ) -> None:
        self._own = own
        self._others = others  # the required anti-affinity of pods on nodes
        self._affinity = affinity  # by the pod's topology keys: pods that match all of its terms
        self._anti_affinity = anti_affinity  # topology key -> pods that match its terms
        # topology key -> existing terms that match the pod
        self._existing_anti_affinity = existing_anti_affinity

    @classmethod
    def of(
        cls, own: OwnTerms, others: TermsThatMean, existing: dict[str, Domains], snapshot: Snapshot
    ) -> Self:
        """Count the pods that the pod's own terms match.

        Args:
            own: the pod's terms.
            others: the required anti-affinity of pods on nodes that matches the pod.
            existing: topology key -> how many of these terms each domain has.
            snapshot: the cluster.

        Raises:
            NeedsTime: counting or matching terms takes longer than one time slice.
        """
        near: dict[str, Domains] = {}
        # If no node has one of the labels, every node is rejected, whatever the other keys are.
        unknown = next((key for key in own.affinity_keys if not snapshot.has_label(key)), None)
        affinity_keys = own.affinity_keys if unknown is None else (unknown,)
        if affinity_keys:
            rows, counts = own.affinity()
            near = added_up(snapshot, ((key, rows, counts) for key in affinity_keys))
        return cls(
            own,
            others,
            tuple(near.get(key) or Domains.empty(snapshot.label(key)) for key in affinity_keys),
            added_up(snapshot, own.anti_affinity() if own.has_anti_affinity else ()),
            existing,
        )

    def clone(self) -> Self:
        return type(self)(
            self._own,
            self._others,
            tuple(domains.clone() for domains in self._affinity),
            _cloned(self._anti_affinity),
            _cloned(self._existing_anti_affinity),
        )

    def change(
        self, pod: PodInfo, changed: Sequence[tuple[int, PodInfo]], sign: int, snapshot: Snapshot
    ) -> None:
        """Record pods that were added to their rows or removed, each as seen from its row."""
        unwelcome: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for row, other in changed:
            terms = other.affinity_terms
            if terms.required_anti_affinity:
                for key, weight in self._others.weights_of(terms).items():
                    unwelcome[key][row] += sign * weight
        for key, amounts in unwelcome.items():
            _domains(self._existing_anti_affinity, key, snapshot).change(amounts)
        if self._affinity:
            near = self._own.affinity_changes(changed, sign)
            for domains in self._affinity:
                domains.change(near)
        for key, apart in self._own.anti_affinity_changes(changed, sign):
            _domains(self._anti_affinity, key, snapshot).change(apart)

    def outcomes(self, pod: PodInfo, n_nodes: int) -> Outcomes:
        """Return the result of each node: its first reason in the order of the table."""
        refused = [(domains.are_positive(), _UNWELCOME) for domains in self._existing_anti_affinity.values()]
        refused += [(domains.are_positive(), _NEAR) for domains in self._anti_affinity.values()]
        if self._affinity:
            refused.append((~self._satisfy_affinity(pod), _FAR))
        if not refused:
            return Outcomes.all_pass(n_nodes)
        index = np.multiply(*refused[0], dtype=np.uint16)
        for where, reason in refused[1:]:
            put_where(index, where, reason)
        return Outcomes(index, _TABLE)

    def _satisfy_affinity(self, pod: PodInfo) -> Bools:
        """Return where the pod's affinity is satisfied, (n_nodes,).

        The first pod of a series with affinity to itself finds no matching pod, so it may go anywhere.
        """
        near = self._affinity[0].are_positive()
        for domains in self._affinity[1:]:
            near &= domains.are_positive()
        if not near.all() and self._own.means_all(pod):
            near |= sum([domains.occupied() for domains in self._affinity]) == 0
        for domains in self._affinity:
            near &= ~domains.lacking
        return near


def _domains(known: dict[str, Domains], key: str, snapshot: Snapshot) -> Domains:
    found = known.get(key)
    if found is None:
        found = known[key] = Domains.empty(snapshot.label(key))
    return found


def _cloned(domains: Mapping[str, Domains]) -> dict[str, Domains]:
    return {key: each.clone() for key, each in domains.items()}


class ScoreState:
    """The sums for the nodes of one pod."""

    def __init__(self, domains: Mapping[str, Domains]) -> None:
        self._keys = tuple(domains)
        self._domains = tuple(domains.values())

    @classmethod
    def of(
        cls,
        preferred: Iterable[Counts],
        others: Iterable[tuple[TermsThatMean, int]],
        snapshot: Snapshot,
    ) -> Self | None:
        """Add up the weights of all pods near each node; None if there are none.

        Args:
            preferred: the weights of the pods that the pod's own preferred terms match.
            others: the terms of pods on nodes that match the pod, and what a term of weight 1 is worth.
            snapshot: the cluster.

        Raises:
            NeedsTime: counting or matching terms takes longer than one time slice.
        """
        domains = added_up(
            snapshot,
            (
                *preferred,
                *[
                    (key, rows, amounts * worth)
                    for terms, worth in others
                    for key, rows, amounts in terms.amounts()
                ],
            ),
        )
        return cls(domains) if domains else None

    def raw(self) -> Int64s:
        """Return the weight of all pods near a node, (n_nodes,); negative where the pod prefers not to go."""
        total = self._domains[0].here()
        for domains in self._domains[1:]:
            total += domains.here()
        return total

    def basis(self, snapshot: Snapshot) -> Hashable | None:
        """Return a value that is equal for equal weights; None if there are many domains, or the rows differ from the cluster's."""
        changes = snapshot.node_changes
        if changes is None or any(domains.count > _FEW_DOMAINS for domains in self._domains):
            return None
        return changes, changes.end, self._keys, tuple([domains.content() for domains in self._domains])


class LastScores:
    """The scores of the last pod; the other pods of its controller usually have the same pods near each node.

    In a large cluster, it takes long to look up the number of each node's domain and to scale it.
    """

    def __init__(self) -> None:
        self._basis: Hashable | None = None
        self._raw: Int64s | None = None
        self._normalized: dict[tuple[np.int64, np.int64], Int64s] = {}

    def raw(self, found: ScoreState, snapshot: Snapshot) -> Int64s:
        """Return the weights of a pod, (n_nodes,), read-only if they are kept."""
        basis = found.basis(snapshot)
        if basis is None:
            return found.raw()
        if self._raw is None or basis != self._basis:
            self._basis, self._raw = basis, shared(found.raw())
            self._normalized.clear()
        return self._raw

    def normalized(self, scores: Int64s, feasible: Rows) -> Int64s:
        """Scale the feasible nodes' scores to 0 to 100, (n_nodes,), valid at these nodes; all 0 if they are equal."""
        if not feasible.size:
            return np.zeros(len(scores), dtype=np.int64)
        ours = scores if len(feasible) == len(scores) else scores.take(feasible)
        extremes = ours.min(), ours.max()
        if scores is not self._raw:
            return scaled(scores, *extremes)
        found = self._normalized.get(extremes)
        if found is None:
            found = self._normalized[extremes] = shared(scaled(scores, *extremes))
        return found


_FEW_DOMAINS: Final = 1024
_FEW: Final = 4
"""If there are fewer values than one for this number of nodes, each value is computed once."""


def scaled(scores: Int64s, lowest: np.int64, highest: np.int64) -> Int64s:
    """Scale scores so that the lowest becomes 0 and the highest 100; all 0 if they are equal.

    All nodes are scaled, because to write those of the feasible ones into another array takes longer.
    """
    span = highest - lowest
    if span <= 0:
        return np.zeros(len(scores), dtype=np.int64)
    above = scores - lowest if lowest else scores
    if _FEW * span < len(scores):  # each value is scaled once
        values = (float(MAX_NODE_SCORE) * (np.arange(span + 1) / span)).astype(np.int64)
        taken: Int64s = values.take(above, mode="clip")
        return taken
    each: Int64s = (float(MAX_NODE_SCORE) * (above / span)).astype(np.int64)
    return each


_PRE_FILTER = "PreFilterInterPodAffinity"
_PRE_SCORE = "PreScoreInterPodAffinity"

_HIGHEST_WEIGHT = 100

_POD_EVENT = ClusterEvent(EventResource.POD, ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.DELETE)
_NODE_EVENT = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """Arguments of InterPodAffinity.

    Attributes:
        hard_pod_affinity_weight: the score weight of an existing pod whose required affinity matches the pod; 0 to 100.
        ignore_preferred_terms_of_existing_pods: whether preferred terms of existing pods are ignored for pods without
          preferred terms of their own.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def faults(self) -> Iterator[FieldError]:
        weight = self.hard_pod_affinity_weight
        if not 0 <= weight <= _HIGHEST_WEIGHT:
            message = f"Invalid value: {weight}: not in valid range [0, {_HIGHEST_WEIGHT}]"
            yield FieldError("hardPodAffinityWeight", message)


class InterPodAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Evaluates the affinity and anti-affinity of pods."""

    name = "InterPodAffinity"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            REASON_AFFINITY.code: "the domain of the node lacks pods that the required affinity of the pod names",
            REASON_ANTI_AFFINITY.code: "the domain of the node has a pod that the required anti-affinity of the pod names",
            REASON_EXISTING_ANTI_AFFINITY.code: "a pod in the domain of the node has a required anti-affinity to the pod",
            INVALID_POD_AFFINITY: "a term of the affinity of the pod is invalid",
        }
    )
    Args = InterPodAffinityArgs
    needs = Needs(kinds=frozenset({NAMESPACES}))
    keeps_rows_apart = True

    def __init__(self, *, args: InterPodAffinityArgs, time_slice: TimeSlice, features: Features) -> None:
        self._after_pod_change = after_pod_change
        if features.enabled("AntiAffinityHints"):
            self._after_pod_change = after_pod_change_since_1_37
        elif not features.enabled("PodHints"):
            self._after_pod_change = after_pod_change_before_1_36
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_others = args.ignore_preferred_terms_of_existing_pods
        self._reader = TermReader()
        self._last_scores = LastScores()
        self._work = PluginWork(time_slice)

    def events(self) -> Sequence[EventWithHint]:
        return (
            EventWithHint(_POD_EVENT, self._after_pod_change, alike, brought_by_pod, awaited_of_pods),
            EventWithHint(_NODE_EVENT, after_node_change, alike, brought_by_node, awaited_of_nodes),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        self._work.begin()
        terms = pod.affinity_terms
        if terms.faults:
            reason = Reason(f"parsing pod: {_joined(terms)}", INVALID_POD_AFFINITY)
            return Status.unschedulable(reason, resolvable=False)
        self._reader.look_at(snapshot)
        others = self._others(TermKind.REQUIRED_ANTI_AFFINITY, pod, snapshot)
        existing = added_up(snapshot, others.amounts())
        if not (existing or terms.required_affinity or terms.required_anti_affinity):
            return SKIP
        found = AffinityState.of(self._own(terms, snapshot), others, existing, snapshot)
        state.write(_PRE_FILTER, found, by_row=True)
        return None

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        terms = pod.affinity_terms
        if terms.faults:
            return [_joined(terms)]
        explanation = self._explanation(pod, snapshot)
        return None if node is None or explanation is None else list(explanation.why_not_on(node))

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        explanation = self._explanation(pod, snapshot)
        return None if explanation is None else explanation.remedies(rows)

    def _explanation(self, pod: PodInfo, snapshot: Snapshot) -> AffinityExplanation | None:
        """Return the explanation of a pod's terms; None if there are too many."""
        terms = pod.affinity_terms
        self._reader.look_at(snapshot)
        if terms.faults or self._are_many(terms):
            return None
        labels = self._reader.labels.of(pod.namespace)
        return AffinityExplanation(pod, self._reader.incoming(terms), labels, snapshot)

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, AffinityState).change(pod, added, 1, snapshot)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, AffinityState).change(pod, removed, -1, snapshot)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return state.read(_PRE_FILTER, AffinityState).outcomes(pod, snapshot.n_nodes)

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        self._work.begin()
        terms = pod.affinity_terms
        prefers = bool(terms.preferred_affinity or terms.preferred_anti_affinity)
        if terms.faults:
            return Status.failed(f"failed to parse pod: {_joined(terms)}")
        if self._ignores_others and not prefers:
            return SKIP
        self._reader.look_at(snapshot)
        found = ScoreState.of(
            self._own(terms, snapshot).preferred() if prefers else (),
            [
                (self._others(kind, pod, snapshot), worth)
                for kind, worth in (
                    (TermKind.REQUIRED_AFFINITY, self._hard_weight),
                    (TermKind.PREFERRED_AFFINITY, 1),
                    (TermKind.PREFERRED_ANTI_AFFINITY, -1),
                )
                if worth
            ],
            snapshot,
        )
        if found is None:
            return SKIP
        state.write(_PRE_SCORE, found, by_row=True)
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return the weight of the pods near each node, unbounded; `normalize` brings it into range."""
        return self._last_scores.raw(state.read(_PRE_SCORE, ScoreState), snapshot)

    def _others(self, kind: TermKind, pod: PodInfo, snapshot: Snapshot) -> TermsThatMean:
        """Return the terms of pods on nodes that match a pod; a pod with very many labels is matched in steps."""
        terms = snapshot.affinity_terms(kind)
        who = pod.namespace, pod.labels, self._reader.labels.of(pod.namespace)
        if len(pod.labels) > _MANY_LABELS:
            self._work.done(terms.prepared(*who))
        return terms.matching(*who)

    def _own(self, terms: AffinityTerms, snapshot: Snapshot) -> OwnTerms:
        """Return a pod's own terms; those that are expensive to read share one time slice."""
        if not self._are_many(terms):
            return FewTerms(self._reader.incoming(terms), snapshot)
        return ManyTerms(terms, self._reader.labels, snapshot, self._work)

    def _are_many(self, terms: AffinityTerms) -> bool:
        return (
            terms.count > MOST_ONE_BY_ONE
            or terms.cost > MOST_REQUIREMENTS
            or self._reader.selects_among_many(terms)
        )

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return self._last_scores.normalized(scores, feasible)


def _joined(terms: AffinityTerms) -> str:
    """Return the errors of terms, several of them in brackets, as upstream's aggregates."""
    message = ", ".join(terms.faults)
    return f"[{message}]" if len(terms.faults) > 1 else message
