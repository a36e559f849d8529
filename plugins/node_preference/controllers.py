"""The controllers of pods: how many replicas they want, which pods are theirs, and their annotation.

The Deployment controller copies the annotations of a Deployment to its ReplicaSets, so Deployments are not read.

Source:
    kube-controller-manager v1.36, pkg/controller/deployment/util/deployment_util.go, SetNewReplicaSetAnnotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.node_preference.preferences import ANNOTATION
from scheduler.errors import ObjectError
from scheduler.objects.caches import BoundedDict
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorError, parse_label_selector
from scheduler.snapshot import PodQuery, PodsIn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugins.node_preference.preferences import Preference
    from scheduler.framework import ClusterObjects
    from scheduler.objects.meta import OwnerReference
    from scheduler.objects.pod import PodInfo

REPLICA_SETS: Final = "apps/v1/replicasets"
_JOBS: Final = "batch/v1/jobs"
_KINDS: Final = {
    ("apps/v1", "ReplicaSet"): REPLICA_SETS,
    ("apps/v1", "StatefulSet"): "apps/v1/statefulsets",
    ("batch/v1", "Job"): _JOBS,
}
KINDS: Final = frozenset(_KINDS.values())
_MOST_KNOWN: Final = 4096


class _Spec(ApiStruct, frozen=True):
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    selector: LabelSelector | None = None


class _ControllerObject(ApiStruct, frozen=True):
    """The fields of a controller that are read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


class Controller(NamedTuple):
    """A controller of pods.

    Attributes:
        title: its kind and name, as in `ReplicaSet web-1`.
        kind: its kind, as in `Needs.kinds`.
        uid: its uid.
        replicas: how many pods it wants at the same time.
        rule: selects its pods by their labels.
        query: the same pods on nodes, without terminating ones.
        annotation: the text of its node preference; None without one.
    """

    title: str
    kind: str
    uid: str
    replicas: int
    rule: LabelRule
    query: PodQuery
    annotation: str | None


def owner_of(pod: PodInfo) -> OwnerReference | None:
    """Return the controller that a pod names."""
    return next((owner for owner in pod.pod.metadata.owner_references if owner.controller), None)


def key_of(pod: PodInfo) -> tuple[str, str] | None:
    """Return kind and `namespace/name` of the controller that a pod names; None if its kind is not read."""
    owner = owner_of(pod)
    kind = None if owner is None else _KINDS.get((owner.api_version, owner.kind))
    return None if owner is None or kind is None else (kind, f"{pod.namespace}/{owner.name}")


class Wanted(NamedTuple):
    """The preference of a pod.

    Attributes:
        preference: None without one.
        controller: the controller of the pod; None without one that is read: then the sets have no limits.
        fault: the error in its annotation, if any.
    """

    preference: Preference | None
    controller: Controller | None
    fault: str = ""

    @property
    def has_limits(self) -> bool:
        """Whether limits apply to the pod."""
        return self.preference is not None and self.controller is not None and self.preference.has_limits


class Controllers:
    """Reads controllers, each version of one once."""

    def __init__(self, cluster: ClusterObjects) -> None:
        self._cluster = cluster
        self._known: BoundedDict[tuple[str, str], tuple[_ControllerObject, Controller | None]] = BoundedDict(
            _MOST_KNOWN
        )

    def of(self, pod: PodInfo) -> Controller | None:
        """Return the controller of a pod; None for other kinds, and if it is unknown or invalid."""
        key = key_of(pod)
        if key is None:
            return None
        kind, name = key
        try:
            obj = self._cluster.objects(kind).typed(_ControllerObject, name)
        except ObjectError:
            return None
        if obj is None:
            return None
        known, controller = self._known.get(key, (None, None))
        if known is not obj:
            controller = _read(kind, pod.namespace, obj)
            self._known[key] = obj, controller
        return controller


def _read(kind: str, namespace: str, obj: _ControllerObject) -> Controller | None:
    try:
        rule = parse_label_selector(obj.spec.selector)
    except SelectorError:
        return None
    if not rule.count:
        return None
    metadata, name = obj.metadata, next(name for (_, name), each in _KINDS.items() if each == kind)
    return Controller(
        title=f"{name} {metadata.name}",
        kind=kind,
        uid=metadata.uid,
        replicas=_replicas(kind, obj.spec),
        rule=rule,
        query=PodQuery((PodsIn(frozenset({namespace}), rule),), counts_terminating=False),
        annotation=metadata.annotations.get(ANNOTATION),
    )


def _replicas(kind: str, spec: _Spec) -> int:
    """Return how many pods a controller wants at the same time; 1 is the default of all kinds."""
    if kind != _JOBS:
        return 1 if spec.replicas is None else spec.replicas
    at_once = 1 if spec.parallelism is None else spec.parallelism
    return at_once if spec.completions is None else min(at_once, spec.completions)


def is_changed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Return whether a controller is new, or has another spec or another preference."""
    if old is None or old.get("spec") != new.get("spec"):
        return True
    before, after = (each["metadata"].get("annotations") or {} for each in (old, new))
    return before.get(ANNOTATION) != after.get(ANNOTATION)
