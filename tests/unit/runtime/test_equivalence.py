"""Kept verdicts: never other than fresh ones, and asked anew only where something changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler.runtime.equivalence import KeptVerdicts

from scheduler.framework import Code, CycleState, Diagnosis, Outcomes, Status
from scheduler.runtime import equivalence
from scheduler.runtime.calls import PluginError
from tests.builders import node, pod
from tests.puppets import Filter, NodeFilter, NodeScore, Score, framework_of
from tests.snapshots import cache_of, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.framework import Framework
    from scheduler.snapshot import Snapshot
    from scheduler.state.cache import Cache


class Kept:
    """What makes a puppet's verdicts worth keeping: pods of the same label `class` are alike to it."""

    number = 0

    def signature(self, pod: PodInfo) -> Hashable | None:
        return pod.labels.get("class")

    def version(self) -> int:
        return self.number


class KeptFilter(Kept, NodeFilter): ...


class KeptScore(Kept, NodeScore): ...


def of_class(name: str, kind: str | None = "a", **more: Any) -> PodInfo:
    return pod(name, labels={} if kind is None else {"class": kind}, **more)


def asked(plugin: Any) -> list[str]:
    """The nodes a puppet was asked about since the last time."""
    names = [args[2].name for _, args in plugin.calls]
    plugin.calls.clear()
    return names


def judge(framework: Framework, each: PodInfo, snapshot: Snapshot) -> tuple[list[int], list[int], str]:
    """Return the feasible rows, their scores, and the message, as one attempt would have them."""
    state, diagnosis = CycleState(), Diagnosis.blank(snapshot.n_nodes)
    rows = framework.filtering.run_filters(state, each, snapshot, snapshot.all_rows, diagnosis)
    scores = framework.scoring.run(state, each, snapshot, rows).total.tolist() if rows.size else []
    return rows.tolist(), scores, diagnosis.message()


class TestWhoIsAsked:
    @pytest.fixture
    def cache(self) -> Cache:
        return cache_of(["n0", "n1", "n2", "n3"])

    @pytest.fixture(params=[KeptFilter, KeptScore], ids=["filter", "score"])
    def plugin(self, request: pytest.FixtureRequest) -> Any:
        return request.param(answer=None if request.param is KeptFilter else 1)

    def test_the_second_pod_alike_asks_nothing(self, cache: Cache, plugin: Any):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        assert asked(plugin) == ["n0", "n1", "n2", "n3"]

        judge(framework, of_class("web-1"), cache.snapshot())
        assert asked(plugin) == []

    def test_only_the_node_that_a_pod_went_to_is_asked_about_again(self, cache: Cache, plugin: Any):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        cache.assume(of_class("web-0"), "n2")
        asked(plugin)
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n2"]

    def test_nodes_that_are_new_changed_or_moved_are_asked_about(self, cache: Cache, plugin: Any):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        cache.add_node(node("n4"))
        cache.add_node(node("n1", labels={"new": "label"}))
        judge(framework, of_class("web-1"), cache.snapshot())
        assert asked(plugin) == ["n1", "n4"]

        cache.remove_node("n0")  # the last row takes its place
        judge(framework, of_class("web-2"), cache.snapshot())
        assert asked(plugin) == ["n4"]

    def test_a_node_that_comes_back_is_asked_about(self, cache: Cache, plugin: Any):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        cache.remove_node("n3")
        cache.add_node(node("n3"))
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n3"]

    def test_pods_of_another_signature_and_without_one_are_asked_for(self, cache: Cache, plugin: Any):
        framework = framework_of(plugin)
        for kind, count in [("a", 4), ("b", 4), ("a", 0), ("b", 0), (None, 4), (None, 4)]:
            judge(framework, of_class("web", kind), cache.snapshot())
            assert len(asked(plugin)) == count, kind

    def test_another_version_of_the_plugins_data_makes_all_verdicts_worthless(
        self, cache: Cache, plugin: Any
    ):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        plugin.number = 1
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n0", "n1", "n2", "n3"]

    def test_what_is_forgotten_is_asked_again(self, cache: Cache, plugin: Any):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        framework.forget_kept_verdicts()
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n0", "n1", "n2", "n3"]

    def test_nodes_that_were_not_wanted_are_asked_about_once_they_are(self, cache: Cache):
        plugin = KeptFilter()
        framework = framework_of(plugin)
        snapshot = cache.snapshot()
        for rows, wanted in [([1, 3], ["n1", "n3"]), ([0, 1, 2, 3], ["n0", "n2"])]:
            framework.filtering.run_filters(
                CycleState(), of_class("web"), snapshot, np.array(rows), Diagnosis.blank(4)
            )
            assert asked(plugin) == wanted

    def test_pods_expected_on_a_node_are_seen_and_forgotten_again(self, cache: Cache):
        def room(_state: Any, _pod: Any, node: Any) -> Status | None:
            return Status.unschedulable("full") if any(True for _ in node.pods) else None

        plugin = KeptFilter(answer=room)
        framework = framework_of(plugin)
        rows = [
            framework.filtering.find_feasible(
                CycleState(),
                of_class("web"),
                cache.snapshot(),
                Diagnosis.blank(4),
                rows=cache.snapshot().all_rows,
                nominated=nominated,
            ).tolist()
            for nominated in ({}, {1: [pod("soon")]}, {})
        ]

        assert rows == [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3]]
        assert asked(plugin) == ["n0", "n1", "n2", "n3", "n1", "n1"]


class TestFailures:
    def test_a_failure_is_no_verdict_so_the_node_is_asked_about_again(self):
        answers = iter([Status.failed("no answer"), Status.unschedulable("no"), None, None])
        plugin = KeptFilter(answer=lambda *_: next(answers))
        framework = framework_of(plugin)
        snapshot = snapshot_of("n0", "n1")

        def feasible() -> Any:
            return framework.filtering.find_feasible(
                CycleState(),
                of_class("web"),
                snapshot,
                Diagnosis.blank(2),
                rows=snapshot.all_rows,
                nominated={},
            )

        with pytest.raises(PluginError, match='for node "n0": no answer'):
            feasible()
        assert asked(plugin) == ["n0", "n1"]
        assert feasible().tolist() == [0]
        assert asked(plugin) == ["n0"]

    @pytest.mark.parametrize("kind", [KeptFilter, KeptScore])
    def test_nothing_is_kept_of_an_attempt_that_raised(self, kind: Any):
        def fails_once(_state: Any, _pod: Any, node: Any) -> Any:
            if node.name == "n1" and len(plugin.calls) == 2:
                raise KeyError("x")
            return None if kind is KeptFilter else 1

        plugin = kind(answer=fails_once)
        framework = framework_of(plugin)
        snapshot = snapshot_of("n0", "n1")
        with pytest.raises(PluginError):
            judge(framework, of_class("web"), snapshot)
        judge(framework, of_class("web"), snapshot)

        assert asked(plugin) == ["n0", "n1", "n0", "n1"]

    @pytest.mark.parametrize("kind", [KeptFilter, KeptScore])
    def test_a_signature_that_is_no_key_is_an_error_of_the_plugin(self, kind: Any):
        class Odd(kind):  # type: ignore[misc]
            def signature(self, pod: PodInfo) -> Any:
                return [pod.name]

        with pytest.raises(
            PluginError, match='plugin "Odd": TypeError: signature returns something hashable'
        ):
            judge(framework_of(Odd()), pod("web"), snapshot_of("n0"))


class TestLimits:
    def test_the_signature_not_asked_for_the_longest_is_forgotten_first(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(equivalence, "_MOST_CLASSES", 2)
        plugin = KeptFilter()
        framework = framework_of(plugin)
        snapshot = snapshot_of("n0")
        counts = []
        for kind in ("a", "b", "a", "c", "a", "b"):
            framework.filtering.run_filters(
                CycleState(), of_class("web", kind), snapshot, snapshot.all_rows, Diagnosis.blank(1)
            )
            counts.append(len(asked(plugin)))

        assert counts == [1, 1, 0, 1, 0, 1]

    def test_a_table_is_made_anew_before_it_holds_too_much_of_the_past(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(equivalence, "_PAST_OUTCOMES", 5)
        serial = iter(range(1000))
        cache = cache_of(["n0", "n1", "n2"])
        kept = KeptVerdicts()
        sizes = []

        def ask(some: Snapshot) -> Outcomes:
            statuses = [Status.unschedulable(f"reason {next(serial)}") for _ in some.all_rows]
            return Outcomes.from_statuses(some.n_nodes, some.all_rows, statuses)

        for turn in range(20):
            cache.add_node(node("n1", labels={"turn": str(turn)}))
            snapshot = cache.snapshot()
            outcomes = kept.outcomes("a", 0, snapshot, snapshot.all_rows, ask)
            sizes.append(len(outcomes.table))
            assert all(outcomes.of(row).code is Code.UNSCHEDULABLE for row in range(3))

        assert max(sizes) <= 3 + 5
        assert sizes.count(4) >= 3  # made anew with the three of the present, and PASS

    def test_a_table_with_an_outcome_of_its_own_for_every_node_is_not_made_anew_each_time(self):
        plugin = KeptFilter(answer=lambda _state, _pod, node: Status.unschedulable(f"no {node.name}"))
        cache = cache_of([f"n{number}" for number in range(5000)])
        framework = framework_of(plugin)
        for turn in range(3):
            snapshot = cache.snapshot()
            framework.filtering.run_filters(
                CycleState(), of_class("web"), snapshot, snapshot.all_rows, Diagnosis.blank(5000)
            )
            assert len(asked(plugin)) == (1 if turn else 5000)
            cache.assume(pod(f"p{turn}"), "n7")

    def test_outcomes_that_no_node_has_are_not_kept(self):
        kept = KeptVerdicts()
        snapshot = snapshot_of("n0")
        table = Outcomes.from_statuses(
            3, np.arange(3), [Status.unschedulable(str(n)) for n in range(3)]
        ).table

        outcomes = kept.outcomes(
            "a", 0, snapshot, snapshot.all_rows, lambda _: Outcomes(np.array([2], dtype=np.uint16), table)
        )

        assert len(outcomes.table) == 2
        assert outcomes.of(0).reasons == ("1",)


# Against plugins that keep nothing.


class Verdict:
    """A rule that reads much of a node, of its pods, of the pod and of its own background data."""

    number = 0

    def mark(self, each: PodInfo, node: Any) -> int:
        crowd = sorted(other.name for other in node.pods)
        text = (
            node.name,
            tuple(crowd),
            tuple(sorted(node.labels.items())),
            each.labels.get("class"),
            self.number,
        )
        return sum(hash_of(part) for part in text) % 101

    def version(self) -> int:
        return self.number


def hash_of(part: Any) -> int:
    return sum(number * ord(letter) for number, letter in enumerate(repr(part), 1))


class ByNode(Verdict, NodeFilter):
    name = "ByNode"

    def filter_node(self, state: Any, pod: PodInfo, node: Any) -> Status | None:
        mark = self.mark(pod, node)
        return Status.unschedulable(f"reason {mark % 4}") if mark % 3 == 0 else None


class AtOnce(Verdict, Filter):
    name = "AtOnce"

    def filter(self, state: Any, pod: PodInfo, snapshot: Snapshot, rows: Any) -> Outcomes:
        marks = [self.mark(pod, snapshot.node_info(row)) for row in range(snapshot.n_nodes)]
        statuses = [
            Status.unschedulable(f"mark {mark}") if mark % 7 == 0 else Status(Code.SUCCESS) for mark in marks
        ]
        return Outcomes.from_statuses(snapshot.n_nodes, snapshot.all_rows, statuses)


class Ranks(Verdict, Score):
    name = "Ranks"

    def score(self, state: Any, pod: PodInfo, snapshot: Snapshot, feasible: Any) -> Any:
        marks = [self.mark(pod, snapshot.node_info(row)) for row in range(snapshot.n_nodes)]
        return np.array(marks, dtype=np.int64)

    def normalize(self, state: Any, pod: PodInfo, scores: Any, feasible: Any) -> Any:
        return scores * 100 // max(int(scores[feasible].max()), 1)


class KeptByNode(Kept, ByNode): ...


class KeptAtOnce(Kept, AtOnce): ...


class KeptRanks(Kept, Ranks): ...


NODES = st.sampled_from([f"n{number}" for number in range(6)])
STEPS = st.one_of(
    st.tuples(st.just("node"), NODES, st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("no node"), NODES),
    st.tuples(st.just("bind"), st.integers(0, 8), NODES),
    st.tuples(st.just("unbind"), st.integers(0, 8)),
    st.tuples(st.just("version"), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("judge"), st.sampled_from(["a", "b", "c", None])),
    st.tuples(st.just("expect"), st.sampled_from(["a", "b"]), NODES),
)  # fmt: skip


class Twins:
    """The same cluster judged by plugins that keep verdicts and by plugins that do not."""

    def __init__(self) -> None:
        self.cache = cache_of(["n0", "n1", "n2"])
        self.kept = [KeptByNode("ByNode"), KeptAtOnce("AtOnce"), KeptRanks("Ranks")]
        self.fresh = [ByNode("ByNode"), AtOnce("AtOnce"), Ranks("Ranks")]
        self.frameworks = framework_of(*self.kept), framework_of(*self.fresh)

    def step(self, what: str, *args: Any) -> None:
        cache = self.cache
        if what == "node":
            cache.add_node(node(args[0], labels={"kind": args[1]}))
        elif what == "no node":
            cache.remove_node(args[0])
        elif what == "bind":
            cache.add_pod(pod(f"p{args[0]}", node=args[1], cpu="1"))
        elif what == "unbind":
            cache.remove_pod(pod(f"p{args[0]}").uid)
        elif what == "version":
            for plugin in (*self.kept, *self.fresh):
                plugin.number = args[0]
        elif what == "judge":
            self.compare(of_class("web", args[0]), cache.snapshot())
        elif what == "expect" and (row := cache.table.row_of(args[1])) is not None:
            self.compare(of_class("web", args[0]), cache.snapshot().overlay(add=[(row, pod("soon"))]))
            self.compare(of_class("web", args[0]), cache.snapshot())

    def compare(self, each: PodInfo, snapshot: Snapshot) -> None:
        if snapshot.n_nodes:
            kept, fresh = (judge(framework, each, snapshot) for framework in self.frameworks)
            assert kept == fresh


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=40))
def test_kept_verdicts_are_those_that_would_be_given_now(steps: list[Any]):
    twins = Twins()
    for step in steps:
        twins.step(*step)
    for kind in ("a", "b", None):
        twins.step("judge", kind)
