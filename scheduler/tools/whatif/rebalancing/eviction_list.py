"""Lists of pods that another program would evict: plain lines, or the log of the descheduler's dry run.

Source:
    descheduler 0.36, pkg/descheduler/evictions/evictions.go, EvictPod; klog's text and JSON formats.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.errors import FieldError
from scheduler.objects.wording import quoted
from scheduler.tools.whatif.cluster_file import ClusterFileError, read

if TYPE_CHECKING:
    from collections.abc import Container

_MESSAGE: Final = "Evicted pod in dry run mode"
_KEY: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_POD: Final = re.compile(rf'"{_MESSAGE}".*? pod="([^"]*)"')
_LOGGED: Final = re.compile(r"(^|\s)[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s")
"""The head of a line of klog, perhaps after a time that `kubectl logs` adds."""
_COMMENT: Final = "#"


class Listed(NamedTuple):
    """A pod of a list.

    Attributes:
        line: the number of its line, from 1.
        pod: `namespace/name`.
    """

    line: int
    pod: str


def load(path: str, pods: Container[str]) -> list[Listed]:
    """Read a file, or standard input for `-`; see `parse`.

    Raises:
        ClusterFileError: all errors of the file.
    """
    data, source = read(path)
    return parse(data, source, pods)


def parse(data: bytes, source: str, pods: Container[str]) -> list[Listed]:
    """Read the pods of a list, in its order.

    Empty lines, lines that begin with # and other lines of a log are left out.

    Args:
        data: the lines.
        source: the name for messages.
        pods: `namespace/name` of the pods on nodes.

    Raises:
        ClusterFileError: all errors: what is no pod, a pod that is on no node or that an earlier line has; no pod at all.
    """
    faults: list[FieldError] = []
    found: dict[str, int] = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(_COMMENT):
            continue
        pod = _pod_in(text)
        if pod is None:
            continue
        problem = _problem(pod, text, pods, found)
        if problem:
            faults.append(FieldError(f"line {number}", problem))
        else:
            found[pod] = number
    if not (found or faults):
        faults.append(FieldError("", f'names no pod; expected are lines namespace/name, or "{_MESSAGE}"'))
    if faults:
        raise ClusterFileError(source, faults)
    return [Listed(number, pod) for pod, number in found.items()]


def _problem(pod: str, text: str, pods: Container[str], found: dict[str, int]) -> str:
    """Return what is wrong with a pod of a line; "" if nothing is."""
    if not _KEY.fullmatch(pod):
        return f'must be namespace/name or a line of a log with "{_MESSAGE}", was {quoted(text)}'
    if pod in found:
        return f"pod {pod} is already in line {found[pod]}"
    return "" if pod in pods else f"pod {pod} is on no node of the cluster"


def _pod_in(text: str) -> str | None:
    """Return the pod of a line, or the line itself if it has none; None for other lines of a log."""
    if text.startswith("{"):
        return _pod_in_json(text)
    if logged := _POD.search(text):
        return logged[1]
    return None if _LOGGED.search(text) and _MESSAGE not in text else text


def _pod_in_json(text: str) -> str | None:
    try:
        entry: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if "msg" not in entry:
        return text
    if entry["msg"] != _MESSAGE:
        return None
    pod = entry.get("pod")
    if isinstance(pod, dict):
        return f"{pod.get('namespace', '')}/{pod.get('name', '')}"
    return str(pod)
