"""Clusters whose nodes have NodeResourceTopologies."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.node_resource_topology.plugin import NodeResourceTopologyMatch
from plugins.node_resource_topology.pod_fingerprint import xxh64
from plugins.node_resource_topology.topology_objects import NODE_TOPOLOGIES
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.runtime.plugin_classes import constructor_wants
from scheduler.framework import SKIP, ClusterObjects, CycleState
from scheduler.framework.sliced_work import answer_to_end
from scheduler.snapshot import ClusterTable
from scheduler.testing.fakes import Fakes
from scheduler.testing.samples import node_topology
from tests.support import virtual_time
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


Amounts = dict[str, str]
METADATA, VECTOR = (f"topology.node.k8s.io/numaplacement-{name}" for name in ("metadata", "vector"))


def container(
    amounts: Amounts, name: str = "c", limits: Amounts | None = None, **more: Any
) -> dict[str, Any]:
    """A container whose limits are its requests, unless other limits are given."""
    limits = amounts if limits is None else limits
    return {"name": name, "resources": {"requests": amounts, "limits": limits}, **more}


def numa_pod(
    name: str, *containers: Amounts, init: tuple[Amounts, ...] = (), guaranteed: bool = True, **fields: Any
) -> PodInfo:
    limits = None if guaranteed else {}
    return pod(
        name,
        containers=[container(each, f"c{place}", limits) for place, each in enumerate(containers)],
        initContainers=[container(each, f"i{place}", limits) for place, each in enumerate(init)],
        **fields,
    )


def with_placement(topology: dict[str, Any], zones: Mapping[tuple[str, str, str], int]) -> dict[str, Any]:
    """Return an object that also has the zones of containers, given as (namespace, pod, container), as agents write them."""
    containers = sorted(zones, key=lambda each: xxh64("\0".join(each).encode()))
    n_zones = len(topology["zones"])
    by_zone = [
        [place for place, each in enumerate(containers) if zones[each] == zone] for zone in range(n_zones)
    ]
    fullest = max(range(n_zones), key=lambda zone: len(by_zone[zone]))
    metadata = f"npv0v001::ve=leb89::cc={len(zones)}::nn={n_zones}::bn={fullest}"
    written = []
    for number, zone in enumerate(topology["zones"]):
        steps = [place - before for before, place in pairwise([0, *by_zone[number]])]
        vector = (
            [{"name": VECTOR, "value": "".join(map(leb89, steps))}] if steps and number != fullest else []
        )
        written.append({**zone, "attributes": vector})
    attributes = [*topology["attributes"], {"name": METADATA, "value": metadata}]
    return {**topology, "attributes": attributes, "zones": written}


def leb89(number: int) -> str:
    """Return a number as digits: the last one has 64 values, those before it have 25."""
    digits = [chr(code) for code in range(33, 127) if chr(code) not in '"&<>\\']
    if number < 64:
        return digits[number]
    rest, last = divmod(number - 64, 64)
    higher = ""
    while True:
        rest, digit = divmod(rest, 25)
        higher = digits[64 + digit] + higher
        if not rest:
            return higher + digits[last]


class NumaCluster:
    """A table, and the plugins that share it."""

    def __init__(self, *topologies: dict[str, Any], allocatable: Mapping[str, str] | None = None) -> None:
        self.table = ClusterTable()
        self.objects = TableObjects(self.table)
        self.store = self.table.watch_kind(NODE_TOPOLOGIES)
        self.fakes = Fakes()
        for topology in topologies:
            self.add(topology, allocatable)

    def add(self, topology: dict[str, Any], allocatable: Mapping[str, str] | None = None) -> None:
        """Add a node with plenty of each resource of its zones."""
        named = {each["name"] for zone in topology["zones"] for each in zone["resources"]}
        offered = {name: "1k" for name in named if name not in {"cpu", "memory"}}
        name = topology["metadata"]["name"]
        self.table.add_node(
            node(name, cpu="1k", memory="1Ti", allocatable={**offered, **(allocatable or {})})
        )
        self.store[name] = topology

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot()

    def made(self, **args: Any) -> NodeResourceTopologyMatch:
        fakes: dict[Any, Any] = {**self.fakes.by_protocol(), ClusterObjects: self.objects}
        given = {
            name: msgspec.convert(args, NodeResourceTopologyMatch.Args)
            if protocol is None
            else fakes[protocol]
            for name, protocol in constructor_wants(NodeResourceTopologyMatch).items()
        }
        return NodeResourceTopologyMatch(**given)

    def rejected(self, plugin: NodeResourceTopologyMatch, wanted: PodInfo) -> dict[str, str]:
        """Node name -> the reason of its rejection."""
        state, snapshot = CycleState(), self.snapshot
        if answer_to_end(lambda: plugin.pre_filter(state, wanted, snapshot)) is SKIP:
            return {}
        outcomes = plugin.filter(state, wanted, snapshot, snapshot.all_rows)
        return {
            snapshot.name_of(row): str(outcomes.of(row).reasons[0])
            for row in range(snapshot.n_nodes)
            if not outcomes.passing[row]
        }

    def scores(self, plugin: NodeResourceTopologyMatch, wanted: PodInfo) -> dict[str, int] | None:
        """Node name -> score; None if the plugin skips the pod."""
        state, snapshot = CycleState(), self.snapshot
        rows = snapshot.all_rows
        if answer_to_end(lambda: plugin.pre_filter(state, wanted, snapshot)) is SKIP:
            return None
        if plugin.pre_score(state, wanted, snapshot, rows) is SKIP:
            return None
        scores = plugin.score(state, wanted, snapshot, rows)
        return {snapshot.name_of(row): int(scores[row]) for row in range(snapshot.n_nodes)}

    def put(self, wanted: PodInfo, node_name: str) -> PodInfo:
        """Count a pod on a node."""
        row = self.table.row_of(node_name)
        assert row is not None
        placed = wanted.placed_on(node_name)
        self.table.add_pod(row, placed)
        return placed

    def place(self, plugin: NodeResourceTopologyMatch, wanted: PodInfo, node_name: str) -> PodInfo:
        """Place a pod as the cycle does: count it first, then reserve."""
        placed = self.put(wanted, node_name)
        assert plugin.reserve(CycleState(), placed, node_name) is None
        return placed

    def runs(self, placed: PodInfo) -> None:
        """Report that a pod runs."""
        row = self.table.row_of(placed.node_name)
        assert row is not None
        status = msgspec.structs.replace(placed.pod.status, phase="Running")
        running = type(placed)(msgspec.structs.replace(placed.pod, status=status), node_name=placed.node_name)
        self.table.replace_pod(row, running, invalidates=False)

    def gone(self, placed: PodInfo) -> None:
        """Remove a pod."""
        row = self.table.row_of(placed.node_name)
        assert row is not None
        self.table.remove_pod(row, placed.uid)

    def refresh(self, plugin: NodeResourceTopologyMatch) -> None:
        virtual_time.run(plugin.refresh())


__all__ = ["NumaCluster", "container", "node_topology", "numa_pod"]
