"""The group of a pod: by Kubernetes' own field, or by the labels and annotations of earlier group schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.v1 import Pod

POD_GROUPS: Final = "scheduling.k8s.io/v1alpha2/podgroups"
"""Kubernetes' own groups; a pod refers to its group in spec.schedulingGroup."""
COMPOSITE_POD_GROUPS: Final = "scheduling.k8s.io/v1alpha3/compositepodgroups"
"""Groups of Kubernetes' own groups; no pod refers to one."""
WORKLOADS: Final = "scheduling.k8s.io/v1alpha1/workloads"
"""Kubernetes' own groups in 1.35, which are parts of Workloads; a pod refers to its group in spec.workloadRef."""
COSCHEDULING_POD_GROUPS: Final = "scheduling.x-k8s.io/v1alpha1/podgroups"
"""The groups of scheduler-plugins; a pod refers to its group in a label."""
VOLCANO_POD_GROUPS: Final = "scheduling.volcano.sh/v1beta1/podgroups"
"""The groups of Volcano; a pod refers to its group in an annotation."""

COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
"""Annotation or label with a pod's task, of which a group may need a minimum number of pods."""


class GroupKey(NamedTuple):
    """A group of pods, whether or not its object exists.

    Attributes:
        kind: one of the kinds above.
        namespace: namespace of its pods and of the object.
        name: name of the object; of a part of a Workload, the names of the Workload and the group, and the replica key
            if there is one, separated by slashes.
    """

    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as in logs, messages and stores."""
        return f"{self.namespace}/{self.name}"

    @property
    def not_found(self) -> str:
        """The message of kube-scheduler about a missing object."""
        api_group, _, plural = self.kind.partition("/")
        return f'{plural.rpartition("/")[2].removesuffix("s")}.{api_group} "{self.name}" not found'

    @property
    def of_object(self) -> GroupKey:
        """The same group, or the Workload that it is a part of."""
        return self._replace(name=self.name.partition("/")[0]) if self.kind == WORKLOADS else self


def group_of(pod: Pod) -> GroupKey | None:
    """Return the group that a pod refers to; Kubernetes' own field takes precedence, then the label."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return GroupKey(POD_GROUPS, pod.metadata.namespace, group.pod_group_name)
    part = pod.spec.workload_ref
    if part is not None and part.name:
        replica = f"/{part.pod_group_replica_key}" if part.pod_group_replica_key else ""
        return GroupKey(WORKLOADS, pod.metadata.namespace, f"{part.name}/{part.pod_group}{replica}")
    name = pod.metadata.labels.get(COSCHEDULING_LABEL)
    if name:
        return GroupKey(COSCHEDULING_POD_GROUPS, pod.metadata.namespace, name)
    for annotation in VOLCANO_ANNOTATIONS:
        named = pod.metadata.annotations.get(annotation)
        if named:
            return GroupKey(VOLCANO_POD_GROUPS, pod.metadata.namespace, named)
    return None


def group_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return a pod's annotations with its group and task."""
    if not annotations:
        return {}
    return {name: annotations[name] for name in (*VOLCANO_ANNOTATIONS, VOLCANO_TASK) if name in annotations}


def task_of(pod: Pod) -> str:
    """Return the task of a pod in a Volcano group; "" if it has none."""
    return pod.metadata.annotations.get(VOLCANO_TASK) or pod.metadata.labels.get(VOLCANO_TASK, "")
