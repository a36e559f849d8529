"""The pod statuses that kubelets write.

Source:
    kubelet v1.36, pkg/kubelet/status/generate.go and pkg/kubelet/kubelet_pods.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.simulator.apimachinery.objects import Object

_RUNNING: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_TERMINATED: Final = 128 + 15  # exit code after SIGTERM
_READY: Final = frozenset({"Ready", "ContainersReady"})


def running_status(pod: Object, address: str, now: str) -> Object:
    """Return the status of a pod whose containers have just started."""
    generation = pod["metadata"].get("generation", 0)
    conditions = [_condition(type_, "True", generation, now) for type_ in _RUNNING]
    others = [one for one in pod["status"].get("conditions", ()) if one["type"] not in _RUNNING]
    return {
        "observedGeneration": generation,
        "phase": "Running",
        "conditions": [*conditions, *others],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "containerStatuses": [
            {
                "name": container["name"],
                "state": {"running": {"startedAt": now}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": container.get("image", ""),
                "imageID": "",
                "started": True,
            }
            for container in pod["spec"].get("containers", ())
        ],
    }


def ended_status(pod: Object, exit_codes: Sequence[int], now: str) -> Object:
    """Return the status of a pod whose containers have all ended permanently."""
    failed = any(exit_codes)
    reason = "PodFailed" if failed else "PodCompleted"
    return {
        "phase": "Failed" if failed else "Succeeded",
        "conditions": _readiness(pod, "False", now, reason=reason),
        "containerStatuses": [
            status | {"state": {"terminated": _ended(status, code, now)}, "ready": False, "started": False}
            for status, code in zip(_containers(pod), exit_codes, strict=True)
        ],
    }


def stopped_status(pod: Object, now: str) -> Object:
    """Return the status of a deleted pod whose containers were stopped, or never started."""
    return ended_status(pod, [_TERMINATED] * len(_containers(pod)), now) | {"phase": "Failed"}


def backoff_status(pod: Object, exit_codes: Sequence[int], now: str) -> Object:
    """Return the status of a pod with failed containers that wait for a restart."""
    containers = []
    for status, code in zip(_containers(pod), exit_codes, strict=True):
        ended = {"terminated": _ended(status, code, now)}
        if code:
            waiting = {
                "reason": "CrashLoopBackOff",
                "message": f"back-off restarting failed container={status['name']} pod={pod['metadata']['name']}",
            }
            state = {"state": {"waiting": waiting}, "lastState": ended}
            containers.append(status | state | {"restartCount": status["restartCount"] + 1})
        else:
            containers.append(status | {"state": ended})
    return {
        "conditions": _readiness(pod, "False", now, reason="ContainersNotReady"),
        "containerStatuses": [one | {"ready": False, "started": False} for one in containers],
    }


def restarted_status(pod: Object, now: str) -> Object:
    """Return the status of a pod whose failed containers run again."""
    containers = [
        status | {"state": {"running": {"startedAt": now}}, "ready": True, "started": True}
        if "waiting" in status["state"]
        else status
        for status in _containers(pod)
    ]
    return {"containerStatuses": containers, "conditions": _readiness(pod, "True", now)}


def _containers(pod: Object) -> list[Object]:
    found: list[Object] = pod["status"].get("containerStatuses", [])
    return found


def _ended(status: Object, exit_code: int, now: str) -> Object:
    started = status["state"].get("running", {}).get("startedAt", now)
    return {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": started,
        "finishedAt": now,
    }


def _readiness(pod: Object, status: str, now: str, **why: str) -> list[Object]:
    """Return a pod's conditions, with a new status of the readiness conditions."""
    generation = pod["metadata"].get("generation", 0)
    return [
        _condition(one["type"], status, generation, now) | why if one["type"] in _READY else one
        for one in pod["status"].get("conditions", ())
    ]


def _condition(type_: str, status: str, generation: int, now: str) -> Object:
    return {
        "type": type_,
        "observedGeneration": generation,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
