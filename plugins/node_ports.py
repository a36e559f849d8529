"""Rejects nodes where a requested host port is in use.

Source:
    kube-scheduler v1.36, plugins/nodeports/node_ports.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Outcomes,
    PreFilterPlugin,
    QueueingHint,
)
from scheduler.objects.pod import MANY_ENTRIES
from scheduler.objects.v1 import HostPort, conflicts_with

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from scheduler.framework import CycleState, Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

REASON = "node(s) didn't have free ports for the requested pod ports"

_PRE_FILTER = "PreFilterNodePorts"


class NodePorts(FilterPlugin, PreFilterPlugin):
    """Compares a pod's host ports with those in use."""

    name = "NodePorts"
    api_version = 1

    def signature(self, pod: PodInfo) -> Hashable:
        ports = pod.host_ports
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


def _event_keys(old: PodInfo, _new: None) -> Sequence[HostPort]:
    """Return the keys of a pod's deletion: its host ports."""
    return old.host_ports
