"""The pod statuses that kubelets write, and the run times of containers.

Containers with restart policy Always never end. Other containers end

- as the annotations `simulator/run-seconds` and `simulator/exit-code` of the pod say, if it has them;
- as the command says, if it is one of `sleep N`, `true`, `false`, `exit N`, `echo ...`, `date`, alone or
  one after another in `sh -c "sleep 5; exit 1"`;
- after a few seconds, successfully, if the pod is a Job's and nothing else is known;
- never, in all other cases.

Source:
    kubelet v1.36, pkg/kubelet/status/generate.go and pkg/kubelet/kubelet_pods.go.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.tools.simulator.apimachinery.objects import Object, condition_of, controller_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN_SECONDS: Final = "simulator/run-seconds"
EXIT_CODE: Final = "simulator/exit-code"

_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_AT_ONCE: Final = frozenset({"echo", "date", "true", ":", "printf", "hostname", "env"})
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIGNS: Final = frozenset({";", "&&", "||"})


class ContainerRun(NamedTuple):
    """One run of a container.

    Attributes:
        seconds: duration; infinity if it does not end.
        exit_code: exit code.
    """

    seconds: float
    exit_code: int


ENDLESS: Final = ContainerRun(math.inf, 0)


def runs_of(pod: Object, job_seconds: float) -> list[ContainerRun]:
    """Return the run of each container of a pod, in the order of its spec.

    Args:
        pod: the pod.
        job_seconds: run time of a Job's container without other information.
    """
    spec, annotations = pod["spec"], pod["metadata"].get("annotations", {})
    containers = spec.get("containers", ())
    if spec.get("restartPolicy", "Always") == "Always":
        return [ENDLESS] * len(containers)
    if RUN_SECONDS in annotations or EXIT_CODE in annotations:
        seconds = _number(annotations.get(RUN_SECONDS, ""), job_seconds)
        return [ContainerRun(seconds, int(_number(annotations.get(EXIT_CODE, ""), 0)))] * len(containers)
    unknown = ContainerRun(job_seconds, 0) if controller_of(pod).get("kind") == "Job" else ENDLESS
    return [
        run_of_command([*container.get("command", ()), *container.get("args", ())]) or unknown
        for container in containers
    ]


def hook_seconds(pod: Object) -> float:
    """Return the duration of the longest preStop hook of a pod: a sleep, or a command whose run time is known."""
    seconds = [0.0]
    for container in pod["spec"].get("containers", ()):
        hook = container.get("lifecycle", {}).get("preStop", {})
        run = run_of_command(hook.get("exec", {}).get("command", ()))
        seconds.append(float(hook.get("sleep", {}).get("seconds", 0)))
        seconds.append(run.seconds if run else 0.0)
    return max(seconds)


def run_of_command(command: Sequence[str]) -> ContainerRun | None:
    """Return the run of a command; None if unknown."""
    if not command:
        return None
    program = command[0].rpartition("/")[2]
    if program in _SHELLS:
        return _run_of_script(command[2]) if len(command) > 2 and command[1].endswith("c") else None
    return _run_of_simple([program, *command[1:]])


def _run_of_script(script: str) -> ContainerRun | None:
    """Add up the commands of a one-line script; the command after `&&` is skipped after a failure."""
    try:
        lexer = shlex.shlex(script.replace("\n", ";"), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return None
    seconds, code, skip = 0.0, 0, False
    for sign, command in _commands(words):
        skip = (sign == "&&" and code != 0) or (sign == "||" and code == 0)
        if skip or not command:
            continue
        run = _run_of_simple(command)
        if run is None:
            return None
        seconds, code = seconds + run.seconds, run.exit_code
        if command[0] == "exit":
            break
    return ContainerRun(seconds, code)


def _commands(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split words into commands, each with the operator before it."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if word in _SIGNS:
            found.append((word, []))
        else:
            found[-1][1].append(word)
    return found


def _run_of_simple(command: Sequence[str]) -> ContainerRun | None:
    program, arguments = command[0], command[1:]
    if program == "sleep" and arguments:
        seconds = [_seconds(argument) for argument in arguments]
        return None if None in seconds else ContainerRun(sum(one for one in seconds if one is not None), 0)
    if program == "exit":
        return ContainerRun(0.0, int(_number(arguments[0], 0)) if arguments else 0)
    if program == "false":
        return ContainerRun(0.0, 1)
    return ContainerRun(0.0, 0) if program in _AT_ONCE else None


def _seconds(text: str) -> float | None:
    """Read a duration as `sleep` does: 5, 0.5, 2m, infinity."""
    if text in {"infinity", "inf"}:
        return math.inf
    unit = _UNITS.get(text[-1:], 0)
    number = _number(text[:-1] if unit else text, -1)
    return None if number < 0 else number * (unit or 1)


def _number(text: str, default: float) -> float:
    """Parse a number; return the default if it is not one."""
    try:
        number = float(text)
    except ValueError:
        return default
    return default if math.isnan(number) else number


_RUNNING: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_TERMINATED: Final = 128 + 15  # exit code after SIGTERM
_READY: Final = frozenset({"Ready", "ContainersReady"})


def running_status(pod: Object, address: str, host: str, now: str) -> Object:
    """Return the status of a pod whose containers have just started.

    This and the other functions return a strategic merge patch: conditions of other types stay.

    Args:
        pod: the pod.
        address: IP address of the pod.
        host: IP address of its node; "" if unknown.
        now: the time.
    """
    generation = pod["metadata"].get("generation", 0)
    return {
        "observedGeneration": generation,
        "phase": "Running",
        "conditions": [_condition(type_, "True", generation, now) for type_ in _RUNNING],
        **({"hostIP": host, "hostIPs": [{"ip": host}]} if host else {}),
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


RESIZE_PENDING: Final = "PodResizePending"
DEFERRED: Final = "Deferred"
INFEASIBLE: Final = "Infeasible"


class PendingResize(NamedTuple):
    """Why a kubelet does not carry out a resize.

    Attributes:
        reason: `Deferred` or `Infeasible`.
        message: text for users.
    """

    reason: str
    message: str


def resized_status(
    pod: Object, allocated: Mapping[str, Object], pending: PendingResize | None, now: str
) -> Object:
    """Return the status of a pod after a resize, or while a resize is pending.

    Args:
        pod: the pod.
        allocated: name of a container -> the resources that are allocated to it; "" -> those of the pod as a whole.
        pending: why a resize is not carried out; None if none is pending.
        now: the time.
    """
    generation = pod["metadata"].get("generation", 0)
    condition: Object = {"type": RESIZE_PENDING, "$patch": "delete"}
    if pending is not None:
        known = condition_of(pod, RESIZE_PENDING)
        since = known.get("lastTransitionTime", now) if known.get("reason") == pending.reason else now
        condition = {**_condition(RESIZE_PENDING, "True", generation, since), **pending._asdict()}
    status: Object = {"observedGeneration": generation, "conditions": [condition]}
    for field in ("initContainerStatuses", "containerStatuses"):
        if field in pod["status"]:
            status[field] = [each | _allocation(allocated.get(each["name"])) for each in pod["status"][field]]
    return status | _allocation(allocated.get(""))


def _allocation(resources: Object | None) -> Object:
    if resources is None:
        return {}
    return {"allocatedResources": resources.get("requests", {}), "resources": resources}


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
    """Return a new status of a pod's readiness conditions, without the old reason."""
    generation = pod["metadata"].get("generation", 0)
    return [
        _condition(one["type"], status, generation, now) | {"reason": None} | why
        for one in pod["status"].get("conditions", ())
        if one["type"] in _READY
    ]


def _condition(type_: str, status: str, generation: int, now: str) -> Object:
    return {
        "type": type_,
        "observedGeneration": generation,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
