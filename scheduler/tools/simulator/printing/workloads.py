"""The columns of pods, workloads, PodGroups and PodDisruptionBudgets.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go, printPod.
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler.tools.simulator.apimachinery.kinds import (
    AGE,
    NAME,
    Cell,
    Printer,
    PrinterColumn,
    age,
    human_duration,
    pairs_text,
)
from scheduler.tools.simulator.apimachinery.objects import condition_of, is_terminating, is_true
from scheduler.tools.simulator.apimachinery.selectors import selector_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object


def pod_cells(pod: Object, now: datetime) -> list[Any]:
    """Return a pod's cells, including those of `-o wide`."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers", ())
        if container.get("restartPolicy") == "Always"
    }
    reason, ready, restarts, last_restart = _containers(spec, status, sidecars)
    if "deletionTimestamp" in metadata:
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in {"Succeeded", "Failed"}:
            reason = "Terminating"
    shown_restarts = str(restarts)
    if restarts and last_restart:
        shown_restarts += f" ({age(last_restart, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    return [
        metadata["name"],
        f"{ready}/{len(spec.get('containers', ())) + len(sidecars)}",
        reason,
        shown_restarts,
        age(metadata.get("creationTimestamp"), now),
        addresses[0].get("ip") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _readiness_gates(spec, status),
    ]


def _containers(spec: Object, status: Object, sidecars: set[Any]) -> tuple[str, int, int, str]:
    """Return the status, the ready containers, the restarts and the time of the last restart."""
    reason = status.get("reason") or status.get("phase", "")
    conditions = {one.get("type"): one for one in status.get("conditions", ())}
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"

    starting = _Init(spec, status, sidecars)
    if starting.problem:
        reason = starting.problem
        if conditions.get("Initialized", {}).get("status") != "True":
            return reason, starting.ready, starting.restarts, starting.last_restart

    containers = status.get("containerStatuses", ())
    restarts = starting.sidecar_restarts + sum(one.get("restartCount", 0) for one in containers)
    last_restart = max([starting.last_sidecar_restart, *map(_last_end, containers)])
    ready, failure = 0, ""
    for container in reversed(containers):
        state = container.get("state", {})
        if state.get("waiting", {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _ended(state["terminated"], "")
            failure = reason if state["terminated"].get("exitCode") else failure
        elif container.get("ready") and "running" in state:
            ready += 1
    if reason == "Completed" and (ready or failure):
        is_ready = ready and conditions.get("Ready", {}).get("status") == "True"
        reason = "Running" if is_ready else failure or "NotReady"
    return reason, starting.ready + ready, restarts, last_restart


class _Init:
    """The progress of a pod's init containers.

    Attributes:
        problem: what they wait for or why they failed, as displayed; "" when they are done.
        ready: number of ready sidecars.
        restarts: restarts of all examined containers.
        sidecar_restarts: restarts of the sidecars.
        last_restart: end of the last run before a restart; "" for never.
        last_sidecar_restart: `last_restart` of the sidecars.
    """

    def __init__(self, spec: Object, status: Object, sidecars: set[Any]) -> None:
        self.problem = self.last_restart = self.last_sidecar_restart = ""
        self.ready = self.restarts = self.sidecar_restarts = 0
        for place, container in enumerate(status.get("initContainerStatuses", ())):
            is_sidecar = container.get("name") in sidecars
            restarts = container.get("restartCount", 0)
            self.restarts += restarts
            self.last_restart = max(self.last_restart, _last_end(container))
            if is_sidecar:
                self.sidecar_restarts += restarts
                self.last_sidecar_restart = max(self.last_sidecar_restart, _last_end(container))
            if is_sidecar and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            self.problem = _init_problem(container, place, len(spec.get("initContainers", ())))
            if self.problem:
                return


def _init_problem(container: Object, place: int, count: int) -> str:
    """Return the problem of an init container; "" when it is done."""
    state = container.get("state", {})
    if "terminated" in state:
        return _ended(state["terminated"], "Init:") if state["terminated"].get("exitCode") else ""
    waiting = state.get("waiting", {}).get("reason", "")
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{place}/{count}"


def _ended(terminated: Object, prefix: str) -> str:
    if terminated.get("reason"):
        return f"{prefix}{terminated['reason']}"
    if terminated.get("signal"):
        return f"{prefix}Signal:{terminated['signal']}"
    return f"{prefix}ExitCode:{terminated.get('exitCode', 0)}"


def _last_end(container: Object) -> str:
    ended: str = container.get("lastState", {}).get("terminated", {}).get("finishedAt") or ""
    return ended


def _readiness_gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates", ())
    if not gates:
        return "<none>"
    true = {one.get("type") for one in status.get("conditions", ()) if one.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"


def _workload(group: Object, _: datetime) -> str:
    spec = group["spec"]
    reference = spec.get("workloadRef") or spec.get("podGroupTemplateRef", {}).get("workload", {})
    name: str = reference.get("workloadName", "<none>")
    return name


def _policy(group: Object, _: datetime) -> str:
    return "Gang" if "gang" in group["spec"]["schedulingPolicy"] else "Basic"


def _status(group: Object, _: datetime) -> str:
    disrupted = condition_of(group, "DisruptionTarget")
    if disrupted:
        reason: str = disrupted["reason"]
        return reason
    scheduled = condition_of(group, "PodGroupInitiallyScheduled") or condition_of(group, "PodGroupScheduled")
    if not scheduled:
        return "Pending"
    return "Scheduled" if scheduled["status"] == "True" else "Unschedulable"


_PARENT: Final = "parentCompositePodGroupName"


def _parent(group: Object, _: datetime) -> str:
    name: str = group["spec"].get(_PARENT, "<none>")
    return name


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
                cell=_workload,
            ),
            PrinterColumn("Status", "Status of the PodGroup", cell=_status),
            AGE,
        )
    ),
    "compositepodgroups.scheduling.k8s.io": Printer(
        (
            NAME,
            PrinterColumn(
                "Policy", "Whether its groups are placed all together or each by itself.", cell=_policy
            ),
            PrinterColumn("Workload", "Name of the referenced Workload object", cell=_workload),
            PrinterColumn("Parent", "Name of the CompositePodGroup that it is a part of", cell=_parent),
            AGE,
        )
    ),
}


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
