"""Plugins that look at nodes one by one: the loop that their authors are spared."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.outcomes import Outcomes
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.runtime.calls import NodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import FilterPlugin, ScorePlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot


def filter_nodes(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> Outcomes:
    """Ask a plugin's `filter_node` about every row.

    Raises:
        NodeError: it raised, or gave a malformed answer, at some node; the others are not asked.
        ValueError: there are more than 65535 different answers.
    """

    def verdicts() -> Iterator[Status]:
        for node in _nodes(snapshot, rows):
            try:
                yield _checked(plugin.filter_node(state, pod, node))
            except Exception as error:
                raise NodeError(node.name, error) from error

    return Outcomes.from_statuses(snapshot.n_nodes, rows, verdicts())


def score_nodes(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> Int64s:
    """Ask a plugin's `score_node` about every row; int64 (n_nodes,), 0 elsewhere.

    Raises:
        NodeError: it raised, or gave no whole number, at some node; the others are not asked.
    """
    scores = np.zeros(snapshot.n_nodes, dtype=np.int64)
    for node in _nodes(snapshot, rows):
        try:
            scores[node.row] = index(plugin.score_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error
    return scores


def _nodes(snapshot: Snapshot, rows: Rows) -> Iterator[NodeInfo]:
    return map(snapshot.node_info, rows.tolist())


def _checked(answer: object) -> Status:
    if answer is None:
        return SUCCESS
    if not isinstance(answer, Status):
        raise TypeError(f"filter_node returns a Status or None, was {answer!r:.200}")
    if not (answer.is_success or answer.is_rejected or answer.code is Code.ERROR):
        raise ValueError(f"a node is refused with Unschedulable or Error, was {answer.code.value}")
    if not answer.is_success and not answer.reasons:
        raise ValueError("a refused node needs a reason")
    return answer
