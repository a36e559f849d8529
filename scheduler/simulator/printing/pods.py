"""One row of `kubectl get pods`.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go, printPod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.simulator.apimachinery.tables import age

if TYPE_CHECKING:
    from datetime import datetime

    from scheduler.simulator.apimachinery.objects import Object


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
