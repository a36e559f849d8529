"""Clusters with storage, for tests of the plugins of volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.framework import SKIP, CycleState, Status
from scheduler.snapshot import ClusterTable
from scheduler.testing.samples import watch_storage
from tests.support.builders import node

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


def cluster_of(
    *objects: Any, pods: tuple[PodInfo, ...] = (), nodes: tuple[Any, ...] = (node("a"), node("b"))
) -> ClusterTable:
    """Two nodes, or others, with these pods on them, and objects of storage."""
    table = ClusterTable()
    for each in nodes:
        table.add_node(each)
    for each in pods:
        row = table.row_of(each.node_name)
        assert row is not None
        table.add_pod(row, each)
    watch_storage(table, *objects)
    return table


def judged(plugin: Any, pod: PodInfo, table: ClusterTable) -> Any:
    """SKIP, the refusal of PreFilter, or node name -> the refusal of Filter."""
    state, snapshot = CycleState(), table.snapshot()
    answer = plugin.pre_filter(state, pod, snapshot)
    if answer is SKIP:
        return SKIP
    if isinstance(answer, Status):
        return refusal(answer)
    return refusals(plugin, state, pod, snapshot)


def refusals(plugin: Any, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> dict[str, str]:
    """Node name -> code and reasons, for the nodes that Filter rejects."""
    outcomes = plugin.filter(state, pod, snapshot, snapshot.all_rows)
    found = {snapshot.name_of(row): outcomes.of(row) for row in snapshot.all_rows.tolist()}
    return {name: refusal(outcome) for name, outcome in found.items() if outcome.reasons}


def refusal(answer: Any) -> str:
    return f"{answer.code.value}: {', '.join(answer.reasons)}"
