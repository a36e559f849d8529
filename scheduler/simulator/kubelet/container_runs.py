"""Run times of a pod's containers: the simulated kubelets run no images, and read them from the pod.

Containers with restart policy Always never end. Other containers end

- as the annotations `simulator/run-seconds` and `simulator/exit-code` of the pod say, if it has them;
- as the command says, if it is one of `sleep N`, `true`, `false`, `exit N`, `echo ...`, `date`, alone or
  one after another in `sh -c "sleep 5; exit 1"`;
- after a few seconds, successfully, if the pod is a Job's and nothing else is known;
- never, in all other cases.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.simulator.apimachinery.objects import Object, controller_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
