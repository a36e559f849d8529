"""PodTopologySpread one node at a time, from reading podtopologyspread/*.go and helper/spread.go."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tests.reference.go import divide
from tests.reference.one_node import PASSES, Verdict
from tests.reference.taints import covers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.reference.cluster_events import EventfulCluster

HOST = "kubernetes.io/hostname"
NOT_MATCHING: Verdict = ("Unschedulable", ("node(s) didn't match pod topology spread constraints",))
NO_LABEL: Verdict = (
    "UnschedulableAndUnresolvable",
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
)
SYSTEM = (
    {"maxSkew": 3, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
)
MAX_INT32 = 2**31 - 1

Selector = list[tuple[str, str, list[str]]] | None
"""(key, operator, values) that must all hold; None is labels.Nothing()."""


class ParseError(Exception):
    pass


def as_selector(written: Mapping[str, Any] | None) -> Selector:
    """helpers.go, LabelSelectorAsSelector."""
    if written is None:
        return None
    selector = [(key, "In", [value]) for key, value in written.get("matchLabels", {}).items()]
    for expression in written.get("matchExpressions", ()):
        operator, values = expression.get("operator", ""), expression.get("values", [])
        if operator in {"In", "NotIn"}:
            if not values:
                raise ParseError
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                raise ParseError
        else:
            raise ParseError
        selector.append((expression["key"], operator, list(values)))
    return selector


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for key, operator, values in selector:
        if operator == "In" and not (key in labels and labels[key] in values):
            return False
        if operator == "NotIn" and key in labels and labels[key] in values:
            return False
        if operator == "Exists" and key not in labels:
            return False
        if operator == "DoesNotExist" and key in labels:
            return False
    return True


@dataclass
class Constraint:
    max_skew: int
    key: str
    selector: Selector
    min_domains: int
    affinity_policy: str
    taints_policy: str


def filter_constraints(
    written: Sequence[Mapping[str, Any]], labels: Mapping[str, str], action: str
) -> list[Constraint]:
    """common.go, filterTopologySpreadConstraints."""
    result = []
    for each in written:
        if each.get("whenUnsatisfiable") != action:
            continue
        selector = as_selector(each.get("labelSelector"))
        own = {key: labels[key] for key in each.get("matchLabelKeys", ()) if key in labels}
        if own and selector is not None:
            selector = [(key, "In", [value]) for key, value in own.items()] + selector
        result.append(
            Constraint(
                each.get("maxSkew", 0),
                each.get("topologyKey", ""),
                selector,
                each.get("minDomains", 1),
                each.get("nodeAffinityPolicy", "Honor"),
                each.get("nodeTaintsPolicy", "Ignore"),
            )
        )
    return result


def labels_of_services(pod: PodInfo, objects: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """spread.go, GetPodServices, merged."""
    labels: dict[str, str] = {}
    for key, service in objects.get("v1/services", {}).items():
        selector = service["spec"].get("selector")
        if key.split("/")[0] != pod.namespace or selector is None:
            continue
        if all(pod.labels.get(name) == value for name, value in selector.items()):
            labels.update(selector)
    return labels


def default_selector(pod: PodInfo, objects: Mapping[str, Mapping[str, Any]]) -> Selector:
    """spread.go, DefaultSelector."""
    labels = labels_of_services(pod, objects)
    more: Selector = None
    owner = next((owner for owner in pod.pod.metadata.owner_references if owner.controller), None)
    plurals = {
        ("v1", "ReplicationController"): "v1/replicationcontrollers",
        ("apps/v1", "ReplicaSet"): "apps/v1/replicasets",
        ("apps/v1", "StatefulSet"): "apps/v1/statefulsets",
    }
    if owner is not None:
        plural = plurals.get((owner.api_version, owner.kind), "")
        found = objects.get(plural, {}).get(f"{pod.namespace}/{owner.name}")
        if found is not None and owner.kind == "ReplicationController":
            labels.update(found["spec"].get("selector") or {})
        elif found is not None:
            try:
                more = as_selector(found["spec"].get("selector"))
            except ParseError:
                more = None
    return [(key, "In", [value]) for key, value in labels.items()] + (more or [])


class CriticalPaths:
    """filtering.go, criticalPaths: two domains with few pods, the first with the fewest."""

    def __init__(self) -> None:
        self.paths = [["", MAX_INT32], ["", MAX_INT32]]

    def update(self, value: str, number: int) -> None:
        paths = self.paths
        place = -1
        if value == paths[0][0]:
            place = 0
        elif value == paths[1][0]:
            place = 1
        if place >= 0:
            paths[place][1] = number
            if paths[0][1] > paths[1][1]:
                paths[0], paths[1] = paths[1], paths[0]
        elif number < paths[0][1]:
            paths[1] = paths[0]
            paths[0] = [value, number]
        elif number < paths[1][1]:
            paths[1] = [value, number]


@dataclass
class PreFilterState:
    constraints: list[Constraint]
    counts: list[dict[str, int]]
    critical: list[CriticalPaths]

    def clone(self) -> PreFilterState:
        return copy.deepcopy(self)


@dataclass
class PreScoreState:
    constraints: list[Constraint]
    ignored: set[str] = field(default_factory=set)
    counts: list[dict[str, int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


@dataclass
class SlowSpread:
    """The plugin over a cluster in plain lists."""

    cluster: EventfulCluster
    defaults: Sequence[Mapping[str, Any]] = SYSTEM
    system_defaulted: bool = True

    @property
    def nodes(self) -> list[NodeObject]:
        return list(self.cluster.nodes.values())

    # What a pod asks for.

    def constraints(self, pod: PodInfo, action: str) -> list[Constraint]:
        written = [msgspec.to_builtins(each) for each in pod.pod.spec.topology_spread_constraints]
        if written:
            return filter_constraints(written, pod.labels, action)
        constraints = filter_constraints(self.defaults, pod.labels, action)
        selector = default_selector(pod, self.cluster.objects)
        if not constraints or not selector:
            return []
        for constraint in constraints:
            constraint.selector = selector
        return constraints

    # Which nodes and pods count.

    @staticmethod
    def has_all_keys(node: NodeObject, constraints: list[Constraint]) -> bool:
        return all(constraint.key in node.labels for constraint in constraints)

    @staticmethod
    def included(pod: PodInfo, node: NodeObject, constraint: Constraint) -> bool:
        """common.go, matchNodeInclusionPolicies; of node affinity only what these tests write."""
        if constraint.affinity_policy == "Honor":
            for key, value in pod.pod.spec.node_selector.items():
                if node.labels.get(key) != value:
                    return False
            affinity = pod.node_affinity
            required = affinity and affinity.required_during_scheduling_ignored_during_execution
            if required and not any(
                term.match_expressions
                and all(
                    matches([(each.key, each.operator, list(each.values))], node.labels)
                    for each in term.match_expressions
                )
                for term in required.node_selector_terms
            ):
                return False
        if constraint.taints_policy == "Honor":
            for taint in node.taints:
                if taint.effect in {"NoSchedule", "NoExecute"} and not any(
                    covers(toleration, taint) for toleration in pod.tolerations
                ):
                    return False
        return True

    def count(self, node: NodeObject, selector: Selector, namespace: str) -> int:
        """common.go, countPodsMatchSelector."""
        if selector == []:
            return 0
        count = 0
        for each in self.cluster.pods_on(node.name):
            if each.pod.metadata.deletion_timestamp or each.namespace != namespace:
                continue
            if matches(selector, each.labels):
                count += 1
        return count

    # Filter.

    def pre_filter(self, pod: PodInfo) -> PreFilterState | None:
        """None is Skip."""
        constraints = self.constraints(pod, "DoNotSchedule")
        if not constraints:
            return None
        state = PreFilterState(constraints, [{} for _ in constraints], [CriticalPaths() for _ in constraints])
        for node in self.nodes:
            if not self.has_all_keys(node, constraints):
                continue
            for place, constraint in enumerate(constraints):
                if not self.included(pod, node, constraint):
                    continue
                value = node.labels[constraint.key]
                counts = state.counts[place]
                counts[value] = counts.get(value, 0) + self.count(node, constraint.selector, pod.namespace)
        for counts, critical in zip(state.counts, state.critical, strict=True):
            for value, number in counts.items():
                critical.update(value, number)
        return state

    def update_with_pod(
        self, state: PreFilterState, updated: PodInfo, pod: PodInfo, node: NodeObject, delta: int
    ) -> None:
        if updated.namespace != pod.namespace or not self.has_all_keys(node, state.constraints):
            return
        for place, constraint in enumerate(state.constraints):
            if not matches(constraint.selector, updated.labels) or not self.included(pod, node, constraint):
                continue
            value = node.labels[constraint.key]
            counts = state.counts[place]
            counts[value] = counts.get(value, 0) + delta
            state.critical[place].update(value, counts[value])

    def filter(self, state: PreFilterState, pod: PodInfo, node: NodeObject) -> Verdict:
        for place, constraint in enumerate(state.constraints):
            if constraint.key not in node.labels:
                return NO_LABEL
            counts = state.counts[place]
            fewest = state.critical[place].paths[0][1]
            if len(counts) < constraint.min_domains:
                fewest = 0
            itself = 1 if matches(constraint.selector, pod.labels) else 0
            if counts.get(node.labels[constraint.key], 0) + itself - fewest > constraint.max_skew:
                return NOT_MATCHING
        return PASSES

    # Score.

    def pre_score(self, pod: PodInfo, feasible: list[NodeObject]) -> PreScoreState | None:
        """None is Skip."""
        if not self.nodes:
            return None
        needs_all = bool(pod.pod.spec.topology_spread_constraints) or not self.system_defaulted
        state = PreScoreState(self.constraints(pod, "ScheduleAnyway"))
        if not state.constraints:
            return None
        state.counts = [{} for _ in state.constraints]
        self.init_pre_score_state(state, feasible, needs_all)
        for node in self.nodes:
            if needs_all and not self.has_all_keys(node, state.constraints):
                continue
            for place, constraint in enumerate(state.constraints):
                value = node.labels.get(constraint.key, "")
                if self.included(pod, node, constraint) and value in state.counts[place]:
                    state.counts[place][value] += self.count(node, constraint.selector, pod.namespace)
        return state

    def init_pre_score_state(self, state: PreScoreState, feasible: list[NodeObject], needs_all: bool) -> None:
        for node in feasible:
            if needs_all and not self.has_all_keys(node, state.constraints):
                state.ignored.add(node.name)
                continue
            for place, constraint in enumerate(state.constraints):
                if constraint.key != HOST:
                    state.counts[place].setdefault(node.labels.get(constraint.key, ""), 0)
        for place, constraint in enumerate(state.constraints):
            size = len(state.counts[place])
            if constraint.key == HOST:
                size = len(feasible) - len(state.ignored)
            state.weights.append(math.log(size + 2))

    def score(self, state: PreScoreState, pod: PodInfo, node: NodeObject) -> int:
        if node.name in state.ignored:
            return 0
        score = 0.0
        for place, constraint in enumerate(state.constraints):
            if constraint.key not in node.labels:
                continue
            if constraint.key == HOST:
                count = self.count(node, constraint.selector, pod.namespace)
            else:
                count = state.counts[place][node.labels[constraint.key]]
            score += float(count) * state.weights[place] + float(constraint.max_skew - 1)
        whole = math.trunc(score)
        return whole + int(math.copysign(1, score)) if abs(score - whole) >= 0.5 else whole

    def normalize(self, state: PreScoreState, scores: dict[str, int]) -> dict[str, int]:
        lowest, highest = 2**63 - 1, 0
        scores = {name: -1 if name in state.ignored else score for name, score in scores.items()}
        for name, score in scores.items():
            if name not in state.ignored:
                lowest, highest = min(lowest, score), max(highest, score)
        normalized = {}
        for name, score in scores.items():
            if score == -1:
                normalized[name] = 0
            elif highest == 0:
                normalized[name] = 100
            else:
                normalized[name] = divide(100 * (highest + lowest - score), highest)
        return normalized
