"""Gangs: pods that are held back until enough of them exist, and are placed together or not at all.

Source:
    Kubernetes v1.35, staging/src/k8s.io/api/scheduling/v1alpha1/types.go.
    kube-scheduler v1.36, plugins/gangscheduling/gangscheduling.go.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plugins.pod_groups.objects import (
    MAY_PREEMPT,
    MOST_TREES,
    GroupTrees,
    PodGroupObject,
    SchedulingPolicy,
    scheduled_condition,
)
from scheduler.errors import FieldError, ObjectError
from scheduler.framework import (
    ActionType,
    Background,
    Clock,
    ClusterEvent,
    ClusterObjects,
    EventResource,
    EventWithHint,
    Features,
    Needs,
    PermitPlugin,
    PluginArgs,
    PodActivator,
    PodGroup,
    PodGroupMembers,
    PodGroupPlugin,
    PreEnqueuePlugin,
    QueueingHint,
    Reason,
    Status,
    StatusWrite,
    Wait,
    WaitingPods,
    WantedStatus,
)
from scheduler.framework.pod_groups import SAME_SCHEDULER
from scheduler.objects.caches import BoundedDict
from scheduler.objects.meta import ApiStruct, Condition, ObjectMeta
from scheduler.objects.pod import PodInfo
from scheduler.objects.pod_group import COMPOSITE_POD_GROUPS, POD_GROUPS, WORKLOADS, GroupKey
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from scheduler.framework import CycleState

PERMIT_SECONDS: Final = 300.0
TOO_FEW_PODS: Final = "TooFewPodsOfGroup"
GROUP_NOT_FOUND: Final = "GroupNotFound"
INVALID_GROUP: Final = "InvalidGroup"
_WAITS_FOR_PODS: Final = Status.unschedulable(
    Reason("waiting for minCount pods from a gang to appear in scheduling queue", TOO_FEW_PODS),
    resolvable=False,
)


class WorkloadPodGroup(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha1 PodGroup, a part of a Workload."""

    name: str = ""
    policy: SchedulingPolicy = SchedulingPolicy()


class WorkloadSpec(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha1 WorkloadSpec."""

    pod_groups: tuple[WorkloadPodGroup, ...] = ()


class WorkloadObject(ApiStruct, frozen=True):
    """scheduling.k8s.io/v1alpha1 Workload."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class WorkloadGangs:
    """The groups of Kubernetes 1.35: parts of Workloads, whose pods are tried one by one and wait for each other at Permit.

    Args:
        plugin: name of the plugin.
        objects: the Workloads.
        members: the pods of groups.
        clock: the time.
        waiting_pods: releases the pods of a complete gang.
        activator: requeues the others while one waits.

    Source:
        kube-scheduler v1.35, plugins/gangscheduling/gangscheduling.go; backend/workloadmanager/podgroupinfo.go.
    """

    def __init__(
        self,
        plugin: str,
        *,
        objects: ClusterObjects,
        members: PodGroupMembers,
        clock: Clock,
        waiting_pods: WaitingPods,
        activator: PodActivator,
    ) -> None:
        self._plugin, self._objects, self._members = plugin, objects, members
        self._clock, self._waiting_pods, self._activator = clock, waiting_pods, activator
        self._ends: dict[GroupKey, float] = {}  # group -> when its members no longer wait

    def group(self, key: GroupKey) -> PodGroup | None:
        """Return a group; None if its Workload does not exist, or has no group of that name.

        Raises:
            ObjectError: the Workload cannot be decoded.
        """
        found = self._objects.objects(WORKLOADS).typed(WorkloadObject, key.of_object.key)
        if found is None:
            return None
        name = key.name.split("/")[1]
        for part in found.spec.pod_groups:
            if part.name == name:
                gang = part.policy.gang
                return PodGroup(key, found.metadata.uid, min_count=0 if gang is None else gang.min_count)
        return None

    def missing(self, key: GroupKey) -> str:
        """Return which part of a Workload is missing; "" if the Workload itself does not exist."""
        workload, group = key.name.split("/")[:2]
        exists = key.of_object.key in self._objects.objects(WORKLOADS)
        return f'pod group "{group}" doesn\'t exist for a workload "{workload}"' if exists else ""

    def wait_for_others(self, group: PodGroup) -> Wait | None:
        """Return how long a member waits for the others; None, and release the others, if the gang is complete."""
        key = group.key
        placed = {pod.uid for pod in self._members.placed(key)}
        if len(placed) >= group.min_count:
            for uid in placed:
                self._waiting_pods.allow(uid, self._plugin)
            return None
        self._activator.activate([uid for uid in self._members.pending(key) if uid not in placed])
        now = self._clock.monotonic()
        if self._ends.get(key, now) <= now:
            self._ends = {other: end for other, end in self._ends.items() if end > now}
            self._ends[key] = now + PERMIT_SECONDS
        return Wait(self._ends[key] - now)


_RETRY: Final = "Retry"
_RELEASE: Final = "Release"


class GangArgs(PluginArgs, frozen=True):
    """Arguments that kube-scheduler does not have.

    Attributes:
        on_partial_failure: what happens to a gang with some bound pods when too many others cannot be bound: `Retry`
            tries the others again, `Release` deletes the bound pods as well, so that their controller creates all again.
    """

    on_partial_failure: str = _RETRY

    @property
    def releases(self) -> bool:
        return self.on_partial_failure == _RELEASE

    def faults(self) -> Iterator[FieldError]:
        if self.on_partial_failure not in {_RETRY, _RELEASE}:
            problem = f"must be one of {_RETRY}, {_RELEASE}, was {self.on_partial_failure!r}"
            yield FieldError("onPartialFailure", problem)


class Gangs(PreEnqueuePlugin, PermitPlugin, PodGroupPlugin):
    """Holds members of a gang until enough of them exist; members with a node then wait until enough of them fit.

    Attributes:
        group_events: kind of groups whose members are held -> the actions that may help a member.
    """

    group_events: Mapping[str, ActionType] = MappingProxyType({})

    @abstractmethod
    def refusal(self, pod: PodInfo, key: GroupKey, group: PodGroup | None) -> Status | None:
        """Return why no member of a group may be tried yet; the group is None if its object does not exist.

        Only the pod's name is read.
        """

    @abstractmethod
    def is_enough(self, group: PodGroup) -> bool:
        """Return whether enough members are placed for them to run."""

    @abstractmethod
    def not_found(self, key: GroupKey) -> Status:
        """Return the status of a member whose group's object was deleted during the attempt."""

    @abstractmethod
    def permit_seconds(self, group: PodGroup) -> float:
        """Return how long, in seconds, a member with a node waits for the others."""

    def events(self) -> Sequence[EventWithHint]:
        """Register for pods and objects of the same group, which help once there are enough of its pods."""
        added = ClusterEvent(EventResource.POD, ActionType.ADD)
        return (
            EventWithHint(
                added,
                partial(self._hint, ""),
                self.own_group,
                partial(self.event_keys, ""),
                self._awaited_pods,
            ),
            *(
                EventWithHint(
                    ClusterEvent(EventResource.of(kind), action),
                    partial(self._hint, kind),
                    self.own_group,
                    partial(self.event_keys, kind),
                    self._awaited,
                )
                for kind, action in self.group_events.items()
            ),
        )

    def _hint(self, kind: str, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        key = self.own_group(pod)
        if key is None or not self.is_about(key, kind, old, new) or self._refusal(pod, key) is not None:
            return QueueingHint.SKIP
        helps = not kind or old is None or self.change_helps(old, new)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def event_keys(self, kind: str, old: Any, new: Any) -> Collection[GroupKey]:
        """Return the groups that an event may help; `kind` is the kind of the object, "" for a pod."""
        return _group_of_event(kind, old, new)

    def is_about(self, key: GroupKey, kind: str, old: Any, new: Any) -> bool:
        """Return whether a group is one of `event_keys`."""
        return (key.of_object if kind else key) in _group_of_event(kind, old, new)

    def change_helps(self, old: Any, new: Any) -> bool:
        """Return whether a change of a group's object may help its members."""
        return True

    def _awaited_pods(self, pod: PodInfo) -> tuple[GroupKey, ...]:
        key = self.own_group(pod)
        return () if key is None else (key,)

    def _awaited(self, pod: PodInfo) -> tuple[GroupKey, ...]:
        key = self.own_group(pod)
        return () if key is None else (key.of_object,)

    def own_group(self, pod: PodInfo) -> GroupKey | None:
        """Return the group of a pod if its kind belongs to this plugin: hints read nothing else of a waiting pod."""
        key = pod.group
        return key if key is not None and key.kind in self.group_events else None

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        key = self.own_group(pod)
        return None if key is None else self._refusal(pod, key)

    def _refusal(self, pod: PodInfo, key: GroupKey) -> Status | None:
        try:
            return self.refusal(pod, key, self.pod_group(key))
        except ObjectError as error:
            return Status.failed(f"failed to get pod group {key.key}: {error}", error)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        key = self.own_group(pod)
        if key is None:
            return None
        group = self.pod_group(key)
        if group is None:
            return self.not_found(key)
        return self.wait_for_others(group)

    def wait_for_others(self, group: PodGroup) -> Wait | None:
        """Return how long a member with a node waits for the others; None if it need not wait."""
        return None if self.is_enough(group) else Wait(self.permit_seconds(group))


def _group_of_event(kind: str, old: Any, new: Any) -> tuple[GroupKey, ...]:
    """Return the group of an event: at most one, and none if only a status changed."""
    if isinstance(new, PodInfo):
        return () if new.group is None else (new.group,)
    if old is not None and old.get("spec") == new.get("spec"):
        return ()
    namespace, _, name = object_key(new).partition("/")
    return (GroupKey(kind, namespace, name),)


class GroupConditions:
    """Writes the condition of `scheduled_condition`.

    Once a group was scheduled, the condition stays True, whatever happens to later members.

    Source:
        kube-scheduler v1.36, schedule_one_podgroup.go, updatePodGroupCondition.
    """

    def __init__(self, *, objects: ClusterObjects, background: Background, statuses: StatusWrite) -> None:
        self._objects, self._background, self._statuses = objects, background, statuses
        self._wanted: dict[str, tuple[str, Condition]] = {}  # key -> uid and the condition to write

    def tell(self, key: str, status: Status) -> None:
        """Write the result of an attempt at a group, if it has changed."""
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key)
        if found is None:
            return
        is_writing = key in self._wanted
        known = self._wanted[key][1] if is_writing else found.scheduled()
        condition = _condition(scheduled_condition(found.api_version), status)
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
                types = frozenset({written.type})
                wanted = WantedStatus({}, ({"message": "", **msgspec.to_builtins(written)},))
                answer = await self._statuses.write_status(
                    POD_GROUPS, key, uid, wanted, condition_types=types
                )
                if answer is not None and key in self._objects.objects(POD_GROUPS):
                    self._objects.assume(POD_GROUPS, answer)
        finally:
            del self._wanted[key]


def _condition(type_: str, status: Status) -> Condition:
    if status.is_success:
        return Condition(type_, "True", "Scheduled")
    reason = "Unschedulable" if status.is_rejected else "SchedulerError"
    return Condition(type_, "False", reason, status.message)


def _min_count(obj: Any) -> int | None:
    """Return minCount of a PodGroup as the watch has it; None if its policy is not gang."""
    found = obj.get("spec", {}).get("schedulingPolicy", {}).get("gang")
    return None if found is None else found.get("minCount", 0)


def preemption_policy(pod: PodInfo) -> str:
    """Return whether a pod may preempt: `PreemptLowerPriority` or `Never`."""
    return pod.pod.spec.preemption_policy or MAY_PREEMPT


_OF_TREES: Final = frozenset({POD_GROUPS, COMPOSITE_POD_GROUPS})
_CONSTRAINED: Final = "workload aware preemption is not supported for pod groups with scheduling constraints"


class GangSchedulingArgs(GangArgs, frozen=True):
    """Arguments that kube-scheduler does not have. By default groups preempt as in kube-scheduler 1.36.

    They have no effect on groups that are entities.

    Attributes:
        evict_only_if_gang_fits: without WorkloadAwarePreemption, no pod is evicted for a member before enough members fit.
        preempt_in_domains: with WorkloadAwarePreemption, groups with a topology constraint preempt too.
        priority_from_pods: a PodGroup without a priority preempts with the lowest priority of its pods, not with 0.
    """

    evict_only_if_gang_fits: bool = False
    preempt_in_domains: bool = False
    priority_from_pods: bool = False


_RIGHTS: Final = frozenset(
    {
        *(f"{verb} {kind}" for verb in ("list", "watch") for kind in (POD_GROUPS, WORKLOADS)),
        f"patch {POD_GROUPS}/status",
    }
)
"""The rights in all versions, because the server may be upgraded."""


class GangScheduling(Gangs):
    """Holds members of a gang until minCount of them exist, and has the others wait until minCount of them fit."""

    name = "GangScheduling"
    api_version = 1
    reason_codes = MappingProxyType(
        {
            GROUP_NOT_FOUND: "the object of the group of the pod does not exist",
            TOO_FEW_PODS: "fewer pods of the group, or of its tree, exist than its `minCount`",
            INVALID_GROUP: "the tree of the group is invalid",
        }
    )
    Args = GangSchedulingArgs
    group_kinds = frozenset({POD_GROUPS})
    composite_kinds = frozenset({COMPOSITE_POD_GROUPS})
    group_events = MappingProxyType({POD_GROUPS: ActionType.ADD})
    needs = Needs(kinds=frozenset({POD_GROUPS}), rights=_RIGHTS)

    def __init__(
        self,
        *,
        args: GangSchedulingArgs,
        objects: ClusterObjects,
        members: PodGroupMembers,
        features: Features,
        background: Background,
        statuses: StatusWrite,
        clock: Clock,
        waiting_pods: WaitingPods,
        activator: PodActivator,
    ) -> None:
        self._objects = objects
        self._members = members
        self._features = features
        self._args = args
        self.are_entities = features.enabled("PodGroupEntities")
        # kube-scheduler v1.36, schedule_one_podgroup.go: without these, nothing reads the object in a cycle.
        readers = ("GangScheduling", "TopologyAwareWorkloadScheduling")
        self._needs_object = any(map(features.enabled, readers))
        group_events = {POD_GROUPS: ActionType.ADD}
        self._workloads: WorkloadGangs | None = None
        if not features.enabled("PodGroupKind"):
            self._workloads = WorkloadGangs(
                self.name,
                objects=objects,
                members=members,
                clock=clock,
                waiting_pods=waiting_pods,
                activator=activator,
            )
            self.group_kinds = frozenset()  # type: ignore[misc]  # per instance: pods are tried one by one
            group_events = {WORKLOADS: ActionType.ADD}
            self.needs = Needs(kinds=frozenset({WORKLOADS}), rights=_RIGHTS)  # type: ignore[misc]  # per instance
        if features.enabled("PodGroupMinCountMutable"):
            group_events[POD_GROUPS] |= ActionType.UPDATE
        self._trees = GroupTrees(objects, features, self._leaf, releases=args.releases)
        # root -> (the tree, `changes` of the members, whether it has a quorum); hints ask for each of its groups
        self._quorums: BoundedDict[GroupKey, tuple[PodGroup, int, bool]] = BoundedDict(MOST_TREES)
        self._has_trees = features.enabled("CompositePodGroup")
        if self._has_trees:
            group_events[COMPOSITE_POD_GROUPS] = ActionType.ADD
            self.needs = replace(self.needs, kinds=self.needs.kinds | {COMPOSITE_POD_GROUPS})  # type: ignore[misc]  # per instance
        self.group_events = MappingProxyType(group_events)
        self._conditions = GroupConditions(objects=objects, background=background, statuses=statuses)

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        if self._workloads is not None:
            return self._workloads.group(key)
        return self._trees.group(key) if self._has_trees else self._leaf(key)

    def _leaf(self, key: GroupKey) -> PodGroup | None:
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key.key)
        if found is None:
            return None if self._needs_object else PodGroup(key, "", preempts_as_one=False)
        group = replace(found.as_group(key, self._features), releases=self._args.releases)
        return group if group.is_entity else self._preempting(group, found)

    def _preempting(self, group: PodGroup, found: PodGroupObject) -> PodGroup:
        """Return a group with the rules of its preemption.

        Source:
            kube-scheduler v1.36, schedule_one_podgroup.go, runWorkloadAwarePreemption and podGroupSchedulingDefaultAlgorithm;
            framework/preemption/podgrouppreemption.go.
        """
        args, constraints = self._args, found.spec.scheduling_constraints
        if not group.preempts_as_one:
            return replace(group, evicts_at_once=not args.evict_only_if_gang_fits)
        is_refused = constraints is not None and constraints.topology and not args.preempt_in_domains
        priority = group.priority if args.priority_from_pods else group.priority or 0
        return replace(group, priority=priority, why_no_preemption=_CONSTRAINED if is_refused else "")

    def root_key(self, key: GroupKey) -> GroupKey:
        return self._trees.root_key(key) if self._has_trees else key

    def leaf_keys(self, key: GroupKey) -> Sequence[GroupKey]:
        return self._trees.leaf_keys(key) if self._has_trees else (key,)

    def tree(self, key: GroupKey) -> PodGroup | None:
        return self._trees.tree(key) if self._has_trees else self._leaf(key)

    def lineage(self, key: GroupKey) -> Sequence[PodGroup]:
        return self._trees.lineage(key) if self._has_trees else super().lineage(key)

    def event_keys(self, kind: str, old: Any, new: Any) -> Collection[GroupKey]:
        """Return all groups of pods in the tree of an event's group."""
        found = super().event_keys(kind, old, new)
        if not self._has_trees:
            return found
        return [leaf for key in found if key.kind in _OF_TREES for leaf in self.leaf_keys(key)]

    def is_about(self, key: GroupKey, kind: str, old: Any, new: Any) -> bool:
        if not self._has_trees:
            return super().is_about(key, kind, old, new)
        root = self._trees.root_key(key)
        found = super().event_keys(kind, old, new)
        return any(each.kind in _OF_TREES and self._trees.root_key(each) == root for each in found)

    def attempted(self, group: PodGroup, status: Status) -> None:
        self._conditions.tell(group.key.key, status)

    def refusal(self, pod: PodInfo, key: GroupKey, group: PodGroup | None) -> Status | None:
        if self._has_trees:
            fault = self._trees.fault(key)
            if fault:
                reason = Reason(f"failed to build hierarchy snapshot: {fault}", INVALID_GROUP)
                return Status.unschedulable(reason, resolvable=False)
            root = self._trees.tree(self._trees.root_key(key))
            if root is not None and root.is_composite:
                return self._refusal_of_tree(root)
        if group is None:
            missing = self._missing(key)
            return Status.unschedulable(Reason(missing, GROUP_NOT_FOUND), resolvable=False)
        if self._members.count(key) < group.min_count:
            return _WAITS_FOR_PODS
        return None

    def _refusal_of_tree(self, root: PodGroup) -> Status | None:
        """Return why no pod of a tree may be tried yet.

        Source:
            kube-scheduler v1.37, plugins/gangscheduling/gangscheduling.go, checkCPGHierarchyReadiness.
        """
        known = self._quorums.get(root.key)
        if known is None or known[0] is not root or known[1] != self._members.changes:
            counts = {leaf.key: self._members.count(leaf.key) for leaf in root.leaves}
            known = self._quorums[root.key] = root, self._members.changes, root.has_quorum(counts)
        if known[2]:
            return None
        waiting = f'waiting for composite pod group "{root.key.name}" tree to meet quorum'
        return Status.unschedulable(Reason(waiting, TOO_FEW_PODS), resolvable=False)

    def _missing(self, key: GroupKey) -> str:
        of_workload = "" if self._workloads is None else self._workloads.missing(key)
        what = "pod group" if self._workloads is None else "workload"
        return of_workload or (
            f'waiting for pods\'s {what} "{key.of_object.name}" to appear in scheduling queue'
        )

    def wait_for_others(self, group: PodGroup) -> Wait | None:
        if self._workloads is None:
            return super().wait_for_others(group)
        return self._workloads.wait_for_others(group)

    def failed_before(self, key: GroupKey, status: Status) -> None:
        if self.are_entities:
            self._conditions.tell(key.key, status)

    def fault(self, group: PodGroup, pod: PodInfo, first: PodInfo) -> str:
        """Return why a pod differs from its group, or from the first pod.

        Source:
            kube-scheduler v1.37, schedule_one_podgroup.go, validatePodGroup.
        """
        if pod.scheduler_name != first.scheduler_name:
            return SAME_SCHEDULER.format(pod.scheduler_name, first.scheduler_name)
        if pod.priority != group.priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, "
                f"got {pod.priority} and {group.priority}"
            )
        policy, wanted = preemption_policy(pod), group.preemption_policy or preemption_policy(first)
        if policy != wanted:
            of_group = " as the pod group's preemption policy" if group.preemption_policy else ""
            same = f"all pods in a single pod group should have the same preemption policy{of_group}"
            return f"{same}, got {policy} and {wanted}"
        return ""

    def too_few(self, group: PodGroup, placed: int, left: int) -> str:
        """Return why fewer than minCount pods are placed; a group without minCount needs one.

        Source:
            kube-scheduler v1.37, plugins/gangscheduling/gangscheduling.go, PlacementFeasible.
        """
        least = group.min_count or 1
        if placed >= least:
            return ""
        what = "is not yet" if placed + left >= least else "cannot be"
        return f"minCount ({least}) {what} satisfied: {placed} scheduled, {left} remaining"

    def change_helps(self, old: Any, new: Any) -> bool:
        """Return whether minCount fell.

        Source:
            kube-scheduler v1.37, plugins/gangscheduling/gangscheduling.go, isSchedulableAfterPodGroupUpdated.
        """
        before, now = _min_count(old), _min_count(new)
        return before is None or now is None or now < before

    def is_enough(self, group: PodGroup) -> bool:
        return len(self._members.placed(group.key)) >= group.min_count

    def not_found(self, key: GroupKey) -> Status:
        if self._workloads is None:
            return Status.failed(f"failed to get podGroup {key.key}: {key.not_found}")
        workload = key.of_object
        gone = f"failed to get workload {workload.key}: {workload.not_found}"
        return Status.failed(self._workloads.missing(key) or gone)

    def permit_seconds(self, group: PodGroup) -> float:
        return PERMIT_SECONDS
