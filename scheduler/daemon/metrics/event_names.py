"""The names of cluster events in metrics, by Kubernetes version."""

from __future__ import annotations

from functools import cache

_OLD, _OTHERS, _OWN = "UnschedulablePod", "UnscheduledPod", "TargetPod"


@cache
def new_event_name(label: str, *, is_own: bool = False) -> str:
    """Return the name since 1.37 of an event, by its name up to 1.36.

    Updates of a waiting pod that queueing hints evaluate have another name than other events of pods without a node. A
    named change, such as UpdatePodLabel, is always of this kind.

    Args:
        label: the label of the event.
        is_own: whether an update without a named change is of the waiting pod itself.

    Source:
        Pull request #135905 for kube-scheduler v1.37, staging/src/k8s.io/kube-scheduler/framework/types.go.
    """
    if not label.startswith(_OLD):
        return label
    action = label.removeprefix(_OLD)
    own = action.startswith("Update") and (is_own or action != "Update")
    return f"{_OWN if own else _OTHERS}{action}"
