"""The causes in a pending pod's message from kube-scheduler, without the numbers that differ between pods."""

from __future__ import annotations

import re
from typing import NamedTuple

_HEAD = re.compile(r"0/(\d+) nodes are available: ?")
_BETWEEN = re.compile(r", (?=\d+ )")
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)
_POST_FILTER = re.compile(r"\. (?=no new claims to deallocate|preemption: )")
"""Beginning of the part from PostFilter plugins."""


class PendingCause(NamedTuple):
    """One reason.

    Attributes:
        reason: the plugin's text.
        nodes: number of nodes rejected for it; None if it concerns the pod.
    """

    reason: str
    nodes: int | None


class Causes(NamedTuple):
    """Why a pod waits.

    Attributes:
        reasons: in ascending order.
        n_nodes: number of nodes; None if the message does not contain it.
        post_filter: the message of PostFilter plugins; "" if none.
    """

    reasons: tuple[PendingCause, ...]
    n_nodes: int | None = None
    post_filter: str = ""


def causes_in(message: str) -> Causes:
    """Parse a message; one in another form is a single cause.

    Source:
        kube-scheduler v1.36, framework/types.go, FitError.Error, which builds it.
    """
    head = _HEAD.match(message)
    if head is None:
        return Causes((PendingCause(message, None),))
    said, *post_filter = _POST_FILTER.split(message[head.end() :], maxsplit=1)
    reasons = [_cause(part) for part in _BETWEEN.split(said.removesuffix("."))]
    return Causes(tuple(sorted(reasons)), int(head[1]), *post_filter)


def _cause(part: str) -> PendingCause:
    counted = _COUNTED.fullmatch(part)
    return PendingCause(part, None) if counted is None else PendingCause(counted[2], int(counted[1]))
