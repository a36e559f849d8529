"""NodeResourceTopologyMatch: rejects nodes where no NUMA zone holds a container of the pod, and scores the others.

The kubelet would reject the pod on such a node (TopologyAffinityError). It selects the zone itself.

Source:
    scheduler-plugins, pkg/noderesourcetopology.
"""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np

from plugins.node_resource_topology.alignment import ALIGNED, unaligned
from plugins.node_resource_topology.requests import (
    UNALIGNED_CONTAINER,
    UNALIGNED_INIT_CONTAINER,
    UNALIGNED_POD,
    UNALIGNED_SIDECAR,
    ZoneRequest,
    is_concerned,
    is_of_every_node,
    zone_request,
)
from plugins.node_resource_topology.reservations import (
    CacheArgs,
    NoReservations,
    ReservedNodes,
    SubtractedRequests,
)
from plugins.node_resource_topology.topologies import Topologies
from plugins.node_resource_topology.topology_objects import NODE_TOPOLOGIES
from plugins.node_resource_topology.zone_scores import LEAST_ALLOCATED, ZoneScores
from plugins.node_resource_topology.zone_table import SlotResults
from plugins.node_resources.allocation import DEFAULT_RESOURCES, ResourceSpec
from plugins.work_in_steps import PluginWork
from scheduler.errors import FieldError
from scheduler.framework import (
    PASS,
    SKIP,
    ActionType,
    ClusterEvent,
    ClusterObjects,
    Code,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Needs,
    Outcome,
    Outcomes,
    PluginArgs,
    PluginMetrics,
    PodActivator,
    PostBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueingHint,
    Reason,
    ReservePlugin,
    ScorePlugin,
    Sleep,
    TimeSlice,
    no_pod_key,
)
from scheduler.loop_work import run_to_end
from scheduler.objects.caches import BoundedDict
from scheduler.objects.quantity import readable_amounts

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence

    from plugins.node_resource_topology.reservations import Reservations
    from scheduler.framework import CycleState, Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

logger = logging.getLogger(__name__)

STALE: Final = Reason("invalid node topology data", "StaleNodeTopology")
EXCEEDING: Final = Reason(
    "eviction simulation in NRT is not possible: resource release request exceeds NUMA allocatable",
    "InvalidNumaPlacement",
)

_OUTCOMES: Final = (
    PASS,
    *(
        Outcome(Code.UNSCHEDULABLE, (reason,))
        for reason in (
            UNALIGNED_POD,
            UNALIGNED_CONTAINER,
            UNALIGNED_INIT_CONTAINER,
            UNALIGNED_SIDECAR,
            STALE,
            EXCEEDING,
        )
    ),
)
_INDEX: Final = {outcome.reasons[0]: place for place, outcome in enumerate(_OUTCOMES) if outcome.reasons}
_REQUEST: Final = "NodeResourceTopologyMatch"
_EVICTED: Final = "NodeResourceTopologyMatch/evicted"
_MOST_REQUESTS: Final = 128
"""Maximum number of different requests whose results are kept; the one that was not used for longest is dropped."""
_MOST_WAITING: Final = 1024
_MOST_ZONES_SHOWN: Final = 8
_NOTHING: Final = ""


class ScoringStrategy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How nodes are scored, and the weights of resources; 1 for resources without one."""

    type: Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"] = LEAST_ALLOCATED
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES


class NodeResourceTopologyMatchArgs(PluginArgs, frozen=True):
    """Arguments of NodeResourceTopologyMatch, as those of scheduler-plugins.

    Attributes:
        scoring_strategy: how nodes are scored.
        cache_resync_period_seconds: 0 uses the newest objects as they are. A larger number subtracts what placed pods
            request until a newer object includes them; the objects are compared after this time, and when they change.
        discard_reserved_nodes: leave a node out as long as a pod that was placed there is not bound; takes precedence over
            `cache_resync_period_seconds`.
        cache: how newer objects replace subtracted amounts.
        preemption_mode: whether pods that preemption would evict free what they have of a zone: only if the objects have the
            zones of containers, and with `cache_resync_period_seconds`.
    """

    scoring_strategy: ScoringStrategy = ScoringStrategy()
    cache_resync_period_seconds: int = 0
    discard_reserved_nodes: bool = False
    cache: CacheArgs = CacheArgs()
    preemption_mode: Literal["Disabled", "Enabled"] = "Disabled"

    def faults(self) -> Iterator[FieldError]:
        period = self.cache_resync_period_seconds
        if not 0 <= period <= 3600:
            yield FieldError("cacheResyncPeriodSeconds", f"must be 0 to 3600, was {period}")
        for index, resource in enumerate(self.scoring_strategy.resources):
            path = f"scoringStrategy.resources[{index}]"
            if not 0 < resource.weight <= 100:
                yield FieldError(f"{path}.weight", f"must be 1 to 100, was {resource.weight}")
            if any(resource.name == other.name for other in self.scoring_strategy.resources[:index]):
                yield FieldError(f"{path}.name", f"{resource.name!r} was named before")


class EvictedPods:
    """The pods that preemption has removed from nodes for a trial: row -> their uids."""

    def __init__(self, by_row: Mapping[int, frozenset[str]] = MappingProxyType({})) -> None:
        self.by_row = dict(by_row)

    def clone(self) -> EvictedPods:
        return EvictedPods(self.by_row)

    def change(self, pods: Iterable[tuple[int, PodInfo]], *, are_removed: bool) -> None:
        """Record removed pods, or those that were removed and are added again; other added pods do not matter."""
        for row, pod in pods:
            evicted = self.by_row.get(row, frozenset())
            self.by_row[row] = evicted | {pod.uid} if are_removed else evicted - {pod.uid}


class NodeResourceTopologyMatch(
    PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PostBindPlugin
):
    """Aligns containers, or pods, with the NUMA zones of nodes.

    The results of pods with equal requests are kept for each node until its zones change. So the plugin has no signature
    for these pods: a signature would drop the results of all nodes with each change of one object.
    """

    name = "NodeResourceTopologyMatch"
    api_version = 1
    Args = NodeResourceTopologyMatchArgs
    keeps_rows_apart = True
    needs = Needs(kinds=frozenset({NODE_TOPOLOGIES}))
    reason_codes = MappingProxyType(
        {
            UNALIGNED_POD.code: "no NUMA zone of the node holds the pod",
            UNALIGNED_CONTAINER.code: "no NUMA zone of the node holds a container of the pod",
            UNALIGNED_INIT_CONTAINER.code: "no NUMA zone of the node holds an init container of the pod",
            UNALIGNED_SIDECAR.code: "no NUMA zone of the node holds a sidecar of the pod",
            STALE.code: "the NodeResourceTopology of the node does not include all of its pods yet",
            EXCEEDING.code: "the evicted pods would free more of a NUMA zone than is allocatable there",
        }
    )

    def __init__(
        self,
        *,
        args: NodeResourceTopologyMatchArgs,
        objects: ClusterObjects,
        time_slice: TimeSlice,
        sleep: Sleep,
        activator: PodActivator,
        metrics: PluginMetrics,
    ) -> None:
        self._objects = objects
        self._sleep, self._activator = sleep, activator
        self._work = PluginWork(time_slice)
        self._topologies = Topologies.of(objects)
        self._reservations = self._chosen(args)
        self._simulates_evictions = args.preemption_mode == "Enabled"
        strategy = args.scoring_strategy
        weights = {resource.name: resource.weight for resource in strategy.resources}
        self._strategy = ZoneScores(strategy.type, weights)
        self._aligned: BoundedDict[ZoneRequest, SlotResults] = BoundedDict(_MOST_REQUESTS)
        self._scores: BoundedDict[ZoneRequest, SlotResults] = BoundedDict(_MOST_REQUESTS)
        # Uids of pods that stale nodes rejected.
        self._waiting: BoundedDict[str, None] = BoundedDict(_MOST_WAITING)
        self._numbers = metrics.gauge(
            "custom_scheduler_node_topologies",
            "NodeResourceTopologies by state: read, invalid in part or as a whole, and stale.",
            "state",
        )

    def _chosen(self, args: NodeResourceTopologyMatchArgs) -> Reservations:
        is_cached = args.cache_resync_period_seconds and not args.discard_reserved_nodes
        if args.preemption_mode == "Enabled" and not is_cached:
            logger.warning(
                "preemptionMode of NodeResourceTopologyMatch has no effect without cacheResyncPeriodSeconds"
            )
        if args.discard_reserved_nodes:
            self.refresh_seconds = 1.0
            return ReservedNodes.of(self._objects)
        if not args.cache_resync_period_seconds:
            self.refresh_seconds = 1.0
            return NoReservations(self._topologies)
        self.refresh_seconds = float(args.cache_resync_period_seconds)
        found = SubtractedRequests.of(self._objects)
        found.configure(args.cache, reads_placements=args.preemption_mode == "Enabled")
        return found

    def signature(self, pod: PodInfo) -> Hashable:
        return None if is_concerned(pod) else _NOTHING

    def events(self) -> Sequence[EventWithHint]:
        deleted = ClusterEvent(EventResource.POD, ActionType.DELETE)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE)
        topology = ClusterEvent(EventResource.of(NODE_TOPOLOGIES), ActionType.ALL)
        return (
            EventWithHint(deleted),
            EventWithHint(node),
            EventWithHint(topology, _after_topology_change, no_pod_key),
        )

    async def refresh(self) -> None:
        """Read the objects that have changed, and compare them with the pods of their nodes."""
        for _ in self._topologies.reading(self._objects.objects(NODE_TOPOLOGIES)):
            await self._sleep.sleep(0.0)
        for _ in self._reservations.follow():
            await self._sleep.sleep(0.0)
        steps = self._reservations.compare()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                may_have_more = bool(end.value)
                break
            await self._sleep.sleep(0.0)
        if may_have_more and self._waiting:
            waiting = list(self._waiting)
            self._waiting.clear()
            self._activator.activate(waiting)
        self._numbers.replace(
            {
                ("read",): len(self._topologies.newest),
                ("invalid",): self._topologies.n_invalid,
                ("stale",): self._topologies.n_stale,
            }
        )

    def saved_state(self) -> Any:
        return {"reservations": self._reservations.saved(), "waiting": list(self._waiting)}

    def resume_state(self, saved: Any) -> None:
        run_to_end(self._topologies.reading(self._objects.objects(NODE_TOPOLOGIES)))
        self._reservations.resume(saved["reservations"])
        self._waiting.update(dict.fromkeys(saved["waiting"]))

    # Filter.

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        if not is_concerned(pod):
            return SKIP
        objects = snapshot.objects(NODE_TOPOLOGIES)
        self._topologies.be_read_for(pod.uid, objects)
        self._work.begin()
        self._work.done(self._reservations.follow())
        if not len(self._reservations.table):
            return SKIP
        state.write(_REQUEST, zone_request(pod))
        if self._simulates_evictions:
            state.write(_EVICTED, EvictedPods(), by_row=True)
        return None

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        if self._simulates_evictions:
            state.mutable(_EVICTED, EvictedPods).change(added, are_removed=False)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        if self._simulates_evictions:
            state.mutable(_EVICTED, EvictedPods).change(removed, are_removed=True)

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        request = state.read(_REQUEST, ZoneRequest)
        table = self._reservations.table
        slots = table.slots_of(snapshot, rows)
        index = np.zeros(snapshot.n_nodes, dtype=np.uint16)
        if snapshot.node_changes is None and snapshot.taken is None:
            index[self._new_nodes(snapshot, rows[slots < 0])] = _INDEX[STALE]
        known = np.flatnonzero(slots >= 0)
        rows, slots = rows[known], slots[known]
        if not rows.size:
            return Outcomes(index, _OUTCOMES)
        places = self._places(request, slots)
        exceeding = self._evict(state, request, snapshot, rows, slots, places)
        rejected = np.flatnonzero(places != ALIGNED)
        if rejected.size:
            of_containers = np.array([_INDEX[each.reason] for each in request.containers] or [0])
            index[rows[rejected]] = np.where(
                table.by_container[slots[rejected]],
                of_containers[np.minimum(places[rejected], len(of_containers) - 1)],
                _INDEX[UNALIGNED_POD],
            )
        index[exceeding] = _INDEX[EXCEEDING]
        self._reject_without_resource(index, request, snapshot, rows, slots)
        stale = table.is_stale[slots]
        if stale.any():
            index[rows[stale]] = _INDEX[STALE]
            self._waiting[pod.uid] = None
        return Outcomes(index, _OUTCOMES)

    def _new_nodes(self, snapshot: Snapshot, rows: Rows) -> list[int]:
        """Return the rows of nodes that an explanation adds to the cluster: their zones are not known."""
        cluster = self._objects.snapshot()
        return [row for row in rows.tolist() if cluster.row_of(snapshot.name_of(row)) is None]

    def _places(self, request: ZoneRequest, slots: Int64s) -> Int64s:
        """Return int64 (len(slots),), the place of the first container that no zone holds; evaluate only changed nodes."""
        table = self._reservations.table
        results = self._aligned.get(request)
        if results is None:
            results = self._aligned[request] = SlotResults()
        else:
            self._aligned.move_to_end(request)
        unknown = results.unknown(table, slots)
        if unknown.size:
            self._keep(results, unknown, request, unaligned(table, unknown, request))
        return results.of(slots)

    def _evict(
        self,
        state: CycleState,
        request: ZoneRequest,
        snapshot: Snapshot,
        rows: Rows,
        slots: Int64s,
        places: Int64s,
    ) -> list[int]:
        """Evaluate nodes without evicted pods again: write the results into `places`, and return the rows with invalid data.

        Source:
            scheduler-plugins, pkg/noderesourcetopology/filter.go, Filter, and preemption/preemption.go.
        """
        pods = state.find(_EVICTED, EvictedPods)
        if pods is None or not pods.by_row:
            return []
        evicted = pods.by_row
        table, exceeding, known = self._reservations.table, [], []
        free: list[Mapping[tuple[int, str], int]] = []
        for position in np.flatnonzero(np.isin(rows, list(evicted))).tolist():
            row = int(rows[position])
            freed = self._reservations.freed(snapshot.name_of(row), evicted[row])
            if freed is None:
                exceeding.append(row)
            elif freed:
                known.append(position)
                free.append(freed)
        if known:
            more: dict[str, Int64s] = {}
            for number, freed in enumerate(free):
                for (place, name), amount in freed.items():
                    if name not in more:
                        more[name] = np.zeros((len(free), table.width), dtype=np.int64)
                    more[name][number, place] = amount
            places[known] = run_to_end(unaligned(table, slots[known], request, more))
        return exceeding

    def _reject_without_resource(
        self, index: np.ndarray[Any, Any], request: ZoneRequest, snapshot: Snapshot, rows: Rows, slots: Int64s
    ) -> None:
        """Reject nodes that lack a requested resource: devices need not be in a zone, but on the node."""
        table = self._reservations.table
        names = dict.fromkeys(
            name for name, amount in request.every_amount() if amount and not is_of_every_node(name)
        )
        for name in names:
            lacking = (snapshot.allocatable[name][rows] <= 0) & table.aligns[slots] & (index[rows] == 0)
            if lacking.any():
                first = next((each for each in request.containers if (dict(each.amounts)).get(name)), None)
                of_container = _INDEX[UNALIGNED_CONTAINER if first is None else first.reason]
                by_container = table.by_container[slots[lacking]]
                index[rows[lacking]] = np.where(by_container, of_container, _INDEX[UNALIGNED_POD])

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        """Return what the zones of a node have of the resources that the first container without a zone requests."""
        if node is None or not is_concerned(pod):
            return None
        table = self._reservations.table
        slot = table.slot_of(node.name)
        if slot is None:
            return []
        if table.is_stale[slot]:
            return [self._reservations.why_stale(node.name, snapshot)]
        request = zone_request(pod)
        slots = np.array([slot], dtype=np.int64)
        place = int(run_to_end(unaligned(table, slots, request))[0])
        details = [] if place == ALIGNED else [self._shortage(pod, request, slot, place)]
        problems = self._topologies.problems_of(node.name)
        return details + [f"the NodeResourceTopology is invalid: {problem}" for problem in problems]

    def _shortage(self, pod: PodInfo, request: ZoneRequest, slot: int, place: int) -> str:
        """Return which container no zone holds, and what is free in each zone before any container of the pod."""
        table, spec = self._reservations.table, pod.pod.spec
        if table.by_container[slot]:
            container = (*spec.init_containers, *spec.containers)[place]
            who, amounts = f"container {container.name}", request.containers[place].amounts
        else:
            who, amounts = "the pod", request.whole
        wanted = [(name, amount) for name, amount in amounts if amount]
        zones = table.topology_at(slot).zones
        shown = []
        for number, zone in enumerate(zones[:_MOST_ZONES_SHOWN]):
            free = []
            for name, _ in wanted:
                column = table.amounts(name)
                there = -1 if column is None else int(column[slot, number])
                free.append(f"{readable_amounts(name, there)[0]} {name}" if there >= 0 else f"no {name}")
            shown.append(f"{zone.name} has {', '.join(free)}")
        asked = ", ".join(f"{readable_amounts(name, amount)[0]} {name}" for name, amount in wanted)
        more = f"; and {len(zones) - _MOST_ZONES_SHOWN} more" if len(zones) > _MOST_ZONES_SHOWN else ""
        return f"{who} requests {asked} of one NUMA zone; {'; '.join(shown) or 'the node has no zones'}{more}"

    def _keep(
        self,
        results: SlotResults,
        slots: Int64s,
        request: ZoneRequest,
        steps: Generator[None, None, Int64s],
    ) -> None:
        """Evaluate slots within the time slice, and keep the results.

        Raises:
            NeedsTime: the time slice ends before.
        """
        table = self._reservations.table
        stamps = table.stamps[slots]

        def kept() -> Generator[None, None, None]:
            yield from table.reading(name for name, _ in request.every_amount())
            results.note(slots, stamps, (yield from steps))

        self._work.begin()
        self._work.done(kept())

    # Score.

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        """Skip pods that are not Guaranteed: every node is equally good for them."""
        if _REQUEST not in state:
            return SKIP
        request = state.read(_REQUEST, ZoneRequest)
        return None if request.is_guaranteed else SKIP

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        request = state.read(_REQUEST, ZoneRequest)
        table = self._reservations.table
        scores = np.zeros(snapshot.n_nodes, dtype=np.int64)
        slots = table.slots_of(snapshot, feasible)
        known = np.flatnonzero(slots >= 0)
        slots = slots[known]
        if not slots.size:
            return scores
        results = self._scores.get(request)
        if results is None:
            results = self._scores[request] = SlotResults()
        else:
            self._scores.move_to_end(request)
        unknown = results.unknown(table, slots)
        if unknown.size:
            self._keep(results, unknown, request, self._strategy.scores(table, unknown, request))
        scores[feasible[known]] = np.where(table.is_stale[slots], 0, results.of(slots))
        return scores

    # The chosen node.

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self._waiting.pop(pod.uid, None)
        self._reservations.reserve(pod, node_name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._reservations.unreserve(pod, node_name)

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._reservations.bound(pod, node_name)


def _after_topology_change(
    _pod: PodInfo, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> QueueingHint:
    """Ignore changes of metadata other than annotations."""
    if old is None or new is None:
        return QueueingHint.QUEUE
    is_same = all(old.get(field) == new.get(field) for field in ("zones", "attributes", "topologyPolicies"))
    annotations = [each.get("metadata", {}).get("annotations") for each in (old, new)]
    return QueueingHint.SKIP if is_same and annotations[0] == annotations[1] else QueueingHint.QUEUE
