"""PodGroups of scheduler-plugins and of Volcano: the fields that scheduling reads, and their status.

Source:
    scheduler-plugins, pkg/controllers/podgroup_controller.go; volcano, pkg/scheduler/framework/job_updater.go.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from scheduler.clock import rfc3339
from scheduler.errors import ApiError, ObjectError
from scheduler.framework import StatusSource, WantedStatus
from scheduler.objects import pod_group as kinds
from scheduler.objects.decode import decode_object, typed_object
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.pod_group import GroupKey, group_of, task_of
from scheduler.objects.quantity import Amounts, amounts_of, amounts_text
from scheduler.objects.resource_names import PODS
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from scheduler.framework.status_sources import StatusAccess, StatusOf
    from scheduler.snapshot import Objects, Snapshot

logger = logging.getLogger(__name__)

PRIORITY_CLASSES: Final = "scheduling.k8s.io/v1/priorityclasses"


class PodGroupSpec(ApiStruct, frozen=True):
    """The fields of both kinds; each kind lacks the fields of the other.

    Attributes:
        min_member: the minimum number of its pods that run together.
        min_resources: what the group requests as a whole.
        schedule_timeout_seconds: how long a member may wait with a node for the others; scheduler-plugins only.
        min_task_member: task -> the minimum number of its pods that run together; Volcano only.
        priority_class_name: an upper limit of the group's priority; Volcano only. No admission checks who may use the
            class, so it never raises the priority.
    """

    min_member: int = 0
    min_resources: Amounts | None = None
    schedule_timeout_seconds: int | None = None
    min_task_member: dict[str, int] | None = None
    priority_class_name: str = ""


class PriorityClass(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0


class PodGroupObject(ApiStruct, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 or scheduling.volcano.sh/v1beta1 PodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)

    @property
    def min_count(self) -> int:
        """The minimum number of pods, of all tasks together."""
        return max(self.spec.min_member, sum((self.spec.min_task_member or {}).values()))

    def short_of(self, tasks: Collection[str]) -> Mapping[str, int]:
        """Return the tasks that have too few pods -> how many pods they have.

        Args:
            tasks: the task of each pod.
        """
        found: dict[str, int] = {}
        for task in tasks:
            found[task] = found.get(task, 0) + 1
        return {
            task: found.get(task, 0)
            for task, least in (self.spec.min_task_member or {}).items()
            if found.get(task, 0) < least
        }

    def least(self) -> Mapping[str, int]:
        """Return what must be free before any member is tried: resource -> amount; empty if the object has no such field.

        Raises:
            ValueError: an amount is not a quantity, or there are too many resources.
        """
        if not self.spec.min_resources:
            return {}
        return {**amounts_of(self.spec.min_resources), PODS: self.spec.min_member}


VOLCANO_CONDITIONS: Final = frozenset({"Scheduled", "Unschedulable"})
"""The types of conditions that `volcano_status` returns."""
_READY: Final = "tasks in gang are ready to be scheduled"


@dataclass(slots=True)
class Members:
    """Counts of the pods of a group.

    Attributes:
        pending: pods without a node.
        placed: pods on a node that do not run yet.
        tasks: task -> how many pods it has, including finished ones.
        occupied_by: the owners of one of the pods, as in `occupiedBy`.
        refusal: why one of the pending pods has no node; "" if unknown.
    """

    pending: int = 0
    placed: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    tasks: dict[str, int] | None = None
    occupied_by: str = ""
    refusal: str = ""

    @property
    def total(self) -> int:
        return self.pending + self.placed + self.running + self.succeeded + self.failed


def coscheduling_status(group: PodGroupObject, before: Mapping[str, Any], members: Members) -> dict[str, Any]:
    """Return phase, counts and occupiedBy of an unfinished PodGroup of scheduler-plugins.

    Source:
        scheduler-plugins, pkg/controllers/podgroup_controller.go. Here every phase follows from the pods at once.
    """
    least = group.spec.min_member
    running, succeeded, failed = members.running, members.succeeded, members.failed
    if members.total < least or not members.total:
        phase = "Pending"
    elif succeeded >= least:
        phase = "Finished"
    elif failed and failed + running + succeeded >= least:
        phase = "Failed"
    elif succeeded + running >= least:
        phase = "Running"
    else:
        phase = "Scheduling"
    status = {"phase": phase, "running": running, "succeeded": succeeded, "failed": failed}
    owner = before.get("occupiedBy") or ("" if phase == "Pending" else members.occupied_by)
    return {**status, "occupiedBy": owner} if owner else status


def volcano_status(
    group: PodGroupObject, before: Mapping[str, Any], members: Members, gap: Mapping[str, int]
) -> tuple[dict[str, Any], Sequence[Mapping[str, str]]]:
    """Return phase and counts of an uncompleted PodGroup of Volcano, and its conditions without times.

    Args:
        group: the object.
        before: its current status.
        members: its pods.
        gap: what is missing of its minResources, as long as it has no pod on a node.

    Source:
        volcano, pkg/scheduler/framework/job_updater.go and session.go, jobStatus; plugins/gang/gang.go.
    """
    allocated = members.placed + members.running + members.succeeded
    is_short = _too_few_pods(group, members)
    if members.total and allocated >= group.min_count and not is_short:
        phase = "Completed" if members.succeeded == allocated and not members.pending else "Running"
        condition = _condition("Scheduled", _READY)
    else:
        has_begun = before.get("phase") not in {None, "", "Pending"}
        is_there = members.total and members.total >= group.min_count
        phase = "Inqueue" if has_begun or is_there or not gap else "Pending"
        if allocated and members.refusal:
            phase = "Unknown"
        condition = _why_not(group, members, gap, is_short)
    fields = {
        "phase": phase,
        "running": members.running,
        "succeeded": members.succeeded,
        "failed": members.failed,
    }
    return fields, [condition] if condition else []


def _too_few_pods(group: PodGroupObject, members: Members) -> str:
    """Return the reason that a group has too few pods to be tried; "" if it has enough."""
    if members.total - members.failed < group.spec.min_member:
        return "NotEnoughTasks"
    tasks = members.tasks or {}
    least = group.spec.min_task_member or {}
    return "NotEnoughPodsOfTask" if any(tasks.get(task, 0) < count for task, count in least.items()) else ""


def _why_not(
    group: PodGroupObject, members: Members, gap: Mapping[str, int], is_short: str
) -> dict[str, Any]:
    if is_short == "NotEnoughTasks":
        valid, least = members.total - members.failed, group.spec.min_member
        message = f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {least}"
        return _condition("Unschedulable", is_short, message)
    if is_short:
        return _condition("Unschedulable", is_short, "Not enough valid pods of each task for gang-scheduling")
    if gap or members.refusal:
        why = members.refusal or f"resource gap: {amounts_text(gap)}"
        message = f"{members.pending}/{members.total} tasks in gang unschedulable: {why}"
        return _condition("Unschedulable", "NotEnoughResources", message)
    return {}


def _condition(type_: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": reason, "message": message}


def resource_gap(needed: Mapping[str, int], snapshot: Snapshot) -> dict[str, int]:
    """Return what is missing, resource -> amount; nothing if all nodes together have enough.

    Args:
        needed: resource -> milliCPU, bytes or a count.
        snapshot: the cluster.

    Source:
        scheduler-plugins, pkg/coscheduling/core/core.go, CheckClusterResource. Here an overcommitted node counts as full,
        not as negative.
    """
    gap, offered = {}, {*snapshot.resources, *snapshot.overdrawn}
    for name, amount in needed.items():
        missing = amount
        if name in offered:
            taken = snapshot.pod_count if name == PODS else snapshot.requested[name]
            missing -= int(np.maximum(snapshot.allocatable[name] - taken, 0).sum())
        if missing > 0:
            gap[name] = missing
    return gap


_LOOK_AGAIN_SECONDS: Final = 60.0
"""Ended pods are listed again after this time, because some may have been created and ended in between."""
_ENDED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
_FINAL: Final = frozenset({"Finished", "Failed", "Completed"})


class PodGroupStatuses(StatusSource):
    """The statuses of the PodGroups of one kind.

    Args:
        kind: the kind.
        access: reads pods; lists the ended ones, which are not watched.
    """

    object_kind = "PodGroup"

    def __init__(self, kind: str, access: StatusAccess) -> None:
        self.kind = kind
        self.condition_types = VOLCANO_CONDITIONS if kind == kinds.VOLCANO_POD_GROUPS else frozenset[str]()
        self._access, self._clock = access, access.clock
        self._live: dict[GroupKey, set[str]] = {}  # group -> uids of its pods that had not ended
        self._ended: dict[str, Mapping[GroupKey, list[Pod]]] = {}  # namespace -> group -> its ended pods
        self._listed: dict[str, float] = {}  # namespace -> when its ended pods were listed
        self._began: dict[str, str] = {}  # uid of a group -> when its first pod got a node

    async def status_of(self, objects: Objects) -> StatusOf:
        groups = await self._access.in_slices(self._unfinished(dict(objects)))
        if not groups:
            return lambda _key, _obj: None
        live = await self._access.in_slices(self._members(groups))
        uids = {key: {pod.metadata.uid for pod in pods} for key, pods in live.items()}
        for namespace in {key.namespace for key in groups if self._may_have_ended(key, groups[key], uids)}:
            self._ended[namespace] = await self._list_ended(namespace)
            self._listed[namespace] = self._clock.monotonic()
        self._live = uids
        self._forget(groups)
        statuses = await self._access.in_slices(self._statuses(groups, live))
        return lambda key, _obj: statuses.get(key)

    def _unfinished(
        self, objects: Mapping[str, Mapping[str, Any]]
    ) -> Generator[None, None, dict[GroupKey, Mapping[str, Any]]]:
        """Return the groups whose status may still change; one object in each step."""
        found = {}
        for path, obj in objects.items():
            yield
            if (obj.get("status") or {}).get("phase") not in _FINAL:
                namespace, _, name = path.partition("/")
                found[GroupKey(self.kind, namespace, name)] = obj
        return found

    def _members(self, groups: Mapping[GroupKey, object]) -> Generator[None, None, dict[GroupKey, list[Pod]]]:
        """Return the pods of groups that have not ended; one pod in each step."""
        found: dict[GroupKey, list[Pod]] = {}
        for pod in list(self._access.pods.values()):
            yield
            if pod.group is not None and pod.group in groups:
                found.setdefault(pod.group, []).append(pod.pod)
        return found

    def _may_have_ended(
        self, key: GroupKey, obj: Mapping[str, Any], uids: Mapping[GroupKey, set[str]]
    ) -> bool:
        """Return whether pods of a group may have ended since they were listed."""
        listed = self._listed.get(key.namespace)
        if listed is None or self._live.get(key, set()) - uids.get(key, set()):
            return True
        is_under_way = (obj.get("status") or {}).get("phase") not in {None, "", "Pending"}
        return is_under_way and self._clock.monotonic() - listed >= _LOOK_AGAIN_SECONDS

    async def _list_ended(self, namespace: str) -> Mapping[GroupKey, list[Pod]]:
        """Return the ended pods of groups in a namespace; the last known ones if the list fails."""
        found: dict[GroupKey, list[Pod]] = {}
        try:
            async for item in self._access.listed(
                f"/api/v1/namespaces/{namespace}/pods", {"fieldSelector": _ENDED}
            ):
                try:
                    pod = typed_object(decode_object(item), Pod)
                except ObjectError:
                    continue  # the watch of pods logs it
                key = group_of(pod)
                if key is not None:
                    found.setdefault(key, []).append(pod)
        except ApiError as error:
            logger.warning(
                "Pods that ended cannot be counted", extra={"namespace": namespace, "error": str(error)}
            )
            return self._ended.get(namespace, {})
        return found

    def _forget(self, groups: Mapping[GroupKey, Mapping[str, Any]]) -> None:
        """Drop the data of deleted namespaces and groups."""
        namespaces = {key.namespace for key in groups}
        uids = {obj["metadata"]["uid"] for obj in groups.values()}
        self._ended = {name: ended for name, ended in self._ended.items() if name in namespaces}
        self._listed = {name: at for name, at in self._listed.items() if name in namespaces}
        self._began = {uid: at for uid, at in self._began.items() if uid in uids}

    def _statuses(
        self, groups: Mapping[GroupKey, Mapping[str, Any]], live: Mapping[GroupKey, list[Pod]]
    ) -> Generator[None, None, Mapping[str, WantedStatus]]:
        """Return the statuses of groups; one group in each step."""
        found = {}
        for key, obj in groups.items():
            yield
            pods = {pod.metadata.uid: pod for pod in live.get(key, ())}
            pods |= {pod.metadata.uid: pod for pod in self._ended.get(key.namespace, {}).get(key, ())}
            wanted = self._status(key, obj, counted(pods.values()))
            if wanted is not None:
                found[key.key] = wanted
        return found

    def _status(self, key: GroupKey, obj: Mapping[str, Any], members: Members) -> WantedStatus | None:
        """Return the status of one group; None if it stays unchanged."""
        before = obj.get("status") or {}
        try:
            group = self._access.cluster.objects(key.kind).typed(PodGroupObject, key.key)
            if group is None:
                return None
            if key.kind == kinds.VOLCANO_POD_GROUPS:
                has_begun = members.placed + members.running + members.succeeded
                gap = {} if has_begun else resource_gap(group.least(), self._access.cluster.snapshot())
                return WantedStatus(*volcano_status(group, before, members, gap))
            fields = coscheduling_status(group, before, members)
        except (ObjectError, ValueError) as error:
            logger.debug("PodGroup cannot be understood", extra={"group": key.key, "error": str(error)})
            return None
        if fields["phase"] != "Pending" and not before.get("scheduleStartTime"):
            uid = obj["metadata"]["uid"]
            fields["scheduleStartTime"] = self._began.setdefault(uid, rfc3339(self._clock.utc_now()))
        return WantedStatus(fields)


def counted(pods: Iterable[Pod]) -> Members:
    """Count the pods of a group."""
    members, tasks = Members(), dict[str, int]()
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        match pod.status.phase:
            case "Running":
                members.running += 1
            case "Succeeded":
                members.succeeded += 1
            case "Failed":
                members.failed += 1
            case _ if pod.spec.node_name:
                members.placed += 1
            case _:
                members.pending += 1
                members.refusal = members.refusal or _refusal(pod)
        if pod.status.phase != "Failed":
            tasks[task_of(pod)] = tasks.get(task_of(pod), 0) + 1
        members.occupied_by = members.occupied_by or _owners(pod)
    members.tasks = tasks
    return members


def _refusal(pod: Pod) -> str:
    """Return the message of a pod's PodScheduled condition; "" if it has none."""
    return next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")


def _owners(pod: Pod) -> str:
    names = (f"{pod.metadata.namespace}/{owner.name}" for owner in pod.metadata.owner_references)
    return ",".join(sorted(names))
