"""Which group a pod belongs to: by Kubernetes' own field, or by what schedulers before it made of labels and annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.v1 import Pod

POD_GROUPS: Final = "scheduling.k8s.io/v1alpha2/podgroups"
"""Kubernetes' own; a pod names its group in spec.schedulingGroup."""
COSCHEDULING_POD_GROUPS: Final = "scheduling.x-k8s.io/v1alpha1/podgroups"
"""Those of scheduler-plugins; a pod names its group in a label."""
VOLCANO_POD_GROUPS: Final = "scheduling.volcano.sh/v1beta1/podgroups"
"""Those of Volcano; a pod names its group in an annotation."""

COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
"""The annotation or label that names a pod's task, of which a group may need so many pods."""


class GroupKey(NamedTuple):
    """A group of pods, whether or not there is an object of it.

    Attributes:
        kind: one of the kinds above.
        namespace: of its pods, and of the object.
        name: of the object.
    """

    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as in logs, messages and stores."""
        return f"{self.namespace}/{self.name}"


def group_of(pod: Pod) -> GroupKey | None:
    """Return the group that a pod says it belongs to; Kubernetes' own field comes first, then the label."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return GroupKey(POD_GROUPS, pod.metadata.namespace, group.pod_group_name)
    name = pod.metadata.labels.get(COSCHEDULING_LABEL)
    if name:
        return GroupKey(COSCHEDULING_POD_GROUPS, pod.metadata.namespace, name)
    for annotation in VOLCANO_ANNOTATIONS:
        named = pod.metadata.annotations.get(annotation)
        if named:
            return GroupKey(VOLCANO_POD_GROUPS, pod.metadata.namespace, named)
    return None


def group_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return those of a pod's annotations that name its group, and its task there."""
    if not annotations:
        return {}
    return {name: annotations[name] for name in (*VOLCANO_ANNOTATIONS, VOLCANO_TASK) if name in annotations}


def task_of(pod: Pod) -> str:
    """Return the task that a pod of a Volcano group has there; "" if it says nothing of it."""
    return pod.metadata.annotations.get(VOLCANO_TASK) or pod.metadata.labels.get(VOLCANO_TASK, "")
