"""PodGroups and CompositePodGroups of Kubernetes, as the API server has them.

Source:
    Kubernetes v1.37, staging/src/k8s.io/api/scheduling/{v1beta1,v1alpha3}/types.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.framework.pod_groups import PodGroup
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.v1 import PodResourceClaim

if TYPE_CHECKING:
    from scheduler.framework import Features
    from scheduler.objects.pod_group import GroupKey

MAY_PREEMPT: Final = "PreemptLowerPriority"
"""The preemption policy of pods and groups that name none."""
_SCHEDULED_BY_VERSION: Final = {"scheduling.k8s.io/v1alpha2": "PodGroupScheduled"}
_SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The condition that shows the result of a group's scheduling, in versions that are not above."""


def scheduled_condition(api_version: str) -> str:
    """Return the type of the condition that shows the result of a group's scheduling.

    Source:
        kube-scheduler v1.36 and v1.37 (ff3e4a37), schedule_one_podgroup.go, updatePodGroupCondition.
    """
    return _SCHEDULED_BY_VERSION.get(api_version, _SCHEDULED)


class GangPolicy(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 GangSchedulingPolicy."""

    min_count: int = 0


class SchedulingPolicy(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 PodGroupSchedulingPolicy: gang, or else basic."""

    gang: GangPolicy | None = None


class TopologyConstraint(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 TopologyConstraint."""

    key: str = ""


class SchedulingConstraints(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 PodGroupSchedulingConstraints."""

    topology: tuple[TopologyConstraint, ...] = ()


class AllDisruptionMode(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 AllDisruptionMode."""


class DisruptionMode(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 DisruptionMode: all, or else single."""

    all: AllDisruptionMode | None = None


_WHOLE: Final = ("PodGroup", DisruptionMode(AllDisruptionMode()))
"""The modes in which preempting one pod of a group preempts all: in v1alpha2, and in later versions."""


class PodGroupResourceClaimStatus(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 PodGroupResourceClaimStatus: the claim that was created from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupSpec(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 PodGroupSpec; in v1alpha2 the disruption mode is `Pod` or `PodGroup`."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | DisruptionMode | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()  # PodGroupResourceClaim has the same fields


class Condition(ApiStruct, frozen=True):
    """metav1.Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodGroupStatus(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 PodGroupStatus."""

    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroupObject(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1beta1 PodGroup."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)

    def scheduled(self) -> Condition:
        """Return the condition of `scheduled_condition`; an empty condition if there is none."""
        type_ = scheduled_condition(self.api_version)
        return next((each for each in self.status.conditions if each.type == type_), Condition())

    def as_group(self, key: GroupKey, features: Features) -> PodGroup:
        """Return the enabled fields of the object in the form that all kinds share. Without GangScheduling it is no gang."""
        gang = self.spec.scheduling_policy.gang if features.enabled("GangScheduling") else None
        return _as_group(self, key, features, 0 if gang is None else gang.min_count)


class CompositeGangPolicy(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha3 CompositeGangSchedulingPolicy."""

    min_group_count: int = 0


class CompositeSchedulingPolicy(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha3 CompositePodGroupSchedulingPolicy: gang, or else basic."""

    gang: CompositeGangPolicy | None = None


class CompositePodGroupSpec(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha3 CompositePodGroupSpec."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: CompositeSchedulingPolicy = CompositeSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None


class CompositePodGroupObject(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha3 CompositePodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CompositePodGroupSpec = CompositePodGroupSpec()

    def as_group(self, key: GroupKey, features: Features) -> PodGroup:
        """Return the enabled fields of the object in the form that all kinds share; without its children."""
        gang = self.spec.scheduling_policy.gang
        count = 0 if gang is None else gang.min_group_count
        return replace(_as_group(self, key, features, count), is_composite=True)


def _as_group(
    found: PodGroupObject | CompositePodGroupObject, key: GroupKey, features: Features, min_count: int
) -> PodGroup:
    """Return the fields that both kinds have.

    The Priority admission writes 0 without a class. Before Kubernetes 1.37 the priority counts only with a class or
    above 0; since then it must be that of all pods.
    """
    spec = found.spec
    by_topology = features.enabled("TopologyAwareWorkloadScheduling")
    as_one = features.enabled("WorkloadAwarePreemption")
    topology = () if spec.scheduling_constraints is None else spec.scheduling_constraints.topology
    is_entity = features.enabled("PodGroupEntities")
    by_policy = features.enabled("PodGroupPreemptionPolicy")
    is_asked_for = bool(spec.priority_class_name or spec.priority)
    priority = spec.priority if is_asked_for else None
    return PodGroup(
        key,
        found.metadata.uid,
        min_count=min_count,
        topology_key=topology[0].key if topology and by_topology else "",
        leaves_whole=as_one and spec.disruption_mode in _WHOLE,
        priority=(priority or 0) if is_entity else priority if as_one else None,
        preempts_as_one=as_one,
        is_entity=is_entity,
        preemption_policy=(spec.preemption_policy or MAY_PREEMPT) if by_policy else "",
    )
