"""PodGroups and CompositePodGroups of Kubernetes, as the API server has them, and trees of groups.

Source:
    Kubernetes v1.37, staging/src/k8s.io/api/scheduling/{v1beta1,v1alpha3}/types.go.
    kube-scheduler v1.37, backend/cache/podgroupstate.go, BuildHierarchySnapshotFromPod, and
    backend/queue/workload_forest.go. The children of a group are in random order there, and in the order of their names here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.errors import ObjectError
from scheduler.framework.pod_groups import MOST_LEVELS, PodGroup
from scheduler.objects.caches import BoundedDict
from scheduler.objects.meta import ApiStruct, Condition, ObjectMeta
from scheduler.objects.pod_group import COMPOSITE_POD_GROUPS, POD_GROUPS, GroupKey
from scheduler.objects.v1 import PodResourceClaim
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scheduler.framework import ClusterObjects, Features

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


MOST_TREES: Final = 128
"""Maximum number of cached trees; the one that was read longest ago is dropped first."""
_TOO_DEEP: Final = f"the hierarchy has more than {MOST_LEVELS} levels, or a cycle"
_ABSENT: Final = {
    POD_GROUPS: "pod group object not found in state for podgroup/{}/{}",
    COMPOSITE_POD_GROUPS: "composite pod group object not found in state for compositepodgroup/{}/{}",
}


class _Child(ApiStruct, frozen=True):
    """A PodGroup or CompositePodGroup of which only the parent is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


def _parents(child: _Child) -> tuple[tuple[str, str], ...]:
    name = child.spec.get("parentCompositePodGroupName") if isinstance(child.spec, dict) else None
    return ((child.metadata.namespace, name),) if isinstance(name, str) and name else ()


_BY_PARENT: Final = Index(_Child, _parents)
"""(namespace, name) of a CompositePodGroup -> its children, whether or not it exists."""


class GroupTrees:
    """The trees of all groups.

    Args:
        objects: the objects of both kinds.
        features: the enabled features.
        leaf: returns the group of a PodGroup; None if the object does not exist.
        releases: whether the bound pods of a tree are deleted when too many of the others cannot be bound.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        features: Features,
        leaf: Callable[[GroupKey], PodGroup | None],
        *,
        releases: bool,
    ) -> None:
        self._objects = objects
        self._features = features
        self._leaf = leaf
        self._releases = releases
        # root -> (versions of the objects of its namespace, tree)
        self._trees: BoundedDict[GroupKey, tuple[tuple[int, int], PodGroup]] = BoundedDict(MOST_TREES)

    def group(self, key: GroupKey) -> PodGroup | None:
        """Return a group without the groups below it; None if the object does not exist.

        Raises:
            ObjectError: the object cannot be decoded.
        """
        if key.kind != COMPOSITE_POD_GROUPS:
            return self._leaf(key)
        found = self._objects.objects(COMPOSITE_POD_GROUPS).typed(CompositePodGroupObject, key.key)
        if found is None:
            return None
        return replace(found.as_group(key, self._features), releases=self._releases)

    def root_key(self, key: GroupKey) -> GroupKey:
        """Return the root of a group's tree; if an object on the way does not exist, its key.

        Raises:
            ObjectError: an object cannot be decoded.
        """
        *_, last = self._upward(key)
        return last

    def fault(self, key: GroupKey) -> str:
        """Return why a group has no root; "" if it has one.

        Raises:
            ObjectError: an object cannot be decoded.
        """
        *_, last = self._upward(key)
        if last.key not in self._objects.objects(last.kind):
            return _ABSENT[last.kind].format(last.namespace, last.name)
        return _TOO_DEEP if self._parent_of(last) is not None else ""

    def lineage(self, key: GroupKey) -> Sequence[PodGroup]:
        """Return a group and the groups above it, the highest last; the first ones if an object does not exist.

        Raises:
            ObjectError: an object cannot be decoded.
        """
        found = []
        for each in self._upward(key):
            group = self.group(each)
            if group is not None:
                found.append(group)
        return found

    def leaf_keys(self, key: GroupKey) -> Sequence[GroupKey]:
        """Return the groups of pods in a group's tree, with the group itself, whether or not all objects exist.

        Raises:
            ObjectError: an object cannot be decoded.
        """
        found = dict.fromkeys(self._leaves_below(self.root_key(key), 1))  # a cycle has some of them twice
        if key.kind != COMPOSITE_POD_GROUPS:
            found.setdefault(key)
        return [*found]

    def tree(self, key: GroupKey) -> PodGroup | None:
        """Return a group with all groups below it; None if the object does not exist.

        Raises:
            ObjectError: an object cannot be decoded, or the tree has too many levels.
        """
        versions = tuple(
            self._objects.objects(kind).version(key.namespace) for kind in (POD_GROUPS, COMPOSITE_POD_GROUPS)
        )
        assert len(versions) == 2
        known = self._trees.get(key)
        if known is not None and known[0] == versions:
            return known[1]
        built = self._built(key, 1)
        if built is not None:
            self._trees[key] = versions, built
        return built

    def _built(self, key: GroupKey, level: int) -> PodGroup | None:
        if level > MOST_LEVELS:
            raise ObjectError("CompositePodGroup", key.key, "spec.parentCompositePodGroupName", _TOO_DEEP)
        group = self.group(key)
        if group is None or not group.is_composite:
            return group
        children = (self._built(child, level + 1) for child in self._children_of(key))
        return replace(group, children=tuple(child for child in children if child is not None))

    def _upward(self, key: GroupKey) -> Iterator[GroupKey]:
        """Yield a group and the groups above it, as far as objects name them; at most `MOST_LEVELS`."""
        yield key
        for _ in range(MOST_LEVELS - 1):
            above = self._parent_of(key)
            if above is None:
                return
            key = above
            yield key

    def _parent_of(self, key: GroupKey) -> GroupKey | None:
        """Return the parent that a group names; None without one, or if the object does not exist."""
        objects = self._objects.objects(key.kind)
        found: PodGroupObject | CompositePodGroupObject | None
        if key.kind == COMPOSITE_POD_GROUPS:
            found = objects.typed(CompositePodGroupObject, key.key)
        else:
            found = objects.typed(PodGroupObject, key.key)
        name = None if found is None else found.spec.parent_composite_pod_group_name
        return GroupKey(COMPOSITE_POD_GROUPS, key.namespace, name) if name else None

    def _children_of(self, key: GroupKey) -> list[GroupKey]:
        found = [
            GroupKey(kind, key.namespace, child.metadata.name)
            for kind in (POD_GROUPS, COMPOSITE_POD_GROUPS)
            for child in self._objects.objects(kind).indexed(_BY_PARENT, (key.namespace, key.name)).values()
        ]
        return sorted(found, key=lambda child: (child.name, child.kind))

    def _leaves_below(self, key: GroupKey, level: int) -> Iterator[GroupKey]:
        if key.kind != COMPOSITE_POD_GROUPS:
            yield key
        elif level < MOST_LEVELS:
            for child in self._children_of(key):
                yield from self._leaves_below(child, level + 1)
