"""PodGroups of scheduler-plugins and of Volcano: the fields that scheduling reads, and their status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.quantity import Amounts, amounts_of, amounts_text
from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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
            ValueError: an amount is not a quantity.
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
