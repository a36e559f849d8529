"""PreFilter, Filter and PostFilter: the calls of plugins, and the combination of their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import (
    SKIP,
    SUCCESS,
    Code,
    CycleState,
    Diagnosis,
    FilterPlugin,
    Outcomes,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
    Status,
)
from tests.support.builders import node, pod
from tests.support.scripted_plugins import Filter, NodeFilter, PostFilter, PreFilter, framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

SNAPSHOT = snapshot_of("n0", "n1", "n2", "n3")
POD = pod("web")


def only(*names: str) -> PreFilterResult:
    return PreFilterResult(frozenset(names))


def refusing(*names: str) -> Any:
    """A function for filter_node."""
    return lambda _state, _pod, node: Status.unschedulable("no") if node.name in names else None


def pre_filtered(*plugins: PreFilterPlugin) -> tuple[Status, AttemptState, Diagnosis]:
    state, diagnosis = AttemptState(), Diagnosis.blank(SNAPSHOT.n_nodes)
    status = framework_of(*plugins).filtering.run_pre_filter(state, POD, SNAPSHOT, diagnosis)
    return status, state, diagnosis


def feasible(
    *plugins: FilterPlugin | PreFilterPlugin,
    snapshot: Snapshot = SNAPSHOT,
    state: AttemptState | None = None,
    diagnosis: Diagnosis | None = None,
    nominated: Mapping[int, Sequence[PodInfo]] | None = None,
) -> list[str]:
    diagnosis = diagnosis or Diagnosis.blank(snapshot.n_nodes)
    rows = framework_of(*plugins).filtering.find_feasible(
        state or AttemptState(), POD, snapshot, diagnosis, rows=diagnosis.feasible, nominated=nominated or {}
    )
    return [snapshot.name_of(row) for row in rows]


class TestPreFilter:
    def test_a_skipped_plugin_is_called_neither_at_filter_nor_for_pod_updates(self):
        class Both(PreFilter, Filter): ...

        skips = Both("Skips", pre_filter=SKIP, filter=KeyError("asked"))
        goes_on = Both("GoesOn", filter=Outcomes.all_pass(4))
        framework = framework_of(skips, goes_on)
        state, diagnosis = AttemptState(), Diagnosis.blank(4)
        framework.filtering.run_pre_filter(state, POD, SNAPSHOT, diagnosis)
        framework.filtering.run_add_pods(state, POD, [(0, POD)], SNAPSHOT)
        framework.filtering.run_remove_pods(state, POD, [(0, POD)], SNAPSHOT)
        rows = framework.filtering.run_filters(state, POD, SNAPSHOT, SNAPSHOT.all_rows, diagnosis)

        assert rows.tolist() == [0, 1, 2, 3]
        assert skips.called() == ["pre_filter"]
        assert goes_on.called() == ["pre_filter", "add_pods", "remove_pods", "filter"]

    def test_narrowing_leaves_the_intersection_of_the_named_nodes(self):
        status, state, diagnosis = pre_filtered(
            PreFilter("B", only("n0", "n1", "gone")), PreFilter("A", only("n1", "n2", "gone")), PreFilter("C")
        )

        assert status.is_success
        assert feasible(state=state, diagnosis=diagnosis) == ["n1"]
        assert diagnosis.message() == "0/4 nodes are available: 3 node(s) didn't satisfy plugin(s) [A B]."
        assert diagnosis.unschedulable_plugins == {"A", "B"}

    def test_one_plugin_that_leaves_no_node_is_named(self):
        last = PreFilter("Last")
        status, _, diagnosis = pre_filtered(PreFilter("A", only()), last)

        assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert diagnosis.message() == "0/4 nodes are available: node(s) didn't satisfy plugin A."
        assert diagnosis.unschedulable_plugins == {"A"}
        assert not last.calls

    def test_several_plugins_that_together_leave_no_node_are_named(self):
        status, _, diagnosis = pre_filtered(
            PreFilter("B", only("n0")), PreFilter("Says nothing"), PreFilter("A", only("n1"))
        )

        assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert diagnosis.message() == (
            "0/4 nodes are available: node(s) didn't satisfy plugin(s) [A B] simultaneously."
        )
        assert diagnosis.unschedulable_plugins == {"A", "B"}

    def test_a_rejection_calls_the_other_plugins_and_the_last_one_counts(self):
        first, second = Status.unschedulable("first"), Status.unschedulable("second")
        last = PreFilter("D", only("n0"))
        status, _, diagnosis = pre_filtered(
            PreFilter("A", first), PreFilter("B"), PreFilter("C", second), last
        )

        assert status == second.by("C")
        assert last.called() == ["pre_filter"]
        assert diagnosis.message() == "0/4 nodes are available: second."
        assert diagnosis.unschedulable_plugins == {"C", "D"}

    def test_an_unresolvable_rejection_stops_at_once(self):
        stop = Status.unschedulable("never", resolvable=False)
        last = PreFilter("C")
        status, _, diagnosis = pre_filtered(PreFilter("A", only("n0")), PreFilter("B", stop), last)

        assert status == stop.by("B")
        assert not last.calls
        assert diagnosis.unschedulable_plugins == {"B"}

    def test_narrowing_to_nothing_after_a_rejection_decides(self):
        status, _, diagnosis = pre_filtered(
            PreFilter("A", Status.unschedulable("first")), PreFilter("B", only())
        )

        assert status.message == "node(s) didn't satisfy plugin B"
        assert diagnosis.unschedulable_plugins == {"B"}

    def test_a_pending_plugin_is_recorded(self):
        _, _, diagnosis = pre_filtered(PreFilter("A", Status(Code.PENDING, ("soon",))))

        assert diagnosis.pending_plugins == {"A"}

    def test_an_error_stops_at_once(self):
        last = PreFilter("B")
        status, _, _ = pre_filtered(PreFilter("A", KeyError("x")), last)

        assert status.code is Code.ERROR
        assert not last.calls


class TestFilter:
    def test_the_first_plugin_to_reject_a_node_is_the_last_one_called(self):
        first, second = NodeFilter("A", refusing("n0", "n1")), NodeFilter("B", refusing("n1", "n2"))
        diagnosis = Diagnosis.blank(4)

        assert feasible(first, second, diagnosis=diagnosis) == ["n3"]
        assert [args[2].name for _, args in second.calls] == ["n2", "n3"]
        assert diagnosis.outcome_of(1) == ("A", (Code.UNSCHEDULABLE, ("no",)))
        assert diagnosis.unschedulable_plugins == {"A", "B"}

    def test_no_plugin_is_called_without_remaining_nodes(self):
        last = NodeFilter("B")

        assert feasible(NodeFilter("A", refusing("n0", "n1", "n2", "n3")), last) == []
        assert not last.calls

    def test_results_for_nodes_outside_the_search_are_ignored(self):
        everything = Filter("B", Outcomes.reject(np.array([True, False, True, False]), "odd"))
        diagnosis = Diagnosis.blank(4)

        assert feasible(NodeFilter("A", refusing("n0")), everything, diagnosis=diagnosis) == ["n1", "n3"]
        assert diagnosis.outcome_of(0) == ("A", (Code.UNSCHEDULABLE, ("no",)))

    def test_without_filters_all_nodes_pass(self):
        assert feasible() == ["n0", "n1", "n2", "n3"]


class Room(PreFilterPlugin, FilterPlugin):
    """Rejects nodes with too many pods; counts pods in the cycle state, as plugins with PreFilter do."""

    name = "Room"

    def __init__(self, most: int) -> None:
        self.most = most
        self.told: list[tuple[list[tuple[int, str]], list[int]]] = []

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> None:
        state.write(self.name, snapshot.pod_count.copy())

    def add_pods(self, state: CycleState, pod: PodInfo, added: Any, snapshot: Snapshot) -> None:
        counts = state.mutable(self.name, np.ndarray)
        for row, _ in added:
            counts[row] += 1
        self.told.append(([(row, each.name) for row, each in added], snapshot.pod_count.tolist()))

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Any) -> Outcomes:
        counts = state.read(self.name, np.ndarray)
        return Outcomes.reject(counts > self.most, "no room")


class TestNominatedPods:
    @pytest.fixture
    def state(self) -> AttemptState:
        return AttemptState()

    def run(
        self, *plugins: Any, nominated: Any, state: AttemptState, diagnosis: Diagnosis | None = None
    ) -> Any:
        framework = framework_of(*plugins)
        diagnosis = diagnosis or Diagnosis.blank(4)
        framework.filtering.run_pre_filter(state, POD, SNAPSHOT, diagnosis)
        rows = framework.filtering.find_feasible(
            state, POD, SNAPSHOT, diagnosis, rows=diagnosis.feasible, nominated=nominated
        )
        return rows.tolist()

    def test_a_node_must_pass_with_its_nominated_pods(self, state: AttemptState):
        diagnosis = Diagnosis.blank(4)
        nominated = {1: [pod("a"), pod("b")], 2: [pod("c")]}

        assert self.run(Room(1), nominated=nominated, state=state, diagnosis=diagnosis) == [0, 2, 3]
        assert diagnosis.message() == "0/4 nodes are available: 1 no room."

    def test_each_node_is_evaluated_with_only_its_own_nominated_pods(self, state: AttemptState):
        room = Room(9)
        self.run(room, nominated={1: [pod("a"), pod("b")], 2: [pod("c")]}, state=state)

        assert room.told == [([(1, "a"), (1, "b")], [0, 2, 0, 0]), ([(2, "c")], [0, 0, 1, 0])]
        assert state.read("Room", np.ndarray).tolist() == [0, 0, 0, 0]

    def test_a_node_must_pass_without_its_nominated_pods_too(self, state: AttemptState):
        def needs_company(_state: Any, _pod: Any, node: Any) -> Status | None:
            return None if any(True for _ in node.pods) else Status.unschedulable("lonely")

        assert self.run(NodeFilter("A", needs_company), nominated={1: [pod("a")]}, state=state) == []

    def test_only_rows_with_nominations_are_evaluated_twice(self, state: AttemptState):
        asked = NodeFilter("A")
        self.run(asked, nominated={2: [pod("a")]}, state=state)

        assert [args[2].name for _, args in asked.calls] == ["n2", "n0", "n1", "n2", "n3"]

    def test_a_node_that_fails_with_nominated_pods_is_not_evaluated_without_them(self, state: AttemptState):
        asked = NodeFilter("A", refusing("n2"))
        self.run(asked, nominated={2: [pod("a")]}, state=state)

        assert [args[2].name for _, args in asked.calls] == ["n2", "n0", "n1", "n3"]

    def test_a_node_outside_the_search_is_not_evaluated_for_its_nominations(self, state: AttemptState):
        asked = NodeFilter("A")
        self.run(PreFilter("B", only("n0")), asked, nominated={2: [pod("a")]}, state=state)

        assert [args[2].name for _, args in asked.calls] == ["n0"]

    def test_a_plugin_that_cannot_add_nominated_pods_fails_the_attempt(self, state: AttemptState):
        with pytest.raises(PluginError, match='running AddPod on PreFilter plugin "A": KeyError'):
            self.run(PreFilter("A", add_pods=KeyError("x")), nominated={2: [pod("a")]}, state=state)

    def test_an_error_with_nominated_pods_is_an_error(self, state: AttemptState):
        def fails(_state: Any, _pod: Any, node: Any) -> Status | None:
            return Status.failed("odd") if any(True for _ in node.pods) else None

        with pytest.raises(PluginError, match='running "A" filter plugin: odd'):
            self.run(NodeFilter("A", fails), nominated={2: [pod("a")]}, state=state)

    def test_the_requests_of_nominated_pods_count_on_their_node(self):
        crowd = {0: [pod("a", cpu="3")]}
        snapshot = snapshot_of(node("n0", cpu="4"), node("n1", cpu="4"))

        def fits(_state: Any, _pod: Any, node: Any) -> Status | None:
            free = node.allocatable["cpu"] - node.requested.get("cpu", 0)
            return None if free >= 2000 else Status.unschedulable("Insufficient cpu")

        assert feasible(NodeFilter("A", fits), snapshot=snapshot, nominated=crowd) == ["n1"]


def unschedulable(*reasons: str, node_name: str | None = None) -> PostFilterResult:
    return PostFilterResult(Status.unschedulable(*reasons), node_name)


class TestPostFilter:
    def run(self, *plugins: PostFilter) -> PostFilterResult:
        asked = framework_of(*plugins).filtering.run_post_filter(
            AttemptState(), POD, SNAPSHOT, Diagnosis.blank(4)
        )
        return run_now(asked)

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            pytest.param(PostFilterResult(SUCCESS, "n1"), Code.SUCCESS, id="success"),
            pytest.param(
                PostFilterResult(Status.unschedulable("never", resolvable=False), "n1"),
                Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
                id="nothing helps",
            ),
        ],
    )
    def test_a_success_or_an_unresolvable_rejection_decides(self, answer: PostFilterResult, code: Code):
        last = PostFilter("C")
        result = self.run(PostFilter("A", unschedulable("a", node_name="n0")), PostFilter("B", answer), last)

        assert (result.status.code, result.nominated_node_name) == (code, "n1")
        assert result.status.reasons == answer.status.reasons
        assert not last.calls

    def test_a_failure_ends_the_point_and_nominates_no_node(self):
        last = PostFilter("B")
        result = self.run(PostFilter("A", PostFilterResult(Status.failed("x"), "n1")), last)

        assert (result.status.code, result.nominated_node_name) == (Code.ERROR, None)
        assert result.status.message == "x"
        assert not last.calls

    def test_the_reasons_of_all_plugins_are_joined_under_the_name_of_the_first(self):
        result = self.run(
            PostFilter("A", unschedulable("a1", "a2", node_name="")), PostFilter("B", unschedulable("b"))
        )

        assert result.status == Status(Code.UNSCHEDULABLE, ("a1", "a2", "b"), "A")
        assert result.nominated_node_name == ""

    def test_the_last_plugin_with_a_nomination_decides(self):
        result = self.run(
            PostFilter("A", unschedulable(node_name="")),
            PostFilter("B", unschedulable(node_name="n2")),
            PostFilter("C", unschedulable()),
        )

        assert result.nominated_node_name == "n2"

    def test_a_profile_knows_whether_it_has_post_filter_plugins(self):
        assert framework_of(PostFilter()).filtering.has_post_filter
        assert not framework_of().filtering.has_post_filter
