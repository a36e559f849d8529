"""The reasons and messages with which a kubelet rejects a pod.

Source:
    kubelet v1.36, pkg/kubelet/lifecycle/predicate.go, and pkg/scheduler/eventhandlers.go, AdmissionCheck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.objects.host_ports import conflicts_with
from scheduler.objects.resource_names import PODS, is_extended_resource_name
from scheduler.objects.selectors import required_node_affinity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

_FIRST_CHECKED: Final = (PODS, "cpu", "memory", "ephemeral-storage")


class AdmissionRejection(NamedTuple):
    """Why a pod is not admitted.

    Attributes:
        reason: for example `OutOfcpu`.
        message: text for users.
    """

    reason: str
    message: str


def refusal(
    pod: PodInfo,
    requests: Mapping[str, int],
    node: NodeObject,
    others: Iterable[PodInfo],
    used: Mapping[str, int],
) -> AdmissionRejection | None:
    """Return why a node's kubelet rejects a pod; None if it admits it.

    Args:
        pod: the pod.
        requests: its requests: resource name -> milliCPU, bytes or a count.
        node: the node.
        others: the admitted pods of the node.
        used: the sum of their requests.
    """
    lacking = _lacking(requests, node.allocatable, used)
    if lacking:
        problem = (
            f"Node didn't have enough resource: {lacking}, requested: {requests[lacking]}, "
            f"used: {used.get(lacking, 0)}, capacity: {node.allocatable.get(lacking, 0)}"
        )
        return AdmissionRejection(f"OutOf{lacking}", problem)
    affinity = required_node_affinity(pod.pod.spec.node_selector, pod.node_affinity)
    if not affinity.matches(node.name, node.labels):
        return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if pod.host_ports and conflicts_with(pod.host_ports)(port for one in others for port in one.host_ports):
        return _failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    return None


def _lacking(requests: Mapping[str, int], capacity: Mapping[str, int], used: Mapping[str, int]) -> str:
    """Return the first resource of which a node has too little; "" if the pod fits.

    Extended resources that the node does not know are ignored.
    """
    for name in [*_FIRST_CHECKED, *sorted(set(requests) - set(_FIRST_CHECKED))]:
        amount = requests.get(name, 0)
        if not amount or (name not in capacity and is_extended_resource_name(name)):
            continue
        if used.get(name, 0) + amount > capacity.get(name, 0):
            return name
    return ""


def _failed(predicate: str, problem: str) -> AdmissionRejection:
    return AdmissionRejection(predicate, f"Predicate {predicate} failed: {problem}")
