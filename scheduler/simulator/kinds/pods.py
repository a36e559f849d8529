"""Pods: their priority, admission, and deletion.

Source:
    kube-apiserver v1.36, plugin/pkg/admission/priority/admission.go.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from scheduler.objects.pod_defaults import default_pod, qos_class
from scheduler.simulator.apimachinery.objects import is_terminating, is_true, labels_of
from scheduler.simulator.apimachinery.status import StatusError, forbidden_resource
from scheduler.simulator.apimachinery.strategy import Cluster, Strategy
from scheduler.simulator.kinds.limit_ranges import apply_limit_ranges
from scheduler.simulator.kinds.node_allocatable import validate_claim_uses, validate_resize
from scheduler.simulator.kinds.pod_rules import validate_pod, validate_pod_update
from scheduler.simulator.kinds.resource_quotas import check_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.simulator.apimachinery.causes import Cause
    from scheduler.simulator.apimachinery.objects import Object


def priority_class(spec: Object, cluster: Cluster, refused: Callable[[str], StatusError]) -> Object:
    """Return the class of a spec, or the global default, whose name is set in the spec; empty if there is none.

    Args:
        spec: spec of a pod or group, with `priorityClassName`.
        cluster: the store with the classes.
        refused: creates the error from a message.

    Raises:
        StatusError: there is no class of that name.
    """
    name = spec.get("priorityClassName")
    if name:
        found = cluster.find("priorityclasses", name)
        if found is None:
            raise refused(f"no PriorityClass with name {name} was found")
        return found
    defaults = [class_ for class_ in cluster.each("priorityclasses") if class_.get("globalDefault")]
    if not defaults:
        return {}
    chosen = min(defaults, key=lambda class_: int(class_.get("value", 0)))
    spec["priorityClassName"] = chosen["metadata"]["name"]
    return chosen


TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")

_TOLERATED_FOR_SECONDS: Final = 300
_TOLERATED_KEYS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
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
    """

    has_generation = True
    returns_deleted = True

    def __init__(self, *, resizes_as_a_whole: bool = True) -> None:
        self._resizes_as_a_whole = resizes_as_a_whole

    def default(self, obj: Object) -> None:
        default_pod(obj)

    def admit_create(self, obj: Object, cluster: Cluster) -> None:
        _apply_runtime_class(obj, cluster)
        add_default_tolerations(obj["spec"])
        apply_limit_ranges(obj, cluster)
        set_priority(obj, cluster)
        node = obj["spec"].get("nodeName")
        if node:
            labels = topology_labels(node, cluster)
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
        _merge_label_keys(obj)

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


def topology_labels(node_name: str, cluster: Cluster) -> dict[str, str]:
    """Return the labels of a node that its pods get.

    Source:
        kube-apiserver v1.36, plugin/pkg/admission/podtopologylabels.
    """
    node = cluster.find("nodes", node_name)
    labels = labels_of(node) if node else {}
    return {label: labels[label] for label in TOPOLOGY_LABELS if label in labels}


def add_default_tolerations(spec: Object) -> None:
    """Add tolerations with which a pod stays five minutes on a failed node, unless it has its own.

    Source:
        kube-apiserver v1.36, plugin/pkg/admission/defaulttolerationseconds.
    """
    tolerations = spec.get("tolerations", [])
    missing = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _TOLERATED_FOR_SECONDS,
        }
        for key in _TOLERATED_KEYS
        if not _mentions(tolerations, key)
    ]
    if missing:
        spec["tolerations"] = [*tolerations, *missing]


def _mentions(tolerations: Iterable[Object], key: str) -> bool:
    return any(
        toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {"NoExecute", ""}
        for toleration in tolerations
    )


def set_priority(pod: Object, cluster: Cluster) -> None:
    """Set a pod's priority from its class.

    Raises:
        StatusError: there is no such class, or the pod has another priority.

    Source:
        kube-apiserver v1.36, plugin/pkg/admission/priority/admission.go.
    """
    spec = pod["spec"]
    class_ = priority_class(spec, cluster, partial(_refused, pod))
    priority, policy = class_.get("value", 0), class_.get("preemptionPolicy") or "PreemptLowerPriority"
    for field, computed, what in (
        ("priority", priority, "integer value of priority"),
        ("preemptionPolicy", policy, "string value of PreemptionPolicy"),
    ):
        if spec.setdefault(field, computed) != computed:
            raise _refused(
                pod,
                f"the {what} ({spec[field]}) must not be provided in pod spec; priority admission controller "
                f"computed {computed} from the given PriorityClass name",
            )


def _apply_runtime_class(pod: Object, cluster: Cluster) -> None:
    """Set a pod's overhead, and add node selectors and tolerations, from its RuntimeClass.

    Source:
        kube-apiserver v1.36, plugin/pkg/admission/runtimeclass/admission.go.
    """
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        return
    class_ = cluster.find("runtimeclasses.node.k8s.io", name)
    if class_ is None:
        raise _refused(pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = class_.get("overhead", {}).get("podFixed")
    if overhead:
        if (spec.get("overhead") or overhead) != overhead:
            raise _refused(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = overhead
    scheduling = class_.get("scheduling", {})
    selector = spec.get("nodeSelector", {})
    for key, value in scheduling.get("nodeSelector", {}).items():
        if selector.get(key, value) != value:
            raise _refused(
                pod,
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}",
            )
        spec["nodeSelector"] = spec.get("nodeSelector", {}) | {key: value}
    present = spec.get("tolerations", [])
    if added := [one for one in scheduling.get("tolerations", ()) if one not in present]:
        spec["tolerations"] = [*present, *added]


def _refused(pod: Object, problem: str) -> StatusError:
    return forbidden_resource("", "pods", pod["metadata"].get("name", ""), problem)


def _merge_label_keys(pod: Object) -> None:
    """Merge matchLabelKeys and mismatchLabelKeys into their selectors.

    Source:
        kube-apiserver v1.36, pkg/registry/core/pod/strategy.go, mutatePodAffinity and
        mutateTopologySpreadConstraints.
    """
    spec, labels = pod["spec"], labels_of(pod)
    holders = list(spec.get("topologySpreadConstraints", ()))
    for field in ("podAffinity", "podAntiAffinity"):
        affinity = spec.get("affinity", {}).get(field, {})
        holders += affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        holders += [term["podAffinityTerm"] for term in preferred if "podAffinityTerm" in term]
    for holder in holders:
        selector = holder.get("labelSelector")
        if selector is None:
            continue
        expressions = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in holder.get(field, ())
            if key in labels
        ]
        if expressions:
            selector["matchExpressions"] = [*selector.get("matchExpressions", ()), *expressions]


def is_ready(pod: Object) -> bool:
    """Return whether a pod's condition Ready is true."""
    return is_true(pod, "Ready")


def has_ended(pod: Object) -> bool:
    """Return whether a pod has ended."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_active(pod: Object) -> bool:
    """Return whether a pod has not ended and is not terminating."""
    return not has_ended(pod) and not is_terminating(pod)
