"""Spreads pods over zones, nodes and other domains, by their topology spread constraints.

Source:
    kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidatePodTopologySpreadArgs.
    kube-scheduler v1.36, plugins/podtopologyspread/filtering.go.
    kube-scheduler v1.36, plugins/podtopologyspread: plugin.go, filtering.go, scoring.go.
"""

from __future__ import annotations

import json
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from plugins.pod_topology_spread.constraints import (
    ConstraintReader,
    CountedNodes,
    CountedPods,
    DomainCounts,
    are_long,
    has_keys,
    nodes_with_keys,
)
from plugins.pod_topology_spread.default_selector import KINDS, DefaultSelectors
from plugins.pod_topology_spread.explaining import why_not_on, why_not_on_nodes
from plugins.pod_topology_spread.scoring import ScoreState
from plugins.work_in_steps import PluginWork
from scheduler.errors import FieldError
from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    ClusterEvent,
    Code,
    CycleState,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    Needs,
    NeedsTime,
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
from scheduler.objects.selectors import SelectorError, is_label_key
from scheduler.objects.v1 import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, TopologySpreadConstraint

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence
    from typing import Self

    from plugins.pod_topology_spread.constraints import SpreadConstraint
    from scheduler.objects.label_index import LabelKey
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot, UInt16s

SYSTEM_DEFAULTING: Final = "System"
LIST_DEFAULTING: Final = "List"

SYSTEM_CONSTRAINTS: Final = (
    TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname", when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3
    ),
    TopologySpreadConstraint(
        topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5
    ),
)
"""The default constraints of pods without constraints of their own, unless configured otherwise."""


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """Arguments of PodTopologySpread.

    Attributes:
        default_constraints: the constraints of pods without their own; they have no selectors, because these are deduced
          for each pod.
        defaulting_type: "System" for SYSTEM_CONSTRAINTS, "List" for `default_constraints`; "" is "System".
    """

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = SYSTEM_DEFAULTING

    @property
    def is_system_defaulting(self) -> bool:
        return self.defaulting_type in {"", SYSTEM_DEFAULTING}

    @property
    def constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        """The constraints of pods without constraints of their own."""
        return SYSTEM_CONSTRAINTS if self.is_system_defaulting else self.default_constraints

    def faults(self) -> Iterator[FieldError]:
        constraints = self.default_constraints
        if not self.is_system_defaulting and self.defaulting_type != LIST_DEFAULTING:
            yield FieldError(
                "defaultingType", _unsupported(self.defaulting_type, SYSTEM_DEFAULTING, LIST_DEFAULTING)
            )
        elif self.is_system_defaulting and constraints:
            yield FieldError(
                "defaultingType", _invalid(SYSTEM_DEFAULTING, "when .defaultConstraints are not empty")
            )
        for index, constraint in enumerate(constraints):
            yield from _constraint_faults(constraint, f"defaultConstraints[{index}]", constraints[:index])


def _constraint_faults(
    constraint: TopologySpreadConstraint, path: str, before: Sequence[TopologySpreadConstraint]
) -> Iterator[FieldError]:
    key, action = constraint.topology_key, constraint.when_unsatisfiable
    if constraint.max_skew <= 0:
        yield FieldError(f"{path}.maxSkew", _invalid(constraint.max_skew, "not in valid range (0, inf)"))
    if not key:
        yield FieldError(f"{path}.topologyKey", _REQUIRED)
    elif not is_label_key(key):
        yield FieldError(f"{path}.topologyKey", _invalid(key, "must be a label's key"))
    if not action:
        yield FieldError(f"{path}.whenUnsatisfiable", _REQUIRED)
    elif action not in {DO_NOT_SCHEDULE, SCHEDULE_ANYWAY}:
        yield FieldError(f"{path}.whenUnsatisfiable", _unsupported(action, DO_NOT_SCHEDULE, SCHEDULE_ANYWAY))
    if constraint.label_selector is not None:
        yield FieldError(
            f"{path}.labelSelector",
            "Forbidden: constraint must not define a selector, as they deduced for each pod",
        )
    if any(other.topology_key == key and other.when_unsatisfiable == action for other in before):
        yield FieldError(path, f'Duplicate value: "{{{key}, {action}}}"')


_REQUIRED: Final = "Required value: can not be empty"


def _invalid(value: object, why: str) -> str:
    return f"Invalid value: {_quoted(value)}: {why}"


def _unsupported(value: str, *supported: str) -> str:
    return f"Unsupported value: {_quoted(value)}: supported values: {', '.join(map(_quoted, supported))}"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


ANYBODY: Final = ""
"""A key of every pod event in a namespace, whatever the pod's labels are."""


def brought_by_pod(old: PodInfo | None, new: PodInfo | None) -> set[Hashable]:
    """Return the keys of a pod event for its namespace: the pod's labels; none if it has no node."""
    keys: set[Hashable] = set()
    for each in (old, new):
        if each is not None:
            if not (each.node_name or each.pod.status.nominated_node_name):
                return set()
            keys.add((each.namespace, ANYBODY))
            keys.update((each.namespace, key) for key in keys_of_labels(each.labels))
    return keys


def brought_by_node(old: NodeObject | None, new: NodeObject | None) -> set[LabelKey] | None:
    """Return the changed labels of a node; an added, deleted or retainted node may help every pod."""
    if old is None or new is None or old.taints != new.taints:
        return None
    return set(keys_of_changes(old.labels, new.labels))


REASON = Reason("node(s) didn't match pod topology spread constraints", "TopologySpreadConstraint")
REASON_LABEL = Reason(f"{REASON} (missing required label)", "TopologyLabelMissing")

_TABLE: Final = (
    PASS,
    Outcome(Code.UNSCHEDULABLE, (REASON,)),
    Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_LABEL,)),
)


class SpreadState:
    """All constraints of a pod, with the pods added and removed since they were counted."""

    def __init__(
        self, pods: CountedPods, counts: Sequence[DomainCounts], changes: Iterable[Counter[int]]
    ) -> None:
        self._pods = pods
        self._counts = self.counts = counts
        self._constraints = [each.constraint for each in counts]
        self._changes = tuple(changes)  # by constraint: row -> difference of the number of pods

    @classmethod
    def of(
        cls,
        constraints: Sequence[SpreadConstraint],
        pod: PodInfo,
        snapshot: Snapshot,
        work: PluginWork,
        *,
        compares: bool,
    ) -> Self:
        """Count the pods of every constraint, of nodes that have all the topology keys.

        Raises:
            NeedsTime: the constraints or the pod's node affinity take longer than one time slice.
        """
        missing = [n for n, each in enumerate(constraints, 1) if not snapshot.has_label(each.topology_key)]
        if missing:
            # No node passes the missing one, so later ones do not matter.
            constraints = constraints[: missing[0]]
        within = nodes_with_keys(snapshot, constraints)
        nodes = CountedNodes(snapshot, pod, within, work, compares=compares)
        pods = CountedPods(snapshot, constraints, work)
        counts = [
            DomainCounts(each, snapshot, pods.of(each), nodes.of(each), itself=bool(itself))
            for each, itself in zip(constraints, pods.matching(constraints, [pod]), strict=True)
        ]
        return cls(pods, counts, [Counter() for _ in counts])

    def clone(self) -> Self:
        return type(self)(self._pods, self._counts, (changes.copy() for changes in self._changes))

    def change(self, namespace: str, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Record added or removed pods by row, terminating or not; pods of other namespaces do not count."""
        ours = [(row, pod) for row, pod in pods if pod.namespace == namespace]
        found = self._pods.matching(self._constraints, [pod for _, pod in ours])
        for counts, changes, places in zip(self._counts, self._changes, found, strict=True):
            for place in places:
                row = ours[place][0]
                if counts.counts(row):
                    changes[row] += sign

    def outcomes(self) -> Outcomes:
        """Return the reason of the first constraint that a node violates."""
        index: UInt16s | None = None
        for counts, changes in zip(self._counts, self._changes, strict=True):
            verdicts = counts.verdicts(changes)
            index = verdicts if index is None else np.where(index == 0, verdicts, index)
        assert index is not None, "a pod without constraints is skipped"
        return Outcomes(index, _TABLE)


_PRE_FILTER = "PreFilterPodTopologySpread"
_PRE_SCORE = "PreScorePodTopologySpread"

_POD_EVENT = ClusterEvent(
    EventResource.POD,
    ActionType.ADD | ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_TOLERATION | ActionType.DELETE,
)
_NODE_EVENT = ClusterEvent(
    EventResource.NODE,
    ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT,
)


class PodTopologySpread(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Keeps the numbers of matching pods balanced among domains of nodes."""

    name = "PodTopologySpread"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            REASON.code: "the domain of the node would have too many of the matching pods",
            REASON_LABEL.code: "the node lacks the label of a topology key",
        }
    )
    Args = PodTopologySpreadArgs
    needs = Needs(kinds=KINDS)
    keeps_rows_apart = True

    def __init__(self, *, args: PodTopologySpreadArgs, time_slice: TimeSlice, features: Features) -> None:
        self._compares = features.enabled("TaintTolerationComparisonOperators")
        self._counts_nominated = features.enabled("PodHints")
        self._defaults = args.constraints
        self._default_actions = {constraint.when_unsatisfiable for constraint in self._defaults}
        self._system_defaulting = args.is_system_defaulting
        self._work = PluginWork(time_slice)
        self._reader = ConstraintReader(merges_keys=features.enabled("MatchLabelKeysInPodTopologySpread"))
        self._selectors = DefaultSelectors()
        if not self._defaults:
            self.needs = Needs()  # type: ignore[misc]  # of this one: nothing is deduced from objects

    def events(self) -> Sequence[EventWithHint]:
        return (
            EventWithHint(
                _POD_EVENT, self._after_pod_change, self._alike, brought_by_pod, self._awaited_of_pods
            ),
            EventWithHint(
                _NODE_EVENT, self._after_node_change, self._alike, brought_by_node, self._awaited_of_nodes
            ),
        )

    def _after_pod_change(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> QueueingHint:
        if not all(self._is_involved(each, pod) for each in (old, new) if each is not None):
            return QueueingHint.SKIP
        if are_long(pod):
            return QueueingHint.QUEUE  # the hint is called for each event, so trying the pod again costs less
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except SelectorError:
            return QueueingHint.QUEUE
        if old is None or new is None:
            changed = new if old is None else old
            assert changed is not None, "something came or went"
            helps = any(constraint.matches(changed.labels) for constraint in constraints)
        elif (
            new.uid == pod.uid
            and new.tolerations != old.tolerations
            and any(constraint.honors_taints for constraint in constraints)
        ):
            helps = True
        else:
            helps = any(
                constraint.matches(old.labels) != constraint.matches(new.labels) for constraint in constraints
            )
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _is_involved(self, changed: PodInfo, pod: PodInfo) -> bool:
        """Return whether a change of one pod can matter to the other: it is counted, or will be, in the same namespace.

        Source:
            kube-scheduler v1.34 and v1.36, plugins/podtopologyspread/plugin.go, involvedInTopologySpreading.
        """
        if changed.uid == pod.uid:
            return True
        is_nominated = self._counts_nominated and changed.pod.status.nominated_node_name
        return bool(changed.node_name or is_nominated) and changed.namespace == pod.namespace

    def _after_node_change(
        self, pod: PodInfo, old: NodeObject | None, new: NodeObject | None
    ) -> QueueingHint:
        if are_long(pod):
            return QueueingHint.QUEUE
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except SelectorError:
            return QueueingHint.QUEUE
        counted = old is not None and has_keys(old.labels, constraints)
        counts = new is not None and has_keys(new.labels, constraints)
        if old is None or new is None:
            helps = counted or counts
        elif counted != counts:
            helps = True
        else:
            helps = counts and (
                old.taints != new.taints
                or any(
                    old.labels[key] != new.labels[key] for key in (each.topology_key for each in constraints)
                )
            )
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _alike(self, pod: PodInfo) -> Hashable:
        """Return all fields of a waiting pod that the hints read."""
        if self._may_change(pod):
            return pod.namespace, frozenset(pod.labels.items())
        if are_long(pod):
            return pod.namespace, None
        try:
            return pod.namespace, self._constraints(pod, DO_NOT_SCHEDULE)
        except SelectorError:
            return pod.namespace, None

    def _awaited_of_pods(self, pod: PodInfo) -> set[Hashable]:
        """Return the labels one of which another pod of the namespace must have to be counted, or to be absent."""
        anybody: set[Hashable] = {(pod.namespace, ANYBODY)}
        if self._may_change(pod) or are_long(pod):
            return anybody
        try:
            counted = [keys_of_rule(each.rule) for each in self._constraints(pod, DO_NOT_SCHEDULE)]
        except SelectorError:
            return anybody
        if None in counted:
            return anybody
        return {(pod.namespace, key) for keys in counted for key in keys or ()}

    def _awaited_of_nodes(self, pod: PodInfo) -> set[str] | None:
        """Return the topology keys of a pod's constraints."""
        if are_long(pod):
            return None
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except SelectorError:
            return None
        return None if self._may_change(pod) else {each.topology_key for each in constraints}

    def _may_change(self, pod: PodInfo) -> bool:
        """Return whether a pod's constraints are deduced from objects, which may change."""
        return DO_NOT_SCHEDULE in self._default_actions and not pod.pod.spec.topology_spread_constraints

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE, snapshot)
        except SelectorError as error:
            message = f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
            return Status.failed(message, error)
        if not constraints:
            return SKIP
        found = SpreadState.of(constraints, pod, snapshot, self._work, compares=self._compares)
        state.write(_PRE_FILTER, found, by_row=True)
        return None

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, SpreadState).change(pod.namespace, added, 1)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        state.mutable(_PRE_FILTER, SpreadState).change(pod.namespace, removed, -1)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return state.read(_PRE_FILTER, SpreadState).outcomes()

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        counts = None if node is None else self._counts_of(pod, snapshot)
        return None if node is None or counts is None else list(why_not_on(counts, node.row))

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        counts = self._counts_of(pod, snapshot)
        return None if counts is None else why_not_on_nodes(counts, pod, snapshot, rows)

    def _counts_of(self, pod: PodInfo, snapshot: Snapshot) -> Sequence[DomainCounts] | None:
        """Return the counts of a pod's constraints; None if reading or counting them takes long."""
        if are_long(pod):
            return None
        state = CycleState()
        try:
            status = self.pre_filter(state, pod, snapshot)
        except NeedsTime as error:
            error.steps.close()
            return None
        return state.read(_PRE_FILTER, SpreadState).counts if status is None else []

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        if not snapshot.n_nodes:
            return SKIP
        try:
            constraints = self._constraints(pod, SCHEDULE_ANYWAY, snapshot)
        except SelectorError as error:
            message = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {error}"
            return Status.failed(message, error)
        if not constraints:
            return SKIP
        own = bool(pod.pod.spec.topology_spread_constraints)
        needs_all_keys = own or not self._system_defaulting
        found = ScoreState(
            snapshot,
            pod,
            feasible,
            constraints,
            self._work,
            needs_all_keys=needs_all_keys,
            compares=self._compares,
        )
        state.write(_PRE_SCORE, found, by_row=True)
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return the weighted number of pods in each node's domains; `normalize` inverts it."""
        return state.read(_PRE_SCORE, ScoreState).raw()

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return state.read(_PRE_SCORE, ScoreState).normalized(scores)

    def _constraints(
        self, pod: PodInfo, action: str, snapshot: Snapshot | None = None
    ) -> tuple[SpreadConstraint, ...]:
        """Return the constraints of a pod with an action: its own, or else the configuration's.

        Args:
            pod: the pod.
            action: DO_NOT_SCHEDULE or SCHEDULE_ANYWAY.
            snapshot: the cluster; None for that of the last attempt.

        Raises:
            NeedsTime: reading them takes longer than one time slice.
            SelectorError: a selector of the pod is invalid.

        Source:
            kube-scheduler v1.36, plugins/podtopologyspread/common.go, buildDefaultConstraints.
        """
        if pod.pod.spec.topology_spread_constraints:
            return self._reader.of_pod(pod, action, self._work)
        if action not in self._default_actions:
            return ()
        if snapshot is not None:
            self._selectors.look_at(snapshot)
            unread = self._selectors.unread(pod)
            if unread is not None:
                self._work.begin()
                self._work.done(unread)
        rule = self._selectors.of(pod)
        if not rule.count:
            return ()  # no selector selects the pod, so there are no pods to spread it among
        return self._reader.defaults(self._defaults, rule, pod, action)
