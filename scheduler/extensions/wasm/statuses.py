"""Converts a guest's numbers to the framework's codes."""

from __future__ import annotations

from scheduler.framework.status import SUCCESS, Code, Status

_CODES = (
    Code.SUCCESS,
    Code.ERROR,
    Code.UNSCHEDULABLE,
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    Code.WAIT,
    Code.SKIP,
    Code.PENDING,
)
"""By number. Source: kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go, Code."""
NUMBERS = {code: number for number, code in enumerate(_CODES)}


def status_of(number: int, reason: str, plugin: str) -> Status:
    """Return a guest's status; an unknown number is an error."""
    if not 0 <= number < len(_CODES):
        description = f": {reason}" if reason else ""
        return Status.failed(f"wasm: unknown status code {number}{description}")
    code = _CODES[number]
    if code is Code.SUCCESS:
        return SUCCESS
    # Upstream leaves the message of the pod's event empty, which does not help users.
    return Status(code, (reason or f"rejected by the guest {plugin} without a reason",))


def high_and_low(result: int) -> tuple[int, int]:
    """Split the two signed halves of an i64."""
    low = result & 0xFFFFFFFF
    return result >> 32, low - (1 << 32) if low >> 31 else low
