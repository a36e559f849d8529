"""Groups by the PodGroups of scheduler-plugins and of Volcano, which existed before Kubernetes had its own.

They are handled as Kubernetes' own groups: all members are tried in one cycle, so none holds a node over cycles.

Source:
    scheduler-plugins, pkg/coscheduling/coscheduling.go and pkg/coscheduling/core/core.go.
"""

from __future__ import annotations

from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from plugins.pod_groups.coscheduling_objects import (
    PRIORITY_CLASSES,
    PodGroupObject,
    PodGroupStatuses,
    PriorityClass,
    resource_gap,
)
from plugins.pod_groups.gang_scheduling import GROUP_NOT_FOUND, TOO_FEW_PODS, GangArgs, Gangs
from scheduler.errors import FieldError, ObjectError
from scheduler.framework import (
    ActionType,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Needs,
    PodGroup,
    PodGroupMembers,
    PreFilterPlugin,
    QueueingHint,
    QueueSortPlugin,
    Reason,
    Status,
    no_event_keys,
)
from scheduler.objects.pod_group import COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS, task_of
from scheduler.objects.quantity import amounts_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from scheduler.framework import CycleState, QueuedPodInfo, StatusAccess, StatusSource
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey
    from scheduler.snapshot import Snapshot

_PERMIT_SECONDS: Final = 60
_MOST_TASKS: Final = 1000
CAPACITY_MISSING: Final = "GroupCapacityMissing"


class CoschedulingArgs(GangArgs, frozen=True):
    """The arguments of scheduler-plugins, and those of every gang.

    Attributes:
        permit_waiting_time_seconds: how long a member may wait with a node for the others if its group does not specify
            it; 0 means 60.
        pod_group_backoff_seconds: has no effect: a group backs off as one, as pods do.
        pod_group_reject_percentage: has no effect: a group is decided in one cycle, so none waits partly placed.
    """

    permit_waiting_time_seconds: int = _PERMIT_SECONDS
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10

    def faults(self) -> Iterator[FieldError]:
        yield from super().faults()
        for path, value in (
            ("permitWaitingTimeSeconds", self.permit_waiting_time_seconds),
            ("podGroupBackoffSeconds", self.pod_group_backoff_seconds),
        ):
            if value < 0:
                yield FieldError(path, f"Invalid value: {value}: must be greater than 0")
        percentage = self.pod_group_reject_percentage
        if not 0 <= percentage <= 100:
            yield FieldError(
                "podGroupRejectPercentage", f"Invalid value: {percentage}: not in valid range [0, 100]"
            )


class Coscheduling(QueueSortPlugin, Gangs, PreFilterPlugin):
    """Holds members of a group until minMember of them exist, and places them together or not at all."""

    name = "Coscheduling"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            GROUP_NOT_FOUND: "the PodGroup of the pod does not exist",
            TOO_FEW_PODS: "fewer pods of the group exist than its `minMember`",
            CAPACITY_MISSING: "all nodes together lack the `minResources` of the group",
        }
    )
    Args = CoschedulingArgs
    reads_pods = False
    waiting = "waiting for minMember pods of the group to be scheduled"
    group_kinds = frozenset({COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS})
    group_events = MappingProxyType(
        dict.fromkeys((COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS), ActionType.ADD | ActionType.UPDATE)
    )
    needs = Needs(
        kinds=group_kinds | {PRIORITY_CLASSES},
        rights=frozenset(f"patch {kind}/status" for kind in group_kinds),
    )

    def __init__(
        self, *, args: CoschedulingArgs, objects: ClusterObjects, members: PodGroupMembers, clock: Clock
    ) -> None:
        self._permit_seconds = float(args.permit_waiting_time_seconds or _PERMIT_SECONDS)
        self._releases = args.releases
        self._objects = objects
        self._members = members
        self._clock = clock

    def _object(self, key: GroupKey) -> PodGroupObject | None:
        return self._objects.objects(key.kind).typed(PodGroupObject, key.key)

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        found = self._object(key)
        if found is None:
            return None
        try:
            found.least()
        except ValueError as error:
            raise ObjectError("PodGroup", key.key, "spec.minResources", str(error)) from error
        tasks = len(found.spec.min_task_member or ())
        if tasks > _MOST_TASKS:
            raise ObjectError(
                "PodGroup",
                key.key,
                "spec.minTaskMember",
                f"at most {_MOST_TASKS} tasks are expected, were {tasks}",
            )
        name = found.spec.priority_class_name
        class_ = self._objects.objects(PRIORITY_CLASSES).typed(PriorityClass, name) if name else None
        seconds = float(found.spec.schedule_timeout_seconds or self._permit_seconds)
        return PodGroup(
            key,
            found.metadata.uid,
            found.min_count,
            highest_priority=None if class_ is None else class_.value,
            wait_seconds=seconds,
            releases=self._releases,
        )

    def attempted(self, group: PodGroup, status: Status) -> None:
        """Do nothing: the group's phase and conditions follow from its pods."""

    def statuses(self, plugins: Sequence[Self], access: StatusAccess) -> Sequence[StatusSource]:
        return [PodGroupStatuses(kind, access) for kind in sorted(self.group_kinds)]

    def events(self) -> Sequence[EventWithHint]:
        """Register for the group's own events, for capacity that may close a resource gap, and for pods that leave a group."""
        room = (
            ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
            ClusterEvent(EventResource.POD, ActionType.DELETE),
        )
        own_update = ClusterEvent(EventResource.POD, ActionType.UPDATE)
        return (
            *super().events(),
            *(EventWithHint(event, self._room_hint, self.own_group) for event in room),
            EventWithHint(own_update, self._left_hint, event_keys=no_event_keys),
        )

    def _left_hint(self, pod: PodInfo, _: Any, new: PodInfo) -> QueueingHint:
        """Requeue a pod whose labels and annotations no longer name a group; a new group is an event of that group."""
        is_free = new.uid == pod.uid and self.own_group(new) is None
        return QueueingHint.QUEUE if is_free else QueueingHint.SKIP

    def _room_hint(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        key = self.own_group(pod)
        found = None if key is None else self._object(key)
        asks = found is not None and found.spec.min_resources
        return QueueingHint.QUEUE if asks else QueueingHint.SKIP

    # In the queue.

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        """Order by priority, then by the age of the group or its last failure; other pods by the time they were added.

        Members of a group are tried together, so groups with equal keys need no order by name.
        """
        return (-queued.pod.priority, self._since(queued))

    def _since(self, queued: QueuedPodInfo) -> float:
        key = self.own_group(queued.pod)
        if key is None or queued.attempts:
            return queued.timestamp
        try:
            found = self._object(key)
            created = datetime.fromisoformat(found.metadata.creation_timestamp) if found else None
        except (ObjectError, ValueError):
            created = None
        if created is None:
            return queued.timestamp
        return self._clock.monotonic() - (self._clock.utc_now() - created).total_seconds()

    def refusal(self, pod: PodInfo, key: GroupKey, group: PodGroup | None) -> Status | None:
        if group is None:
            return self.not_found(key)
        count = self._members.count(key)
        if count >= group.min_count:
            return None
        return Status.unschedulable(
            Reason(
                f"pre-filter pod {pod.name} cannot find enough sibling pods, current pods number: {count}, "
                f"minMember of group: {group.min_count}",
                TOO_FEW_PODS,
            ),
            resolvable=False,
        )

    # In a cycle.

    def signature(self, pod: PodInfo) -> Hashable | None:
        key = self.own_group(pod)
        return () if key is None or not self._least(key) else None

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status | None:
        """Reject a group without any placed pod if all nodes together lack what it requests."""
        key = self.own_group(pod)
        if key is None or self._members.placed(key):
            return None
        gap = resource_gap(self._least(key), snapshot)
        if not gap:
            return None
        reason = Reason(f"resource gap: {amounts_text(gap)}", CAPACITY_MISSING)
        return Status.unschedulable(reason, resolvable=False)

    def _least(self, key: GroupKey) -> Mapping[str, int]:
        found = self._object(key)
        return {} if found is None else found.least()

    def is_enough(self, group: PodGroup) -> bool:
        placed = self._members.placed(group.key)
        if len(placed) < group.min_count:
            return False
        found = self._object(group.key)
        if found is None or not found.spec.min_task_member:
            return True
        return not found.short_of([task_of(pod.pod) for pod in placed])

    def not_found(self, key: GroupKey) -> Status:
        return Status.unschedulable(Reason("PodGroup not found", GROUP_NOT_FOUND), resolvable=False)

    def permit_seconds(self, group: PodGroup) -> float:
        return self._permit_seconds if group.wait_seconds is None else group.wait_seconds
