"""NodePreference: places the pods of a controller on ordered sets of nodes, within limits of each set.

`spot first, at most 30 % of the replicas; then on-demand, at least 2`: Score prefers the sets in their order, and Filter
rejects nodes of sets that have their maximum, and nodes outside of sets that need all remaining replicas for their minimum.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.node_preference.controllers import KINDS, Controllers, Wanted, is_changed, key_of
from plugins.node_preference.deletion_costs import DeletionCosts
from plugins.node_preference.preferences import (
    ANNOTATION,
    ProfilePreferenceArgs,
    Refusal,
    SetCounts,
    read_annotation,
    read_preference,
)
from scheduler.framework import (
    MAX_NODE_SCORE,
    PASS,
    SKIP,
    ActionType,
    ApiWrite,
    Background,
    Change,
    ClusterEvent,
    ClusterObjects,
    Code,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    NodesExplanation,
    Outcome,
    Outcomes,
    PluginArgs,
    PluginMetrics,
    PostBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    Reason,
    Remedy,
    ScorePlugin,
    Sleep,
    Status,
    no_event_keys,
)
from scheduler.objects.caches import BoundedDict
from scheduler.objects.selectors import parse_label_selector
from scheduler.objects.wording import entry
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from plugins.node_preference.controllers import Controller
    from plugins.node_preference.preferences import Preference
    from scheduler.errors import FieldError
    from scheduler.framework import CycleState
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ChangeLog, Int64s, NodeInfo, PodQuery, Rows, Snapshot, UInt16s

_STATE: Final = "NodePreference"
_MOST_KNOWN: Final = 64
"""The number of preferences whose nodes are cached: an array for each."""

MAXIMUM: Final = "NodeSetMaximum"
MINIMUM: Final = "NodeSetMinimum"
INVALID: Final = "InvalidNodePreference"


class NodePreferenceArgs(PluginArgs, frozen=True, kw_only=True):
    """Arguments of NodePreference.

    Attributes:
        preferences: the preferences of the profile; the first one whose selector matches a pod applies to it.
        read_annotations: whether the annotation of a pod, or else of its controller, replaces them.
        write_deletion_cost: whether the pods of ReplicaSets get a deletion cost, so that a scale-down follows the sets.
    """

    preferences: tuple[ProfilePreferenceArgs, ...] = ()
    read_annotations: bool = True
    write_deletion_cost: bool = False

    def faults(self) -> Iterator[FieldError]:
        for index, each in enumerate(self.preferences):
            yield from each.faults_at(entry("preferences", index))


class RowsOfSets:
    """The set of each node, for recent preferences; computed again when nodes change."""

    def __init__(self) -> None:
        self._known: BoundedDict[Preference, tuple[ChangeLog, int, Rows]] = BoundedDict(_MOST_KNOWN)

    def of(self, preference: Preference, snapshot: Snapshot) -> Rows:
        """Return intp (n_nodes,), the number of each node's set."""
        log = snapshot.node_changes
        if log is None:  # some of the nodes, or hypothetical ones
            return preference.sets_of(snapshot)
        known = self._known.get(preference)
        if (
            known is not None
            and known[0] is log
            and known[1] == log.end
            and len(known[2]) == snapshot.n_nodes
        ):
            return known[2]
        found = preference.sets_of(snapshot)
        self._known[preference] = log, log.end, found
        return found


class FilterState:
    """The pods of a controller on each set, with the pods that were added and removed since they were counted.

    Args:
        sets: intp (n_nodes,), the set of each node.
        counts: the pods on each set.
        query: the pods that count.
        changes: row -> difference of the number of pods.
    """

    def __init__(self, sets: Rows, counts: SetCounts, query: PodQuery, changes: Counter[int]) -> None:
        self._sets, self._counts, self._query, self._changes = sets, counts, query, changes

    def clone(self) -> Self:
        return type(self)(self._sets, self._counts, self._query, self._changes.copy())

    def change(self, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Record added or removed pods by row."""
        for row, pod in pods:
            if self._query.matches(pod):
                self._changes[row] += sign

    def outcomes(self) -> Outcomes:
        """Return the rejected nodes; a row is evaluated as if only its own pods had changed."""
        counts, refusals = self._counts, self._counts.refusals
        table: dict[Outcome, int] = {PASS: 0}

        def place(number: int, refusal: Refusal) -> int:
            outcome = PASS if refusal is Refusal.NONE else _outcome(counts, number, refusal)
            return table.setdefault(outcome, len(table))

        places = np.array([place(*each) for each in enumerate(refusals)], dtype=np.uint16)
        index: UInt16s = places[self._sets]
        for row, change in self._changes.items():
            number = int(self._sets[row])
            index[row] = place(number, counts.refusal(number, change))
        return Outcomes(index, tuple(table))


def _outcome(counts: SetCounts, number: int, refusal: Refusal) -> Outcome:
    if refusal is Refusal.MAXIMUM:
        name, most = counts.preference.name_of(number), counts.most[number]
        there = counts.pods[number]
        reason = Reason(f"node(s) were in {name}, which has {there} of at most {most} pods", MAXIMUM)
        # If the maximum is 0, the end of other pods does not help.
        return Outcome(Code.UNSCHEDULABLE if most else Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
    text = f"node(s) were outside of the node sets for the remaining pods: {_lacking(counts)}"
    return Outcome(Code.UNSCHEDULABLE, (Reason(text, MINIMUM),))


def _lacking(counts: SetCounts) -> str:
    """Return the sets below their minimum, as in `on-demand has 0 of at least 2`."""
    return ", ".join(
        f"{counts.preference.sets[number].name} has {counts.pods[number]} of at least {counts.least[number]}"
        for number in counts.lacking
    )


class NodePreference(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, PostBindPlugin):
    """Places pods on ordered sets of nodes, with a minimum and a maximum of a controller's pods on each set."""

    name = "NodePreference"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            MAXIMUM: "the node set of the node has its maximum of pods of the controller",
            MINIMUM: "other node sets need all remaining pods of the controller for their minimum",
            INVALID: "the annotation of the pod, or of its controller, is invalid",
        }
    )
    Args = NodePreferenceArgs
    needs = Needs(kinds=KINDS)
    keeps_rows_apart = True

    def __init__(
        self,
        *,
        args: NodePreferenceArgs,
        cluster: ClusterObjects,
        api: ApiWrite,
        background: Background,
        sleep: Sleep,
        metrics: PluginMetrics,
    ) -> None:
        self._controllers = Controllers(cluster)
        self._reads_annotations = args.read_annotations
        self._of_profile = [
            (parse_label_selector(each.pod_selector), read_preference(each)) for each in args.preferences
        ]
        self._rows = RowsOfSets()
        self._costs: DeletionCosts | None = None
        rights = frozenset[str]()
        if args.write_deletion_cost:
            self._costs = DeletionCosts(self._wanted, cluster, api, background, sleep, metrics)
            rights = frozenset({"patch v1/pods"})
        # An explanation of a pod on a node reads its annotation too.
        reads = args.read_annotations or args.write_deletion_cost
        self.needs = Needs(KINDS, bound_pod_annotations=reads, rights=rights)  # type: ignore[misc]  # of this one

    def signature(self, pod: PodInfo) -> Hashable | None:
        """Return the preference if its sets have no limits: else the results depend on the pods of all nodes."""
        wanted = self._wanted(pod)
        return None if wanted.fault or wanted.has_limits else (wanted.preference,)

    def _wanted(self, pod: PodInfo) -> Wanted:
        """Return the preference of a pod: that of its own annotation, else of its controller's, else of the profile."""
        controller = self._controllers.of(pod)
        text, whose = pod.annotations.get(ANNOTATION), "the pod"
        if text is None and controller is not None:
            text, whose = controller.annotation, controller.title
        if self._reads_annotations and text is not None:
            read = read_annotation(text)
            if isinstance(read, str):
                return Wanted(None, controller, f"annotation {ANNOTATION} of {whose}: {read}")
            return Wanted(read, controller)
        labels = pod.labels
        found = (preference for rule, preference in self._of_profile if rule.matches(labels))
        return Wanted(next(found, None), controller)

    # Events.

    def events(self) -> Sequence[EventWithHint]:
        pod = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE_POD_LABEL | ActionType.DELETE)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        own = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.UPDATE)
        controllers = [
            EventWithHint(
                ClusterEvent(EventResource.of(kind), ActionType.ADD | ActionType.UPDATE),
                partial(_after_controller_change, kind),
                key_of,
                partial(_changed_controller, kind),
                _own_controller,
            )
            for kind in sorted(KINDS)
        ]
        return (
            EventWithHint(pod, self._after_pod_change, self._pod_key, _namespaces, _own_namespace),
            EventWithHint(node, self._after_node_change, self._pod_key),
            EventWithHint(own, _after_own_change, self._pod_key, no_event_keys),
            *controllers,
        )

    def _pod_key(self, pod: PodInfo) -> Hashable:
        return pod.namespace, key_of(pod), self._wanted(pod).preference

    def _after_pod_change(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
        """Requeue if a pod of the controller was deleted, or is not selected any more."""
        wanted = self._wanted(pod)
        if wanted.fault:  # only a change of the annotation helps
            return QueueingHint.SKIP
        controller = wanted.controller
        if controller is None:
            return QueueingHint.QUEUE
        counted, counts = (
            each is not None and each.namespace == pod.namespace and controller.rule.matches(each.labels)
            for each in (old, new)
        )
        return QueueingHint.QUEUE if counted and not counts else QueueingHint.SKIP

    def _after_node_change(self, pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
        """Requeue if a node is added to a set that may have pods, also from another set."""
        preference = self._wanted(pod).preference
        if preference is None:  # an annotation is invalid: only its change helps
            return QueueingHint.SKIP
        number = preference.set_of(new.labels)
        if old is not None and preference.set_of(old.labels) == number:
            return QueueingHint.SKIP
        is_closed = number < len(preference.sets) and preference.sets[number].is_closed
        return QueueingHint.SKIP if is_closed else QueueingHint.QUEUE

    # Filter.

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        wanted = self._wanted(pod)
        if wanted.fault:
            return Status.unschedulable(Reason(wanted.fault, INVALID), resolvable=False)
        found = self._counted(wanted, snapshot)
        if found is None:
            return SKIP
        sets, counts, controller = found
        if not counts.preference.is_hard:
            return SKIP
        state.write(_STATE, FilterState(sets, counts, controller.query, Counter()), by_row=True)
        return None

    def _counted(self, wanted: Wanted, snapshot: Snapshot) -> tuple[Rows, SetCounts, Controller] | None:
        """Return the set of each node and the pods on each set; None for a pod without limits."""
        preference, controller = wanted.preference, wanted.controller
        if preference is None or controller is None or not preference.has_limits:
            return None
        sets, there = self._rows.of(preference, snapshot), snapshot.pods_matching(controller.query)
        pods = np.bincount(sets, weights=there, minlength=len(preference.sets) + 1).astype(np.int64)
        return sets, SetCounts(preference, controller.replicas, pods.tolist()), controller

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_STATE, FilterState).change(added, 1)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_STATE, FilterState).change(removed, -1)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return state.read(_STATE, FilterState).outcomes()

    # Score.

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        return SKIP if self._wanted(pod).preference is None else None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        wanted = self._wanted(pod)
        assert wanted.preference is not None, "PreScore skips a pod without a preference"
        scores = np.array(self._scores(wanted, snapshot), dtype=np.int64)
        scored: Int64s = scores[self._rows.of(wanted.preference, snapshot)]
        return scored

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        wanted = self._wanted(pod)
        assert wanted.preference is not None, "PreScore skips a pod without a preference"
        return self._scores(wanted, node.snapshot)[wanted.preference.set_of(node.labels)]

    def _scores(self, wanted: Wanted, snapshot: Snapshot) -> list[int]:
        """Return the score of each set by its place; sets whose limits are preferred and not met follow all others."""
        assert wanted.preference is not None, "called with a preference"
        last = len(wanted.preference.sets)
        ranks = list(range(last + 1))
        found = None if wanted.preference.is_hard else self._counted(wanted, snapshot)
        if found is not None:
            ranks = [rank + (last + 1) * (refusal != 0) for rank, refusal in enumerate(found[1].refusals)]
            last = 2 * last + 1
        return [(last - rank) * MAX_NODE_SCORE // last for rank in ranks]

    # Deletion costs.

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if self._costs is not None:
            self._costs.note(pod)

    # Explanations.

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        found = None if node is None else self._counted(self._wanted(pod), snapshot)
        if node is None or found is None:
            return None
        sets, counts, controller = found
        number = int(sets[node.row])
        refusal = counts.refusal(number)
        if refusal is Refusal.NONE:
            return []
        if refusal is Refusal.MAXIMUM:
            name, most = counts.preference.name_of(number), counts.preference.sets[number].most
            there = f"{name} has {counts.pods[number]} of at most {counts.most[number]} pods"
            return [f"{there} (maxReplicas {most} of {counts.replicas} replicas of {controller.title})"]
        needed = f"other node sets need the remaining pods of {controller.title}"
        return [f"{needed} ({counts.replicas} replicas): {_lacking(counts)}"]

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        found = self._counted(self._wanted(pod), snapshot)
        if found is None:
            return None
        sets, counts, controller = found
        written = [
            f"{each.name} {counts.pods[number]}{_limits(counts, number)}"
            for number, each in enumerate(counts.preference.sets)
        ]
        whose = f"pods of {controller.title} ({counts.replicas} replicas)"
        summary = f"{whose}: {', '.join(written)}, other nodes {counts.pods[-1]}"

        def change(fitting: Rows) -> Change | None:
            row = int(fitting[sets[fitting].argmin()])
            text = _lower(counts, int(sets[row]))
            return None if text is None else Change(row, text, pod)

        return NodesExplanation(summary, [Remedy(pod, change, without=self.name)])


def _limits(counts: SetCounts, number: int) -> str:
    """Return the limits of a set: ` (at least 2, at most 3)`."""
    least, most = counts.least[number], counts.most[number]
    limits = [f"at least {least}"] if least else []
    limits += [] if most is None else [f"at most {most}"]
    return f" ({', '.join(limits)})" if limits else ""


def _lower(counts: SetCounts, number: int) -> str | None:
    """Return which limits would have to change for another pod on a set; None if it takes one."""
    match counts.refusal(number):
        case Refusal.MAXIMUM:
            needed = counts.pods[number] + 1
            return f"{counts.preference.name_of(number)} allowed {needed} pods or more (now {counts.most[number]})"
        case Refusal.MINIMUM:
            names = ", ".join(counts.preference.sets[lacking].name for lacking in counts.lacking)
            return f"minReplicas of node set {names} were {counts.too_few} lower"
    return None


def _after_own_change(pod: PodInfo, old: PodInfo, new: PodInfo) -> QueueingHint:
    """Requeue a pod whose annotation changed."""
    is_same = old.annotations.get(ANNOTATION) == new.annotations.get(ANNOTATION)
    return QueueingHint.SKIP if is_same or new.uid != pod.uid else QueueingHint.QUEUE


def _namespaces(old: PodInfo | None, new: PodInfo | None) -> set[str]:
    """Return the namespace of a pod event."""
    return {each.namespace for each in (old, new) if each is not None}


def _own_namespace(pod: PodInfo) -> tuple[str]:
    return (pod.namespace,)


def _own_controller(pod: PodInfo) -> tuple[Hashable, ...]:
    key = key_of(pod)
    return () if key is None else (key,)


def _changed_controller(
    kind: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
) -> Collection[Hashable]:
    """Return the key of a controller, if its preference or its replicas may have changed."""
    return {(kind, object_key(new))} if is_changed(old, new) else ()


def _after_controller_change(
    kind: str, pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any]
) -> QueueingHint:
    is_its = key_of(pod) == (kind, object_key(new)) and is_changed(old, new)
    return QueueingHint.QUEUE if is_its else QueueingHint.SKIP
