"""The events of a cluster, and the queueing hints of plugins.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntFlag, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from scheduler.objects.pod import PodInfo


class ActionType(IntFlag):
    """What happened to an object; combine them with `|`. Updates differ by the changed field."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    """spec.taints or spec.unschedulable."""
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    """At least one request of the pod became smaller."""
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
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
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


class EventResource(Enum):
    """The kind of the changed object."""

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    """A pod on a node; plugins register for POD, which includes this."""
    UNSCHEDULABLE_POD = "UnschedulablePod"
    """A pod not on a node; plugins register for POD, which includes this."""
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    COSCHEDULING_POD_GROUP = "scheduling.x-k8s.io/PodGroup"
    VOLCANO_POD_GROUP = "scheduling.volcano.sh/PodGroup"
    ELASTIC_QUOTA = "scheduling.x-k8s.io/ElasticQuota"
    QUEUE = "custom-scheduler.io/Queue"
    WILDCARD = "*"
    """Every kind."""


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
