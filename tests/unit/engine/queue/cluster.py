"""A queue with the plugins of its tests, and an environment that the tests control."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from scheduler.engine.ports import Time
from scheduler.engine.queue import SchedulingQueue
from scheduler.engine.state.nominator import Nominator
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework import (
    EVERYTHING,
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    QueueingHint,
    Status,
)
from scheduler.framework.events import pod_changes
from scheduler.framework.status import SUCCESS
from scheduler.loop_work import run_to_end
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.engine.queue import Place
    from scheduler.framework import QueuedPodInfo
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

PROFILE = "custom-scheduler"

PVC_ADD = ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD)
NODE_TAINT = ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_TAINT)
NODE_LABEL = ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_LABEL)
CSI_NODE_ADD = ClusterEvent(EventResource.CSI_NODE, ActionType.ADD)


def fits(pod: PodInfo, _old: Any, new: NodeObject) -> QueueingHint:
    """The hint of Fit: a node helps if its label `size` is not below the pod's."""
    roomy = int(new.labels.get("size", "0")) >= int(pod.labels.get("size", "0"))
    return QueueingHint.QUEUE if roomy else QueueingHint.SKIP


def broken(_pod: PodInfo, _old: Any, _new: Any) -> QueueingHint:
    """The hint of Broken."""
    raise RuntimeError("no idea")


def its_own(pod: PodInfo, _old: Any, new: PodInfo) -> QueueingHint:
    """The hint of Gates and Labels: only the pod's own update helps it."""
    return QueueingHint.QUEUE if new.uid == pod.uid else QueueingHint.SKIP


REGISTERED: Mapping[str, Sequence[EventWithHint]] = {
    "Fit": [EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD), fits)],
    "Taints": [EventWithHint(NODE_TAINT)],
    "Volumes": [EventWithHint(PVC_ADD)],
    "Broken": [EventWithHint(NODE_LABEL, broken)],
    "Anything": EVERYTHING,
    "Labels": [
        EventWithHint(ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_LABEL), its_own),
        EventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE)),
    ],
    "Gates": [
        EventWithHint(
            ClusterEvent(EventResource.POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED), its_own
        )
    ],
    "Hold": [EventWithHint(CSI_NODE_ADD)],
    "Curfew": EVERYTHING,
}  # plugin -> what it registered for


class Counts:
    """Implements `QueueObserver`."""

    def __init__(self) -> None:
        self.came_in = Counter[tuple[str, str]]()
        self.members_came_in = Counter[tuple[str, str]]()
        self.groups_came_in = Counter[tuple[str, str]]()
        self.hints: list[tuple[str, str, str]] = []

    def incoming(self, queue: str, event: str) -> None:
        self.came_in[queue, event] += 1

    def incoming_member(self, queue: str, event: str, *, with_group: bool) -> None:
        self.members_came_in[queue, event] += 1
        self.groups_came_in[queue, event] += with_group

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.hints.append((plugin, event, result))


class Cluster:
    """A queue, its clock, its counts, and the pods that PreEnqueue rejects.

    Attributes:
        held: uids that the PreEnqueue plugin Hold rejects; it waits for CSINodes.
        under_curfew: uids that Curfew rejects; it registered for all events.
        has_entities: whether groups wait as one entity.
        asked: number of calls of PreEnqueue.
    """

    def __init__(self, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock(1000.0)
        self.counts = Counts()
        self.held: set[str] = set()
        self.under_curfew: set[str] = set()
        self.has_entities = False
        self.asked = Counter[str]()
        self.profiles: dict[str, Mapping[str, Sequence[EventWithHint]]] = {PROFILE: REGISTERED}
        self.nominator = Nominator()
        self.queue = SchedulingQueue(
            plugins=self,
            nominator=self.nominator,
            groups=PodGroups(),
            time=Time(self.clock),
            observer=self.counts,
            **settings,
        )

    def root_of(self, pod: PodInfo) -> GroupKey | None:
        return pod.group

    def entity_of(self, pod: PodInfo) -> GroupKey | None:
        return pod.group if self.has_entities else None

    def groups_with(self, pod: PodInfo) -> Sequence[GroupKey]:
        return () if pod.group is None else (pod.group,)

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        return (-queued.pod.priority, queued.timestamp)

    def events(self, profile: str) -> Mapping[str, Sequence[EventWithHint]]:
        return self.profiles.get(profile, {})

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        self.asked[pod.name] += 1
        if pod.pod.spec.scheduling_gates:
            return Status.unschedulable("waiting for scheduling gates").by("Gates")
        if pod.uid in self.held:
            return Status.unschedulable("held").by("Hold")
        if pod.uid in self.under_curfew:
            return Status.unschedulable("too late").by("Curfew")
        return SUCCESS

    def update(self, old: PodInfo, new: PodInfo) -> None:
        self.queue.update(old, new, pod_changes(old, new))

    def pop(self) -> QueuedPodInfo:
        queued = self.queue.pop()
        assert queued is not None, "nothing to pop"
        return queued

    def pop_names(self) -> list[str]:
        """Pop until the queue is empty, ending each attempt."""
        names = []
        while (queued := self.queue.pop()) is not None:
            names.append(queued.pod.name)
            self.queue.done(queued.pod.uid)
        return names

    def pop_group(self) -> list[QueuedPodInfo]:
        """Pop the next pod with the others of its group; [] if it has to wait for them."""
        return self.popped_with(self.pop())

    def popped_with(self, first: QueuedPodInfo) -> list[QueuedPodInfo]:
        return run_to_end(self.queue.pop_group(first))

    def end_group(self, name: str = "g", *, is_placed: bool = False) -> None:
        """End the attempt at a group."""
        run_to_end(self.queue.end_group(GroupKey(POD_GROUPS, "default", name), is_placed=is_placed))

    def reject(self, pod: PodInfo, *plugins: str, pending: Iterable[str] = ()) -> Place:
        """Add a pod and let its first attempt fail."""
        self.queue.add(pod)
        queued = self.pop()
        assert queued.pod is pod, f"{queued.pod} came first"
        return self.queue.add_unschedulable(queued, unschedulable_plugins=plugins, pending_plugins=pending)

    def fail(self, pod: PodInfo) -> Place:
        """Add a pod and let its first attempt end in an error."""
        self.queue.add(pod)
        queued = self.pop()
        assert queued.pod is pod, f"{queued.pod} came first"
        return self.queue.add_unschedulable(queued, is_error=True)

    def advance_and_flush(self, seconds: float) -> int:
        self.clock.advance(seconds)
        return self.queue.flush(self.clock.now)
