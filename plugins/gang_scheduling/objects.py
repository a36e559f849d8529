"""PodGroups of Kubernetes' own kind: the fields that scheduling reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.framework import PodGroup
from scheduler.objects.meta import ApiStruct, ObjectMeta

if TYPE_CHECKING:
    from scheduler.framework import WorkloadFeatures
    from scheduler.objects.pod_group import GroupKey

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
