"""The columns of what makes pods, and of the budgets that protect them.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.selectors import selector_text
from scheduler.simulator.apimachinery.tables import (
    AGE,
    NAME,
    Column,
    Printer,
    created,
    human_duration,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.simulator.apimachinery.objects import Object

_CONTAINERS: Final = Column("Containers", "Names of each container in the template.", priority=1)
_SELECTOR: Final = Column("Selector", "Which pods are its own, by their labels.", priority=1)
_IMAGES: Final = Column("Images", "Images referenced by each container in the template.", priority=1)


def _deployment_cells(deployment: Object, now: datetime) -> list[Any]:
    status = deployment.get("status", {})
    return [
        deployment["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{deployment['spec'].get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        created(deployment, now),
        *_template_cells(deployment),
    ]


def _replica_set_cells(replica_set: Object, now: datetime) -> list[Any]:
    status = replica_set.get("status", {})
    return [
        replica_set["metadata"]["name"],
        replica_set["spec"].get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        created(replica_set, now),
        *_template_cells(replica_set),
    ]


def _daemon_set_cells(daemon_set: Object, now: datetime) -> list[Any]:
    status = daemon_set.get("status", {})
    selector = daemon_set["spec"]["template"]["spec"].get("nodeSelector", {})
    return [
        daemon_set["metadata"]["name"],
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>",
        created(daemon_set, now),
        *_template_cells(daemon_set),
    ]


def _stateful_set_cells(stateful_set: Object, now: datetime) -> list[Any]:
    status = stateful_set.get("status", {})
    return [
        stateful_set["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{stateful_set['spec'].get('replicas', 0)}",
        created(stateful_set, now),
        *_template_cells(stateful_set)[:2],
    ]


def _job_cells(job: Object, now: datetime) -> list[Any]:
    spec, status = job["spec"], job.get("status", {})
    succeeded = status.get("succeeded", 0)
    if "completions" in spec:
        completions = f"{succeeded}/{spec['completions']}"
    elif spec.get("parallelism", 0) > 1:
        completions = f"{succeeded}/1 of {spec['parallelism']}"
    else:
        completions = f"{succeeded}/1"
    duration = ""
    if "startTime" in status:
        end = datetime.fromisoformat(status["completionTime"]) if "completionTime" in status else now
        duration = human_duration((end - datetime.fromisoformat(status["startTime"])).total_seconds())
    return [
        job["metadata"]["name"],
        _job_state(job),
        completions,
        duration,
        created(job, now),
        *_template_cells(job),
    ]


def _job_state(job: Object) -> str:
    holding = {one["type"] for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True"}
    for state in ("Complete", "Failed"):
        if state in holding:
            return state
    if "deletionTimestamp" in job["metadata"]:
        return "Terminating"
    for state in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if state in holding:
            return state
    return "Running"


def _budget_cells(budget: Object, now: datetime) -> list[Any]:
    spec = budget.get("spec", {})
    return [
        budget["metadata"]["name"],
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        budget.get("status", {}).get("disruptionsAllowed", 0),
        created(budget, now),
    ]


def _template_cells(obj: Object) -> list[Any]:
    """Return what CONTAINERS, IMAGES and SELECTOR show of a workload."""
    containers = obj["spec"]["template"]["spec"].get("containers", ())
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(obj["spec"].get("selector") or {}),
    ]


WORKLOAD_PRINTERS: Final[Mapping[str, Printer]] = {
    "deployments.apps": Printer(
        (
            NAME,
            Column("Ready", "Number of the pod with ready state"),
            Column("Up-to-date", ("V1DeploymentStatus", "updatedReplicas")),
            Column("Available", ("V1DeploymentStatus", "availableReplicas")),
            AGE,
            _CONTAINERS,
            _IMAGES,
            _SELECTOR,
        ),
        _deployment_cells,
    ),
    "replicasets.apps": Printer(
        (
            NAME,
            Column("Desired", ("V1ReplicaSetSpec", "replicas"), "integer"),
            Column("Current", ("V1ReplicaSetStatus", "replicas"), "integer"),
            Column("Ready", ("V1ReplicaSetStatus", "readyReplicas"), "integer"),
            AGE,
            _CONTAINERS,
            _IMAGES,
            _SELECTOR,
        ),
        _replica_set_cells,
    ),
    "daemonsets.apps": Printer(
        (
            NAME,
            Column("Desired", ("V1DaemonSetStatus", "desiredNumberScheduled"), "integer"),
            Column("Current", ("V1DaemonSetStatus", "currentNumberScheduled"), "integer"),
            Column("Ready", ("V1DaemonSetStatus", "numberReady"), "integer"),
            Column("Up-to-date", ("V1DaemonSetStatus", "updatedNumberScheduled"), "integer"),
            Column("Available", ("V1DaemonSetStatus", "numberAvailable"), "integer"),
            Column("Node Selector", ("V1PodSpec", "nodeSelector")),
            AGE,
            _CONTAINERS,
            _IMAGES,
            _SELECTOR,
        ),
        _daemon_set_cells,
    ),
    "statefulsets.apps": Printer(
        (
            NAME,
            Column("Ready", "Number of the pod with ready state"),
            AGE,
            _CONTAINERS,
            _IMAGES,
        ),
        _stateful_set_cells,
    ),
    "jobs.batch": Printer(
        (
            NAME,
            Column("Status", "Status of the job."),
            Column("Completions", ("V1JobStatus", "succeeded")),
            Column("Duration", "Time required to complete the job."),
            AGE,
            _CONTAINERS,
            _IMAGES,
            _SELECTOR,
        ),
        _job_cells,
    ),
    "poddisruptionbudgets.policy": Printer(
        (
            NAME,
            Column("Min Available", "The minimum number of pods that must be available."),
            Column("Max Unavailable", "The maximum number of pods that may be unavailable."),
            Column("Allowed Disruptions", "Calculated number of pods that may be disrupted now.", "integer"),
            AGE,
        ),
        _budget_cells,
    ),
}
