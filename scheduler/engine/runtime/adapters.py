"""Adapters that call Filter and Score plugins for many nodes, with one call for all nodes or one call for each node.

The loop over nodes is here, so that plugin authors need not write it. It runs for plugins that implement only the
method for one node, and for plugins that implement both methods and have few nodes to evaluate.
"""

from __future__ import annotations

import time
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.calls import (
    NodeError,
    NoInstruments,
    PluginCalls,
    checked_outcomes,
    checked_scores,
    is_worded,
)
from scheduler.engine.runtime.plugin_classes import overrides
from scheduler.framework.diagnosis import PASS, Outcome, Outcomes
from scheduler.framework.interface import ExtensionPoint, FilterPlugin, ScorePlugin, SlowPlugin
from scheduler.framework.reasons import OUTSIDE_SAMPLE, Reason
from scheduler.framework.status import SUCCESS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

FEW_ROWS = 8
"""Up to this number of nodes, one call for each node is cheaper than arrays, if a plugin supports both."""


def slow_last(plugins: Sequence[Plugin]) -> Sequence[Plugin]:
    """Return plugins in order, with sampling plugins last: fewer nodes are left for them."""
    return sorted(plugins, key=lambda plugin: sample_of(plugin) is not None)


def sample_of(plugin: Plugin) -> int | None:
    """Return the number of nodes in a plugin's sample; None means all nodes."""
    return plugin.sample if isinstance(plugin, SlowPlugin) else None


class FilterAdapter:
    """Calls one Filter plugin for many nodes.

    Attributes:
        plugin: the plugin.
    """

    def __init__(self, plugin: FilterPlugin, calls: PluginCalls) -> None:
        self.plugin = plugin
        self._calls = calls
        self._at_once = overrides(plugin, FilterPlugin, "filter")
        self._by_node = overrides(plugin, FilterPlugin, "filter_node")

    def across(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Return outcomes, (n_nodes,), valid at `rows`, of a plugin that may read other nodes as well."""
        if not self._at_once:
            return self.each(state, pod, snapshot, rows).spread(rows, snapshot.n_nodes)
        self._calls.instruments.evaluated(self._calls.profile, self.plugin.name, ExtensionPoint.FILTER)
        return checked_outcomes(self.plugin.filter(state, pod, snapshot, rows), snapshot.n_nodes)

    def each(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Return outcomes, (len(rows),), of a plugin that reads one node at a time.

        Raises:
            NodeError: the plugin raised or returned an invalid value for one node; the remaining nodes are skipped.
            ValueError: the plugin returned an invalid value for all nodes.
        """
        plugin = self.plugin
        self._calls.instruments.evaluated(self._calls.profile, plugin.name, ExtensionPoint.FILTER)
        if self._at_once and self._by_node and len(rows) <= FEW_ROWS:
            return _filter_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)[0]
        if self._at_once and are_most(rows, snapshot):
            outcomes = checked_outcomes(plugin.filter(state, pod, snapshot, rows), snapshot.n_nodes)
            return outcomes if len(rows) == snapshot.n_nodes else outcomes.taken(rows)
        if self._at_once:
            nodes = snapshot.take(rows)
            return checked_outcomes(plugin.filter(state, pod, nodes, nodes.all_rows), nodes.n_nodes)
        began = self._calls.clock()
        outcomes, asked = _filter_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)
        self._calls.looped(plugin, ExtensionPoint.FILTER, asked, began)
        return outcomes

    def at(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, row: int) -> Outcome:
        """Return the outcome of one node, of a plugin that reads one node at a time; raises as `each`."""
        if not self._by_node:
            return self.each(state, pod, snapshot, np.array([row], dtype=np.intp)).of(0)
        self._calls.instruments.evaluated(self._calls.profile, self.plugin.name, ExtensionPoint.FILTER)
        node = snapshot.node_info(row)
        try:
            status = self.plugin.filter_node(state, pod, node)
            return PASS if status is None else _outcome(_checked(status))
        except Exception as error:
            raise NodeError(node.name, error) from error


class ScoreAdapter:
    """Calls one Score plugin for many nodes, as `FilterAdapter`.

    Attributes:
        plugin: the plugin.
        normalizes: whether the plugin overrides `normalize`.
    """

    def __init__(self, plugin: ScorePlugin, calls: PluginCalls) -> None:
        self.plugin = plugin
        self.normalizes = overrides(plugin, ScorePlugin, "normalize")
        self._calls = calls
        self._at_once = overrides(plugin, ScorePlugin, "score")
        self._by_node = overrides(plugin, ScorePlugin, "score_node")

    def across(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s | int:
        """Return scores, (n_nodes,), valid at `rows`, or one number for all rows."""
        if not self._at_once:
            scores = np.zeros(snapshot.n_nodes, dtype=np.int64)
            scores[rows] = self.each(state, pod, snapshot, rows)
            return scores
        self._calls.instruments.evaluated(self._calls.profile, self.plugin.name, ExtensionPoint.SCORE)
        answer = self.plugin.score(state, pod, snapshot, rows)
        return answer if type(answer) is int else checked_scores(answer, snapshot.n_nodes, "score")

    def each(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s:
        """Return scores, (len(rows),).

        Raises:
            NodeError: the plugin raised or returned no integer for one node; the remaining nodes are skipped.
            ValueError: the plugin returned an invalid value for all nodes.
        """
        plugin = self.plugin
        self._calls.instruments.evaluated(self._calls.profile, plugin.name, ExtensionPoint.SCORE)
        if self._at_once and self._by_node and len(rows) <= FEW_ROWS:
            return _score_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)[0]
        if self._at_once and are_most(rows, snapshot):
            scores = checked_scores(plugin.score(state, pod, snapshot, rows), snapshot.n_nodes, "score")
            return scores if len(rows) == snapshot.n_nodes else scores[rows]
        if self._at_once:
            nodes = snapshot.take(rows)
            return checked_scores(plugin.score(state, pod, nodes, nodes.all_rows), nodes.n_nodes, "score")
        began = self._calls.clock()
        scores, asked = _score_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)
        self._calls.looped(plugin, ExtensionPoint.SCORE, asked, began)
        return scores

    def at(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, row: int) -> int:
        """Return the score of one node, of a plugin that reads one node at a time; raises as `each`."""
        if not self._by_node:
            return int(self.each(state, pod, snapshot, np.array([row], dtype=np.intp))[0])
        self._calls.instruments.evaluated(self._calls.profile, self.plugin.name, ExtensionPoint.SCORE)
        node = snapshot.node_info(row)
        try:
            return _whole(self.plugin.score_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error


def are_most(rows: Rows, snapshot: Snapshot) -> bool:
    """Return whether it takes longer to copy the columns of some rows than to evaluate all of them."""
    return 2 * len(rows) >= snapshot.n_nodes


def outcomes_of(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> Outcomes:
    """Call one Filter plugin outside a profile, and return its outcomes, (n_nodes,), valid at `rows`."""
    return FilterAdapter(plugin, _alone()).across(state, pod, snapshot, rows)


def scores_of(plugin: ScorePlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s:
    """Call one Score plugin outside a profile; return its scores before normalization, (n_nodes,), valid at `rows`."""
    scores = ScoreAdapter(plugin, _alone()).across(state, pod, snapshot, rows)
    return checked_scores(scores, snapshot.n_nodes, "score")


def _alone() -> PluginCalls:
    return PluginCalls("", NoInstruments(), time.perf_counter)


def _filter_nodes(
    plugin: FilterPlugin,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
    budget: LoopBudget,
) -> tuple[Outcomes, int]:
    """Call a plugin's `filter_node` for every row, or until its sample is full.

    Returns:
        The outcomes, (len(rows),), and the number of evaluated nodes.

    Raises:
        OverBudgetError: the attempt exceeded its budget during the loop.
    """
    sample = sample_of(plugin)
    order = np.arange(len(rows)) if sample is None else _rotated(plugin, rows)
    statuses: list[Status] = []
    passed = 0
    for node in _nodes(snapshot, rows[order]):
        if sample is not None and passed >= sample:
            break
        if budget.is_spent:
            budget.refuse_spent()
        try:
            status = _checked(plugin.filter_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error
        statuses.append(status)
        passed += status.is_success
    asked = len(statuses)
    outcomes = Outcomes.from_statuses(len(rows), order[:asked], statuses)
    if asked < len(order):
        reason = Reason(f"node(s) were left out of the sample of {plugin.name}", OUTSIDE_SAMPLE)
        left_out = Outcome(Code.UNSCHEDULABLE, (reason,))
        outcomes.index[order[asked:]] = len(outcomes.table)
        outcomes = Outcomes(outcomes.index, (*outcomes.table, left_out))
        _go_on_after(plugin, rows[order], asked)
    return outcomes, asked


def _score_nodes(
    plugin: ScorePlugin,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    rows: Rows,
    budget: LoopBudget,
) -> tuple[Int64s, int]:
    """Call a plugin's `score_node` for every row, or for its sample of rows.

    Returns:
        Scores, int64 (len(rows),), and the number of evaluated nodes. Rows outside the sample have its lowest score.

    Raises:
        OverBudgetError: the attempt exceeded its budget during the loop.
    """
    scores = np.zeros(len(rows), dtype=np.int64)
    sample = sample_of(plugin)
    order = np.arange(len(rows)) if sample is None else _rotated(plugin, rows)
    asked = order[:sample]
    for place, node in zip(asked.tolist(), _nodes(snapshot, rows[asked]), strict=True):
        if budget.is_spent:
            budget.refuse_spent()
        try:
            scores[place] = _whole(plugin.score_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error
    if len(asked) < len(rows):
        scores[order[len(asked) :]] = scores[asked].min()
        _go_on_after(plugin, rows[order], len(asked))
    return scores, len(asked)


def _rotated(plugin: Plugin, rows: Rows) -> Rows:
    """Return positions in `rows`, from the end of the last sample on, so that all nodes are sampled in rotation."""
    assert isinstance(plugin, SlowPlugin)
    turned: Rows = np.roll(np.arange(len(rows)), -int(np.searchsorted(rows, plugin.sample_start)))
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
        raise ValueError(f"a node is rejected with Unschedulable or Error, was {answer.code.value}")
    if not answer.is_success and not answer.reasons:
        raise ValueError("a rejected node needs a reason")
    if not is_worded(answer):
        raise TypeError(
            f'reasons are strings, as in Status.unschedulable("one", "another"), was {answer.reasons!r:.200}'
        )
    return answer


def _outcome(status: Status) -> Outcome:
    return PASS if status.is_success else Outcome(status.code, status.reasons)


def _whole(answer: object) -> int:
    try:
        return index(answer)  # type: ignore[arg-type]  # a plugin may return any value
    except TypeError:
        raise TypeError(f"score_node returns an integer, was {answer!r:.200}") from None
