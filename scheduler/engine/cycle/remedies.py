"""Finds the smallest changes after which a rejected pod fits, by evaluating the pod as it would be after each of them.

Rejecting plugins propose the changes (`Plugin.why_nodes`); beside these, one more node like an existing one is tried, and
the change after which a PostFilter plugin would find a node (`PostFilterPlugin.remedy`). A change counts only if an
evaluation finds a node. If no single change is enough, two are tried together, and then three.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from scheduler.engine.cycle.scheduling import DecisionOptions, decide, run_now
from scheduler.framework.diagnosis import NARROWED
from scheduler.framework.interface import ExtensionPoint, PostFilterPlugin
from scheduler.framework.remedies import NodesExplanation
from scheduler.framework.sliced_work import NeedsTime, answer_to_end
from scheduler.loop_work import loop_work
from scheduler.objects.node import NodeObject
from scheduler.snapshot import ClusterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence

    from scheduler.engine.runtime.budget import LoopBudget
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.interface import Plugin
    from scheduler.framework.remedies import Change, Remedy
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

logger = logging.getLogger(__name__)

_MOST_REMEDIES: Final = 4
"""The number of remedies of one explanation."""
_MOST_CHANGES: Final = 3
"""The number of changes that are tried together."""
_MOST_DRY_RUNS: Final = 40
_MOST_PLUGINS: Final = 4
"""The number of rejecting plugins that are asked, those with the most nodes first."""
_MOST_TOGETHER: Final = 4
"""The number of insufficient changes that are combined with others."""
_MOST_KINDS: Final = 16
"""The number of kinds of nodes of which one more is tried."""
_MOST_READ: Final = 512
"""The number of nodes that are read to find the kinds."""
_HOSTNAME: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_NEW_NODE: Final = "one-more-node-"
_OF_THE_STATE: Final = "node.kubernetes.io/"
"""Prefix of the taints that describe the state of a node, which another node does not have."""


class FoundRemedy(NamedTuple):
    """Changes after which the pod fits.

    Attributes:
        changes: clauses that continue "It would fit if"; all of these changes are needed.
        node: the node that then fits; for a new node, the node like which it is.
    """

    changes: tuple[str, ...]
    node: str

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"changes": list(self.changes), "node": self.node}


class Rejected(NamedTuple):
    """The rejection of a pod by one plugin.

    Attributes:
        plugin: the plugin.
        rows: the nodes.
        explanation: the plugin's explanation of these nodes.
    """

    plugin: str
    rows: Rows
    explanation: NodesExplanation


class _Case(NamedTuple):
    """A pod and a cluster as they would be after some changes.

    Attributes:
        pod: the pod.
        without: the names of the plugins that are not called.
        ended: (row, pod) pairs of the pods that have ended.
    """

    pod: PodInfo
    without: frozenset[str] = frozenset()
    ended: tuple[tuple[int, PodInfo], ...] = ()

    def after(self, remedy: Remedy, pod: PodInfo) -> _Case:
        """Return the case after one more remedy, with the pod as it then is."""
        known = {each.uid for _, each in self.ended}
        ended = [(row, each) for row, each in remedy.ended if each.uid not in known]
        without = {remedy.without} if remedy.without else set()
        return _Case(pod, self.without | without, (*self.ended, *ended))


class _Result(NamedTuple):
    """The evaluation of a pod.

    Attributes:
        diagnosis: the result of every node.
        fitting: the nodes that fit.
        state: the cycle state of the evaluation.
        snapshot: the cluster of the evaluation.
    """

    diagnosis: Diagnosis
    fitting: Rows
    state: CycleState
    snapshot: Snapshot


class OverLimitError(Exception):
    """The search has used its time or its number of evaluations."""


@dataclass(slots=True)
class Remedies:
    """The search for remedies of one pod on the current cluster.

    Args:
        framework: the pod's profile.
        snapshot: the current cluster.
        nominated: row -> other pods of equal or higher priority that are nominated to the node.
        budget: interrupts endless plugins.
        is_over: returns whether the time of the search is over.
        is_alone: whether no other task waits for the event loop, so that slow work of plugins is done at once.
    """

    framework: Framework
    snapshot: Snapshot
    nominated: Mapping[int, Sequence[PodInfo]]
    budget: LoopBudget
    is_over: Callable[[], bool]
    is_alone: bool
    _dry_runs: int = 0

    def find(self, pod: PodInfo) -> tuple[list[FoundRemedy], str]:
        """Return the remedies, the smallest first, and a node that the pod fits now; "" if there is none."""
        found: dict[frozenset[str], FoundRemedy] = {}
        now = _Case(pod)
        try:
            result = self._evaluate(now)
            if result is None:
                return [], ""
            if result.fitting.size:
                return [], self.snapshot.name_of(int(result.fitting[0]))
            for remedy in self._smallest_first(now, result):
                if len(remedy.changes) > 1 and any(len(each.changes) == 1 for each in found.values()):
                    break
                found.setdefault(frozenset(remedy.changes), remedy)
                if len(found) >= _MOST_REMEDIES:
                    break
        except OverLimitError:
            pass
        return list(found.values()), ""

    def _smallest_first(self, now: _Case, result: _Result) -> Iterator[FoundRemedy]:
        """Yield remedies with one change, and then with two and three changes."""
        rejected = list(self.rejections(now, result))
        remedies = [(now, remedy) for each in rejected for remedy in each.explanation.remedies]
        insufficient = yield from self._together(now, remedies, 1)
        yield from self._one_more_node(now.pod, result, rejected)
        yield from self._after_post_filter(now.pod, result)
        for count in range(2, _MOST_CHANGES + 1):
            remedies = [
                (case, remedy)
                for case, found in insufficient[:_MOST_TOGETHER]
                for each in self.rejections(case, found)
                for remedy in each.explanation.remedies
            ]
            insufficient = yield from self._together(now, remedies, count)

    def rejections(self, case: _Case, result: _Result) -> Iterator[Rejected]:
        """Yield what each rejecting plugin explains, the plugin with the most nodes first."""
        diagnosis = result.diagnosis
        rows_of: dict[str, Rows] = {}
        if diagnosis.pre_filter_status is not None:
            rows_of[diagnosis.pre_filter_status.plugin] = self.snapshot.all_rows
        else:
            for name in diagnosis.unschedulable_plugins:
                refused = diagnosis.refused_by(frozenset({name}))
                if name in diagnosis.narrowing_plugins:
                    refused |= diagnosis.rejected_by == NARROWED
                rows_of[name] = np.flatnonzero(refused)
        plugins = {each.name: each for each in self.framework.plugins.all()}
        for name in sorted(rows_of, key=lambda name: (-len(rows_of[name]), name))[:_MOST_PLUGINS]:
            if name in plugins and rows_of[name].size:
                yield Rejected(name, rows_of[name], self._explained(plugins[name], case, rows_of[name]))

    def _explained(self, plugin: Plugin, case: _Case, rows: Rows) -> NodesExplanation:
        snapshot = self._cluster_of(case) if case.ended else self.snapshot
        return explained(self.budget, plugin, case.pod, snapshot, rows) or NodesExplanation()

    def _together(
        self, now: _Case, remedies: Iterable[tuple[_Case, Remedy]], count: int
    ) -> Generator[FoundRemedy, None, list[tuple[_Case, _Result]]]:
        """Yield the sufficient ones of some remedies; return the cases that fit nowhere after them either.

        Args:
            now: the pod and the cluster as they are.
            remedies: remedies, each with the case that it is a remedy of.
            count: the number of changes that each of them completes.
        """
        insufficient = []
        for before, remedy in remedies:
            case = before.after(remedy, remedy.relaxed)
            result = self._evaluate(case)
            if result is None:
                continue
            if not result.fitting.size:
                insufficient.append((case, result))
                continue
            found = self._smallest(now, before, remedy, result.fitting, count)
            if found is not None:
                yield found
        return insufficient

    def _smallest(
        self, now: _Case, before: _Case, remedy: Remedy, fitting: Rows, count: int
    ) -> FoundRemedy | None:
        """Return the smallest changes for one of the nodes that fit after a remedy."""
        change = remedy.change(fitting)
        if change is None:
            return None
        if count > 1:
            return self._on_row(now, change.row, count)
        if change.pod is not remedy.relaxed and not self._fits(before.after(remedy, change.pod), change.row):
            return None
        return FoundRemedy((change.text,), self.snapshot.name_of(change.row))

    def _on_row(self, case: _Case, row: int, most: int) -> FoundRemedy | None:
        """Return the changes for one node, one rejecting plugin after the other."""
        changes: list[str] = []
        rows = np.array([row], dtype=np.intp)
        while True:
            result = self._evaluate(case)
            if result is None:
                return None
            if row in result.fitting:
                return FoundRemedy(tuple(changes), self.snapshot.name_of(row))
            refused = result.diagnosis.outcome_of(row)
            plugin = next(
                (each for each in self.framework.plugins.all() if refused and each.name == refused[0]), None
            )
            if plugin is None or len(changes) == most:
                return None
            remedy, change = next(self._changes(plugin, case, rows), (None, None))
            if remedy is None or change is None or change.text in changes:
                return None
            changes.append(change.text)
            case = case.after(remedy, change.pod)

    def _changes(self, plugin: Plugin, case: _Case, rows: Rows) -> Iterator[tuple[Remedy, Change]]:
        for remedy in self._explained(plugin, case, rows).remedies:
            change = remedy.change(rows)
            if change is not None:
                yield remedy, change

    def _after_post_filter(self, pod: PodInfo, result: _Result) -> Iterator[FoundRemedy]:
        """Yield the change after which a PostFilter plugin would find a node, such as a higher priority of the pod.

        A pod of a group does not preempt by itself.
        """
        if pod.group is not None:
            return
        for plugin in self.framework.plugins.at.get(ExtensionPoint.POST_FILTER, ()):
            assert isinstance(plugin, PostFilterPlugin), f"{plugin.name} is enabled at PostFilter"
            if self.is_over():
                raise OverLimitError
            change = _remedy_of(self.budget, plugin, result, pod)
            if change is not None:
                yield FoundRemedy((change.text,), self.snapshot.name_of(change.row))

    def _one_more_node(
        self, pod: PodInfo, result: _Result, rejected: Sequence[Rejected]
    ) -> Iterator[FoundRemedy]:
        """Yield a node of which one more would run the pod: a new node without pods, in the same zone."""
        if result.diagnosis.pre_filter_status is not None:
            return
        if pod.pod.spec.resource_claims:
            return  # the devices of a new node are not known
        rows = kinds_of(self.snapshot, np.concatenate([each.rows for each in rejected])) if rejected else []
        if not rows:
            return
        table = ClusterTable()
        for number, row in enumerate(rows):
            table.add_node(one_like(self.snapshot.nodes[row], f"{_NEW_NODE}{number}"))
        found = self._evaluate(_Case(pod), self.snapshot.with_nodes_of(table.snapshot()))
        if found is None:
            return
        fitting = found.fitting[found.fitting >= self.snapshot.n_nodes]
        if fitting.size:
            node = self.snapshot.nodes[rows[int(fitting[0]) - self.snapshot.n_nodes]]
            zone = node.labels.get(_ZONE)
            where = f" in zone {zone}" if zone else ""
            yield FoundRemedy((f"one node like {node.name} were added{where}",), node.name)

    def fitting(self, pod: PodInfo, snapshot: Snapshot) -> Rows | None:
        """Return the nodes of a hypothetical cluster that fit a pod; None if a plugin failed or needs more time.

        Raises:
            OverLimitError: the search has used up its limits.
        """
        result = self._evaluate(_Case(pod), snapshot)
        return None if result is None else result.fitting

    def _fits(self, case: _Case, row: int) -> bool:
        result = self._evaluate(case)
        return result is not None and row in result.fitting

    def _cluster_of(self, case: _Case) -> Snapshot:
        """Return the cluster as an overlay: nothing is cached for a pod that does not exist, and plugins record nothing."""
        return self.snapshot.overlay(remove=case.ended)

    def _evaluate(self, case: _Case, snapshot: Snapshot | None = None) -> _Result | None:
        """Return the result of every node; None if a plugin failed or needs more time.

        Raises:
            OverLimitError: the search has used up its limits.
        """
        self._dry_runs += 1
        if self._dry_runs > _MOST_DRY_RUNS or self.is_over():
            raise OverLimitError
        if snapshot is None:
            ask = partial(self._decide, case, self._cluster_of(case), self.nominated)
        else:
            # The rows of an index of nominated pods are those of the cluster.
            ask = partial(self._decide, case, snapshot, dict(self.nominated))
        try:
            return self.budget.run_slice(answer_to_end, ask) if self.is_alone else self.budget.run_slice(ask)
        except NeedsTime as needs:
            needs.steps.close()
            return None

    def _decide(
        self, case: _Case, snapshot: Snapshot, nominated: Mapping[int, Sequence[PodInfo]]
    ) -> _Result | None:
        decision = run_now(
            decide(
                self.framework.without(case.without) if case.without else self.framework,
                case.pod,
                snapshot,
                nominated=nominated,
                random=Random(0),
                options=DecisionOptions(choose=_first, may_preempt=False),
            )
        )
        status, diagnosis = decision.status, decision.diagnosis
        if not (status.is_success or status.is_rejected):
            return None
        fitting = diagnosis.feasible if status.is_success else snapshot.all_rows[:0]
        return _Result(diagnosis, fitting, decision.state, snapshot)


@loop_work("request", lambda plugin: f"plugin {plugin.name} at remedy")
def _remedy_of(budget: LoopBudget, plugin: PostFilterPlugin, result: _Result, pod: PodInfo) -> Change | None:
    """Return the change after which a PostFilter plugin would find a node; None if there is none, or the plugin failed."""
    try:
        return budget.call(
            plugin, plugin.remedy, result.state, pod, result.snapshot, result.diagnosis, often="remedy"
        )
    except Exception:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return None


@loop_work("request", lambda plugin: f"plugin {plugin.name} at why_nodes")
def explained(
    budget: LoopBudget, plugin: Plugin, pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> NodesExplanation | None:
    """Return a plugin's explanation of many nodes; None if it has none, or failed."""
    try:
        return budget.call(plugin, plugin.why_nodes, pod, snapshot, rows, often="why_nodes")
    except Exception:
        logger.exception("Plugin failed to explain", extra={"plugin": plugin.name, "pod": pod.key})
        return None


def _first(_pod: PodInfo, feasible: Rows, _snapshot: Snapshot) -> int:
    return int(feasible[0])


def kinds_of(snapshot: Snapshot, rows: Rows) -> list[int]:
    """Return one row of each kind of nodes, the largest nodes first.

    A kind is a capacity, taints, and the values of the labels that many nodes share. A sample of the rows is read.
    """
    if not rows.size:
        return []
    nodes = {row: snapshot.nodes[row] for row in rows[:: -(-len(rows) // _MOST_READ)].tolist()}
    values: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes.values():
        for key, value in node.labels.items():
            values[key].add(value)
    shared = sorted(key for key, found in values.items() if key != _HOSTNAME and len(found) <= _MOST_KINDS)
    kinds: dict[Hashable, int] = {}
    for row, node in nodes.items():
        labels = tuple(node.labels.get(key) for key in shared)
        kinds.setdefault((_size(node), node.taints, labels), row)
    return sorted(kinds.values(), key=lambda row: _size(nodes[row]), reverse=True)[:_MOST_KINDS]


def _size(node: NodeObject) -> tuple[int, int]:
    return node.allocatable.get("cpu", 0), node.allocatable.get("memory", 0)


def one_like(node: NodeObject, name: str) -> NodeObject:
    """Return a new node with the labels, the taints and the capacity of another, which is ready and not cordoned."""
    metadata, spec = node.node.metadata, node.node.spec
    labels = dict(metadata.labels)
    if _HOSTNAME in labels:
        labels[_HOSTNAME] = name
    taints = tuple(each for each in spec.taints if not each.key.startswith(_OF_THE_STATE))
    replace = msgspec.structs.replace
    return NodeObject(
        replace(
            node.node,
            metadata=replace(metadata, name=name, labels=labels),
            spec=replace(spec, taints=taints, unschedulable=False),
        ),
        node.raw,
    )
