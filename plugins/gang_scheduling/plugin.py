"""Gangs: pods that are held back until enough of them are there, and are placed together or not at all.

Source:
    kube-scheduler v1.36, plugins/gangscheduling/gangscheduling.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from plugins.gang_scheduling.conditions import GroupConditions
from plugins.gang_scheduling.objects import PodGroupObject
from scheduler.errors import FieldError, ObjectError
from scheduler.framework import (
    ActionType,
    ApiWrite,
    Background,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Needs,
    PermitPlugin,
    PluginArgs,
    PodGroupMembers,
    PodGroupPlugin,
    PreEnqueuePlugin,
    QueueingHint,
    Sleep,
    Status,
    Wait,
    WorkloadFeatures,
)
from scheduler.objects.pod import PodInfo
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.framework import CycleState, PodGroup

_RETRY: Final = "Retry"
_RELEASE: Final = "Release"
_PERMIT_SECONDS: Final = 300.0


class GangSchedulingArgs(PluginArgs, frozen=True):
    """What is done where kube-scheduler does one thing only.

    Attributes:
        on_partial_failure: what becomes of a gang of which some pods are bound when too many others cannot be: `Retry` tries
            those again, `Release` deletes the bound ones as well, so that whoever made them begins anew.
    """

    on_partial_failure: str = _RETRY

    def faults(self) -> Iterator[FieldError]:
        if self.on_partial_failure not in {_RETRY, _RELEASE}:
            problem = f"must be one of {_RETRY}, {_RELEASE}, was {self.on_partial_failure!r}"
            yield FieldError("onPartialFailure", problem)


class GangScheduling(PreEnqueuePlugin, PermitPlugin, PodGroupPlugin):
    """Holds members of a gang until minCount of them exist, and has the others wait until minCount of them fit."""

    name = "GangScheduling"
    api_version = 1
    Args = GangSchedulingArgs
    group_kinds = frozenset({POD_GROUPS})
    needs = Needs(kinds=frozenset({POD_GROUPS}), rights=frozenset({f"patch {POD_GROUPS}/status"}))

    def __init__(
        self,
        *,
        args: GangSchedulingArgs,
        objects: ClusterObjects,
        members: PodGroupMembers,
        features: WorkloadFeatures,
        api: ApiWrite,
        background: Background,
        sleep: Sleep,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._members = members
        self._features = features
        self._releases = args.on_partial_failure == _RELEASE
        self._conditions = GroupConditions(
            api=api, objects=objects, background=background, sleep=sleep, clock=clock
        )

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key.key)
        return (
            None if found is None else replace(found.as_group(key, self._features), releases=self._releases)
        )

    def attempted(self, group: PodGroup, status: Status) -> None:
        self._conditions.tell(group.key.key, status)

    def events(self) -> Sequence[EventWithHint]:
        """Listen to pods and objects of the same group, which help once there are enough of its pods."""
        return tuple(
            EventWithHint(event, self._hint, _own_group, _groups_in, _awaited)
            for event in (
                ClusterEvent(EventResource.POD, ActionType.ADD),
                ClusterEvent(EventResource.POD_GROUP, ActionType.ADD),
            )
        )

    def _hint(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        key = _own_group(pod)
        helps = key is not None and key in _groups_in(old, new) and self._refusal(key) is None
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        key = _own_group(pod)
        return None if key is None else self._refusal(key)

    def _refusal(self, key: GroupKey) -> Status | None:
        try:
            group = self.pod_group(key)
        except ObjectError as error:
            return Status.failed(f"failed to get pod group {key.key}: {error}", error)
        if group is None:
            missing = f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue'
            return Status.unschedulable(missing, resolvable=False)
        if self._members.count(key) < group.min_count:
            return Status.unschedulable(
                "waiting for minCount pods from a gang to appear in scheduling queue", resolvable=False
            )
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        key = _own_group(pod)
        if key is None:
            return None
        group = self.pod_group(key)
        if group is None:
            return Status.failed(f'failed to get podGroup {key.key}: podgroup "{key.name}" not found')
        return None if len(self._members.placed(key)) >= group.min_count else Wait(_PERMIT_SECONDS)


def _own_group(pod: PodInfo) -> GroupKey | None:
    key = pod.group
    return key if key is not None and key.kind == POD_GROUPS else None


# Of a waiting pod the hint reads its group alone, and an event concerns one group at most.


def _awaited(pod: PodInfo) -> tuple[GroupKey, ...]:
    key = _own_group(pod)
    return () if key is None else (key,)


def _groups_in(_old: Any, new: Any) -> tuple[GroupKey, ...]:
    if isinstance(new, PodInfo):
        return _awaited(new)
    namespace, _, name = object_key(new).partition("/")
    return (GroupKey(POD_GROUPS, namespace, name),)
