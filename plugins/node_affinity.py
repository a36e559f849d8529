"""Restricts a pod to the nodes of its nodeSelector and node affinity, and prefers those of its preferred terms.

Source:
    kube-scheduler v1.36, plugins/nodeaffinity/node_affinity.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from plugins.work_in_steps import PluginWork
from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    Change,
    ClusterEvent,
    Code,
    EventResource,
    EventWithHint,
    FilterPlugin,
    NodesExplanation,
    Outcome,
    Outcomes,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    QueueingHint,
    Reason,
    Remedy,
    ScorePlugin,
    Status,
    TimeSlice,
    default_normalize_score,
)
from scheduler.objects.label_index import (
    keys_of_changes,
    keys_of_labels,
    keys_of_requirements,
    keys_of_rule,
    some_of,
    value_of,
    written,
)
from scheduler.objects.selectors import (
    METADATA_NAME,
    LabelRule,
    NodeRule,
    Operator,
    Requirement,
    SelectorError,
    node_rules,
    parse_node_term,
)
from scheduler.objects.selectors import NodeAffinity as NodeAffinityTerms
from scheduler.snapshot import WeighedTerms, nodes_of_any, nodes_required, nodes_with_labels, weigh_nodes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from scheduler.errors import FieldError
    from scheduler.framework import CycleState
    from scheduler.objects.label_index import LabelKey
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import NodeSelectorTerm, PreferredSchedulingTerm
    from scheduler.snapshot import Bools, Int64s, NodeInfo, Rows, Snapshot

_MOST_BYTES: Final = 8 * 1024
"""Node affinity with more terms than this is evaluated in steps."""
_MOST_LABELS: Final = 128
"""A nodeSelector with more labels than this is evaluated in steps."""


def has_many_terms(pod: PodInfo) -> bool:
    """Return whether evaluating a pod's nodeSelector and node affinity may take longer than one time slice."""
    return len(pod.written_node_affinity) > _MOST_BYTES or len(pod.pod.spec.node_selector) > _MOST_LABELS


def nodes_demanded(snapshot: Snapshot, pod: PodInfo, work: PluginWork) -> Bools:
    """Return bool (n_nodes,), which nodes match a pod's nodeSelector and required node affinity.

    Raises:
        NeedsTime: evaluating the terms takes longer than one time slice.
    """
    if not has_many_terms(pod):
        return nodes_required(snapshot, pod.required_node_affinity)
    labels = pod.pod.spec.node_selector.items()
    chosen = nodes_with_labels(
        snapshot, (Requirement(key, Operator.IN, frozenset({value})) for key, value in labels)
    )
    affinity = pod.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is not None:
        terms = WeighedTerms(("required", pod.written_node_affinity), required.node_selector_terms)
        tally = snapshot.node_tally(terms)
        work.done(tally.steps())
        chosen &= tally.worth() > 0
    return chosen


def worth_of_preferences(snapshot: Snapshot, pod: PodInfo, work: PluginWork) -> Int64s:
    """Return int64 (n_nodes,), the sum of the weights of a pod's matching preferred terms.

    Raises:
        NeedsTime: evaluating the terms takes longer than one time slice.
        SelectorError: a term is invalid.
    """
    affinity = pod.node_affinity
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    terms = WeighedTerms(
        ("preferred", pod.written_node_affinity),
        [each.preference for each in preferred],
        [each.weight for each in preferred],
        needs_rules=True,
    )
    tally = snapshot.node_tally(terms)
    work.done(tally.steps())
    return tally.worth()


REASON_POD = Reason("node(s) didn't match Pod's node affinity/selector", "NodeAffinityMismatch")
REASON_ENFORCED = Reason("node(s) didn't match scheduler-enforced node affinity", "AddedAffinityMismatch")
REASON_CONFLICT = Reason("pod affinity terms conflict", "NodeAffinityConflict")

_TABLE = (
    PASS,
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_ENFORCED,)),
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_POD,)),
)
_NEW_NODE: Final = ""  # the key of an added node, besides its labels
_PRE_SCORE = "PreScoreNodeAffinity"


class NodeAffinityArgs(PluginArgs, frozen=True):
    """Arguments of NodeAffinity.

    Attributes:
        added_affinity: node affinity of every pod, in addition to its own.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateNodeAffinityArgs.
    """

    added_affinity: NodeAffinityTerms | None = None

    def faults(self) -> Iterator[FieldError]:
        added = self.added_affinity
        if added is None:
            return
        path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        required = added.required_during_scheduling_ignored_during_execution
        for index, term in enumerate(required.node_selector_terms if required else ()):
            yield from _term_faults(term, f"{path}[{index}]")
        path = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
        for index, preferred in enumerate(added.preferred_during_scheduling_ignored_during_execution):
            if preferred.weight:
                yield from _term_faults(preferred.preference, f"{path}[{index}]")


class NodeAffinity(FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin):
    """Matches nodes with the nodeSelector and node affinity of pods."""

    name = "NodeAffinity"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            REASON_POD.code: "the node does not match the node selector or the required node affinity of the pod",
            REASON_ENFORCED.code: "the node does not match the `addedAffinity` of the profile",
            REASON_CONFLICT.code: "the required node affinity of the pod names nodes, and no node meets all of its terms",
        }
    )
    reads_pods = False
    reads_only_nodes = True
    Args = NodeAffinityArgs

    def __init__(self, *, args: NodeAffinityArgs, time_slice: TimeSlice) -> None:
        self._work = PluginWork(time_slice)
        added = args.added_affinity or NodeAffinityTerms()
        required = added.required_during_scheduling_ignored_during_execution
        self._added_required = None if required is None else node_rules(required)
        self._added_preferred = _preferred_rules(added.preferred_during_scheduling_ignored_during_execution)
        self._prefers = bool(added.preferred_during_scheduling_ignored_during_execution)

    def signature(self, pod: PodInfo) -> Hashable:
        labels = pod.pod.spec.node_selector
        if not labels:
            return pod.written_node_affinity
        if len(labels) > _MOST_LABELS:
            return pod.spec_digest
        return frozenset(labels.items()), pod.written_node_affinity

    def events(self) -> Sequence[EventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        return (EventWithHint(node, self._after_node_change, self.signature, _event_keys, _awaited),)

    def _after_node_change(self, pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
        added = self._added_required
        if added is not None and not any(rule.matches(new.name, new.labels) for rule in added):
            return QueueingHint.SKIP
        if has_many_terms(pod):
            return QueueingHint.QUEUE  # the hint is called for each event, so trying the pod again costs less
        required = pod.required_node_affinity
        if required.matches(new.name, new.labels):
            helps = old is None or not required.matches(old.name, old.labels)
        else:  # upstream cannot evaluate an invalid term, and requeues the pod
            helps = required.has_faults and required.selects(new.labels)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        affinity = pod.node_affinity
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        if required is None and self._added_required is None and not pod.pod.spec.node_selector:
            return SKIP
        names = _named_nodes(required.node_selector_terms) if required else None
        if names is None:
            return None
        if not names:
            return Status.unschedulable(REASON_CONFLICT, resolvable=False)
        return PreFilterResult(names)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        self._work.begin()
        index = (~nodes_demanded(snapshot, pod, self._work)).astype(np.uint16) * np.uint16(2)
        if self._added_required is not None:
            index[~nodes_of_any(snapshot, self._added_required)] = 1
        return Outcomes(index, _TABLE)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None or has_many_terms(pod):
            return None
        rules = self._added_required or ()
        failed = _shortcomings(rules, node.name, node.labels) if self._added_required is not None else None
        added = [f"the configuration requires {each}" for each in failed or ()]
        return [*added, *_failed_labels(pod, node), *(_failed_terms(pod, node) or ())]

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        if has_many_terms(pod):
            return None
        required = pod.required_node_affinity
        counts = [
            f"{written(each)} on {int(np.count_nonzero(nodes_with_labels(snapshot, (each,))))}"
            for each in required.labels
        ]
        counts += [
            f"{written_term(each)} on {int(np.count_nonzero(nodes_of_any(snapshot, (each,))))}"
            for each in required.terms or ()
        ]
        summary = f"required: {some_of(counts)} of {snapshot.n_nodes} nodes" if counts else ""
        affinity = pod.pod.spec.affinity
        relaxed = pod.with_spec(
            node_selector={}, affinity=affinity and replace(affinity, node_affinity=_preferred_only(pod))
        )

        def change(fitting: Rows) -> Change:
            failing = {row: _failing(pod, snapshot.nodes[row]) for row in fitting[:_MOST_COMPARED].tolist()}
            row = min(failing, key=lambda row: len(failing[row]))
            node = snapshot.name_of(row)
            had = " and ".join(map(written, failing[row])) or "one of its node affinity terms"
            is_label = all(each.operator is Operator.IN and len(each.values) == 1 for each in failing[row])
            if failing[row] and is_label and all(each.key != METADATA_NAME for each in failing[row]):
                text = f"{node} had the label {had} (or the pod did not require it)"
            else:
                text = f"it did not require {had} (it fits on {node} then)"
            return Change(row, text, relaxed)

        return NodesExplanation(summary, [Remedy(relaxed, change)])

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        preferred = _preferred(pod)
        if not (preferred or self._prefers):
            return SKIP
        try:
            if has_many_terms(pod):
                self._weigh_many(pod, snapshot)
                return None
            rules = _preferred_rules(preferred)
        except SelectorError as error:
            return Status.failed(str(error), error)
        state.write(_PRE_SCORE, rules)
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return the sum of the weights of the matching terms."""
        if has_many_terms(pod):
            return self._weigh_many(pod, snapshot) + weigh_nodes(snapshot, self._added_preferred)
        rules: tuple[tuple[int, NodeRule], ...] | None = state.find(_PRE_SCORE, tuple)
        if rules is None:
            rules = _preferred_rules(_preferred(pod))
        return weigh_nodes(snapshot, (*self._added_preferred, *rules))

    def _weigh_many(self, pod: PodInfo, snapshot: Snapshot) -> Int64s:
        self._work.begin()
        return worth_of_preferences(snapshot, pod, self._work)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return default_normalize_score(scores, feasible)


_MOST_COMPARED: Final = 100
"""The number of nodes among which the one with the fewest failing requirements is searched."""


def _preferred_only(pod: PodInfo) -> NodeAffinityTerms | None:
    """Return a pod's node affinity without the required terms."""
    affinity = pod.node_affinity
    return affinity and replace(affinity, required_during_scheduling_ignored_during_execution=None)


def _failing(pod: PodInfo, node: NodeObject) -> list[Requirement]:
    """Return the requirements that a node does not meet; of several terms, those of the term with the fewest."""
    required = pod.required_node_affinity
    labels = [each for each in required.labels if not each.admits(node.labels.get(each.key))]
    terms = [_failing_of_term(term, node.name, node.labels) for term in required.terms or ()]
    return [*labels, *min(terms, key=len, default=[])]


def _failing_of_term(term: NodeRule, name: str, labels: Mapping[str, str]) -> list[Requirement]:
    return [
        *(each for each in term.labels if not each.admits(labels.get(each.key))),
        *(each for each in term.fields if not each.admits(name if each.key == METADATA_NAME else "")),
    ]


def _failed_labels(pod: PodInfo, node: NodeInfo) -> Iterator[str]:
    """Yield the labels of the nodeSelector that a node does not have."""
    for each in pod.required_node_affinity.labels:
        if not each.admits(node.labels.get(each.key)):
            yield f"nodeSelector {written(each)}; the node has {value_of(each.key, node.labels)}"


def _failed_terms(pod: PodInfo, node: NodeInfo) -> list[str] | None:
    """Return why a node matches no term of the required node affinity; None if it matches one."""
    required = pod.required_node_affinity
    if required.terms is None:
        return None
    found = _shortcomings(required.terms, node.name, node.labels)
    if found == []:
        return ["the node affinity has no valid term"]
    return None if found is None else [f"node affinity {each}" for each in found]


def _shortcomings(terms: Sequence[NodeRule], name: str, labels: Mapping[str, str]) -> list[str] | None:
    """Return what a node lacks for each term, the first ones of many; None if it matches a term."""
    found = []
    for term in terms:
        failing = _failing_of_term(term, name, labels)
        if not failing:
            return None
        had = [
            f"name {name}" if each.key == METADATA_NAME else value_of(each.key, labels) for each in failing
        ]
        needs = " and ".join(map(written, failing))
        found.append(f"{needs}; the node has {some_of(list(dict.fromkeys(had)))}")
    rest = len(found) - _TERMS_SHOWN
    return [*found[:_TERMS_SHOWN], *([f"and {rest} more terms"] if rest > 0 else [])]


_TERMS_SHOWN: Final = 3


def written_term(term: NodeRule) -> str:
    """Return all requirements of a term."""
    return " and ".join(map(written, (*term.labels, *term.fields)))


def _term_faults(term: NodeSelectorTerm, path: str) -> Iterator[FieldError]:
    if not term.is_empty:
        try:
            parse_node_term(term, path)
        except SelectorError as error:
            yield from error.faults


def _event_keys(old: NodeObject | None, new: NodeObject) -> set[LabelKey]:
    """Return the keys of a node event: the new or changed labels of the node."""
    if old is not None:
        return set(keys_of_changes(old.labels, new.labels))
    return {_NEW_NODE, (METADATA_NAME, new.name), *keys_of_labels(new.labels)}


def _awaited(pod: PodInfo) -> set[LabelKey] | None:
    if has_many_terms(pod):
        return None
    required = pod.required_node_affinity
    if required.has_faults:
        return None
    keys = set(keys_of_requirements(required.labels))
    if not required.labels and required.terms is None:
        keys.add(_NEW_NODE)
    for term in required.terms or ():
        keys.update(keys_of_requirements(term.labels))
        names = {
            (METADATA_NAME, name)
            for field in term.fields
            if field.key == METADATA_NAME and field.operator is Operator.IN
            for name in field.values
        }
        keys |= names
        if not (names or required.labels) and keys_of_rule(LabelRule(term.labels)) is None:
            keys.add(_NEW_NODE)
    return keys


def _preferred(pod: PodInfo) -> tuple[PreferredSchedulingTerm, ...]:
    affinity = pod.node_affinity
    return () if affinity is None else affinity.preferred_during_scheduling_ignored_during_execution


def _preferred_rules(terms: Sequence[PreferredSchedulingTerm]) -> tuple[tuple[int, NodeRule], ...]:
    """Return (weight, rule) of the terms with an effect.

    Raises:
        SelectorError: a term is invalid.
    """
    return tuple(
        (term.weight, parse_node_term(term.preference, f"[{index}]"))
        for index, term in enumerate(terms)
        if term.weight and not term.preference.is_empty
    )


def _named_nodes(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """Return the names of the only nodes that the terms can match; None if a term names no node."""
    names: set[str] = set()
    for term in terms:
        named = [
            requirement.values
            for requirement in term.match_fields
            if requirement.key == METADATA_NAME and requirement.operator == Operator.IN.value
        ]
        if not named:
            return None
        names.update(named[0] if len(named) == 1 else set(named[0]).intersection(*named[1:]))
    return frozenset(names) if terms else None
