"""Plugins that look at nodes one by one: the loop that their authors are spared, over all nodes or a sample."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.outcomes import Outcome, Outcomes
from scheduler.framework.slow_plugins import SlowPlugin
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.runtime.calls import NodeError, is_worded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import FilterPlugin, Plugin, ScorePlugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot


def slow_last(plugins: Sequence[Plugin]) -> Sequence[Plugin]:
    """Return plugins in order, those that take a sample after all others: fewer nodes are left for them."""
    return sorted(plugins, key=lambda plugin: _sample_of(plugin) is not None)


def filter_nodes(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> tuple[Outcomes, int]:
    """Ask a plugin's `filter_node` about every row, or until its sample is full.

    Returns:
        Its verdicts, and how many nodes it was asked about.

    Raises:
        NodeError: it raised, or gave a malformed answer, at some node; the others are not asked.
        ValueError: there are more than 65535 different answers.
    """
    sample = _sample_of(plugin)
    order = rows if sample is None else _rotated(plugin, rows)
    statuses: list[Status] = []
    passed = 0
    for node in _nodes(snapshot, order):
        if sample is not None and passed >= sample:
            break
        try:
            status = _checked(plugin.filter_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error
        statuses.append(status)
        passed += status.is_success
    asked = len(statuses)
    outcomes = Outcomes.from_statuses(snapshot.n_nodes, order[:asked], statuses)
    if asked < len(order):
        left_out = Outcome(Code.UNSCHEDULABLE, (f"node(s) were left out of the sample of {plugin.name}",))
        outcomes.index[order[asked:]] = len(outcomes.table)
        outcomes = Outcomes(outcomes.index, (*outcomes.table, left_out))
        _go_on_after(plugin, order, asked)
    return outcomes, asked


def score_nodes(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> tuple[Int64s, int]:
    """Ask a plugin's `score_node` about every row, or its sample of them.

    Returns:
        int64 (n_nodes,), the lowest score of the sample at rows beside it, 0 elsewhere; and how many nodes it was
        asked about.

    Raises:
        NodeError: it raised, or gave no whole number, at some node; the others are not asked.
    """
    scores = np.zeros(snapshot.n_nodes, dtype=np.int64)
    sample = _sample_of(plugin)
    order = rows if sample is None else _rotated(plugin, rows)
    asked = order[:sample]
    for node in _nodes(snapshot, asked):
        try:
            scores[node.row] = _whole(plugin.score_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error
    if len(asked) < len(rows):
        scores[np.setdiff1d(rows, asked)] = scores[asked].min()
        _go_on_after(plugin, order, len(asked))
    return scores, len(asked)


def _sample_of(plugin: Plugin) -> int | None:
    return plugin.sample if isinstance(plugin, SlowPlugin) else None


def _rotated(plugin: Plugin, rows: Rows) -> Rows:
    """Begin with the row where the last sample ended, so that every node has its turn."""
    assert isinstance(plugin, SlowPlugin)
    turned: Rows = np.roll(rows, -int(np.searchsorted(rows, plugin.sample_start)))
    return turned


def _go_on_after(plugin: Plugin, order: Rows, asked: int) -> None:
    if isinstance(plugin, SlowPlugin) and 0 < asked < len(order):
        plugin.sample_start = int(order[asked - 1]) + 1


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
    if not is_worded(answer):
        raise TypeError(
            f'reasons are texts, as in Status.unschedulable("one", "another"), was {answer.reasons!r:.200}'
        )
    return answer


def _whole(answer: object) -> int:
    try:
        return index(answer)  # type: ignore[arg-type]  # an author's
    except TypeError:
        raise TypeError(f"score_node returns a whole number, was {answer!r:.200}") from None
