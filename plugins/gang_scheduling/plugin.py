"""Gangs: pods that are held back until enough of them exist, and are placed together or not at all.

Source:
    kube-scheduler v1.36, plugins/gangscheduling/gangscheduling.go.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from plugins.gang_scheduling.conditions import GroupConditions
from plugins.gang_scheduling.gangs import GangArgs, Gangs
from plugins.gang_scheduling.objects import PodGroupObject
from scheduler.framework import (
    ActionType,
    ApiWrite,
    Background,
    Clock,
    ClusterObjects,
    EventResource,
    Needs,
    PodGroupMembers,
    Sleep,
    Status,
    WorkloadFeatures,
)
from scheduler.objects.pod_group import POD_GROUPS

if TYPE_CHECKING:
    from scheduler.framework import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

_PERMIT_SECONDS: Final = 300.0


class GangScheduling(Gangs):
    """Holds members of a gang until minCount of them exist, and has the others wait until minCount of them fit."""

    name = "GangScheduling"
    api_version = 1
    Args = GangArgs
    group_kinds = frozenset({POD_GROUPS})
    group_events = MappingProxyType({POD_GROUPS: (EventResource.POD_GROUP, ActionType.ADD)})
    needs = Needs(kinds=frozenset({POD_GROUPS}), rights=frozenset({f"patch {POD_GROUPS}/status"}))

    def __init__(
        self,
        *,
        args: GangArgs,
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
        self._releases = args.releases
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

    def refusal(self, pod: PodInfo, key: GroupKey, group: PodGroup | None) -> Status | None:
        if group is None:
            missing = f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue'
            return Status.unschedulable(missing, resolvable=False)
        if self._members.count(key) < group.min_count:
            return Status.unschedulable(
                "waiting for minCount pods from a gang to appear in scheduling queue", resolvable=False
            )
        return None

    def is_enough(self, group: PodGroup) -> bool:
        return len(self._members.placed(group.key)) >= group.min_count

    def not_found(self, key: GroupKey) -> Status:
        return Status.failed(f'failed to get podGroup {key.key}: podgroup "{key.name}" not found')

    def permit_seconds(self, group: PodGroup) -> float:
        return _PERMIT_SECONDS
