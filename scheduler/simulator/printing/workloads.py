"""The columns of workloads and PodDisruptionBudgets.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import is_terminating, is_true
from scheduler.simulator.apimachinery.selectors import selector_text
from scheduler.simulator.apimachinery.tables import (
    AGE,
    NAME,
    Cell,
    Printer,
    PrinterColumn,
    human_duration,
    pairs_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.simulator.apimachinery.objects import Object


def _count(heading: str, model: str, field: str, type_: str = "integer") -> PrinterColumn:
    """Return a column with a number from the spec or the status, described by the field of the API model."""
    part = "spec" if model.endswith("Spec") else "status"
    return PrinterColumn(heading, (model, field), type_, cell=lambda obj, _: obj.get(part, {}).get(field, 0))


def _of_containers(field: str) -> Cell:
    def cell(obj: Object, _: datetime) -> str:
        return ",".join(one.get(field, "") for one in obj["spec"]["template"]["spec"].get("containers", ()))

    return cell


def _selector(obj: Object, _: datetime) -> str:
    return selector_text(obj["spec"].get("selector") or {})


def _ready(obj: Object, _: datetime) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


def _node_selector(daemon_set: Object, _: datetime) -> str:
    return pairs_text(daemon_set["spec"]["template"]["spec"].get("nodeSelector", {}))


def _completions(job: Object, _: datetime) -> str:
    spec, succeeded = job["spec"], job.get("status", {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: Object, now: datetime) -> str:
    status = job.get("status", {})
    if "startTime" not in status:
        return ""
    end = datetime.fromisoformat(status["completionTime"]) if "completionTime" in status else now
    return human_duration((end - datetime.fromisoformat(status["startTime"])).total_seconds())


def _job_state(job: Object, _: datetime) -> str:
    for state in ("Complete", "Failed"):
        if is_true(job, state):
            return state
    if is_terminating(job):
        return "Terminating"
    for state in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(job, state):
            return state
    return "Running"


def _bound(field: str) -> Cell:
    return lambda budget, _: str(budget.get("spec", {}).get(field, "N/A"))


_READY: Final = PrinterColumn("Ready", "Number of the pod with ready state", cell=_ready)
_TEMPLATE: Final = (
    PrinterColumn(
        "Containers", "Names of each container in the template.", priority=1, cell=_of_containers("name")
    ),
    PrinterColumn(
        "Images",
        "Images referenced by each container in the template.",
        priority=1,
        cell=_of_containers("image"),
    ),
    PrinterColumn("Selector", "Which pods are its own, by their labels.", priority=1, cell=_selector),
)

WORKLOAD_PRINTERS: Final[Mapping[str, Printer]] = {
    "deployments.apps": Printer(
        (
            NAME,
            _READY,
            _count("Up-to-date", "V1DeploymentStatus", "updatedReplicas", "string"),
            _count("Available", "V1DeploymentStatus", "availableReplicas", "string"),
            AGE,
            *_TEMPLATE,
        )
    ),
    "replicasets.apps": Printer(
        (
            NAME,
            _count("Desired", "V1ReplicaSetSpec", "replicas"),
            _count("Current", "V1ReplicaSetStatus", "replicas"),
            _count("Ready", "V1ReplicaSetStatus", "readyReplicas"),
            AGE,
            *_TEMPLATE,
        )
    ),
    "daemonsets.apps": Printer(
        (
            NAME,
            _count("Desired", "V1DaemonSetStatus", "desiredNumberScheduled"),
            _count("Current", "V1DaemonSetStatus", "currentNumberScheduled"),
            _count("Ready", "V1DaemonSetStatus", "numberReady"),
            _count("Up-to-date", "V1DaemonSetStatus", "updatedNumberScheduled"),
            _count("Available", "V1DaemonSetStatus", "numberAvailable"),
            PrinterColumn("Node Selector", ("V1PodSpec", "nodeSelector"), cell=_node_selector),
            AGE,
            *_TEMPLATE,
        )
    ),
    "statefulsets.apps": Printer((NAME, _READY, AGE, *_TEMPLATE[:2])),
    "jobs.batch": Printer(
        (
            NAME,
            PrinterColumn("Status", "Status of the job.", cell=_job_state),
            PrinterColumn("Completions", ("V1JobStatus", "succeeded"), cell=_completions),
            PrinterColumn("Duration", "Time required to complete the job.", cell=_duration),
            AGE,
            *_TEMPLATE,
        )
    ),
    "poddisruptionbudgets.policy": Printer(
        (
            NAME,
            PrinterColumn(
                "Min Available",
                "The minimum number of pods that must be available.",
                cell=_bound("minAvailable"),
            ),
            PrinterColumn(
                "Max Unavailable",
                "The maximum number of pods that may be unavailable.",
                cell=_bound("maxUnavailable"),
            ),
            PrinterColumn(
                "Allowed Disruptions",
                "Calculated number of pods that may be disrupted now.",
                "integer",
                cell=lambda budget, _: budget.get("status", {}).get("disruptionsAllowed", 0),
            ),
            AGE,
        )
    ),
}
