"""What can happen in a cluster, and what a plugin makes of it for the pods it rejected.

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
    """What happened to an object; combine them with `|`. Updates are told apart by what changed."""

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
    """Any request of the pod became smaller."""
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
    """Any change; also an event in which nothing was found that has a name of its own."""
    ALL = ADD | DELETE | UPDATE

    @property
    def label(self) -> str:
        """The word in metrics and logs, as in `UpdateNodeTaint`."""
        return "".join(word.capitalize() for word in (self.name or "").split("_"))


class EventResource(Enum):
    """The kind of object that something happened to."""

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    """A pod on a node; plugins register for POD, of which this is a part."""
    UNSCHEDULABLE_POD = "UnschedulablePod"
    """A pod not on a node; plugins register for POD, of which this is a part."""
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
    """One kind of happening: an action on a kind of object.

    Attributes:
        resource: the kind.
        action: what happened; several, where a plugin registers for them.
        custom_label: the word in metrics and logs, where it is not made of the two.
        label: the word in metrics and logs, as in `NodeUpdateNodeTaint` or `AssignedPodDelete`.
        is_wildcard: whether it wakes every pod, whatever plugins say.
    """

    resource: EventResource
    action: ActionType
    custom_label: str = ""
    label: str = field(init=False, compare=False, repr=False)
    is_wildcard: bool = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # There are few of them, and they are looked up and told with every event of a watch.
        label = self.custom_label or f"{self.resource.value}{self.action.label}"
        wildcard = self.resource is EventResource.WILDCARD and self.action == ActionType.ALL
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "is_wildcard", wildcard)
        object.__setattr__(self, "_hash", hash((self.resource, self.action, self.custom_label)))

    def __hash__(self) -> int:
        return self._hash

    def covers(self, event: ClusterEvent) -> bool:
        """Say whether a plugin registered for this wants to hear of an event.

        A general update, one in which nothing named was found, reaches only those who registered for all updates.
        A wildcard event is nobody's: the queue wakes everyone by itself.

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
    """Whether an event may help a pod; the values are the metric's."""

    SKIP = "QueueSkip"
    """It does not; the pod sleeps on."""
    QUEUE = "Queue"
    """It may; the pod is tried again."""


@dataclass(frozen=True, slots=True)
class EventWithHint:
    """An event that may help a pod the plugin rejected, and how to tell for one pod.

    `alike`, `brings` and `awaits` spare the hint most of its calls where ten thousand pods wait; it need not have them.
    A pod that they leave out is not asked about, so they may find too many pods, never too few.

    Attributes:
        event: what the plugin wants to hear of.
        hint: asked with (rejected pod, old object, new object); old is None for an addition, new for a deletion;
            objects are PodInfo and NodeObject, dicts for other kinds. None: every such event may help. One that
            raises counts as QUEUE, so that no pod sleeps for ever.
        alike: all that the hint reads of a rejected pod, beside whether the event is about that pod itself. Where it is
            equal, one pod is asked about for all. None: each pod is asked about.
        brings: the keys, of the plugin's own making, that an event (old object, new object) brings. Without any it helps
            at most the pod that it is about; None: it may help every pod.
        awaits: the keys of which an event must bring one to help a pod; None: any event may that brings something.
            Goes by what `alike` returns alone.
    """

    event: ClusterEvent
    hint: Callable[[PodInfo, Any, Any], QueueingHint] | None = None
    alike: Callable[[PodInfo], Hashable] | None = None
    brings: Callable[[Any, Any], Collection[Hashable] | None] | None = None
    awaits: Callable[[PodInfo], Collection[Hashable] | None] | None = None


def reads_nothing(_pod: PodInfo) -> None:
    """Return what a hint reads of a pod that goes by the event alone: an `EventWithHint.alike`."""


def brings_nothing(_old: Any, _new: Any) -> tuple[()]:
    """Return what an event brings that helps at most the pod that it is about: an `EventWithHint.brings`."""
    return ()


EXTENDER = "Extender"
"""Who refused a node that an extender refused, as in metrics and in the queue."""
EVERYTHING = (EventWithHint(ClusterEvent(EventResource.WILDCARD, ActionType.ALL)),)
"""For a plugin that cannot say what helps: any change at all."""
