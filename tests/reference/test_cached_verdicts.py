"""The default profile caches only valid results, and an undeclared dependency is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.inter_pod_affinity.plugin import ScoreState
from plugins.node_resources.fit import NodeResourcesFit
from plugins.taint_toleration import TaintToleration
from scheduler.engine.runtime.cached_verdicts import CachedFilterResult, CachedVerdicts
from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot import ClusterTable
from scheduler.snapshot.arrays import ChangeLog
from tests.reference.cached_verdicts import Story

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("seed", range(4))
def test_cached_results_are_the_same_as_new_ones(seed: int):
    story = Story(seed)
    story.run(60)

    assert min(story.decided["schedulable"], story.decided["unschedulable"]) > 20
    assert story.decided["error"] == 0


def _forgets(method: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(ClusterTable, method, lambda *_: None)


def _believes(owner: type, method: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, method, lambda *_: True)


def _node_removals_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    remove_node = ClusterTable.remove_node

    def silently(self: ClusterTable, node_name: str) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            _forgets("_node_changed")(meanwhile)
            remove_node(self, node_name)

    patch.setattr(ClusterTable, "remove_node", silently)


def _rows_are_not_ranked_again(patch: pytest.MonkeyPatch) -> None:
    follow = CachedFilterResult.follow

    def forgetting(self: CachedFilterResult, *args: Any) -> None:
        follow(self, *args)
        if self.unranked is not None:
            self.unranked.clear()

    patch.setattr(CachedFilterResult, "follow", forgetting)


def _the_oldest_of_many_changes_is_missed(patch: pytest.MonkeyPatch) -> None:
    since = ChangeLog.since

    def missing(self: ChangeLog, seen: int) -> Any:
        rows = since(self, seen)
        return rows and rows[len(rows) > 8 :]

    patch.setattr(ChangeLog, "since", missing)


def _shares_scores_without(parts: slice) -> Callable[[pytest.MonkeyPatch], None]:
    """Pods share scores also if these parts of their basis differ: first the nodes, last the pods near each node."""
    basis = ScoreState.basis

    def lacking(self: ScoreState, snapshot: Any) -> Any:
        found = list(basis(self, snapshot) or ())  # type: ignore[call-overload]
        del found[parts]
        return tuple(found) or None

    return lambda patch: patch.setattr(ScoreState, "basis", lacking)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(_forgets("_node_changed"), id="nodes that change are not noted"),
        pytest.param(_forgets("_pods_changed"), id="pods that come and go are not noted"),
        pytest.param(_node_removals_are_not_noted, id="a node in the row of a deleted one is not noted"),
        pytest.param(_believes(NodeObject, "is_heartbeat_of"), id="every change of a node is a heartbeat"),
        pytest.param(_believes(PodInfo, "takes_the_same_as"), id="a pod with other labels takes the same"),
        pytest.param(_rows_are_not_ranked_again, id="changed rows are not ranked again"),
        pytest.param(_the_oldest_of_many_changes_is_missed, id="the oldest of many changes is missed"),
        pytest.param(
            lambda patch: patch.setattr(CachedVerdicts, "notes", property(lambda _: 0, lambda *_: None), raising=False),
            id="scores that other classes used are not normalized again",
        ),
        pytest.param(
            lambda patch: patch.setattr(TaintToleration, "signature", lambda *_: "all alike"),
            id="a signature without a field that is read",
        ),
        pytest.param(_shares_scores_without(slice(2)), id="pods share affinity scores although the nodes changed"),
        pytest.param(_shares_scores_without(slice(-1, None)), id="pods share affinity scores although other pods are near"),
        pytest.param(
            lambda patch: patch.setattr(NodeResourcesFit, "reads_pods", False),
            id="a plugin that reads pods does not declare it",
        ),
    ],
)  # fmt: skip
def test_outdated_cached_results_are_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
):
    plant(monkeypatch)
    story = Story(7)

    with pytest.raises((AssertionError, IndexError)):
        story.run(300)
