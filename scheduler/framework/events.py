"""The events of a cluster, how updates are classified into them, and the queueing hints of plugins.

The classification is as fine as possible, so that a plugin that waits for taints is not called for labels.

Source:
    kube-scheduler v1.36, framework/events.go; staging/src/k8s.io/kube-scheduler/framework/types.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, IntFlag, auto
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from scheduler.framework.features import Features
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo


class ActionType(IntFlag):
    """The kinds of changes of an object; combine them with `|`. Updates differ by the changed field."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    """spec.taints or spec.unschedulable."""
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_NODE_PREEMPTION_POLICY = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    """At least one request of the pod became smaller."""
    UPDATE_POD_SCALE_UP = auto()
    """At least one request of the pod became larger."""
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = auto()

    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_NODE_DECLARED_FEATURE
        | UPDATE_NODE_PREEMPTION_POLICY
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_SCALE_UP
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        | UPDATE_POD_GENERATED_RESOURCE_CLAIM
    )
    """Any change; also an update without a named change."""
    ALL = ADD | DELETE | UPDATE

    @property
    def label(self) -> str:
        """The label in metrics and logs, as in `UpdateNodeTaint`."""
        return "".join(word.capitalize() for word in (self.name or "").split("_"))


class EventResource:
    """The kind of the changed object: one of kube-scheduler's kinds, or any other kind with `of`.

    There is one object for each kind, so `is` compares them.

    Attributes:
        value: the text in labels of metrics and logs.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, EventResource: the format of other kinds.
    """

    __slots__ = ("value",)

    POD: ClassVar[EventResource]
    ASSIGNED_POD: ClassVar[EventResource]
    """A pod on a node; plugins register for POD, which includes this."""
    UNSCHEDULABLE_POD: ClassVar[EventResource]
    """A pod not on a node; plugins register for POD, which includes this."""
    NODE: ClassVar[EventResource]
    PERSISTENT_VOLUME: ClassVar[EventResource]
    PERSISTENT_VOLUME_CLAIM: ClassVar[EventResource]
    CSI_NODE: ClassVar[EventResource]
    CSI_DRIVER: ClassVar[EventResource]
    VOLUME_ATTACHMENT: ClassVar[EventResource]
    CSI_STORAGE_CAPACITY: ClassVar[EventResource]
    STORAGE_CLASS: ClassVar[EventResource]
    RESOURCE_CLAIM: ClassVar[EventResource]
    RESOURCE_SLICE: ClassVar[EventResource]
    DEVICE_CLASS: ClassVar[EventResource]
    DEVICE_TAINT_RULE: ClassVar[EventResource]
    POD_GROUP: ClassVar[EventResource]
    COMPOSITE_POD_GROUP: ClassVar[EventResource]
    WORKLOAD: ClassVar[EventResource]
    WILDCARD: ClassVar[EventResource]
    """Every kind."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"EventResource({self.value!r})"

    @staticmethod
    @cache
    def of(kind: str) -> EventResource:
        """Return the resource of a kind that plugins watch.

        Args:
            kind: `version/plural` or `group/version/plural`, as in `Needs.kinds`.
        """
        known = _OF_KIND.get(kind)
        return known or EventResource(".".join(reversed(kind.split("/"))))


_OF_KIND: Final[dict[str, EventResource]] = {}
"""The resource of each kind that kube-scheduler watches."""


for _name, _value, _kind in (
    ("POD", "Pod", "v1/pods"),
    ("ASSIGNED_POD", "AssignedPod", ""),
    ("UNSCHEDULABLE_POD", "UnschedulablePod", ""),
    ("NODE", "Node", "v1/nodes"),
    ("PERSISTENT_VOLUME", "PersistentVolume", "v1/persistentvolumes"),
    ("PERSISTENT_VOLUME_CLAIM", "PersistentVolumeClaim", "v1/persistentvolumeclaims"),
    ("CSI_NODE", "storage.k8s.io/CSINode", "storage.k8s.io/v1/csinodes"),
    ("CSI_DRIVER", "storage.k8s.io/CSIDriver", "storage.k8s.io/v1/csidrivers"),
    ("VOLUME_ATTACHMENT", "storage.k8s.io/VolumeAttachment", "storage.k8s.io/v1/volumeattachments"),
    ("CSI_STORAGE_CAPACITY", "storage.k8s.io/CSIStorageCapacity", "storage.k8s.io/v1/csistoragecapacities"),
    ("STORAGE_CLASS", "storage.k8s.io/StorageClass", "storage.k8s.io/v1/storageclasses"),
    ("RESOURCE_CLAIM", "resource.k8s.io/ResourceClaim", "resource.k8s.io/v1/resourceclaims"),
    ("RESOURCE_SLICE", "resource.k8s.io/ResourceSlice", "resource.k8s.io/v1/resourceslices"),
    ("DEVICE_CLASS", "resource.k8s.io/DeviceClass", "resource.k8s.io/v1/deviceclasses"),
    ("DEVICE_TAINT_RULE", "resource.k8s.io/DeviceTaintRule", "resource.k8s.io/v1/devicetaintrules"),
    ("POD_GROUP", "scheduling.k8s.io/PodGroup", "scheduling.k8s.io/v1alpha2/podgroups"),
    (
        "COMPOSITE_POD_GROUP",
        "scheduling.k8s.io/CompositePodGroup",
        "scheduling.k8s.io/v1alpha3/compositepodgroups",
    ),
    ("WORKLOAD", "scheduling.k8s.io/Workload", "scheduling.k8s.io/v1alpha1/workloads"),
    ("WILDCARD", "*", ""),
):
    setattr(EventResource, _name, EventResource(_value))
    if _kind:
        _OF_KIND[_kind] = getattr(EventResource, _name)


_PARTS_OF_POD = frozenset({EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD})


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One kind of event: an action on a kind of object.

    Attributes:
        resource: the kind of object.
        action: the action; several in a plugin's registration.
        custom_label: the label in metrics and logs, if it is not derived from resource and action.
        label: the label in metrics and logs, as in `NodeUpdateNodeTaint` or `AssignedPodDelete`.
        is_wildcard: whether it requeues every pod, whatever plugins return.
    """

    resource: EventResource
    action: ActionType
    custom_label: str = ""
    label: str = field(init=False, compare=False, repr=False)
    is_wildcard: bool = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # There are few of them, and each event of a watch needs these values.
        label = self.custom_label or f"{self.resource.value}{self.action.label}"
        wildcard = self.resource is EventResource.WILDCARD and self.action == ActionType.ALL
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "is_wildcard", wildcard)
        object.__setattr__(self, "_hash", hash((self.resource, self.action, self.custom_label)))

    def __hash__(self) -> int:
        return self._hash

    def covers(self, event: ClusterEvent) -> bool:
        """Return whether a registration for this event includes another event.

        A general update, without a named change, matches only registrations for all updates. A wildcard event
        matches no registration: the queue requeues all pods by itself.
        Source:
            kube-scheduler v1.36, framework/types.go, MatchClusterEvents.
        """
        same_kind = (
            self.resource is EventResource.WILDCARD
            or self.resource is event.resource
            or (self.resource is EventResource.POD and event.resource in _PARTS_OF_POD)
        )
        return self.is_wildcard or (same_kind and self.action & event.action == event.action)


class QueueingHint(Enum):
    """Whether an event may make a pod schedulable; the values are the metric's."""

    SKIP = "QueueSkip"
    """It does not; the pod stays in the queue."""
    QUEUE = "Queue"
    """It may; the pod is retried."""


@dataclass(frozen=True, slots=True)
class EventWithHint:
    """An event that may make a pod rejected by the plugin schedulable, and the hint for single pods.

    `pod_key`, `event_keys` and `waits_for_keys` avoid most calls of the hint while ten thousand pods wait; they are
    optional. The hint is not called for a pod that they exclude, so they may include too many pods, never too
    few.

    Attributes:
        event: the event to register for.
        hint: called with (rejected pod, old object, new object); old is None for an addition, new for a
            deletion; objects are PodInfo and NodeObject, dicts for other kinds. None: every such event may
            help. An exception counts as QUEUE, so that no pod waits without end.
        pod_key: returns everything that the hint reads of a rejected pod, except whether the event is about
            that pod. The hint is called once for all pods with an equal value. None: it is called for each
            pod.
        event_keys: returns keys, defined by the plugin, of an event (old object, new object). With no keys, the
            event helps at most the pod it is about; None: it may help every pod.
        waits_for_keys: returns keys, of which an event must have one to help a pod; None: any event with keys may
            help. Must depend only on the value of `pod_key`.
    """

    event: ClusterEvent
    hint: Callable[[PodInfo, Any, Any], QueueingHint] | None = None
    pod_key: Callable[[PodInfo], Hashable] | None = None
    event_keys: Callable[[Any, Any], Collection[Hashable] | None] | None = None
    waits_for_keys: Callable[[PodInfo], Collection[Hashable] | None] | None = None


def no_pod_key(_pod: PodInfo) -> None:
    """An `EventWithHint.pod_key` for a hint that reads nothing of the pod."""


def no_event_keys(_old: Any, _new: Any) -> tuple[()]:
    """An `EventWithHint.event_keys` for an event that helps at most the pod it is about."""
    return ()


EXTENDER = "Extender"
"""Name of the rejecting plugin for a rejection by an extender, in metrics and in the queue."""
EVERYTHING = (EventWithHint(ClusterEvent(EventResource.WILDCARD, ActionType.ALL)),)
"""For a plugin without a precise registration: all events."""


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


def pod_changes(old: PodInfo, new: PodInfo, *, names_scale_up: bool = False) -> list[ClusterEvent]:
    """Classify the update of a pod.

    Args:
        old: the pod before.
        new: the pod now.
        names_scale_up: whether a larger request is a named change: only resizes of other pods wait for it.

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
    if names_scale_up and _scaled_down(new, old):  # the reverse would be smaller
        actions.append(ActionType.UPDATE_POD_SCALE_UP)
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
    if old.node.spec.pod_preemption_policy != new.node.spec.pod_preemption_policy:
        actions.append(ActionType.UPDATE_NODE_PREEMPTION_POLICY)
    return [ClusterEvent(EventResource.NODE, action) for action in actions]


def _scaled_down(old: PodInfo, new: PodInfo) -> bool:
    """Whether any request became smaller, in the spec and the resize status, by the rules of the emulated version.

    The decoded requests are compared, because pods on nodes are kept without the statuses of their containers.

    Source:
        kube-scheduler v1.36, framework/events.go, extractPodScaleDown, which compares exact quantities.
    """
    before, after = old.resources, new.resources
    if before is after:  # pods with equal requests share one result, unless it is too long to be kept
        return False
    return any(name not in after.taken or after.taken[name] < amount for name, amount in before.taken.items())


def _generated_claims(pod: PodInfo) -> tuple[object, object]:
    """The resource claims that were generated for a pod."""
    status = pod.pod.status
    return status.resource_claim_statuses, status.extended_resource_claim_status


def _offer_changed(old: NodeObject, new: NodeObject) -> bool:
    """Whether the allocatable amounts differ: `1` and `1000m` of cpu are equal."""
    return old.node.status.allocatable != new.node.status.allocatable and old.allocatable != new.allocatable


def _condition_statuses(node: NodeObject) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.node.status.conditions}


_OLD, _OTHERS, _OWN = "UnschedulablePod", "UnscheduledPod", "TargetPod"
_OLD_NAMES: Final = re.compile(rf"\b{_OLD}[A-Z]\w*")


@cache
def new_event_name(label: str, *, is_own: bool = False) -> str:
    """Return the name since 1.37 of an event, by its label, which is its name up to 1.36.

    Updates of a waiting pod that queueing hints evaluate have another name than other events of pods without a node. A
    named change, such as UpdatePodLabel, is always of this kind.

    Args:
        label: the label of the event.
        is_own: whether an update without a named change is of the waiting pod itself.

    Source:
        Pull request #135905 for kube-scheduler v1.37, staging/src/k8s.io/kube-scheduler/framework/types.go.
    """
    if not label.startswith(_OLD):
        return label
    action = label.removeprefix(_OLD)
    own = action.startswith("Update") and (is_own or action != "Update")
    return f"{_OWN if own else _OTHERS}{action}"


def with_event_names(text: str, features: Features) -> str:
    """Return a text with the names that events have in the emulated version, instead of their labels."""
    if not features.enabled("EventNames"):
        return text
    return _OLD_NAMES.sub(lambda found: new_event_name(found[0]), text)


def describe_changes(events: Iterable[EventWithHint]) -> dict[str, list[str]]:
    """Return kind of object -> its possible changes: `Node` -> `added`, `taint changed`."""
    kinds: dict[str, dict[str, None]] = {}
    for each in events:
        resource = each.event.resource
        kind = "anything" if resource is EventResource.WILDCARD else resource.value
        kinds.setdefault(kind, {}).update(dict.fromkeys(_actions(each.event.action)))
    return {kind: list(actions) for kind, actions in kinds.items()}


def _actions(action: ActionType) -> list[str]:
    """Return the descriptions of an action: `UPDATE_NODE_TAINT` is `taint changed`."""
    words = {ActionType.ADD: "added", ActionType.DELETE: "deleted", ActionType.UPDATE: "changed"}
    effects = [word for kind, word in words.items() if kind in action]
    if ActionType.UPDATE not in action:
        names = [each.name for each in action & ActionType.UPDATE if each.name]
        changed = [" ".join(name.lower().split("_")[2:]) for name in names]
        effects += [each if each.endswith("eliminated") else f"{each} changed" for each in changed]
    return effects
