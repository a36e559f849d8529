"""The state of pods on the API server."""

from __future__ import annotations

from typing import Any


def has_ended(pod: dict[str, Any]) -> bool:
    """Whether a pod holds nothing any more."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_pending(pod: dict[str, Any]) -> bool:
    """Whether a pod is on no node and may yet come on one."""
    return not (pod["spec"].get("nodeName") or has_ended(pod) or "deletionTimestamp" in pod["metadata"])


def taken_milli(pod: dict[str, Any]) -> int:
    """Return the milliCPU that a pod holds: the largest of asked, allocated and actual of each container.

    What an infeasible resize asks for does not count.
    """
    pending = [each for each in pod["status"].get("conditions", ()) if each["type"] == "PodResizePending"]
    is_infeasible = bool(pending) and pending[0].get("reason") == "Infeasible"
    statuses = {each["name"]: each for each in pod["status"].get("containerStatuses", ())}
    total = 0
    for container in pod["spec"]["containers"]:
        asked = _milli(container.get("resources", {}).get("requests", {}).get("cpu"))
        status = statuses.get(container["name"], {})
        if "resources" in status:
            actual = _milli(status["resources"].get("requests", {}).get("cpu"))
            allocated = _milli(status.get("allocatedResources", {}).get("cpu"))
            asked = max(0 if is_infeasible else asked, actual, allocated)
        total += asked
    return total


def _milli(cpu: str | int | None) -> int:
    text = str(cpu or 0)
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)
