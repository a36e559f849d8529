"""Validates the return values of plugins for each extension point; an invalid value is a failure of the plugin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.diagnosis import Outcomes
from scheduler.framework.interface import PostFilterResult, PreFilterResult, Wait
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.status import Status

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s


def is_anything(_answer: object) -> bool:
    """Accept every value: the called function checks it, or no code reads it."""
    return True


def is_none(answer: object) -> bool:
    """Accept only None, at points where a status carries every other result."""
    return answer is None


def is_pre_filter(answer: object) -> bool:
    """Accept the values that PreFilter may return besides a status."""
    return answer is None or (
        isinstance(answer, PreFilterResult)
        and isinstance(answer.node_names, frozenset)
        and all(isinstance(name, str) for name in answer.node_names)
    )


def is_post_filter(answer: object) -> bool:
    """Accept the values that PostFilter may return."""
    return (
        isinstance(answer, PostFilterResult)
        and isinstance(answer.status, Status)
        and isinstance(answer.nominated_node_name, str | None)
    )


def is_sort_key(answer: object) -> bool:
    """Accept the values that QueueSort may return: keys that can be compared with each other."""
    return isinstance(answer, tuple) and all(_is_number(part) for part in answer)


def is_permit(answer: object) -> bool:
    """Accept the values that Permit may return besides a status."""
    return answer is None or (isinstance(answer, Wait) and _is_number(answer.timeout_seconds))


def checked_outcomes(answer: object, n_nodes: int) -> Outcomes:
    """Return the validated result of a Filter plugin.

    Raises:
        TypeError: the value is no `Outcomes`.
        ValueError: the index has another length or dtype, or points beyond the table.
    """
    if not isinstance(answer, Outcomes):
        fix = "; write Outcomes.reject(refused, reason)" if isinstance(answer, np.ndarray) else ""
        raise TypeError(f"filter returns Outcomes, was {type(answer).__name__}{fix}")
    index: object = answer.index
    if not isinstance(index, np.ndarray) or index.shape != (n_nodes,) or index.dtype != np.uint16:
        raise ValueError(f"Outcomes.index is uint16 ({n_nodes},), was {_shape(index)}")
    highest = int(index.max(initial=0))
    if highest >= len(answer.table):
        raise ValueError(f"Outcomes.index points to {highest}, the table has {len(answer.table)} entries")
    return answer


def checked_scores(answer: object, n_nodes: int, method: str) -> Int64s:
    """Return the validated scores of a plugin's `method`, int64 (n_nodes,).

    Raises:
        ValueError: the array has another length or dtype, or the value is neither an array nor an integer.
    """
    if type(answer) is int:
        return np.full(n_nodes, answer, dtype=np.int64)
    if not isinstance(answer, np.ndarray) or answer.shape != (n_nodes,) or answer.dtype != np.int64:
        raise ValueError(f"{method} returns int64 ({n_nodes},), was {_shape(answer)}")
    return answer


def signature_of(plugin: Plugin, pod: PodInfo) -> Hashable | None:
    """Return a plugin's signature of a pod.

    Raises:
        TypeError: the signature is not hashable.
    """
    signature = plugin.signature(pod)
    try:
        hash(signature)
    except TypeError:
        raise TypeError(
            f"signature returns a hashable value, such as a tuple, was {signature!r:.200}"
        ) from None
    return signature


EXPECTED: Mapping[ExtensionPoint, str] = {
    ExtensionPoint.PRE_FILTER: "PreFilterResult(frozenset of node names), a Status or None",
    ExtensionPoint.POST_FILTER: "PostFilterResult(status, node name or None)",
    ExtensionPoint.QUEUE_SORT: "a tuple of numbers",
    ExtensionPoint.PERMIT: "Wait(seconds), a Status or None",
}
"""Extension point -> the expected return value of its method; absent points return a Status or None."""


def _is_number(found: object) -> bool:
    """Return whether a value is a number that can be compared, so not NaN."""
    return isinstance(found, int | float) and not math.isnan(found)


def _shape(found: object) -> str:
    return f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
