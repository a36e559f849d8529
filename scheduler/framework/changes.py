"""Classifies updates of pods and nodes into named changes, and defines the scheduler's own events.

The classification is as fine as possible, so that a plugin that waits for taints is not called for labels.

Source:
    kube-scheduler v1.36, framework/events.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework.events import ActionType, ClusterEvent, EventResource
from scheduler.objects.resources import pod_requests, resize_is_infeasible

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

ASSIGNED_POD_ADD = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.ADD)
ASSIGNED_POD_UPDATE = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.UPDATE)
ASSIGNED_POD_DELETE = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)
UNSCHEDULABLE_POD_ADD = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.ADD)
UNSCHEDULABLE_POD_UPDATE = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.UPDATE)
UNSCHEDULABLE_POD_DELETE = ClusterEvent(EventResource.UNSCHEDULABLE_POD, ActionType.DELETE)
NODE_ADD = ClusterEvent(EventResource.NODE, ActionType.ADD)
NODE_DELETE = ClusterEvent(EventResource.NODE, ActionType.DELETE)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "UnschedulableTimeout")
"""An unschedulable pod is retried after a time limit, without another event."""
FORCE_ACTIVATE = ClusterEvent(EventResource.WILDCARD, ActionType.ALL, "ForceActivate")
"""A plugin requested that the pod is retried at once."""


def pod_changes(old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    """Classify the update of a pod.

    Returns:
        One event per named change, of resource ASSIGNED_POD or UNSCHEDULABLE_POD; never empty: a change
        without a name is a general update.

    Source:
        kube-scheduler v1.36, framework/events.go, PodSchedulingPropertiesChange.
    """
    resource = EventResource.ASSIGNED_POD if new.node_name else EventResource.UNSCHEDULABLE_POD
    actions: list[ActionType] = []
    if old.labels != new.labels:
        actions.append(ActionType.UPDATE_POD_LABEL)
    if _scaled_down(old, new):
        actions.append(ActionType.UPDATE_POD_SCALE_DOWN)
    if old.pod.spec.scheduling_gates and not new.pod.spec.scheduling_gates:
        actions.append(ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    # The API server allows tolerations to be added, never changed or removed.
    if len(old.tolerations) != len(new.tolerations):
        actions.append(ActionType.UPDATE_POD_TOLERATION)
    if _generated_claims(old) != _generated_claims(new):
        actions.append(ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return [ClusterEvent(resource, action) for action in actions or (ActionType.UPDATE,)]


def node_changes(old: NodeObject, new: NodeObject) -> list[ClusterEvent]:
    """Classify the update of a node.

    Returns:
        One event per named change; empty if nothing changed that scheduling reads, as in a heartbeat.
        Cordoning is no event, because it makes no pod schedulable; uncordoning is a change of taints.

    Source:
        kube-scheduler v1.36, framework/events.go, NodeSchedulingPropertiesChange.
    """
    if old.node.status is new.node.status:
        return []  # recognized as a heartbeat
    actions: list[ActionType] = []
    if _offer_changed(old, new):
        actions.append(ActionType.UPDATE_NODE_ALLOCATABLE)
    if old.labels != new.labels:
        actions.append(ActionType.UPDATE_NODE_LABEL)
    if old.taints != new.taints or (old.unschedulable and not new.unschedulable):
        actions.append(ActionType.UPDATE_NODE_TAINT)
    if _condition_statuses(old) != _condition_statuses(new):
        actions.append(ActionType.UPDATE_NODE_CONDITION)
    if old.annotations != new.annotations:
        actions.append(ActionType.UPDATE_NODE_ANNOTATION)
    if old.node.status.declared_features != new.node.status.declared_features:
        actions.append(ActionType.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(EventResource.NODE, action) for action in actions]


def _scaled_down(old: PodInfo, new: PodInfo) -> bool:
    """Whether any request became smaller, in the spec and the resize status."""
    # Pods with equal requests share one result, unless it is too long to be kept.
    if old.resources is new.resources or _requests(old) == _requests(new):
        return False
    before, after = (pod_requests(pod.pod, use_status=True) for pod in (old, new))
    return any(name not in after or after[name] < quantity for name, quantity in before.items())


def _requests(pod: PodInfo) -> object:
    """Everything that the requests of a pod depend on; equal parts are compared without Python code."""
    spec, status = pod.pod.spec, pod.pod.status
    of_containers = (
        spec.containers,
        spec.init_containers,
        status.container_statuses,
        status.init_container_statuses,
    )
    of_pod = spec.overhead, spec.resources, status.resources, status.allocated_resources
    return of_containers, of_pod, resize_is_infeasible(pod.pod)


def _generated_claims(pod: PodInfo) -> tuple[object, object]:
    """The resource claims that were generated for a pod."""
    status = pod.pod.status
    return status.resource_claim_statuses, status.extended_resource_claim_status


def _offer_changed(old: NodeObject, new: NodeObject) -> bool:
    """Whether the allocatable amounts differ: `1` and `1000m` of cpu are equal."""
    return old.node.status.allocatable != new.node.status.allocatable and old.allocatable != new.allocatable


def _condition_statuses(node: NodeObject) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.node.status.conditions}
