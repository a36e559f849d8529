"""How filters and scorers are asked about nodes: all at once, or one after another, which their authors are spared.

The loop over nodes is here. It is paid for by plugins that know no other way, and by those that can be asked about
few nodes more cheaply than about arrays of them.
"""

from __future__ import annotations

import time
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.interface import FilterPlugin, ScorePlugin
from scheduler.framework.outcomes import PASS, Outcome, Outcomes
from scheduler.framework.points import ExtensionPoint
from scheduler.framework.slow_plugins import SlowPlugin
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.runtime.answers import checked_outcomes, checked_scores
from scheduler.runtime.calls import NodeError, PluginCalls, is_worded
from scheduler.runtime.instruments import NoInstruments
from scheduler.runtime.points import overrides

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.interface import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.budget import LoopBudget
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

FEW_ROWS = 8
"""So many nodes are cheaper one by one than as arrays, for a plugin that can do both."""


def slow_last(plugins: Sequence[Plugin]) -> Sequence[Plugin]:
    """Return plugins in order, those that take a sample after all others: fewer nodes are left for them."""
    return sorted(plugins, key=lambda plugin: sample_of(plugin) is not None)


def sample_of(plugin: Plugin) -> int | None:
    """Return with how many nodes a plugin is content; None is all."""
    return plugin.sample if isinstance(plugin, SlowPlugin) else None


class AskFilter:
    """Asks one Filter plugin.

    Attributes:
        plugin: whom.
    """

    def __init__(self, plugin: FilterPlugin, calls: PluginCalls) -> None:
        self.plugin = plugin
        self._calls = calls
        self._at_once = overrides(plugin, FilterPlugin, "filter")
        self._by_node = overrides(plugin, FilterPlugin, "filter_node")

    def across(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Return (n_nodes,), valid at `rows`: what a plugin says that may look at other nodes as well."""
        if not self._at_once:
            return self.each(state, pod, snapshot, rows).spread(rows, snapshot.n_nodes)
        self._calls.evaluated(self.plugin, ExtensionPoint.FILTER)
        return checked_outcomes(self.plugin.filter(state, pod, snapshot, rows), snapshot.n_nodes)

    def each(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Return (len(rows),): what a plugin says that looks at one node at a time.

        Raises:
            NodeError: it raised, or gave a malformed answer, at some node; the others are not asked.
            ValueError: it gave a malformed answer for all.
        """
        plugin = self.plugin
        self._calls.evaluated(plugin, ExtensionPoint.FILTER)
        if self._at_once and self._by_node and len(rows) <= FEW_ROWS:
            return _filter_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)[0]
        if self._at_once:
            nodes = snapshot if len(rows) == snapshot.n_nodes else snapshot.take(rows)
            return checked_outcomes(plugin.filter(state, pod, nodes, nodes.all_rows), nodes.n_nodes)
        began = self._calls.clock()
        outcomes, asked = _filter_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)
        self._calls.looped(plugin, ExtensionPoint.FILTER, asked, began)
        return outcomes

    def at(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, row: int) -> Outcome:
        """Return what a plugin says of one node that looks at one node at a time; raises as `each`."""
        if not self._by_node:
            return self.each(state, pod, snapshot, np.array([row], dtype=np.intp)).of(0)
        self._calls.evaluated(self.plugin, ExtensionPoint.FILTER)
        node = snapshot.node_info(row)
        try:
            status = self.plugin.filter_node(state, pod, node)
            return PASS if status is None else _outcome(_checked(status))
        except Exception as error:
            raise NodeError(node.name, error) from error


class AskScorer:
    """Asks one Score plugin; as `AskFilter`.

    Attributes:
        plugin: whom.
        normalizes: whether it brings its scores into range itself.
    """

    def __init__(self, plugin: ScorePlugin, calls: PluginCalls) -> None:
        self.plugin = plugin
        self.normalizes = overrides(plugin, ScorePlugin, "normalize")
        self._calls = calls
        self._at_once = overrides(plugin, ScorePlugin, "score")
        self._by_node = overrides(plugin, ScorePlugin, "score_node")

    def across(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s | int:
        """Return (n_nodes,), valid at `rows`, or one number for all of them."""
        if not self._at_once:
            scores = np.zeros(snapshot.n_nodes, dtype=np.int64)
            scores[rows] = self.each(state, pod, snapshot, rows)
            return scores
        self._calls.evaluated(self.plugin, ExtensionPoint.SCORE)
        answer = self.plugin.score(state, pod, snapshot, rows)
        return answer if type(answer) is int else checked_scores(answer, snapshot.n_nodes, "score")

    def each(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s:
        """Return (len(rows),).

        Raises:
            NodeError: it raised, or gave no whole number, at some node; the others are not asked.
            ValueError: it gave a malformed answer for all.
        """
        plugin = self.plugin
        self._calls.evaluated(plugin, ExtensionPoint.SCORE)
        if self._at_once and self._by_node and len(rows) <= FEW_ROWS:
            return _score_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)[0]
        if self._at_once:
            nodes = snapshot if len(rows) == snapshot.n_nodes else snapshot.take(rows)
            return checked_scores(plugin.score(state, pod, nodes, nodes.all_rows), nodes.n_nodes, "score")
        began = self._calls.clock()
        scores, asked = _score_nodes(plugin, state, pod, snapshot, rows, self._calls.budget)
        self._calls.looped(plugin, ExtensionPoint.SCORE, asked, began)
        return scores

    def at(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, row: int) -> int:
        """Return what a plugin says of one node that looks at one node at a time; raises as `each`."""
        if not self._by_node:
            return int(self.each(state, pod, snapshot, np.array([row], dtype=np.intp))[0])
        self._calls.evaluated(self.plugin, ExtensionPoint.SCORE)
        node = snapshot.node_info(row)
        try:
            return _whole(self.plugin.score_node(state, pod, node))
        except Exception as error:
            raise NodeError(node.name, error) from error


def outcomes_of(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> Outcomes:
    """Return what one plugin, asked by itself, says of rows: (n_nodes,)."""
    return AskFilter(plugin, _alone()).across(state, pod, snapshot, rows)


def scores_of(plugin: ScorePlugin, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Int64s:
    """Return the scores that one plugin, asked by itself, gives rows before normalisation: (n_nodes,)."""
    scores = AskScorer(plugin, _alone()).across(state, pod, snapshot, rows)
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
    """Ask a plugin's `filter_node` about every row, or until its sample is full.

    Returns:
        Its verdicts, (len(rows),), and how many nodes it was asked about.

    Raises:
        OverBudgetError: the attempt has used up its budget on the way.
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
        left_out = Outcome(Code.UNSCHEDULABLE, (f"node(s) were left out of the sample of {plugin.name}",))
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
    """Ask a plugin's `score_node` about every row, or its sample of them.

    Returns:
        int64 (len(rows),), the lowest score of the sample beside it; and how many nodes it was asked about.

    Raises:
        OverBudgetError: the attempt has used up its budget on the way.
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
    """Return places in `rows`, from the row where the last sample ended on, so that every node has its turn."""
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
        raise ValueError(f"a node is refused with Unschedulable or Error, was {answer.code.value}")
    if not answer.is_success and not answer.reasons:
        raise ValueError("a refused node needs a reason")
    if not is_worded(answer):
        raise TypeError(
            f'reasons are texts, as in Status.unschedulable("one", "another"), was {answer.reasons!r:.200}'
        )
    return answer


def _outcome(status: Status) -> Outcome:
    return PASS if status.is_success else Outcome(status.code, status.reasons)


def _whole(answer: object) -> int:
    try:
        return index(answer)  # type: ignore[arg-type]  # an author's
    except TypeError:
        raise TypeError(f"score_node returns a whole number, was {answer!r:.200}") from None
