"""Pods: their rules, admission and deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.errors import AdmissionError
from scheduler.objects.admission import add_default_tolerations, admit_pod, merge_label_keys
from scheduler.objects.pod import TOPOLOGY_LABELS
from scheduler.objects.pod_defaults import default_pod, qos_class
from scheduler.tools.simulator.apimachinery.objects import is_terminating, is_true, labels_of
from scheduler.tools.simulator.apimachinery.status import forbidden_resource
from scheduler.tools.simulator.apimachinery.strategy import Strategy
from scheduler.tools.simulator.kinds.node_allocatable import validate_claim_uses, validate_resize
from scheduler.tools.simulator.kinds.pod_rules import validate_pod, validate_pod_update
from scheduler.tools.simulator.kinds.resource_quotas import check_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.tools.simulator.apimachinery.causes import Cause
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster


_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class PodStrategy(Strategy):
    """The rules of pods.

    Args:
        resizes_as_a_whole: whether `resize` changes the resources of a pod as a whole, too.
        has_topology_labels: whether a pod gets the zone and region labels of its node.
    """

    has_generation = True
    returns_deleted = True

    def __init__(self, *, resizes_as_a_whole: bool = True, has_topology_labels: bool = True) -> None:
        self._resizes_as_a_whole, self._has_topology_labels = resizes_as_a_whole, has_topology_labels

    def topology_labels(self, node_name: str, cluster: Cluster) -> dict[str, str]:
        """Return the labels of a node that its pods get.

        Source:
            kube-apiserver v1.36, plugin/pkg/admission/podtopologylabels.
        """
        node = cluster.find("nodes", node_name) if self._has_topology_labels else None
        labels = labels_of(node) if node else {}
        return {label: labels[label] for label in TOPOLOGY_LABELS if label in labels}

    def default(self, obj: Object) -> None:
        default_pod(obj)

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        try:
            admit_pod(obj, cluster)
        except AdmissionError as error:
            raise forbidden_resource("", "pods", obj["metadata"].get("name", ""), str(error)) from error
        node = obj["spec"].get("nodeName")
        if node:
            labels = self.topology_labels(node, cluster)
            if labels:
                obj["metadata"]["labels"] = labels_of(obj) | labels
        check_pod(obj, cluster)

    def admit_update(self, obj: Object, old: Object, cluster: Cluster) -> None:
        add_default_tolerations(obj["spec"])
        for field in ("priority", "preemptionPolicy"):
            if field in old["spec"]:
                obj["spec"].setdefault(field, old["spec"][field])

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        obj["metadata"]["generation"] = 1
        spec = obj["spec"]
        status: Object = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [_GATED | {"lastTransitionTime": cluster.timestamp()}]
        status["qosClass"] = qos_class(spec)
        obj["status"] = status
        merge_label_keys(obj)

    def prepare_update(self, obj: Object, old: Object) -> None:
        obj["status"] = old["status"]
        if obj["spec"] != old["spec"]:
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        if subresource == "resize":
            _keep_all_but_resources(obj, old, as_a_whole=self._resizes_as_a_whole)
            return
        super().prepare_part_update(subresource, obj, old, cluster)
        if "qosClass" in old["status"]:
            obj["status"].setdefault("qosClass", old["status"]["qosClass"])

    def validate(self, obj: Object) -> Iterable[Cause]:
        return validate_pod(obj)

    def validate_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return validate_pod_update(obj, old)

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return (*validate_claim_uses(obj), *validate_resize(obj, old))

    def grace_period(self, obj: Object, requested: int | None) -> int | None:
        """Return the grace period of a pod: 0 if it has no node or has ended.

        Source:
            kube-apiserver v1.36, pkg/registry/core/pod/strategy.go, CheckGracefulDelete.
        """
        spec = obj["spec"]
        if not spec.get("nodeName") or has_ended(obj):
            return 0
        period = spec.get("terminationGracePeriodSeconds", 0) if requested is None else requested
        return 1 if period < 0 else int(period)


def _keep_all_but_resources(obj: Object, old: Object, *, as_a_whole: bool) -> None:
    """Restore all fields of a pod but the resources of its containers, and with `as_a_whole` its own.

    Source:
        kube-apiserver v1.36, pkg/registry/core/pod/strategy.go, dropNonResizeUpdates.
    """
    new, spec = obj["spec"], dict(old["spec"])
    for field in ("initContainers", "containers"):
        resources = {each["name"]: each.get("resources", {}) for each in new.get(field, ())}
        if field in spec:
            spec[field] = [
                {**each, "resources": resources.get(each["name"], each.get("resources", {}))}
                for each in spec[field]
            ]
    if as_a_whole and "resources" in new:
        spec["resources"] = new["resources"]
    for field in {*obj, *old} - {"spec", "metadata"}:
        obj[field] = old[field]
    obj["spec"] = spec
    if obj["spec"] != old["spec"]:
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def is_ready(pod: Object) -> bool:
    """Return whether a pod's condition Ready is true."""
    return is_true(pod, "Ready")


def has_ended(pod: Object) -> bool:
    """Return whether a pod has ended."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_active(pod: Object) -> bool:
    """Return whether a pod has not ended and is not terminating."""
    return not has_ended(pod) and not is_terminating(pod)
