"""A node by itself with its pods, summed one after another: NodeInfo of upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.engine.runtime.adapters import scores_of
from tests.reference.go import wrap

if TYPE_CHECKING:
    from scheduler.framework import Outcomes, Plugin
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from tests.support.clusters import Cluster


@dataclass
class OneNode:
    node: NodeObject
    pods: list[PodInfo]

    def allocatable(self, resource: str) -> int:
        return self.node.allocatable.get(resource, 0)

    def requested(self, resource: str) -> int:
        total = 0
        for pod in self.pods:
            total = wrap(total + pod.resources.taken.get(resource, 0))
        return total

    def nonzero_requested(self, resource: str) -> int:
        total = 0
        for pod in self.pods:
            resources = pod.resources
            amount = resources.nonzero_milli_cpu if resource == "cpu" else resources.nonzero_memory_bytes
            total = wrap(total + amount)
        return total


def one_by_one(cluster: Cluster) -> list[OneNode]:
    return [OneNode(node, list(cluster.pods.get(node.name, ()))) for node in cluster.nodes]


Verdict = tuple[str, tuple[str, ...]]
"""(code, reasons) of one node; ("Success", ()) where it passes."""

PASSES: Verdict = ("Success", ())


def verdicts(outcomes: Outcomes) -> list[Verdict]:
    """What a plugin said, in the form a reference says it."""
    found = [outcomes.of(row) for row in range(len(outcomes.index))]
    return [(outcome.code.value, outcome.reasons) for outcome in found]


def filtered(plugin: Plugin, pod: PodInfo, snapshot: Snapshot) -> list[Verdict] | str:
    """Run PreFilter and Filter over all nodes; "Skip", or PreFilter's reasons, where that ends it."""
    from scheduler.framework import CycleState, FilterPlugin, PreFilterPlugin, Status
    from scheduler.framework.sliced_work import answer_to_end

    state = CycleState()
    if isinstance(plugin, PreFilterPlugin):
        answer = plugin.pre_filter(state, pod, snapshot)
        if isinstance(answer, Status) and not answer.is_success:
            return answer.code.value if not answer.reasons else answer.message
    assert isinstance(plugin, FilterPlugin)
    return verdicts(answer_to_end(lambda: plugin.filter(state, pod, snapshot, snapshot.all_rows)))


def scored(plugin: Plugin, pod: PodInfo, snapshot: Snapshot) -> list[int] | str:
    """Run PreScore, Score and normalisation over all nodes; the code where PreScore ends it."""
    from scheduler.framework import CycleState, PreScorePlugin, ScorePlugin

    state, rows = CycleState(), snapshot.all_rows
    if isinstance(plugin, PreScorePlugin):
        answer = plugin.pre_score(state, pod, snapshot, rows)
        if answer is not None and not answer.is_success:
            return answer.code.value
    assert isinstance(plugin, ScorePlugin)
    scores = scores_of(plugin, state, pod, snapshot, rows)
    return plugin.normalize(state, pod, scores, rows).tolist()  # type: ignore[no-any-return]
