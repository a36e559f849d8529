"""Rejects nodes that do not declare a Kubernetes feature that the pod requires.

Not every node has a new feature: a node lists its features in status.declaredFeatures, and the requirements of a pod
follow from its spec.

Source:
    kube-scheduler v1.36, plugins/nodedeclaredfeatures/nodedeclaredfeatures.go, and component-helpers v0.36,
    nodedeclaredfeatures/features; both v1.35 without DeclaredUserNamespaces.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.framework import (
    SKIP,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    Features,
    FilterPlugin,
    Outcomes,
    PreFilterPlugin,
    QueueingHint,
    Reason,
    no_event_keys,
    no_pod_key,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from scheduler.framework import CycleState, Status
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo, Rows, Snapshot

REASON = Reason("node(s) didn't match Pod's required features", "NodeFeatureMissing")
_OLD_REASON = "node declared features check failed - unsatisfied requirements"

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"

_RESTART_ALL_CONTAINERS_ACTION = "RestartAllContainers"
_PRE_FILTER = "PreFilterNodeDeclaredFeatures"


class NodeDeclaredFeatures(FilterPlugin, PreFilterPlugin):
    """Compares the features that a pod requires with those that nodes declare."""

    name = "NodeDeclaredFeatures"
    api_version = 1
    reason_codes = MappingProxyType(
        {REASON.code: "the node does not declare a feature that the pod requires"}
    )
    reads_pods = False

    def __init__(self, *, features: Features) -> None:
        self._names_features = not features.enabled("DeclaredUserNamespaces")
        self._unknown = frozenset({USER_NAMESPACES_HOST_NETWORK} if self._names_features else ())

    def signature(self, pod: PodInfo) -> Hashable:
        return required_features(pod) - self._unknown

    def events(self) -> Sequence[EventWithHint]:
        node = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE)
        pod = ClusterEvent(EventResource.POD, ActionType.UPDATE)
        return (
            EventWithHint(node, self._after_node_change, no_pod_key),
            EventWithHint(pod, self._after_pod_update, no_pod_key, no_event_keys),
        )

    def _after_node_change(self, pod: PodInfo, old: NodeObject | None, new: NodeObject) -> QueueingHint:
        """Requeue after any change of a node's declared features; Filter checks whether they are the required ones."""
        same = old is not None and old.node.status.declared_features == new.node.status.declared_features
        return QueueingHint.SKIP if same else QueueingHint.QUEUE

    def _after_pod_update(self, pod: PodInfo, old: PodInfo, new: PodInfo) -> QueueingHint:
        helps = new.uid == pod.uid and self.signature(old) != self.signature(new)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        required = required_features(pod) - self._unknown
        if not required:
            return SKIP
        state.write(_PRE_FILTER, required)
        return None

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        required: frozenset[Any] = state.read(_PRE_FILTER, frozenset)
        refused = snapshot.declared_features.judge(lambda declared: not required <= declared)
        # Up to 1.35 only one feature is known.
        reason = REASON
        if self._names_features:
            reason = Reason(f"{_OLD_REASON}: {', '.join(required)}", REASON.code)
        return Outcomes.reject(refused, reason, resolvable=False)

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        if node is None:
            return None
        missing = sorted(required_features(pod) - self._unknown - node.declared_features)
        return [f"the pod requires the feature {name}, which the node does not declare" for name in missing]


_NO_FEATURES: frozenset[str] = frozenset()


def required_features(pod: PodInfo) -> frozenset[str]:
    """Return the features that a node must have to run a pod.

    Features for updates of a running pod, as of its resources in place, do not matter for its placement.
    """
    spec = pod.pod.spec
    containers = (*spec.containers, *spec.init_containers)
    rules = [rule for container in containers for rule in container.restart_policy_rules]
    if not (rules or spec.host_network):
        return _NO_FEATURES
    required = set()
    if any(rule.action == _RESTART_ALL_CONTAINERS_ACTION for rule in rules):
        required.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and not spec.host_users:
        required.add(USER_NAMESPACES_HOST_NETWORK)
    return frozenset(required)
