"""PodGroups of scheduler-plugins and of Volcano, as far as scheduling reads them."""

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
    """The fields of both kinds; each leaves out what is the other's.

    Attributes:
        min_member: so many of its pods run, or none.
        min_resources: what the group asks for as a whole.
        schedule_timeout_seconds: how long a member may hold its place for the others; scheduler-plugins'.
        min_task_member: task -> so many of its pods run, or none; Volcano's.
        priority_class_name: a limit of the group's priority; Volcano's. No admission checks who may use the class, so it
            raises nothing.
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
        """So many pods it takes at least, of all tasks together."""
        return max(self.spec.min_member, sum((self.spec.min_task_member or {}).values()))

    def short_of(self, tasks: Collection[str]) -> Mapping[str, int]:
        """Return the tasks of which there are too few pods -> how many there are.

        Args:
            tasks: of each pod, its task.
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
        """Return what must be free before any member is tried: resource -> amount; nothing if it does not say.

        Raises:
            ValueError: an amount is no quantity.
        """
        if not self.spec.min_resources:
            return {}
        return {**amounts_of(self.spec.min_resources), PODS: self.spec.min_member}
