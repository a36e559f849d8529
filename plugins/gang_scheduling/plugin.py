"""Gangs: pods that are held back until enough of them exist, and are placed together or not at all.

Source:
    kube-scheduler v1.36, plugins/gangscheduling/gangscheduling.go.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plugins.gang_scheduling.gangs import GangArgs, Gangs
from scheduler.clock import rfc3339
from scheduler.errors import ApiError
from scheduler.framework import (
    ActionType,
    ApiWrite,
    Background,
    Clock,
    ClusterObjects,
    Needs,
    PodGroup,
    PodGroupMembers,
    Sleep,
    Status,
    WorkloadFeatures,
)
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.pod_group import POD_GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

logger = logging.getLogger(__name__)

SCHEDULED: Final = "PodGroupScheduled"
"""The condition that shows the result of a group's scheduling."""


class GangPolicy(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 GangSchedulingPolicy."""

    min_count: int = 0


class SchedulingPolicy(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 PodGroupSchedulingPolicy: gang, or else basic."""

    gang: GangPolicy | None = None


class TopologyConstraint(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 TopologyConstraint."""

    key: str = ""


class SchedulingConstraints(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 PodGroupSchedulingConstraints."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 PodGroupSpec."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | None = None
    priority: int | None = None
    priority_class_name: str = ""


class Condition(ApiStruct, frozen=True):
    """metav1.Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodGroupStatus(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 PodGroupStatus."""

    conditions: tuple[Condition, ...] = ()


class PodGroupObject(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha2 PodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)

    def scheduled(self) -> Condition:
        """Return the condition PodGroupScheduled; an empty condition if there is none."""
        return next((each for each in self.status.conditions if each.type == SCHEDULED), Condition())

    def as_group(self, key: GroupKey, features: WorkloadFeatures) -> PodGroup:
        """Return the enabled fields of the object in the form that all kinds share.

        The Priority admission writes 0 without a class, so the priority counts only with a class or above 0.
        """
        spec, gang = self.spec, self.spec.scheduling_policy.gang
        by_topology, as_one = features.topology_aware_workload_scheduling, features.workload_aware_preemption
        topology = () if spec.scheduling_constraints is None else spec.scheduling_constraints.topology
        is_asked_for = bool(spec.priority_class_name or spec.priority)
        return PodGroup(
            key,
            self.metadata.uid,
            min_count=0 if gang is None else gang.min_count,
            topology_key=topology[0].key if topology and by_topology else "",
            leaves_whole=as_one and spec.disruption_mode == "PodGroup",
            priority=spec.priority if as_one and is_asked_for else None,
            preempts_as_one=as_one,
        )


_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
_TRIES: Final = 8
_FIRST_PAUSE_SECONDS: Final = 0.1


class GroupConditions:
    """Writes the condition PodGroupScheduled.

    Once a group was scheduled, the condition stays True, whatever happens to later members.

    Source:
        kube-scheduler v1.36, schedule_one_podgroup.go, updatePodGroupCondition.
    """

    def __init__(
        self, *, api: ApiWrite, objects: ClusterObjects, background: Background, sleep: Sleep, clock: Clock
    ) -> None:
        self._api = api
        self._objects = objects
        self._background = background
        self._sleep = sleep
        self._clock = clock
        self._wanted: dict[str, tuple[str, Condition]] = {}  # key -> uid and the condition to write

    def tell(self, key: str, status: Status) -> None:
        """Write the result of an attempt at a group, if it has changed."""
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key)
        if found is None:
            return
        is_writing = key in self._wanted
        known = self._wanted[key][1] if is_writing else found.scheduled()
        condition = _condition(status)
        if known == condition or known.status == "True":
            return
        self._wanted[key] = found.metadata.uid, condition
        if not is_writing:
            self._background.start(self._write(key), f"condition of PodGroup {key}")

    async def _write(self, key: str) -> None:
        """Write the condition of a group, and its later changes."""
        written: Condition | None = None
        try:
            while self._wanted[key][1] != written:
                uid, written = self._wanted[key]
                await self._patch(key, uid, written)
        finally:
            del self._wanted[key]

    async def _patch(self, key: str, uid: str, condition: Condition) -> None:
        namespace, _, name = key.partition("/")
        path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups/{name}/status"
        pause = _FIRST_PAUSE_SECONDS
        for left in reversed(range(_TRIES)):
            body = self._body(key, uid, condition)
            if body is None:
                return
            try:
                answer = await self._api.api_write("PATCH", path, body, content_type=_STRATEGIC_MERGE_PATCH)
            except ApiError as error:
                if error.status == 404:
                    return
                if not left or not (error.is_transient or error.status == 409):
                    raise
                await self._sleep.sleep(error.pause_seconds(pause))
                pause *= 2
                continue
            if key in self._objects.objects(POD_GROUPS):
                self._objects.assume(POD_GROUPS, answer)
            return

    def _body(self, key: str, uid: str, condition: Condition) -> Mapping[str, Any] | None:
        """Return the patch; None if nothing is to be written any more."""
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key)
        if found is None or found.metadata.uid != uid:
            return None
        before = found.scheduled()
        fields: dict[str, Any] = msgspec.to_builtins(condition)
        fields.setdefault("message", "")
        if before.status != condition.status:
            fields["lastTransitionTime"] = rfc3339(self._clock.utc_now())
        return {"metadata": {"uid": uid}, "status": {"conditions": [fields]}}


def _condition(status: Status) -> Condition:
    if status.is_success:
        return Condition(SCHEDULED, "True", "Scheduled")
    reason = "Unschedulable" if status.is_rejected else "SchedulerError"
    return Condition(SCHEDULED, "False", reason, status.message)


_PERMIT_SECONDS: Final = 300.0


class GangScheduling(Gangs):
    """Holds members of a gang until minCount of them exist, and has the others wait until minCount of them fit."""

    name = "GangScheduling"
    api_version = 1
    Args = GangArgs
    group_kinds = frozenset({POD_GROUPS})
    group_events = MappingProxyType({POD_GROUPS: ActionType.ADD})
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
