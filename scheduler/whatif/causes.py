"""The causes in the message of a pod that waits, in kube-scheduler's words, without the numbers that differ from pod to pod."""

from __future__ import annotations

import re
from typing import NamedTuple

_HEAD = re.compile(r"0/(\d+) nodes are available: ?")
_BETWEEN = re.compile(r", (?=\d+ )")
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)
_POST_FILTER = re.compile(r"\. (?=no new claims to deallocate|preemption: )")
"""Where it goes on with what PostFilter plugins said."""


class Cause(NamedTuple):
    """One reason.

    Attributes:
        reason: in the plugin's words.
        nodes: how many nodes were refused for it; None where it speaks for the pod.
    """

    reason: str
    nodes: int | None


class Causes(NamedTuple):
    """Why a pod waits.

    Attributes:
        reasons: ascending.
        n_nodes: how many nodes there were; None where the message does not say.
        post_filter: what came of looking for room that could be made; "" where nobody looked.
    """

    reasons: tuple[Cause, ...]
    n_nodes: int | None = None
    post_filter: str = ""


def causes_in(message: str) -> Causes:
    """Take a message apart; one that is in other words is one cause.

    Source:
        kube-scheduler v1.36, framework/types.go, FitError.Error, which puts it together.
    """
    head = _HEAD.match(message)
    if head is None:
        return Causes((Cause(message, None),))
    said, *post_filter = _POST_FILTER.split(message[head.end() :], maxsplit=1)
    reasons = [_cause(part) for part in _BETWEEN.split(said.removesuffix("."))]
    return Causes(tuple(sorted(reasons)), int(head[1]), *post_filter)


def _cause(part: str) -> Cause:
    counted = _COUNTED.fullmatch(part)
    return Cause(part, None) if counted is None else Cause(counted[2], int(counted[1]))
