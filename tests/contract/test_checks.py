"""The checks themselves: each catches the plugin that breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    Outcomes,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueingHint,
    ScorePlugin,
    Status,
)
from scheduler.testing import contract as checks
from scheduler.testing import node, pod
from scheduler.testing.contract import CHECKS, subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework import CycleState, Plugin
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot


class Honest(FilterPlugin, ScorePlugin):
    """Refuses every node with a GPU, one by one."""

    name = "Honest"

    def signature(self, pod: PodInfo) -> str:
        return "all alike"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("has a GPU") if node.allocatable.get("nvidia.com/gpu") else None

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 100 if node.labels["disk"] == "ssd" else 0


class LooksAtRowNumbers(Honest):
    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return Outcomes.reject(np.arange(snapshot.n_nodes) % 2 == 0, "even")


class ScoresRowNumbers(Honest):
    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        return np.arange(snapshot.n_nodes)


class LooksAcrossNodes(Honest):
    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        allocatable = snapshot.allocatable["cpu"]
        return Outcomes.reject(allocatable == allocatable.max(initial=0), "the largest")


class CountsTheRowsAsked(Honest):
    def signature(self, pod: PodInfo) -> None:  # type: ignore[override]
        return None

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return Outcomes.reject(np.full(snapshot.n_nodes, len(rows) > 20), "many to judge")


class TripsOverNoNodes(Honest):
    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        return snapshot.allocatable["cpu"] * 100 // snapshot.allocatable["cpu"].max()


class ChangesItsMind(Honest):
    asked = 0

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        self.asked += 1
        return Outcomes.reject(np.full(snapshot.n_nodes, self.asked > len(checks.sample_pods())), "now no")


class WritesIntoTheSnapshot(Honest):
    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        snapshot.requested["cpu"][:] = 0
        return Outcomes.all_pass(snapshot.n_nodes)


class RefusesWithoutAWord(Honest):
    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("")


class GatesWithoutAWord(PreEnqueuePlugin):
    name = "GatesWithoutAWord"

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        return Status.unschedulable()


class SleepsForEver(Honest):
    def events(self) -> tuple[EventWithHint, ...]:
        return ()


class ForgetsAdditions(Honest):
    def events(self) -> tuple[EventWithHint, ...]:
        return (EventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD), self._hint),)

    def _hint(self, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        return QueueingHint.QUEUE if old.labels != new.labels else QueueingHint.SKIP


class AnswersHintsWithABool(Honest):
    def events(self) -> tuple[EventWithHint, ...]:
        return (EventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE), lambda *_: True),)


class ScoresBeyond100(Honest):
    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 101


class ScoresInFloats(Honest):
    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
        return np.zeros(snapshot.n_nodes)  # type: ignore[return-value]


class SignsTooLittle(Honest):
    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("pods ask for something") if pod.resources.requests else None


class ReadsMore(FilterPlugin):
    """Refuses pods by something that the samples know nothing of, and signs nothing of it."""

    name = "ReadsMore"
    prefix = "example.com"

    def signature(self, pod: PodInfo) -> Any:
        return ""

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("no") if self.refuses(pod, node) else None

    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        raise NotImplementedError


class ReadsALabel(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return pod.labels.get("example.com/tier") == "gold" and node.labels.get("example.com/spot") == "yes"


class ReadsALabelOfAMadeUpKey(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return pod.labels.get(f"{self.prefix}/tier", "") in {"gold", "silver"}


class ReadsAnAnnotation(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return int(pod.annotations.get("seats", "0")) > int(node.annotations.get("seats", "0"))


class ReadsThePriority(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return pod.priority > 1234


class ReadsThePriorityClass(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return bool(pod.object["spec"].get("priorityClassName") == "batch")


class ReadsTheNamespace(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return pod.namespace in {"tests", "staging"}


class ReadsTolerations(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        tainted = any(taint.key == "example.com/old" for taint in node.taints)
        return tainted and not any(each.key == "example.com/old" for each in pod.tolerations)


class ReadsRequests(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return "example.com/fpga" in pod.resources.requests


class ReadsTheImage(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return any(each.image.startswith("legacy") for each in pod.pod.spec.containers)


class ReadsAnArgument(ReadsMore):
    class Args(checks.Plugin.Args):  # type: ignore[name-defined,misc]
        label: str = "example.com/noisy"
        value: str = "fine"

    def __init__(self, *, args: Args) -> None:
        self.args = args

    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return pod.labels.get(self.args.label) == self.args.value


class ReadsWhatNobodyGuesses(ReadsMore):
    def refuses(self, pod: PodInfo, node: NodeInfo) -> bool:
        return pod.labels.get("shift", "")[::-1] == "thgin"


class SignsTheName(Honest):
    def signature(self, pod: PodInfo) -> str:
        return pod.name


class FiltersInTwoWays(Honest):
    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return Outcomes.reject(snapshot.allocatable["nvidia.com/gpu"] > 0, "has GPUs")


class ScoresInTwoWays(Honest):
    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> int:
        return 100


class DeniesToReadPods(Honest):
    reads_pods = False

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("crowded") if len(list(node.pods)) > 2 else None


class DeniesToScoreByPods(Honest):
    reads_pods = False

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 0 if node.requested else 100


class KeepsItsStateToItself(Honest, PreFilterPlugin):
    prepared: CycleState

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        self.prepared = state

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        return Outcomes.reject(np.full(snapshot.n_nodes, state is not self.prepared), "another state")


class LooksThroughTheOverlay(Honest):
    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        below = getattr(snapshot._source, "_base", snapshot._source)
        return Outcomes.reject(below.pod_count() > 0, "in use")


class ExplainsInOneText(Honest):
    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Any:
        return "it has a GPU"


class LearnsFromQuestions(Honest):
    asked = False

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> None:
        self.asked = True

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("in use") if self.asked else None


class WantsArguments(Honest):
    class Args(checks.Plugin.Args):  # type: ignore[name-defined,misc]
        threshold: int


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_honest_plugin_passes(check: Callable[[Any], None]):
    check(subject(Honest))


@pytest.mark.parametrize(
    ("plugin", "check"),
    [
        (LooksAtRowNumbers, checks.check_follows_the_nodes_when_rows_are_reordered),
        (ScoresRowNumbers, checks.check_follows_the_nodes_when_rows_are_reordered),
        (LooksAcrossNodes, checks.check_a_part_of_the_nodes_gives_that_part_of_the_verdicts),
        (CountsTheRowsAsked, checks.check_answers_only_for_the_rows_still_standing),
        (TripsOverNoNodes, checks.check_takes_a_cluster_of_no_nodes),
        (ChangesItsMind, checks.check_says_the_same_twice),
        (WritesIntoTheSnapshot, checks.check_leaves_the_snapshot_alone),
        (RefusesWithoutAWord, checks.check_gives_a_reason_for_every_refusal),
        (GatesWithoutAWord, checks.check_gives_a_reason_for_every_refusal),
        (ExplainsInOneText, checks.check_explains_in_sentences_and_changes_nothing),
        (LearnsFromQuestions, checks.check_explains_in_sentences_and_changes_nothing),
        (SleepsForEver, checks.check_can_be_woken_after_a_refusal),
        (ForgetsAdditions, checks.check_hints_take_every_event_they_are_registered_for),
        (AnswersHintsWithABool, checks.check_hints_take_every_event_they_are_registered_for),
        (ScoresBeyond100, checks.check_scores_are_in_range),
        (ScoresInFloats, checks.check_scores_are_in_range),
        (SignsTooLittle, checks.check_pods_of_one_signature_get_one_verdict),
        (FiltersInTwoWays, checks.check_both_ways_say_the_same),
        (ScoresInTwoWays, checks.check_both_ways_say_the_same),
        (DeniesToReadPods, checks.check_what_does_not_read_pods_says_the_same_whoever_is_there),
        (DeniesToScoreByPods, checks.check_what_does_not_read_pods_says_the_same_whoever_is_there),
        (SignsTheName, checks.check_replicas_share_a_signature),
        (KeepsItsStateToItself, checks.check_works_from_a_cloned_state),
        (LooksThroughTheOverlay, checks.check_an_overlay_is_as_good_as_the_pods_themselves),
    ],
    ids=lambda part: part.__name__,
)
def test_a_plugin_that_breaks_the_contract_is_caught(plugin: type[Plugin], check: Callable[[Any], None]):
    with pytest.raises((AssertionError, ValueError, AttributeError)):
        check(subject(plugin))


READS = [
    ReadsALabel, ReadsALabelOfAMadeUpKey, ReadsAnAnnotation, ReadsThePriority, ReadsThePriorityClass, ReadsTheNamespace,
    ReadsTolerations, ReadsRequests, ReadsTheImage, ReadsAnArgument,
]  # fmt: skip


@pytest.mark.parametrize("plugin", READS, ids=lambda plugin: plugin.__name__)
def test_a_signature_without_a_field_that_the_plugin_reads_is_caught(plugin: type[ReadsMore]):
    each = subject(plugin)
    before = each.snapshot.names

    with pytest.raises(AssertionError, match="have the same signature and different results"):
        checks.check_pods_of_one_signature_get_one_verdict(each)
    assert each.snapshot.names == before, "the nodes that were tried are still there"


@pytest.mark.parametrize("plugin", READS, ids=lambda plugin: plugin.__name__)
def test_a_signature_of_all_fields_that_the_plugin_reads_passes(plugin: type[ReadsMore]):
    class Whole(plugin):  # type: ignore[misc,valid-type]
        def signature(self, pod: PodInfo) -> Any:
            spec = pod.pod.spec
            images = tuple(each.image for each in spec.containers)
            labels, annotations = sorted(pod.labels.items()), sorted(pod.annotations.items())
            name = pod.object["spec"].get("priorityClassName")
            read = pod.priority, name, pod.namespace, pod.tolerations, images
            return (*read, tuple(labels), tuple(annotations), "example.com/fpga" in pod.resources.requests)

    checks.check_pods_of_one_signature_get_one_verdict(subject(Whole))


def test_the_author_passes_values_that_cannot_be_found_in_the_code():
    checks.check_pods_of_one_signature_get_one_verdict(subject(ReadsWhatNobodyGuesses))

    with pytest.raises(AssertionError, match=r"by-night.* have the same signature and different results"):
        checks.check_pods_of_one_signature_get_one_verdict(
            subject(ReadsWhatNobodyGuesses, pods=[pod("by-night", labels={"shift": "thgin"[::-1]})])
        )


def test_a_plugin_is_tried_on_nodes_from_its_author():
    each = subject(Honest, nodes=[node("mine", labels={"disk": "ssd"})])

    assert each.snapshot.row_of("mine") is not None


def test_a_plugin_that_needs_arguments_is_caught():
    each = subject(WantsArguments, args={"threshold": 1})

    with pytest.raises(ValueError, match="threshold"):
        checks.check_is_made_from_no_arguments(each)
