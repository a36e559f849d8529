"""The admission of the API server for new pods and claims: the fields that it adds, and the reasons for which it refuses.

Source:
    kube-apiserver v1.36, plugin/pkg/admission/{defaulttolerationseconds,priority,runtimeclass} and
    pkg/volume/util/storageclass.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.errors import AdmissionError
from scheduler.objects.limit_ranges import apply_limit_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Object = dict[str, Any]

_TOLERATED_FOR_SECONDS: Final = 300
_TOLERATED_KEYS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class ExistingObjects(Protocol):
    """The objects that admission reads."""

    def find(self, resource: str, name: str) -> Object | None:
        """Return a cluster-scoped object, or None if there is none; do not change it."""
        ...

    def each(self, resource: str) -> Sequence[Object]:
        """Return all objects of a kind; do not change them."""
        ...


def admit_pod(pod: Object, existing: ExistingObjects, *, knows_all: bool = True) -> None:
    """Add to a new pod what its RuntimeClass, LimitRanges and PriorityClass say, and the tolerations of every pod.

    Args:
        pod: the pod, with its defaults.
        existing: the objects that admission reads.
        knows_all: whether a RuntimeClass that is missing, or a priority without its class, is an error.

    Raises:
        AdmissionError: the pod is refused.
    """
    _apply_runtime_class(pod["spec"], existing, knows_all=knows_all)
    add_default_tolerations(pod["spec"])
    apply_limit_ranges(pod, existing.each("limitranges"))
    if knows_all or "priority" not in pod["spec"]:
        set_priority(pod["spec"], existing)


def priority_class(spec: Object, existing: ExistingObjects) -> Object:
    """Return the class of a spec, or the global default, whose name is set in the spec; empty if there is none.

    Args:
        spec: spec of a pod or group, with `priorityClassName`.
        existing: has the classes.

    Raises:
        AdmissionError: there is no class of that name.
    """
    name = spec.get("priorityClassName")
    if name:
        found = existing.find("priorityclasses", name)
        if found is None:
            raise AdmissionError(f"no PriorityClass with name {name} was found")
        return found
    defaults = [class_ for class_ in existing.each("priorityclasses") if class_.get("globalDefault")]
    if not defaults:
        return {}
    chosen = min(defaults, key=lambda class_: int(class_.get("value", 0)))
    spec["priorityClassName"] = chosen["metadata"]["name"]
    return chosen


def set_priority(spec: Object, existing: ExistingObjects) -> None:
    """Set a pod's priority from its class.

    Raises:
        AdmissionError: there is no such class, or the pod has another priority.
    """
    class_ = priority_class(spec, existing)
    priority, policy = class_.get("value", 0), class_.get("preemptionPolicy") or "PreemptLowerPriority"
    for field, computed, what in (
        ("priority", priority, "integer value of priority"),
        ("preemptionPolicy", policy, "string value of PreemptionPolicy"),
    ):
        if spec.setdefault(field, computed) != computed:
            raise AdmissionError(
                f"the {what} ({spec[field]}) must not be provided in pod spec; priority admission controller "
                f"computed {computed} from the given PriorityClass name",
            )


def _apply_runtime_class(spec: Object, existing: ExistingObjects, *, knows_all: bool) -> None:
    """Set a pod's overhead, and add node selectors and tolerations, from its RuntimeClass."""
    name = spec.get("runtimeClassName")
    class_ = existing.find("runtimeclasses.node.k8s.io", name) if name else None
    if class_ is None:
        if name and knows_all:
            raise AdmissionError(f'pod rejected: RuntimeClass "{name}" not found')
        return
    overhead = class_.get("overhead", {}).get("podFixed")
    if overhead:
        if (spec.get("overhead") or overhead) != overhead:
            raise AdmissionError("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = overhead
    scheduling = class_.get("scheduling", {})
    selector = spec.get("nodeSelector", {})
    for key, value in scheduling.get("nodeSelector", {}).items():
        if selector.get(key, value) != value:
            raise AdmissionError(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}",
            )
        spec["nodeSelector"] = spec.get("nodeSelector", {}) | {key: value}
    present = spec.get("tolerations", [])
    if added := [one for one in scheduling.get("tolerations", ()) if one not in present]:
        spec["tolerations"] = [*present, *added]


def add_default_tolerations(spec: Object) -> None:
    """Add tolerations with which a pod stays five minutes on a failed node, unless it has its own."""
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


def merge_label_keys(pod: Object) -> None:
    """Merge matchLabelKeys and mismatchLabelKeys of a pod into their selectors.

    Source:
        kube-apiserver v1.36, pkg/registry/core/pod/strategy.go, mutatePodAffinity and
        mutateTopologySpreadConstraints.
    """
    spec, labels = pod["spec"], pod["metadata"].get("labels", {})
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


def class_of(claim: Object) -> str | None:
    """Return the class of a claim or volume: "" for no class, None if it is not set."""
    annotation: str | None = claim["metadata"].get("annotations", {}).get(BETA_CLASS)
    return claim["spec"].get("storageClassName") if annotation is None else annotation


def default_class(classes: Iterable[Object]) -> str:
    """Return the class of claims that name none: the newest default class; "" if there is none."""
    defaults = sorted(filter(is_default_class, classes), key=lambda one: str(one["metadata"]["name"]))
    if not defaults:
        return ""
    newest = max(defaults, key=lambda one: str(one["metadata"].get("creationTimestamp", "")))
    return str(newest["metadata"]["name"])


def is_default_class(class_: Object) -> bool:
    """Return whether a class is a default class."""
    annotations = class_["metadata"].get("annotations", {})
    return any(annotations.get(name) == "true" for name in _IS_DEFAULT)
