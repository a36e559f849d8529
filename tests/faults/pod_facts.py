"""How pods stand, by the API server's account."""

from __future__ import annotations

from typing import Any


def has_ended(pod: dict[str, Any]) -> bool:
    """Whether a pod holds nothing any more."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_pending(pod: dict[str, Any]) -> bool:
    """Whether a pod is on no node and may yet come on one."""
    return not (pod["spec"].get("nodeName") or has_ended(pod) or "deletionTimestamp" in pod["metadata"])
