"""The amounts that pods take of NUMA zones until the NodeResourceTopology of their node shows it.

An agent updates the object some time after a pod started. Until then a second pod would be placed on the same free
amounts. There are three ways to deal with this, as in scheduler-plugins: to ignore it, to leave the node out while a pod is
bound there, or to subtract what each placed pod requests from all zones of its node, because nobody knows from which zone
the kubelet takes it. In the last case a newer object replaces the subtracted amounts when its fingerprint shows that it
includes the pods of the node.

Source:
    scheduler-plugins, pkg/noderesourcetopology/cache: passthrough.go, discardreserved.go, overreserve.go and
    foreign_pods.go.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # msgspec resolves annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from plugins.node_resource_topology.placements import container_hash, zones_of_containers
from plugins.node_resource_topology.pod_fingerprint import fingerprint
from plugins.node_resource_topology.requests import (
    exclusive_requests,
    takes_exclusive_resources,
    whole_request,
)
from plugins.node_resource_topology.topologies import Topologies
from plugins.node_resource_topology.topology_objects import NODE_TOPOLOGIES, NodeTopology
from plugins.node_resource_topology.zone_table import ZoneTable

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable
    from typing import Self

    from scheduler.framework import ClusterObjects
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from scheduler.snapshot.arrays import ChangeLog

_ALL: Final = "All"
_EXCLUSIVE_ONLY: Final = "OnlyExclusiveResources"
_NODES_A_STEP: Final = 8
_MOST_NAMED: Final = 3


Freed = tuple[tuple[int, str, int], ...]
"""(place of the zone in `NodeTopology.zones`, resource, milliCPU, bytes or a count)."""


def freed_by_pod(topology: NodeTopology, pods: Collection[PodInfo]) -> dict[str, Freed]:
    """Return uid -> what the end of a pod frees in the zones of its node; without pods that free nothing there.

    Args:
        topology: the zones.
        pods: the pods that `topology` includes. If they are others, nothing is known: the result is empty.

    Source:
        scheduler-plugins, pkg/noderesourcetopology/preemption/preemption.go, accumulateResourcesToAddPerNUMA.
    """
    placement, of_zones = topology.placement, topology.resources
    if placement is None:
        return {}
    requests = [(pod, *each) for pod in pods for each in exclusive_requests(pod, of_zones)]
    zones = zones_of_containers(
        placement, [container_hash(pod.namespace, pod.name, container) for pod, container, _ in requests]
    )
    places = {zone.number: place for place, zone in enumerate(topology.zones)}
    found: dict[str, Freed] = {}
    for (pod, _, amounts), zone in zip(requests, zones, strict=False):
        if zone in places:
            place = places[zone]
            available = topology.zones[place].available
            freed = tuple((place, name, amount) for name, amount in amounts if name in available)
            found[pod.uid] = found.get(pod.uid, ()) + freed
    return found


def total_of(freed: Iterable[Freed]) -> dict[tuple[int, str], int]:
    """Return (place of the zone, resource) -> the sum."""
    total: dict[tuple[int, str], int] = {}
    for place, name, amount in (entry for each in freed for entry in each):
        total[place, name] = total.get((place, name), 0) + amount
    return total


class CacheArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The rules by which a newer object replaces subtracted amounts.

    Attributes:
        foreign_pods_detect: which pods that the object does not include, and that this scheduler has not placed, make the
            data of a node unusable until an object includes them.
        resync_method: which pods the fingerprint of an object includes; Autodetect reads this from the object.
        resync_scope: whether changed settings of the kubelet replace the data at once.
        informer_mode: without an effect. In scheduler-plugins, Dedicated compares pods that have ended and are not deleted too;
            the kubelets of all supported versions leave them out from what they report to agents.
    """

    foreign_pods_detect: Literal["None", "All", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["Autodetect", "All", "OnlyExclusiveResources"] = "Autodetect"
    resync_scope: Literal["All", "OnlyResources"] = "All"
    informer_mode: Literal["Shared", "Dedicated"] = "Dedicated"


class Reservations(Protocol):
    """The zones of all nodes, with what placed pods take of them."""

    @property
    def table(self) -> ZoneTable:
        """The zones of all nodes."""
        ...

    def follow(self) -> Generator[None, None, None]:
        """Read in steps what has changed in the cluster."""
        ...

    def compare(self) -> Generator[None, None, bool]:
        """Compare nodes with their newest objects, in steps; return whether any node may have more free now."""
        ...

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        """Record a placed pod."""
        ...

    def unreserve(self, pod: PodInfo, node_name: str) -> None:
        """Remove the record of a pod that was not bound."""
        ...

    def bound(self, pod: PodInfo, node_name: str) -> None:
        """Record that a pod was bound."""
        ...

    def freed(self, node_name: str, pods: Collection[str]) -> Mapping[tuple[int, str], int] | None:
        """Return (place of the zone, resource) -> what the end of pods frees, which are given by their uids.

        It is empty if nothing is known of the pods, and None if zones would then have more free than is allocatable.
        """
        ...

    def why_stale(self, node_name: str, snapshot: Snapshot) -> str:
        """Return why the data of a node are not used."""
        ...

    def saved(self) -> Any:
        """Return what does not follow from the cluster while no pod is being bound, as JSON values."""
        ...

    def resume(self, saved: Any) -> None:
        """Continue with what `saved` returned."""
        ...


class _WithoutPlacements:
    """The base of the reservations that do not compare which pods an object includes."""

    def freed(self, node_name: str, pods: Collection[str]) -> Mapping[tuple[int, str], int] | None:
        return {}

    def saved(self) -> Any:
        return None

    def resume(self, saved: Any) -> None: ...


class NoReservations(_WithoutPlacements):
    """Uses the newest objects as they are."""

    def __init__(self, topologies: Topologies) -> None:
        self.table = topologies.table

    def follow(self) -> Generator[None, None, None]:
        yield from ()

    def compare(self) -> Generator[None, None, bool]:
        yield from ()
        return False

    def reserve(self, pod: PodInfo, node_name: str) -> None: ...

    def unreserve(self, pod: PodInfo, node_name: str) -> None: ...

    def bound(self, pod: PodInfo, node_name: str) -> None: ...

    def why_stale(self, node_name: str, snapshot: Snapshot) -> str:
        return ""


@dataclass(eq=False, slots=True)
class _Node:
    """The state of one node.

    Attributes:
        used: the object that is in use.
        compared: the newest object whose fingerprint was compared without success.
        reserved: uid of a placed pod -> what it requests; `used` does not include it.
        included: the uids of pods that `used` includes.
        is_stale: whether there are pods that are neither included nor reserved.
        frees: uid of a pod that `used` includes -> what its end frees; None if that was not read.
        left: the uids in `frees` of pods that are not on the node any more.
    """

    used: NodeTopology
    compared: NodeTopology | None = None
    reserved: dict[str, Mapping[str, int]] = field(default_factory=dict)
    included: set[str] = field(default_factory=set)
    is_stale: bool = False
    frees: Mapping[str, Freed] | None = None
    left: frozenset[str] = frozenset()

    def taken(self) -> dict[str, int]:
        """Return what the reserved pods request together."""
        total: dict[str, int] = {}
        for amounts in self.reserved.values():
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
        return total


class _Following:
    """The base of the reservations that have a table of their own.

    Args:
        cluster: the objects and the current snapshot.
    """

    def __init__(self, cluster: ClusterObjects) -> None:
        self.table = ZoneTable()
        self._cluster = cluster
        self._topologies = Topologies.of(cluster)
        self._changed = self._topologies.follow(self.table)  # names of nodes to examine
        self._nodes: dict[str, _Node] = {}

    @classmethod
    def of(cls, cluster: ClusterObjects) -> Self:
        """Return what all plugins of a scheduler with this way share."""
        return cluster.objects(NODE_TOPOLOGIES).companion(cls, lambda: cls(cluster))


class ReservedNodes(_WithoutPlacements, _Following):
    """Leaves a node out as long as a pod that was placed there is not bound."""

    def follow(self) -> Generator[None, None, None]:
        while self._changed:
            for _ in range(min(len(self._changed), _NODES_A_STEP)):
                name = next(iter(self._changed))
                del self._changed[name]
                newest = self._topologies.newest.get(name)
                if newest is None:
                    self.table.remove(name)
                    continue
                node = self._nodes.get(name)
                self.table.put(name, newest, is_stale=node is not None)
            yield

    def compare(self) -> Generator[None, None, bool]:
        yield from ()
        return False

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        self._topologies.look_at(self._cluster.objects(NODE_TOPOLOGIES))  # no pod was filtered since a change
        newest = self._topologies.newest.get(node_name)
        if newest is not None:
            node = self._nodes.setdefault(node_name, _Node(newest))
            node.reserved[pod.uid] = {}
            self._changed[node_name] = None

    def unreserve(self, pod: PodInfo, node_name: str) -> None:
        node = self._nodes.get(node_name)
        if node is not None and node.reserved.pop(pod.uid, None) is not None:
            if not node.reserved:
                del self._nodes[node_name]
            self._changed[node_name] = None

    def bound(self, pod: PodInfo, node_name: str) -> None:
        self.unreserve(pod, node_name)

    def why_stale(self, node_name: str, snapshot: Snapshot) -> str:
        return "a pod was placed there that is not bound yet"


class SubtractedRequests(_Following):
    """Subtracts what placed pods request from all zones of their nodes.

    The settings of the profile that was configured last count for all profiles.
    """

    def __init__(self, cluster: ClusterObjects) -> None:
        super().__init__(cluster)
        self._args = CacheArgs()
        self._reads_placements = False
        self._log: ChangeLog | None = None
        self._seen = 0

    def configure(self, args: CacheArgs, *, reads_placements: bool) -> None:
        """Set how newer objects are used, and whether the zones of the containers in them are read."""
        if reads_placements and not self._reads_placements:
            self._changed.update(dict.fromkeys(self._nodes))
        self._args, self._reads_placements = args, reads_placements

    # Following the cluster.

    def follow(self) -> Generator[None, None, None]:
        self._note_changes()
        while self._changed:
            for _ in range(min(len(self._changed), _NODES_A_STEP)):
                name = next(iter(self._changed))
                del self._changed[name]
                self._examine(name)
            yield

    def _note_changes(self) -> None:
        """Record the nodes whose pods have changed."""
        snapshot = self._cluster.snapshot()
        log = snapshot.changes
        assert log is not None, "it is the current cluster"
        rows = log.since(self._seen) if log is self._log else None
        self._log, self._seen = log, log.end
        if rows is None:
            self._changed.update(dict.fromkeys(self._topologies.newest))
            return
        for row in rows:
            if row < snapshot.n_nodes:
                name = snapshot.name_of(row)
                if name in self._nodes:
                    self._changed[name] = None

    def compare(self) -> Generator[None, None, bool]:
        """Compare all nodes that wait for a newer object: the phase of a pod may have changed since the last comparison."""
        may_have_more = False
        names = [name for name, node in self._nodes.items() if node.is_stale or node.reserved]
        for place, name in enumerate(names):
            if place % _NODES_A_STEP == 0:
                yield
            may_have_more |= self._examine(name, again=True)
        return may_have_more

    def _examine(self, name: str, *, again: bool = False) -> bool:
        """Follow the object and the pods of a node; return whether it may have more free now.

        Args:
            name: the name of the node.
            again: compare the fingerprint also if the object is not new.
        """
        newest = self._topologies.newest.get(name)
        if newest is None:
            self._nodes.pop(name, None)
            self.table.remove(name)
            return False
        snapshot = self._cluster.snapshot()
        row = snapshot.row_of(name)
        pods = () if row is None else snapshot.pods_on(row)
        uids = {pod.uid for pod in pods}
        node = self._nodes.get(name)
        is_new = node is None
        if node is None:
            node = self._nodes[name] = _Node(newest)
        before = (node.used, len(node.reserved), node.is_stale, node.left)
        for uid in [uid for uid in node.reserved if uid not in uids]:
            del node.reserved[uid]  # the pod is gone
        node.included &= uids
        node.left = frozenset(node.frees or ()) - uids
        node.is_stale = node.is_stale or bool(self._foreign(node, pods))
        self._follow_object(node, newest, pods, again=again)
        after = (node.used, len(node.reserved), node.is_stale, node.left)
        if is_new or before != after:
            self._show(name, node)
        return before != after and not node.is_stale

    def _follow_object(
        self, node: _Node, newest: NodeTopology, pods: Collection[PodInfo], *, again: bool
    ) -> None:
        """Use the newest object if it includes all that was placed on the node, or if nothing was."""
        if node.is_stale or node.reserved:
            if again or newest is not node.compared:
                node.compared = newest
                included = self._included(newest, pods)
                if included is not None:
                    node.included = included
                    self._use(node, newest, [pod for pod in pods if pod.uid in included])
                    node.reserved = {
                        uid: amounts for uid, amounts in node.reserved.items() if uid not in included
                    }
                    node.is_stale = bool(self._foreign(node, pods))
                    return
            if self._args.resync_scope == _ALL and newest.kubelet_settings != node.used.kubelet_settings:
                self._use(node, newest, ())  # the kubelet was restarted with other settings
        elif newest is not node.used or (node.frees is None and self._reads_placements):
            shows = self._reads_placements and newest.placement is not None and self._included(newest, pods)
            self._use(node, newest, [pod for pod in pods if shows and pod.uid in shows])

    def _use(self, node: _Node, newest: NodeTopology, included: Collection[PodInfo]) -> None:
        """Use an object; `included` are the pods that it is known to include."""
        node.used, node.left = newest, frozenset()
        node.frees = freed_by_pod(newest, included) if self._reads_placements else None

    def _show(self, name: str, node: _Node) -> None:
        freed = self.freed(name, node.left) or {}
        self.table.put(name, node.used, node.taken(), freed, is_stale=node.is_stale)

    def _included(self, topology: NodeTopology, pods: Collection[PodInfo]) -> set[str] | None:
        """Return the uids of the pods that an object includes, or that take nothing it shows; None if it includes others.

        The kubelet reports a pod before or after its phase changes, so the fingerprint may be of all pods of the node, or
        of those that are not pending.
        """
        if not topology.fingerprint:
            return None
        method = self._args.resync_method
        exclusive_only = topology.has_fingerprint_attribute and (
            method == _EXCLUSIVE_ONLY or (method == "Autodetect" and topology.is_of_exclusive_pods)
        )
        of_zones = topology.resources
        counted = [pod for pod in pods if not exclusive_only or takes_exclusive_resources(pod, of_zones)]
        started = [pod for pod in counted if pod.pod.status.phase != "Pending"]
        for some in (counted, started):
            if fingerprint((pod.namespace, pod.name) for pod in some) == topology.fingerprint:
                missing = {pod.uid for pod in counted} - {pod.uid for pod in some}
                return {pod.uid for pod in pods} - missing
        return None

    def _foreign(self, node: _Node, pods: Collection[PodInfo]) -> list[PodInfo]:
        """Return the pods of a node that are neither included nor reserved."""
        detected = self._args.foreign_pods_detect
        if detected == "None":
            return []
        others = [pod for pod in pods if pod.uid not in node.included and pod.uid not in node.reserved]
        if not others or detected == _ALL:
            return others
        of_zones = node.used.resources
        return [pod for pod in others if takes_exclusive_resources(pod, of_zones)]

    def saved(self) -> Any:
        return msgspec.to_builtins(self._nodes, str_keys=True)

    def resume(self, saved: Any) -> None:
        for name, node in msgspec.convert(saved, dict[str, _Node], str_keys=True).items():
            newest = self._topologies.newest.get(name)
            if newest is not None:
                # Objects are compared by identity.
                node.used = newest if node.used == newest else node.used
                node.compared = newest if node.compared == newest else None
                self._nodes[name] = node
                self._show(name, node)

    # Placed pods.

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        self._topologies.look_at(self._cluster.objects(NODE_TOPOLOGIES))  # no pod was filtered since a change
        node, newest = self._nodes.get(node_name), self._topologies.newest.get(node_name)
        if node is None and newest is not None:
            node = self._nodes[node_name] = _Node(newest)
            self._changed[node_name] = None
        if node is not None:
            node.reserved[pod.uid] = whole_request(pod)
            self._show(node_name, node)

    def unreserve(self, pod: PodInfo, node_name: str) -> None:
        node = self._nodes.get(node_name)
        if node is not None and node.reserved.pop(pod.uid, None) is not None:
            self._show(node_name, node)

    def bound(self, pod: PodInfo, node_name: str) -> None: ...

    def freed(self, node_name: str, pods: Collection[str]) -> Mapping[tuple[int, str], int] | None:
        node = self._nodes.get(node_name)
        if node is None or not node.frees:
            return {}
        frees, zones = node.frees, node.used.zones
        together = total_of(frees[uid] for uid in {*pods, *node.left} & frees.keys())
        for (place, name), amount in together.items():
            if zones[place].available[name] + amount > zones[place].allocatable[name]:
                return None
        return total_of(frees[uid] for uid in frees.keys() & pods)

    def why_stale(self, node_name: str, snapshot: Snapshot) -> str:
        node, row = self._nodes.get(node_name), snapshot.row_of(node_name)
        if node is None or row is None:
            return "its NodeResourceTopology was not read yet"
        foreign = self._foreign(node, snapshot.pods_on(row))
        named = ", ".join(sorted(pod.key for pod in foreign)[:_MOST_NAMED])
        more = len(foreign) - _MOST_NAMED
        others = f" and {more} more" if more > 0 else ""
        newest = self._topologies.newest.get(node_name)
        if newest is not None and not newest.fingerprint:
            return (
                f"this scheduler did not place {named}{others}, and the NodeResourceTopology has no fingerprint of its pods: "
                "let its agent write one, or set cache.foreignPodsDetect to None"
            )
        return f"the fingerprint of the NodeResourceTopology does not include {named}{others} yet"
