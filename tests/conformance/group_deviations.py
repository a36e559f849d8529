"""The outcomes with arguments of GangScheduling that kube-scheduler does not have; docs/groups.md explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.conformance.groups import Difference

    Deviation = tuple[str | tuple[str, ...], str]
    """How it is here, or may be by chance, and why."""

_NOBODY_IN_VAIN = "nobody is evicted before the whole gang is known to fit"
_ITS_PODS_PRIORITY = "a priority that the PodGroup leaves out is that of its pods"

_UNDER_A_CONSTRAINT_TOO = "gangs with a topology constraint preempt too"
_IN_EITHER_RACK = ("bound in r1", "bound in r2")  # which is chance

ARGUMENTS: Mapping[str, str] = {
    "gang-infeasible-still-evicts": "evictOnlyIfGangFits",
    "wap-priority-comes-from-podgroup": "priorityFromPods",
    "topology-never-preempts": "preemptInDomains",
}
"""Case -> the argument of GangScheduling with which it ends otherwise."""

DEVIATIONS: Mapping[str, Mapping[str, Deviation]] = {
    "gang-infeasible-still-evicts": {
        "end: bound pods": ("2", _NOBODY_IN_VAIN),
        "end: pod low": ("bound", _NOBODY_IN_VAIN),
        "end: pod p1": (
            (
                "pending, PodScheduled False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to "
                "deallocate, preemption: 0/1 nodes are available: 1 Insufficient cpu."
            ),
            "the pod that could be evicted is still there, and would make room for one member only",
        ),
        "evicted": ("nothing", _NOBODY_IN_VAIN),
        "writes": (
            (
                "PodGroupScheduled False Unschedulable, PodScheduled False Unschedulable, bind, event Normal Scheduled "
                "Binding, event Warning FailedScheduling Scheduling"
            ),
            _NOBODY_IN_VAIN,
        ),
    },
    "wap-priority-comes-from-podgroup": {
        "end: pod low1": ("gone", _ITS_PODS_PRIORITY),
        "end: pod low2": ("gone", _ITS_PODS_PRIORITY),
        "end: pod p1": ("bound", _ITS_PODS_PRIORITY),
        "end: pod p2": ("bound", _ITS_PODS_PRIORITY),
        "end: group pg": ("PodGroupScheduled True Scheduled: ", _ITS_PODS_PRIORITY),
        "evicted": ("low1, low2", _ITS_PODS_PRIORITY),
        "writes": (
            (
                "DisruptionTarget True PreemptionByScheduler, PodGroupScheduled False Unschedulable, PodGroupScheduled "
                "True Scheduled, PodScheduled False Unschedulable, bind, delete, event Normal Preempted Preempting, event "
                "Normal Scheduled Binding, event Warning FailedScheduling Scheduling"
            ),
            _ITS_PODS_PRIORITY,
        ),
    },
    "topology-never-preempts": {
        "end: pod low3": ("gone", _UNDER_A_CONSTRAINT_TOO),
        "end: pod low4": ("gone", _UNDER_A_CONSTRAINT_TOO),
        "end: pod p1": (_IN_EITHER_RACK, _UNDER_A_CONSTRAINT_TOO),
        "end: pod p2": (_IN_EITHER_RACK, _UNDER_A_CONSTRAINT_TOO),
        "end: group pg": ("PodGroupScheduled True Scheduled: ", _UNDER_A_CONSTRAINT_TOO),
        "evicted": ("low1, low2", _UNDER_A_CONSTRAINT_TOO),
        "writes": (
            (
                "DisruptionTarget True PreemptionByScheduler, PodGroupScheduled False Unschedulable, PodGroupScheduled "
                "True Scheduled, PodScheduled False Unschedulable, bind, delete, event Normal Preempted Preempting, event "
                "Normal Scheduled Binding, event Warning FailedScheduling Scheduling"
            ),
            _UNDER_A_CONSTRAINT_TOO,
        ),
    },
}
"""Case -> what differs with its argument -> the deviation."""


def unexpected(
    case: str,
    differences: Iterable[Difference],
    deviations: Mapping[str, Mapping[str, Deviation]] = DEVIATIONS,
) -> list[str]:
    """Return what differs without being listed, or otherwise than listed, and what is listed and does not differ.

    Args:
        case: name.
        differences: that were found.
        deviations: that are listed.
    """
    listed = dict(deviations.get(case, {}))
    told = []
    for each in differences:
        has, _ = listed.pop(each.what, ((), ""))
        if each.has not in ((has,) if isinstance(has, str) else has):
            told.append(str(each))
    told.extend(f"{what}: is listed as a deviation, and is as recorded" for what in listed)
    return told
