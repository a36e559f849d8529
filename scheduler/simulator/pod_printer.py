"""One row of `kubectl get pods`.

Source:
    kube-apiserver v1.36, pkg/printers/internalversion/printers.go, printPod.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from scheduler.simulator.durations import age

Object = dict[str, Any]


def pod_cells(pod: Object, now: datetime) -> list[Any]:
    """Return a pod's cells, those of `-o wide` included."""
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
    """Return the status, the ready containers, the restarts and the time of the last one."""
    reason = status.get("reason") or status.get("phase", "")
    conditions = {one.get("type"): one for one in status.get("conditions", ())}
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"

    ready = restarts = sidecar_restarts = 0
    last_restart = ""
    initializing = False
    for place, container in enumerate(status.get("initContainerStatuses", ())):
        restarts += container.get("restartCount", 0)
        last_restart = max(last_restart, _last_end(container))
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            sidecar_restarts += container.get("restartCount", 0)
        waits_for = _init_problem(container, place, len(spec.get("initContainers", ())))
        if is_sidecar and container.get("started"):
            ready += bool(container.get("ready"))
        elif waits_for:
            reason, initializing = waits_for, True
            break
    if initializing and conditions.get("Initialized", {}).get("status") != "True":
        return reason, ready, restarts, last_restart

    restarts, running, failure = sidecar_restarts, False, ""
    for container in reversed(status.get("containerStatuses", ())):
        restarts += container.get("restartCount", 0)
        last_restart = max(last_restart, _last_end(container))
        state = container.get("state", {})
        if state.get("waiting", {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _ended(state["terminated"], "")
            failure = reason if state["terminated"].get("exitCode") else failure
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if reason == "Completed":
        if running and conditions.get("Ready", {}).get("status") == "True":
            reason = "Running"
        elif failure or running:
            reason = failure or "NotReady"
    return reason, ready, restarts, last_restart


def _init_problem(container: Object, place: int, count: int) -> str:
    """Say what an init container holds up; "" when it is done."""
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
