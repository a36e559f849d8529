"""The columns of pod groups and workloads.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import condition_of
from scheduler.simulator.apimachinery.tables import AGE, NAME, Printer, PrinterColumn, at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from scheduler.simulator.apimachinery.objects import Object


def _policy(group: Object, _: datetime) -> str:
    return "Gang" if "gang" in group["spec"]["schedulingPolicy"] else "Basic"


def _status(group: Object, _: datetime) -> str:
    disrupted = condition_of(group, "DisruptionTarget")
    if disrupted:
        reason: str = disrupted["reason"]
        return reason
    scheduled = condition_of(group, "PodGroupScheduled")
    if not scheduled:
        return "Pending"
    return "Scheduled" if scheduled["status"] == "True" else "Unschedulable"


POD_GROUP_PRINTERS: Final[Mapping[str, Printer]] = {
    "workloads.scheduling.k8s.io": Printer((NAME, AGE)),
    "podgroups.scheduling.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Policy", "Whether its pods are placed all together or each by itself.", cell=_policy
            ),
            PrinterColumn(
                "Workload",
                "Name of the referenced Workload object",
                cell=at("spec.podGroupTemplateRef.workload.workloadName", "<none>"),
            ),
            PrinterColumn("Status", "Status of the PodGroup", cell=_status),
            AGE,
        )
    ),
}
