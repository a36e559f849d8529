"""Spreads pods over zones, nodes and other domains, by their topology spread constraints.

Source:
    kube-scheduler v1.36, plugins/podtopologyspread: plugin.go, filtering.go, scoring.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.pod_topology_spread.args import PodTopologySpreadArgs
from plugins.pod_topology_spread.constraints import ConstraintReader, are_long, has_keys
from plugins.pod_topology_spread.default_selector import KINDS, DefaultSelectors
from plugins.pod_topology_spread.filtering import SpreadState
from plugins.pod_topology_spread.keys import ANYBODY, brought_by_node, brought_by_pod
from plugins.pod_topology_spread.scoring import ScoreState
from plugins.pod_work import PluginWork
from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    ScorePlugin,
    Status,
    TimeSlice,
)
from scheduler.objects.label_keys import keys_of_rule
from scheduler.objects.selectors import SelectorError
from scheduler.objects.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from plugins.pod_topology_spread.constraints import SpreadConstraint
    from scheduler.framework import CycleState, Outcomes
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, Rows, Snapshot

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
    Args = PodTopologySpreadArgs
    needs = Needs(kinds=KINDS)
    keeps_rows_apart = True

    def __init__(self, *, args: PodTopologySpreadArgs, time_slice: TimeSlice) -> None:
        self._defaults = args.constraints
        self._system_defaulting = args.is_system_defaulting
        self._work = PluginWork(time_slice)
        self._reader = ConstraintReader()
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
        if not all(_is_involved(each, pod) for each in (old, new) if each is not None):
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
        return not pod.pod.spec.topology_spread_constraints and any(
            each.when_unsatisfiable == DO_NOT_SCHEDULE for each in self._defaults
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        self._selectors.look_at(snapshot)
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except SelectorError as error:
            message = f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
            return Status.failed(message, error)
        if not constraints:
            return SKIP
        state.write(_PRE_FILTER, SpreadState.of(constraints, pod, snapshot, self._work), by_row=True)
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

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        if not snapshot.n_nodes:
            return SKIP
        self._selectors.look_at(snapshot)
        try:
            constraints = self._constraints(pod, SCHEDULE_ANYWAY)
        except SelectorError as error:
            message = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {error}"
            return Status.failed(message, error)
        if not constraints:
            return SKIP
        own = bool(pod.pod.spec.topology_spread_constraints)
        needs_all_keys = own or not self._system_defaulting
        found = ScoreState(snapshot, pod, feasible, constraints, self._work, needs_all_keys=needs_all_keys)
        state.write(_PRE_SCORE, found, by_row=True)
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        """Return the weighted number of pods in each node's domains; `normalize` inverts it."""
        return state.read(_PRE_SCORE, ScoreState).raw()

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        return state.read(_PRE_SCORE, ScoreState).normalized(scores)

    def _constraints(self, pod: PodInfo, action: str) -> tuple[SpreadConstraint, ...]:
        """Return the constraints of a pod with an action: its own, or else the configuration's.

        Raises:
            NeedsTime: reading them takes longer than one time slice.
            SelectorError: a selector of the pod is invalid.

        Source:
            kube-scheduler v1.36, plugins/podtopologyspread/common.go, buildDefaultConstraints.
        """
        if pod.pod.spec.topology_spread_constraints:
            return self._reader.of_pod(pod, action, self._work)
        if all(constraint.when_unsatisfiable != action for constraint in self._defaults):
            return ()
        rule = self._selectors.of(pod)
        if not rule.requirements:
            return ()  # no selector selects the pod, so there are no pods to spread it among
        return self._reader.defaults(self._defaults, rule, pod, action)


def _is_involved(changed: PodInfo, pod: PodInfo) -> bool:
    """Return whether a change of one pod can matter to the other: it is counted, or will be, in the same namespace."""
    if changed.uid == pod.uid:
        return True
    if not (changed.node_name or changed.pod.status.nominated_node_name):
        return False
    return changed.namespace == pod.namespace
