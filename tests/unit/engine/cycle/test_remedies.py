"""Remedies are changes after which an evaluation of all plugins finds a node; the cluster and the plugins stay as they are."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from scheduler.engine.cycle.explanation import Explainer, explain
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.framework import Change, NodesExplanation, Remedy, Status
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock
from tests.support.scripted_plugins import NodeFilter, framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework import Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

SNAPSHOT = snapshot_of("n0", "n1")
POD = pod("web", labels={"wants": "much"})
NO = Status.unschedulable("no")


class Labelled(NodeFilter):
    """Rejects nodes for pods with a label, and proposes the pod without the label."""

    def __init__(self, name: str, label: str, accepts: Callable[[str], bool] = lambda _node: True) -> None:
        super().__init__(
            name, lambda _state, each, node: NO if label in each.labels or not accepts(node.name) else None
        )
        self.label = label
        self.snapshots: list[Snapshot] = []
        self.error: Exception | None = None

    def why_nodes(self, each: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        if self.error is not None:
            raise self.error
        labels = {key: value for key, value in each.labels.items() if key != self.label}
        relaxed = pod("web", labels=labels)
        return NodesExplanation(
            f"{len(rows)} nodes do not like {self.label}",
            [Remedy(relaxed, lambda fitting: Change(int(fitting[0]), f"it had no {self.label}", relaxed))],
        )


def completed(
    *plugins: Plugin, each: PodInfo = POD, now: Snapshot = SNAPSHOT, **limits: Any
) -> dict[str, Any]:
    framework = framework_of(*plugins)
    decision = schedule_pod(framework, each, SNAPSHOT, nominated={}, random=Random(1), exhaustive=True)
    clock = limits.pop("clock", ManualClock())
    return Explainer(framework, clock, **limits).complete(explain(decision, SNAPSHOT.names), each, now)


def test_a_change_that_is_enough_is_a_remedy_with_the_node_that_then_fits() -> None:
    explanation = completed(Labelled("L", "wants", lambda node: node != "n0"))

    assert explanation["remedies"] == [{"changes": ["it had no wants"], "node": "n1"}]
    assert explanation["rejections"] == [
        {
            "plugin": "L",
            "reasons": ["no"],
            "reasonCodes": ["L"],
            "nodes": 2,
            "summary": "2 nodes do not like wants",
        }
    ]
    assert next(iter(explanation)) == "verdict"


def test_a_change_that_is_not_enough_is_no_remedy() -> None:
    explanation = completed(Labelled("L", "wants"), NodeFilter("Always", lambda *_: NO))

    assert explanation["remedies"] == []
    assert explanation["verdict"].endswith("L rejects 2 nodes: no (2 nodes do not like wants).")


def test_changes_of_several_plugins_are_combined() -> None:
    both = pod("web", labels={"wants": "much", "needs": "more"})

    explanation = completed(Labelled("L", "wants"), Labelled("M", "needs"), each=both)

    assert explanation["remedies"] == [{"changes": ["it had no wants", "it had no needs"], "node": "n0"}]


def test_a_pod_that_fits_after_a_change_of_the_cluster_is_told_so() -> None:
    explanation = completed(Labelled("L", "new", lambda node: node == "n2"), now=snapshot_of("n0", "n2"))

    assert (explanation["fitsNow"], explanation["remedies"]) == ("n2", [])
    assert explanation["verdict"].endswith("It fits now, on n2: the cluster changed after the attempt.")


def test_hypothetical_pods_are_evaluated_on_an_overlay_so_that_nothing_is_recorded() -> None:
    seen: list[tuple[bool, bool]] = []

    def look(_state: Any, each: PodInfo, node: Any) -> Status | None:
        seen.append(("wants" in each.labels, node.snapshot.changes is None))
        return NO if "wants" in each.labels else None

    plugin = Labelled("L", "wants")
    completed(plugin, NodeFilter("Look", look))

    assert (False, True) in seen
    assert (False, False) not in seen


def test_no_remedy_is_searched_after_the_time_limit() -> None:
    clock = ManualClock()
    plugin = Labelled("L", "wants")
    evaluated: list[str] = []

    def slow(_state: Any, each: PodInfo, _node: Any) -> None:
        evaluated.append(each.name)
        clock.advance(1.0)

    explanation = completed(NodeFilter("Slow", slow), plugin, clock=clock, seconds=0.05)

    assert explanation["remedies"] == []
    assert len(evaluated) == 4, "the attempt, and one evaluation of the pod"


def test_a_plugin_that_fails_to_explain_leaves_the_rejection_without_remedies() -> None:
    plugin = Labelled("L", "wants")
    plugin.error = ValueError("broken")

    explanation = completed(plugin)

    assert (explanation["remedies"], explanation["rejections"][0]["summary"]) == ([], "")


def test_one_more_node_is_a_remedy_for_a_rejection_by_the_pods_of_a_node() -> None:
    def is_old(_state: Any, _each: PodInfo, node: Any) -> Status | None:
        return NO if node.name in {"n0", "n1"} else None

    explanation = completed(NodeFilter("Old", is_old))

    assert explanation["remedies"] == [{"changes": ["one node like n0 were added"], "node": "n0"}]


class TooLittle(Labelled):
    """Proposes a change that keeps the label."""

    def why_nodes(self, each: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation:
        (remedy,) = super().why_nodes(each, snapshot, rows).remedies
        kept = pod("web", labels={self.label: "less"})
        return NodesExplanation(
            "", [Remedy(remedy.relaxed, lambda fitting: Change(int(fitting[0]), "it wanted less", kept))]
        )


def test_the_smallest_change_is_evaluated_too_before_it_is_a_remedy() -> None:
    assert completed(TooLittle("L", "wants"))["remedies"] == []
