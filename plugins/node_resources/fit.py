"""Rejects nodes without enough free capacity for the pod's requests, and scores the others by a strategy.

Source:
    kube-scheduler v1.36, plugins/noderesources/fit.go; v1.37 (2fa5a2ed) for pods whose resize is deferred.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from plugins.dynamic_resources.devices import DEVICE_CLASSES, NEEDS, ClassTotals, Devices
from plugins.insufficient import INSUFFICIENT, INSUFFICIENT_CODES, insufficient
from plugins.node_resources.allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    RequestedToCapacityRatio,
    ScoringStrategy,
    Usage,
    least_allocated,
    least_allocated_on,
    may_be_of_devices,
    mean_score,
    mean_score_on,
    most_allocated,
    most_allocated_on,
    strategy_faults,
    usages,
    usages_on,
)
from scheduler.errors import FieldError
from scheduler.framework import (
    PASS,
    SUCCESS,
    ActionType,
    Change,
    ClusterEvent,
    ClusterObjects,
    Code,
    CycleState,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    NodesExplanation,
    Outcome,
    Outcomes,
    PlacementScorePlugin,
    PluginArgs,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    Reason,
    Remedy,
    ScorePlugin,
    Status,
    TimeSlice,
)
from scheduler.objects.label_index import some_of
from scheduler.objects.quantity import readable_amounts
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_extended_resource_name
from scheduler.objects.selectors import is_label_key
from scheduler.snapshot import wrapped

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from scheduler.framework import Features, Placement, PodGroup
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, NodeInfo, Rows, Snapshot

TOO_MANY_PODS = Reason("Too many pods", "TooManyPods")

_FIRST_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
_DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
_PRE_FILTER = "PreFilterNodeResourcesFit"
_PRE_SCORE = "PreScoreNodeResourcesFit"


def _packing_up_to(percent: int) -> dict[str, Any]:
    """Return the strategy whose score rises up to a utilization, and then falls to half."""
    shape = ((0, 0), (percent, 10), (100, 5))
    points = [{"utilization": utilization, "score": score} for utilization, score in shape]
    return {"type": REQUESTED_TO_CAPACITY_RATIO, "requestedToCapacityRatio": {"shape": points}}


_TUNE = ({"type": LEAST_ALLOCATED}, {"type": MOST_ALLOCATED}, _packing_up_to(60), _packing_up_to(80))
"""The strategies that `custom-scheduler tune` tries."""


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """Arguments of NodeResourcesFit.

    Attributes:
        ignored_resources: extended resources that Filter ignores.
        ignored_resource_groups: domains whose resources Filter ignores, as in `example.com`.
        scoring_strategy: how Score ranks nodes.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateNodeResourcesFitArgs.
    """

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: Annotated[ScoringStrategy, msgspec.Meta(extra={"tune": _TUNE})] = ScoringStrategy(
        type=LEAST_ALLOCATED
    )

    def faults(self) -> Iterator[FieldError]:
        for index, name in enumerate(self.ignored_resources):
            if not is_label_key(name):
                yield FieldError(f"ignoredResources[{index}]", f"must be a resource's name, was {name!r}")
        for index, group in enumerate(self.ignored_resource_groups):
            if "/" in group or not is_label_key(group):
                problem = f"must be the part of a resource's name before the slash, was {group!r}"
                yield FieldError(f"ignoredResourceGroups[{index}]", problem)
        yield from strategy_faults(self.scoring_strategy)


class NodeResourcesFit(FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin, PlacementScorePlugin):
    """Compares a pod's requests with the free capacity of nodes."""

    name = "NodeResourcesFit"
    api_version = 1
    reason_codes = MappingProxyType(
        {TOO_MANY_PODS.code: "the node has its maximum number of pods", **INSUFFICIENT_CODES}
    )
    checks_free_capacity = True
    evaluates_resizes = True
    Args = NodeResourcesFitArgs
    needs = Needs(kinds=frozenset({DEVICE_CLASSES}))

    def __init__(
        self,
        *,
        args: NodeResourcesFitArgs,
        objects: ClusterObjects,
        time_slice: TimeSlice,
        features: Features,
    ) -> None:
        strategy = args.scoring_strategy
        self._has_devices = features.enabled("DRAExtendedResource")
        self._devices = ClassTotals(Devices.of(objects), time_slice, is_on=self._has_devices)
        self._counts_resizes = features.enabled("InPlacePodVerticalScalingSchedulerPreemption")
        self._scores_devices = may_be_of_devices(strategy.resources)
        if self._scores_devices:
            self.needs = NEEDS  # type: ignore[misc]  # per instance
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._resources = strategy.resources
        is_packing = strategy.type == MOST_ALLOCATED
        self._score_all = most_allocated if is_packing else least_allocated
        self._score_one = most_allocated_on if is_packing else least_allocated_on
        ratio = strategy.requested_to_capacity_ratio
        self._ratio = ratio and RequestedToCapacityRatio(
            [(point.utilization, point.score) for point in ratio.shape]
        )

    def signature(self, pod: PodInfo) -> Hashable | None:
        if pod.node_name and pod.has_deferred_resize:
            return None  # its own amounts on the node count
        backed = self._devices.wanted_by(pod)
        if backed and self._scores_devices:
            # A device may be available on many nodes, and become allocated on all of them at once.
            return None
        return tuple(pod.resources.requests.items()), self._score_requests(pod), backed

    def events(self) -> Sequence[EventWithHint]:
        pod = ClusterEvent(EventResource.POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE)
        key = _amounts_and_node if self._counts_resizes else _amounts
        events = [
            EventWithHint(pod, self._after_pod_event, key),
            EventWithHint(node, self._after_node_change, key),
        ]
        if self._has_devices:
            device_class = ClusterEvent(EventResource.DEVICE_CLASS, ActionType.ADD | ActionType.UPDATE)
            events.append(EventWithHint(device_class, self._after_device_class_event, key))
        if self._counts_resizes:
            scale_up = ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_SCALE_UP)
            events.append(EventWithHint(scale_up, _after_scale_up, _node_of))
        return events

    def _after_pod_event(self, pod: PodInfo, old: PodInfo, new: PodInfo | None) -> QueueingHint:
        if self._counts_resizes and pod.node_name and _node_of(new or old) != pod.node_name:
            helps = False
        elif new is None:
            helps = bool(old.node_name or old.pod.status.nominated_node_name)
        elif new.uid == pod.uid:
            helps = True
        elif not new.node_name:
            helps = False
        else:
            before, after = old.resources.taken, new.resources.taken
            helps = any(
                amount and max(0, before.get(name, 0)) > max(0, after.get(name, 0))
                for name, amount in pod.resources.taken.items()
            )
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_node_change(self, pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
        requests, backed = pod.resources.requests, self._devices.behind.keys()
        if self._counts_resizes and pod.node_name not in {"", new.name}:
            return QueueingHint.SKIP
        helps = _fits_empty(requests, new.allocatable, backed) and (
            old is None or _more_is_offered(requests, old.allocatable, new.allocatable, backed)
        )
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_device_class_event(
        self, pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> QueueingHint:
        """Requeue a pod that requests the resource that the device class now provides."""
        name = (new.get("spec") or {}).get("extendedResourceName")
        names = {name} if name is not None else set()
        if old is None:
            names.add(_DEVICE_CLASS_PREFIX + new["metadata"]["name"])
        elif ((old.get("spec") or {}).get("extendedResourceName") or "") == (name or ""):
            return QueueingHint.SKIP
        return QueueingHint.SKIP if names.isdisjoint(pod.resources.requests) else QueueingHint.QUEUE

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        requests = pod.resources.requests
        wanted = [(name, requests[name]) for name in _FIRST_RESOURCES if requests.get(name, 0) > 0]
        if len(wanted) < len(requests):
            others = sorted(requests.keys() - _FIRST_RESOURCES)
            wanted += [
                (name, requests[name]) for name in others if requests[name] and not self._ignores(name)
            ]
        state.write(_PRE_FILTER, wanted)
        return None

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        if pod.node_name and pod.has_deferred_resize:
            statuses = [self.filter_node(state, pod, snapshot.node_info(row)) for row in rows.tolist()]
            return Outcomes.from_statuses(
                snapshot.n_nodes, rows, [SUCCESS if each is None else each for each in statuses]
            )
        wanted: list[tuple[str, int]] = state.read(_PRE_FILTER, list)
        full = snapshot.pod_count >= snapshot.allocatable[PODS]
        reasons: list[str] = []
        lacking: list[Bools | None] = []
        if full.any():
            reasons.append(TOO_MANY_PODS)
            lacking.append(full)
        lacks_everywhere = False
        hopeless: Bools | None = None  # preemption frees at most the node's whole capacity
        offered, overdrawn, behind = snapshot.resources, snapshot.overdrawn, self._devices.behind
        for resource, amount in wanted:
            if resource not in offered and resource not in overdrawn:
                if resource not in behind:
                    reasons.append(insufficient(resource))
                    lacking.append(None)
                    lacks_everywhere = True
                continue
            allocatable = snapshot.allocatable[resource]
            short = amount > allocatable - snapshot.requested[resource]
            if resource in behind:
                short &= allocatable > 0  # elsewhere DynamicResources decides
            if short.any():
                reasons.append(insufficient(resource))
                lacking.append(short)
                never = short & (amount > allocatable)
                hopeless = never if hopeless is None else hopeless | never
        if not (lacking and snapshot.n_nodes):
            return Outcomes.all_pass(snapshot.n_nodes)
        if lacks_everywhere or hopeless is None:
            hopeless = np.full(snapshot.n_nodes, lacks_everywhere, dtype=np.bool_)
        return _outcomes(tuple(reasons), lacking, hopeless)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted: list[tuple[str, int]] = state.read(_PRE_FILTER, list)
        if pod.node_name and pod.has_deferred_resize:
            return self._fit_resize(wanted, pod, node)
        offered, taken = node.allocatable, node.requested
        reasons = [TOO_MANY_PODS] if len(node.pods) >= offered.get(PODS, 0) else []
        is_hopeless = False
        for resource, amount in wanted:
            there = offered.get(resource, 0)
            if _is_left_to_devices(resource, offered, self._devices.behind.keys()):
                continue
            if amount > wrapped(there - taken.get(resource, 0)):
                reasons.append(insufficient(resource))
                is_hopeless |= amount > there
        return Status.unschedulable(*reasons, resolvable=not is_hopeless) if reasons else None

    def _fit_resize(self, wanted: Sequence[tuple[str, int]], pod: PodInfo, node: NodeInfo) -> Status | None:
        """Compare what the pod takes more than the node already counts for it with the free amounts.

        The number of pods counts the pod itself twice, as upstream.

        Source:
            kube-scheduler v1.37, plugins/noderesources/fit.go, fitsRequest, adjustDeltasToAccomodateCacheDiscrepancy.
        """
        offered, taken, counted = node.allocatable, node.requested, _counted(pod, node)
        reasons = [TOO_MANY_PODS] if len(node.pods) >= offered.get(PODS, 0) else []
        is_hopeless = False
        for resource, amount in wanted:
            there, more = offered.get(resource, 0), max(0, amount - counted.get(resource, 0))
            is_first = resource in _FIRST_RESOURCES
            if not (more or is_first) or _is_left_to_devices(resource, offered, self._devices.behind.keys()):
                continue
            if more > wrapped(there - taken.get(resource, 0)):
                reasons.append(insufficient(resource))
                is_hopeless |= (amount if is_first else more) > there
        return Status.unschedulable(*reasons, resolvable=not is_hopeless) if reasons else None

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None:
            return None
        state = CycleState()
        self.pre_filter(state, pod, snapshot)
        refusal = self.filter_node(state, pod, node)
        counted = _counted(pod, node) if pod.has_deferred_resize else {}
        details = []
        for reason in () if refusal is None else refusal.reasons:
            resource = reason.removeprefix(INSUFFICIENT)
            if reason == TOO_MANY_PODS:
                details.append(f"has {len(node.pods)} pods, and is for {node.allocatable.get(PODS, 0)}")
            else:
                asked = pod.resources.requests[resource] - counted.get(resource, 0)
                held = _held_for_resizes(node.pods, resource, pod.uid)
                details.append(_shortage(resource, max(0, asked), node) + (f", {held}" if held else ""))
        return details

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        if not rows.size or pod.has_deferred_resize:
            return None
        state = CycleState()
        self.pre_filter(state, pod, snapshot)
        asked: dict[str, int] = {}
        sentences = []
        for resource, amount in state.read(_PRE_FILTER, list):
            free = _free(snapshot, resource, rows)
            if resource not in self._devices.behind and (amount > free).any():
                asked[resource] = amount
                sentences.append(_most_free(resource, amount, free, snapshot, rows))
        full = int(np.count_nonzero((snapshot.pod_count >= snapshot.allocatable[PODS])[rows]))
        if full:
            sentences.append(f"{full} have their maximum number of pods")
        return NodesExplanation(
            "; ".join(sentences), [_smaller_request(pod, asked, snapshot)] if asked else ()
        )

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        state.write(_PRE_SCORE, self._score_requests(pod))
        return None

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        requests = state.find(_PRE_SCORE, tuple) or self._score_requests(pod)
        used = usages(snapshot, self._resources, requests, snapshot.nonzero_requested, self._devices)
        if self._ratio:
            return self._ratio.mean_score(snapshot.n_nodes, used)
        return mean_score(snapshot.n_nodes, used, self._score_all)

    def score_placement(
        self, group: PodGroup, placement: Placement, assigned: Sequence[PodInfo], snapshot: Snapshot
    ) -> int:
        """Prefer the placement with the higher utilization, whatever the strategy for nodes; devices are ignored, as upstream.

        Source:
            kube-scheduler v1.36, plugins/noderesources/resource_allocation.go, scorePlacement.
        """
        requests = [sum(each) for each in zip(*map(self._score_requests, assigned), strict=True)]
        used = usages(snapshot, self._resources, requests, snapshot.nonzero_requested)
        asked = {spec.name: amount for spec, amount in zip(self._resources, requests, strict=True)}
        sums = []
        for each in used:
            offers = each.allocatable[placement.rows] > 0
            allocatable = each.allocatable[placement.rows].sum(keepdims=True)
            allocated = (each.allocated[placement.rows] * offers).sum(keepdims=True)
            sums.append(Usage(each.name, each.weight, allocatable, allocated, allocated + asked[each.name]))
        return int(mean_score(1, sums, most_allocated)[0])

    def foresee(
        self, group: PodGroup, placement: Placement, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> int | None:
        return self.score_placement(group, placement, members, snapshot)

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        requests = state.find(_PRE_SCORE, tuple) or self._score_requests(pod)
        used = usages_on(node, self._resources, requests, nonzero=True)
        return self._ratio.mean_score_on(used) if self._ratio else mean_score_on(used, self._score_one)

    def _score_requests(self, pod: PodInfo) -> tuple[int, ...]:
        fit_score = pod.resources.fit_score
        return tuple([fit_score.get(resource.name, 0) for resource in self._resources])

    def _ignores(self, resource: str) -> bool:
        return (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        ) and is_extended_resource_name(resource)


def _outcomes(reasons: tuple[str, ...], lacking: Sequence[Bools | None], hopeless: Bools) -> Outcomes:
    """Return each node's reasons, in order, with the most severe of their codes.

    Args:
        reasons: why nodes are rejected.
        lacking: for each reason where it holds, bool (n_nodes,); None is everywhere.
        hopeless: bool (n_nodes,), where preemption cannot help.
    """
    differing = [short for short in lacking if short is not None]
    if len(reasons) == len(differing) <= _FEW_REASONS:
        index = hopeless.astype(np.uint16) * _hopeless_from(len(reasons))
        for bit, short in enumerate(differing):
            index += short.astype(np.uint16) << bit
        return Outcomes(index, _all_combinations(reasons))
    # With very many reasons, build only the combinations that occur.
    kinds, places = np.unique(np.stack([hopeless, *differing]), axis=1, return_inverse=True)
    outcomes = []
    for is_hopeless, *lacks in kinds.T.tolist():
        there = iter(lacks)
        outcomes.append(_outcome(reasons, [short is None or next(there) for short in lacking], is_hopeless))
    numbers = {PASS: 0}
    for outcome in outcomes:
        numbers.setdefault(outcome, len(numbers))
    number_of_kind = np.array([numbers[outcome] for outcome in outcomes], dtype=np.uint16)
    return Outcomes(number_of_kind[places.reshape(-1)], tuple(numbers))


_FEW_REASONS = 4


def _hopeless_from(n_reasons: int) -> np.uint16:
    """Return the offset of the index of an unresolvable combination; a pass is never unresolvable."""
    return np.uint16((1 << n_reasons) - 1)


@lru_cache(maxsize=256)
def _all_combinations(reasons: tuple[str, ...]) -> tuple[Outcome, ...]:
    """Return all possible outcomes: bit i of the index is reason i; unresolvable outcomes follow the others."""
    combinations = [
        [bool(number >> bit & 1) for bit in range(len(reasons))] for number in range(1 << len(reasons))
    ]
    return tuple(
        [_outcome(reasons, lacking, False) for lacking in combinations]
        + [_outcome(reasons, lacking, True) for lacking in combinations[1:]]
    )


def _outcome(reasons: Sequence[str], lacking: Sequence[bool], hopeless: bool) -> Outcome:
    given = tuple(reason for reason, lacks in zip(reasons, lacking, strict=True) if lacks)
    if not given:
        return PASS
    return Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE, given)


def _shortage(resource: str, asked: int, node: NodeInfo) -> str:
    """Return the message with the requested amount of a resource and what a node has."""
    there = node.allocatable.get(resource, 0)
    if not there:
        return f"needs {readable_amounts(resource, asked)[0]} {resource}, of which this node has none"
    free = wrapped(there - node.requested.get(resource, 0))
    needs, left, whole = readable_amounts(resource, asked, free, there)
    return f"needs {needs} {resource}, {left} free of {whole}"


def _held_for_resizes(pods: Iterable[PodInfo], resource: str, but: str) -> str:
    """Return how much of a node's resource pods hold for deferred resizes, without the pod with the uid `but`; "" for none."""
    held = {
        pod.key: amount for pod in pods if pod.uid != but and (amount := pod.held_for_resize.get(resource, 0))
    }
    if not held:
        return ""
    [total] = readable_amounts(resource, sum(held.values()))
    return f"{total} held for the deferred resizes of {some_of(sorted(held))}"


def _free(snapshot: Snapshot, resource: str, rows: Rows) -> Int64s:
    """Return the free amounts of a resource on some rows."""
    free: Int64s = snapshot.allocatable[resource][rows] - snapshot.requested[resource][rows]
    return free


def _most_free(resource: str, asked: int, free: Int64s, snapshot: Snapshot, rows: Rows) -> str:
    """Return the requested amount, and the largest free amount of all nodes."""
    best = int(free.argmax())
    row = int(rows[best])
    there = int(snapshot.allocatable[resource][row])
    if not snapshot.allocatable[resource][rows].any():
        return f"{readable_amounts(resource, asked)[0]} {resource} requested, of which these nodes have none"
    needs, left, whole = readable_amounts(resource, asked, int(free[best]), there)
    return f"{needs} {resource} requested, at most {left} of {whole} free ({snapshot.name_of(row)})"


def _smaller_request(pod: PodInfo, asked: Mapping[str, int], snapshot: Snapshot) -> Remedy:
    """Return the remedy that the pod requests less of some resources: on the node where it has to save the least."""
    others = {name: amount for name, amount in pod.resources.requests.items() if name not in asked}
    relaxed = pod.with_requests(others)

    def change(rows: Rows) -> Change | None:
        lacking = np.zeros(len(rows), dtype=np.float64)
        for resource, amount in asked.items():
            free = _free(snapshot, resource, rows)
            lacking += np.where(free > 0, np.maximum(amount - free, 0) / amount, np.inf)
        best = int(lacking.argmin())
        if not np.isfinite(lacking[best]):
            return None
        row = int(rows[best])
        requests, clauses = dict(pod.resources.requests), []
        for resource, amount in asked.items():
            left = int(_free(snapshot, resource, rows)[best])
            if left < amount:
                requests[resource] = left
                less, now = readable_amounts(resource, left, amount)
                clauses.append(f"its {resource} request were {less} or less (now {now})")
        if not clauses:
            return None
        return Change(row, " and ".join(clauses), pod.with_requests(requests))

    return Remedy(relaxed, change)


def _counted(pod: PodInfo, node: NodeInfo) -> Mapping[str, int]:
    """Return the amounts that a node counts for a pod that is on it."""
    there = (each.resources.taken for each in node.pods if each.uid == pod.uid)
    return next(there, {})


def _after_scale_up(pod: PodInfo, _old: PodInfo, new: PodInfo) -> QueueingHint:
    """Requeue a pod that waits for its resize if a pod on its node takes more: what was free before may be taken.

    Source:
        Pull request #140000 for kube-scheduler v1.37, plugins/noderesources/fit.go, isSchedulableAfterTargetPodScaleUp.
    """
    helps = bool(pod.node_name) and new.node_name == pod.node_name
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _node_of(pod: PodInfo) -> str:
    return pod.node_name or pod.pod.status.nominated_node_name


def _amounts_and_node(pod: PodInfo) -> Hashable:
    return _amounts(pod), pod.node_name


def _amounts(pod: PodInfo) -> Hashable:
    """Return all fields of a waiting pod that the hints read."""
    return tuple(pod.resources.requests.items()), tuple(pod.resources.taken.items())


def _fits_empty(
    requests: Mapping[str, int], allocatable: Mapping[str, int], backed: AbstractSet[str]
) -> bool:
    """Return whether the pod would fit on the empty node; ignored resources count here, as upstream."""
    return allocatable.get(PODS, 0) >= 1 and all(
        amount <= allocatable.get(name, 0) or _is_left_to_devices(name, allocatable, backed)
        for name, amount in requests.items()
        if amount
    )


def _more_is_offered(
    requests: Mapping[str, int], old: Mapping[str, int], new: Mapping[str, int], backed: AbstractSet[str]
) -> bool:
    return new.get(PODS, 0) > old.get(PODS, 0) or any(
        new.get(name, 0) > old.get(name, 0) or _is_left_to_devices(name, new, backed)
        for name, amount in requests.items()
        if amount
    )


def _is_left_to_devices(name: str, allocatable: Mapping[str, int], backed: AbstractSet[str]) -> bool:
    """Return whether only a device class provides a resource on a node, so that DynamicResources decides."""
    return allocatable.get(name, 0) <= 0 and name in backed
