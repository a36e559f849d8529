"""Rejects nodes where a requested host port is in use.

Source:
    kube-scheduler v1.36, plugins/nodeports/node_ports.go.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.framework import (
    SKIP,
    ActionType,
    Change,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    NodesExplanation,
    Outcomes,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    Remedy,
)
from scheduler.objects.label_index import some_of
from scheduler.objects.pod import MANY_ENTRIES
from scheduler.objects.v1 import ALL_ADDRESSES, HostPort, conflicts_with

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from scheduler.framework import CycleState, Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

REASON = Reason("node(s) didn't have free ports for the requested pod ports", "HostPortInUse")

_PRE_FILTER = "PreFilterNodePorts"


class NodePorts(FilterPlugin, PreFilterPlugin):
    """Compares a pod's host ports with those in use."""

    name = "NodePorts"
    api_version = 1
    reason_codes = MappingProxyType({REASON.code: "a host port of the pod is in use on the node"})

    def signature(self, pod: PodInfo) -> Hashable:
        ports = pod.host_ports
        if not ports:
            return ports
        return frozenset(ports) if len(ports) <= MANY_ENTRIES else pod.spec_digest

    def events(self) -> Sequence[EventWithHint]:
        pod = ClusterEvent(EventResource.POD, ActionType.DELETE)
        node = ClusterEvent(EventResource.NODE, ActionType.ADD)
        return (EventWithHint(pod, self._after_pod_deleted, self.signature, _event_keys), EventWithHint(node))

    def _after_pod_deleted(self, pod: PodInfo, old: PodInfo, new: None) -> QueueingHint:
        """Requeue a pod that needs a port of the deleted pod, on any node."""
        was_placed = old.node_name or old.pod.status.nominated_node_name
        helps = was_placed and conflicts_with(pod.host_ports)(old.host_ports)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        ports = pod.host_ports
        if not ports:
            return SKIP
        state.write(_PRE_FILTER, ports)
        return None

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        wanted: tuple[HostPort, ...] = state.read(_PRE_FILTER, tuple)
        return Outcomes.reject(snapshot.port_conflicts(wanted), REASON)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None:
            return None
        return [
            f"host port {written} is in use by {some_of(users)}"
            for written, users in _ports_in_use(pod, node).items()
        ]

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        spec = pod.pod.spec
        relaxed = pod.with_spec(
            containers=tuple(replace(each, ports=()) for each in spec.containers),
            init_containers=tuple(replace(each, ports=()) for each in spec.init_containers),
        )

        def change(fitting: Rows) -> Change:
            node = snapshot.node_info(int(fitting[0]))
            in_use = _ports_in_use(pod, node)
            users = sorted({user for users in in_use.values() for user in users})
            plural = "s" if len(in_use) > 1 else ""
            text = f"the host port{plural} {some_of(list(in_use))} were free on {node.name} (used by {some_of(users)})"
            return Change(node.row, text, relaxed)

        ports = some_of([_written(each) for each in pod.host_ports])
        return NodesExplanation(f"host ports {ports} are requested", [Remedy(relaxed, change)])


def _ports_in_use(pod: PodInfo, node: NodeInfo) -> dict[str, list[str]]:
    """Return the pod's host ports that are in use on a node, each with the pods that use it."""
    in_use = {}
    for wanted in pod.host_ports:
        conflicts = conflicts_with((wanted,))
        users = [each.key for each in node.pods if each.host_ports and conflicts(each.host_ports)]
        if users:
            in_use[_written(wanted)] = users
    return in_use


def _written(port: HostPort) -> str:
    """Return a port as `80/TCP`, with its address if it is not for all addresses."""
    where = "" if port.ip == ALL_ADDRESSES else f"{port.ip}:"
    return f"{where}{port.port}/{port.protocol}"


def _event_keys(old: PodInfo, _new: None) -> Sequence[HostPort]:
    """Return the keys of a pod's deletion: its host ports."""
    return old.host_ports
