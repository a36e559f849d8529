"""The groups of Kubernetes 1.35: parts of Workloads.

Source:
    Kubernetes v1.35, staging/src/k8s.io/api/scheduling/v1alpha1/types.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plugins.pod_groups.objects import SchedulingPolicy
from scheduler.framework import PodGroup, Wait
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.pod_group import WORKLOADS

if TYPE_CHECKING:
    from scheduler.framework import Clock, ClusterObjects, PodActivator, PodGroupMembers, WaitingPods
    from scheduler.objects.pod_group import GroupKey

PERMIT_SECONDS: Final = 300.0


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
