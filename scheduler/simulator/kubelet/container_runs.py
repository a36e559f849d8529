"""How long the containers of a pod run: what the kubelets' stand-in reads from a pod, since it runs no images.

Containers whose pod restarts them always never come to an end. Of the others one ends

- as the annotations `simulator/run-seconds` and `simulator/exit-code` of its pod say, if there are any;
- as its command says, if that is one of `sleep N`, `true`, `false`, `exit N`, `echo ...`, `date`, alone or
  one after another in `sh -c "sleep 5; exit 1"`;
- in a few seconds and well, if it is a Job's and nothing else is known of it;
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


class Run(NamedTuple):
    """One run of a container.

    Attributes:
        seconds: how long; infinity for one without an end.
        exit_code: how it ends.
    """

    seconds: float
    exit_code: int


ENDLESS: Final = Run(math.inf, 0)


def runs_of(pod: Object, job_seconds: float) -> list[Run]:
    """Return how each container of a pod runs, in the order of its spec.

    Args:
        pod: the pod.
        job_seconds: how long a Job's container runs of which nothing is known.
    """
    spec, annotations = pod["spec"], pod["metadata"].get("annotations", {})
    containers = spec.get("containers", ())
    if spec.get("restartPolicy", "Always") == "Always":
        return [ENDLESS] * len(containers)
    if RUN_SECONDS in annotations or EXIT_CODE in annotations:
        seconds = _number(annotations.get(RUN_SECONDS, ""), job_seconds)
        return [Run(seconds, int(_number(annotations.get(EXIT_CODE, ""), 0)))] * len(containers)
    unknown = Run(job_seconds, 0) if controller_of(pod).get("kind") == "Job" else ENDLESS
    return [
        run_of_command([*container.get("command", ()), *container.get("args", ())]) or unknown
        for container in containers
    ]


def run_of_command(command: Sequence[str]) -> Run | None:
    """Return how a command runs; None where that is not known."""
    if not command:
        return None
    program = command[0].rpartition("/")[2]
    if program in _SHELLS:
        return _run_of_script(command[2]) if len(command) > 2 and command[1].endswith("c") else None
    return _run_of_simple([program, *command[1:]])


def _run_of_script(script: str) -> Run | None:
    """Add up the commands of a script of one line; one that fails ends what `&&` follows."""
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
    return Run(seconds, code)


def _commands(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split words into commands, each with the sign before it."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if word in _SIGNS:
            found.append((word, []))
        else:
            found[-1][1].append(word)
    return found


def _run_of_simple(command: Sequence[str]) -> Run | None:
    program, arguments = command[0], command[1:]
    if program == "sleep" and arguments:
        seconds = [_seconds(argument) for argument in arguments]
        return None if None in seconds else Run(sum(one for one in seconds if one is not None), 0)
    if program == "exit":
        return Run(0.0, int(_number(arguments[0], 0)) if arguments else 0)
    if program == "false":
        return Run(0.0, 1)
    return Run(0.0, 0) if program in _AT_ONCE else None


def _seconds(text: str) -> float | None:
    """Read a duration as `sleep` does: 5, 0.5, 2m, infinity."""
    if text in {"infinity", "inf"}:
        return math.inf
    unit = _UNITS.get(text[-1:], 0)
    number = _number(text[:-1] if unit else text, -1)
    return None if number < 0 else number * (unit or 1)


def _number(text: str, default: float) -> float:
    """Read a number; what is none counts as the default."""
    try:
        number = float(text)
    except ValueError:
        return default
    return default if math.isnan(number) else number
