"""PodGroups of scheduler-plugins and of Volcano: the fields that scheduling reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.objects.amounts import Amounts, amounts_of
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.resource_names import PODS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
