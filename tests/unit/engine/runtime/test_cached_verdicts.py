"""Cached results: plugins evaluate only changed nodes again."""

from __future__ import annotations

import gc
import time
import weakref
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.runtime import cached_verdicts, equivalence_classes
from scheduler.engine.runtime.adapters import FilterAdapter, ScoreAdapter
from scheduler.engine.runtime.cached_scores import CachedScores
from scheduler.engine.runtime.cached_verdicts import CachedOutcomes
from scheduler.engine.runtime.calls import NoInstruments, PluginCalls, PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.engine.state.nominator import Nominator
from scheduler.framework import Code, CycleState, Diagnosis, FilterPlugin, Outcomes, ScorePlugin, Status
from scheduler.framework.pod_groups import PodGroup
from scheduler.objects.pod_group import GroupKey
from scheduler.snapshot import arrays
from tests.support.builders import node, pod
from tests.support.scripted_plugins import (
    Filter,
    NodeFilter,
    NodeScore,
    PreFilter,
    PreScore,
    Score,
    framework_of,
)
from tests.support.snapshots import cache_of, snapshot_of
from tests.unit.engine.runtime import evaluation
from tests.unit.engine.runtime.evaluation import Again

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from scheduler.engine.state.cache import Cache
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Bools, Int64s, Rows, Snapshot
    from tests.unit.engine.runtime.evaluation import Judge


class Kept:
    """The parts of a plugin with cacheable results: pods with the same label `class` have equal signatures."""

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
    """The nodes that a plugin evaluated since the last call."""
    names = [args[2].name for _, args in plugin.calls]
    plugin.calls.clear()
    return names


@pytest.fixture(params=[evaluation.by_plugin, evaluation.by_class], ids=["by plugin", "by class"])
def judge(request: pytest.FixtureRequest) -> Judge:
    return Again(request.param)


@pytest.fixture
def by_class() -> Judge:
    return Again(evaluation.by_class)


class TestEvaluatedNodes:
    @pytest.fixture
    def cache(self) -> Cache:
        return cache_of(["n0", "n1", "n2", "n3"])

    @pytest.fixture(params=[KeptFilter, KeptScore], ids=["filter", "score"])
    def plugin(self, request: pytest.FixtureRequest) -> Any:
        return request.param(answer=None if request.param is KeptFilter else 1)

    @pytest.mark.parametrize(
        "way", [evaluation.by_plugin, evaluation.by_class], ids=["by plugin", "by class"]
    )
    def test_results_of_the_first_pod_of_a_class_are_not_cached(self, cache: Cache, plugin: Any, way: Judge):
        framework = framework_of(plugin)
        counts = []
        for kind in "aabcbca":
            way(framework, of_class("web", kind), cache.snapshot())
            counts.append(len(asked(plugin)))

        assert counts == [4, 4, 4, 4, 4, 4, 0]

    def test_the_next_identical_pod_evaluates_nothing(self, cache: Cache, plugin: Any, judge: Judge):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        assert asked(plugin) == ["n0", "n1", "n2", "n3"]

        judge(framework, of_class("web-1"), cache.snapshot())
        assert asked(plugin) == []

    def test_only_the_node_of_the_previous_pod_is_evaluated_again(
        self, cache: Cache, plugin: Any, judge: Judge
    ):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        cache.assume(of_class("web-0"), "n2")
        asked(plugin)
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n2"]

    def test_new_changed_and_moved_nodes_are_evaluated(self, cache: Cache, plugin: Any, judge: Judge):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        cache.add_node(node("n4"))
        cache.add_node(node("n1", labels={"new": "label"}))
        judge(framework, of_class("web-1"), cache.snapshot())
        assert asked(plugin) == ["n1", "n4"]

        cache.remove_node("n0")  # the last row moves into its row
        judge(framework, of_class("web-2"), cache.snapshot())
        assert asked(plugin) == ["n4"]

    def test_a_recreated_node_is_evaluated(self, cache: Cache, plugin: Any, judge: Judge):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        cache.remove_node("n3")
        cache.add_node(node("n3"))
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n3"]

    def test_pods_of_another_signature_and_without_one_are_evaluated(
        self, cache: Cache, plugin: Any, judge: Judge
    ):
        framework = framework_of(plugin)
        for kind, count in [("a", 4), ("b", 4), ("a", 0), ("b", 0), (None, 4), (None, 4)]:
            judge(framework, of_class("web", kind), cache.snapshot())
            assert len(asked(plugin)) == count, kind

    def test_a_new_version_of_the_data_of_a_plugin_invalidates_all_results(
        self, cache: Cache, plugin: Any, judge: Judge
    ):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        plugin.number = 1
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n0", "n1", "n2", "n3"]

    def test_dropped_results_are_evaluated_again(self, cache: Cache, plugin: Any, judge: Judge):
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        framework.forget_cached_verdicts()
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n0", "n1", "n2", "n3"]

    def test_nodes_outside_an_earlier_search_are_evaluated_once_they_are_in_one(self, cache: Cache):
        plugin = KeptFilter()
        framework = framework_of(plugin)
        snapshot = cache.snapshot()
        evaluation.by_plugin(framework, of_class("web"), snapshot_of("before"))
        asked(plugin)
        for rows, wanted in [([1, 3], ["n1", "n3"]), ([0, 1, 2, 3], ["n0", "n2"])]:
            framework.filtering.run_filters(
                AttemptState(), of_class("web"), snapshot, np.array(rows), Diagnosis.blank(4)
            )
            assert asked(plugin) == wanted

    def test_nominated_pods_on_a_node_are_added_and_removed_again(self, cache: Cache, by_class: Judge):
        def room(_state: Any, _pod: Any, node: Any) -> Status | None:
            return Status.unschedulable("full") if any(True for _ in node.pods) else None

        plugin = KeptFilter(answer=room)
        framework = framework_of(plugin)
        rows = [
            by_class(framework, of_class("web"), cache.snapshot(), nominated)[0]
            for nominated in ({}, {1: [pod("soon")]}, {})
        ]

        assert rows == [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3]]
        assert asked(plugin) == ["n0", "n1", "n2", "n3", "n1"]

    def test_a_plugin_that_does_not_read_pods_is_not_called_again_when_they_change(
        self, cache: Cache, plugin: Any, judge: Judge
    ):
        plugin.reads_pods = False
        framework = framework_of(plugin)
        judge(framework, of_class("web-0"), cache.snapshot())
        asked(plugin)
        cache.assume(of_class("web-0"), "n2")
        cache.add_node(node("n1", labels={"new": "label"}))
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == ["n1"]

    def test_heartbeats_and_confirmations_cause_no_evaluation(self, cache: Cache, plugin: Any, judge: Judge):
        framework = framework_of(plugin)
        cache.assume(of_class("web-0"), "n2")
        judge(framework, of_class("web-1"), cache.snapshot())
        asked(plugin)
        cache.add_pod(of_class("web-0", node="n2"))
        cache.add_node(node("n1"))
        judge(framework, of_class("web-1"), cache.snapshot())

        assert asked(plugin) == []

    def test_results_of_pre_filter_and_pre_score_are_reused_for_identical_pods(
        self, cache: Cache, by_class: Judge
    ):
        class Prepares(Kept, PreFilter, PreScore, NodeScore):
            def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> None:
                self.say("pre_filter")
                state.write("own", ["prepared"])

            def score_node(self, state: Any, pod: Any, node: Any) -> int:
                return len(state.read("own", list))

        plugin = Prepares(answer=None)
        framework = framework_of(plugin)
        totals = [by_class(framework, of_class(name), cache.snapshot())[1] for name in ("web-0", "web-1")]

        assert totals == [[1, 1, 1, 1]] * 2
        assert plugin.called() == ["pre_filter", "pre_score"]


@pytest.mark.parametrize(
    ("bases", "method"), [((NodeFilter, Filter), "filter"), ((NodeScore, Score), "score")], ids=["filter", "score"]
)  # fmt: skip
def test_a_plugin_with_both_methods_is_called_per_node_for_few_nodes(
    bases: tuple[type, ...], method: str, judge: Judge
):
    def at_once(*args: Any) -> Any:
        n_nodes = args[2].n_nodes
        return Outcomes.all_pass(n_nodes) if method == "filter" else np.ones(n_nodes, dtype=np.int64)

    kind: Any = type("Both", (Kept, *bases), {})
    plugin = kind(answer=None if method == "filter" else 1, **{method: at_once})
    framework = framework_of(plugin)
    cache = cache_of([f"n{number}" for number in range(40)])
    called = []
    for changes in (0, 1, 20):
        for number in range(changes):
            cache.assume(pod(f"p-{changes}-{number}"), f"n{number}")
        judge(framework, of_class("web"), cache.snapshot())
        called.append(plugin.called())
        plugin.calls.clear()

    assert called == [[method], [f"{method}_node"], [method]]


class TestFailures:
    def test_a_failure_is_not_cached_and_the_node_is_evaluated_again(self, by_class: Judge):
        answers = iter([None, Status.failed("no answer"), Status.unschedulable("no"), None])
        plugin = KeptFilter(answer=lambda *_: next(answers))
        framework = framework_of(plugin)
        snapshot = snapshot_of("n0", "n1")

        with pytest.raises(PluginError, match="filter plugin: no answer"):
            by_class(framework, of_class("web"), snapshot)
        assert asked(plugin) == ["n0", "n1"]
        assert by_class(framework, of_class("web"), snapshot)[0] == [0]
        assert asked(plugin) == ["n0"]

    def test_a_failure_ends_for_a_class_when_another_class_evaluates_the_node(self, by_class: Judge):
        class OfAll(NodeFilter):
            def signature(self, pod: PodInfo) -> str:
                return "all alike"

        failures = [Status.failed("no answer")]
        answers = lambda *args: failures.pop() if args[2].name == "n0" and failures else None  # noqa: E731
        framework = framework_of(OfAll(answer=answers), KeptFilter())
        snapshot = snapshot_of("n0", "n1")

        with pytest.raises(PluginError, match="filter plugin: no answer"):
            by_class(framework, of_class("web", "a"), snapshot)
        assert by_class(framework, of_class("web", "b"), snapshot)[0] == [0, 1]
        assert by_class(framework, of_class("web", "a"), snapshot)[0] == [0, 1]

    def test_a_failure_at_a_deleted_node_is_dropped(self, by_class: Judge):
        cache = cache_of(["n0", "n1"])
        plugin = KeptFilter(answer=lambda *args: Status.failed("no") if args[2].name == "n1" else None)
        framework = framework_of(plugin)
        with pytest.raises(PluginError):
            by_class(framework, of_class("web"), cache.snapshot())
        cache.remove_node("n1")

        assert by_class(framework, of_class("web"), cache.snapshot())[0] == [0]

    @pytest.mark.parametrize("kind", [KeptFilter, KeptScore])
    def test_results_of_an_attempt_that_raised_are_not_cached(self, kind: Any, judge: Judge):
        def fails_once(_state: Any, _pod: Any, node: Any) -> Any:
            if node.name == "n1" and len(plugin.calls) == 2:
                raise KeyError("x")
            return None if kind is KeptFilter else 1

        plugin = kind(answer=fails_once)
        framework = framework_of(plugin)
        names = [f"n{number}" for number in range(10)]
        cache = cache_of(names)
        with pytest.raises(PluginError):
            judge(framework, of_class("web"), cache.snapshot())
        judge(framework, of_class("web"), cache.snapshot())

        assert asked(plugin) == ["n0", "n1", *names]

    @pytest.mark.parametrize("kind", [KeptFilter, KeptScore])
    def test_a_node_at_which_a_plugin_raised_is_evaluated_again(self, kind: Any, judge: Judge):
        def fails_once(_state: Any, _pod: Any, node: Any) -> Any:
            if node.labels.get("new") and not failed:
                failed.append(node.name)
                raise KeyError("x")
            return None if kind is KeptFilter else 1

        failed: list[str] = []
        plugin = kind(answer=fails_once)
        framework = framework_of(plugin)
        cache = cache_of(["n0", "n1", "n2"])
        expected = judge(framework, of_class("web"), cache.snapshot())
        cache.add_node(node("n1", labels={"new": "label"}))
        with pytest.raises(PluginError, match="KeyError"):
            judge(framework, of_class("web"), cache.snapshot())

        assert failed == ["n1"]
        assert judge(framework, of_class("web"), cache.snapshot()) == expected

    @pytest.mark.parametrize("kind", [KeptFilter, KeptScore])
    def test_an_unhashable_signature_is_an_error_of_the_plugin(self, kind: Any, judge: Judge):
        class Odd(kind):  # type: ignore[misc]
            def signature(self, pod: PodInfo) -> Any:
                return [pod.name]

        with pytest.raises(PluginError, match=r'"Odd".*: TypeError: signature returns a hashable value'):
            judge(framework_of(Odd()), pod("web"), snapshot_of("n0"))

    def test_a_signature_that_raises_is_an_error_also_with_nominated_pods(self, by_class: Judge):
        class Odd(NodeFilter):
            def signature(self, pod: PodInfo) -> Any:
                raise KeyError("x")

        with pytest.raises(PluginError, match='running "Odd" filter plugin: KeyError'):
            by_class(framework_of(Odd()), pod("web"), snapshot_of("n0"), {0: [pod("soon")]})


def refuses_full_nodes(_state: Any, _pod: Any, node: Any) -> Status | None:
    return Status.unschedulable("full") if list(node.pods) else None


def many_nodes() -> Cache:
    return cache_of([f"n{number}" for number in range(12)])


def fits_elsewhere(_state: Any, pod: PodInfo, node: Any) -> Status | None:
    """Reject the node `n0` for pods of class b."""
    return Status.unschedulable("no") if (pod.labels["class"], node.name) == ("b", "n0") else None


class OnFeasibleNodes(ScorePlugin):
    """Scores each feasible node by its row, and the others with an invalid number; `sixth` is the score of the sixth node."""

    name, api_version, reads_pods = "OnFeasibleNodes", 1, False

    def __init__(self, sixth: int = 5) -> None:
        self.sixth = sixth

    def signature(self, pod: PodInfo) -> str:
        return "all alike"

    def score(self, state: Any, pod: Any, snapshot: Snapshot, feasible: Rows) -> Int64s:
        scores = np.full(snapshot.n_nodes, 1000, dtype=np.int64)
        scores[feasible] = feasible
        scores[5:6] = self.sixth
        return scores


class TestClasses:
    """Several classes of pods share the results of a plugin for which they have equal signatures."""

    class Nodes(NodeScore):
        """Scores nodes by a label, and normalizes the scores."""

        reads_pods = False

        def signature(self, pod: PodInfo) -> str:
            return "all alike"

        def score_node(self, state: Any, pod: Any, node: Any) -> int:
            return int(node.labels.get("rank", 0))

        def normalize(self, state: Any, pod: Any, scores: Any, feasible: Any) -> Any:
            self.say("normalize")
            return scores * 100 // max(int(scores[feasible].max()), 1)

    def test_results_shared_by_two_classes_are_normalized_for_each(self, by_class: Judge):
        cache = cache_of(["n0", "n1"])
        framework = framework_of(KeptFilter(), self.Nodes())
        for rank in (1, 4):
            cache.add_node(node("n0", labels={"rank": str(rank)}))
            cache.add_node(node("n1", labels={"rank": "2"}))
            totals = [by_class(framework, of_class("web", kind), cache.snapshot())[1] for kind in "ab"]

        assert totals == [[100, 50], [100, 50]]

    def test_a_node_that_only_another_class_fits_on_is_not_the_best_one(self, by_class: Judge):
        class Ranks(NodeScore):
            reads_pods = False

            def signature(self, pod: PodInfo) -> str:
                return "all alike"

            def score_node(self, state: Any, pod: Any, node: Any) -> int:
                return 99 if node.name == "n0" else 10

        framework, cache = framework_of(KeptFilter(answer=fits_elsewhere), Ranks()), many_nodes()
        highest = [max(by_class(framework, of_class("web", kind), cache.snapshot())[1]) for kind in "ab"]

        assert highest == [99, 10]

    def test_scores_of_nodes_on_which_no_earlier_pod_fits_are_not_used(self, by_class: Judge):
        framework = framework_of(KeptFilter(answer=fits_elsewhere), OnFeasibleNodes())
        for cache in (cache_of(["n0"]), many_nodes()):  # the classes are known in the second one
            totals = [by_class(framework, of_class("web", kind), cache.snapshot())[1] for kind in "ba"]

        assert totals == [list(range(1, 12)), list(range(12))]

    def test_a_score_out_of_range_is_an_error_beside_nodes_on_which_the_pod_does_not_fit(
        self, by_class: Judge
    ):
        framework, cache = framework_of(KeptFilter(answer=fits_elsewhere), OnFeasibleNodes(101)), many_nodes()

        with pytest.raises(PluginError, match="101"):
            by_class(framework, of_class("web", "b"), cache.snapshot())

    def test_scores_are_normalized_again_if_none_was_kept(self, by_class: Judge):
        framework, totals = framework_of(KeptFilter(), self.Nodes()), []
        for best in (0, 7):
            cache = many_nodes()
            cache.add_node(node(f"n{best}", labels={"rank": "4"}))
            totals.append(by_class(framework, of_class("web"), cache.snapshot())[1])

        assert [each.index(100) for each in totals] == [0, 7]

    def test_unchanged_scores_are_not_normalized_again(self, by_class: Judge):
        cache = cache_of(["n0", "n1"])
        plugin = self.Nodes()
        framework = framework_of(KeptFilter(), plugin)
        for turn in range(3):
            by_class(framework, of_class("web"), cache.snapshot())
            cache.assume(pod(f"p{turn}"), "n0")

        assert plugin.called() == ["normalize"]

    def test_scores_are_normalized_again_for_the_same_number_of_other_nodes(self, by_class: Judge):
        cache = cache_of([])
        for name, rank in (("n0", 4), ("n1", 1), ("n2", 2)):
            cache.add_node(node(name, labels={"rank": str(rank)}))
        framework, totals = framework_of(KeptFilter(answer=refuses_full_nodes), self.Nodes()), []
        for turn, full in enumerate([None, None, "n1", "n0"]):
            if full is not None:
                cache.remove_pod(pod(f"p{turn - 1}").uid)
                cache.assume(pod(f"p{turn}"), full)
            totals.append(by_class(framework, of_class("web"), cache.snapshot())[1])

        assert totals[2:] == [[100, 50], [50, 100]]

    def test_unchanged_scores_are_not_normalized_again_for_another_class(self, by_class: Judge):
        class OneOfTwo(KeptFilter):
            def filter_node(self, state: Any, pod: PodInfo, node: Any) -> Status | None:
                return None if node.name in {pod.labels["on"], "n2"} else Status.unschedulable("not there")

            def signature(self, pod: PodInfo) -> str:
                return pod.labels["on"]

        plugin, snapshot = self.Nodes(), cache_of(["n0", "n1", "n2"]).snapshot()
        framework = framework_of(OneOfTwo(), plugin)

        def judge_both() -> None:
            for name in ("n0", "n1"):
                by_class(framework, pod("web", labels={"on": name}), snapshot)

        judge_both()
        judge_both()  # classes are cached from the second pod on
        plugin.calls.clear()
        judge_both()

        assert plugin.called() == []

    @pytest.mark.parametrize("ranked", ["nothing", "a part"])
    def test_changed_rows_that_were_never_ranked_may_be_deleted(self, ranked: str, by_class: Judge):
        cache = cache_of([f"n{number}" for number in range(6)])
        framework = framework_of(KeptFilter(answer=refuses_full_nodes), KeptScore(answer=1))
        by_class(framework, of_class("web"), cache.snapshot())
        for number in range(6):
            cache.assume(pod(f"p{number}"), f"n{number}")
        expected = {}
        if ranked == "a part":
            cache.remove_pod(pod("p1").uid)
            cache.remove_pod(pod("p2").uid)
            expected = {1: [pod("soon")]}
        by_class(framework, of_class("web"), cache.snapshot(), expected)
        for name in ("n5", "n4", "n3"):
            cache.remove_node(name)
        cache.remove_pod(pod("p1").uid)
        cache.remove_pod(pod("p2").uid)

        assert by_class(framework, of_class("web"), cache.snapshot())[:2] == ([1, 2], [1, 1])

    def test_a_result_of_one_class_is_not_used_for_another(self, by_class: Judge):
        def refuses(_state: Any, each: Any, _node: Any) -> Status:
            return Status.unschedulable(f"no {each.labels['class']}")

        framework = framework_of(KeptFilter(answer=refuses))
        snapshot = snapshot_of("n0")
        messages = [by_class(framework, of_class("web", kind), snapshot)[3] for kind in "abab"]

        assert messages == [f"0/1 nodes are available: 1 no {kind}." for kind in "abab"]


class TestLimits:
    @pytest.mark.parametrize(
        "way", [evaluation.by_plugin, evaluation.by_class], ids=["by plugin", "by class"]
    )
    def test_the_oldest_of_very_many_classes_with_one_pod_are_dropped(
        self, monkeypatch: pytest.MonkeyPatch, way: Judge
    ):
        monkeypatch.setattr(cached_verdicts, "_MOST_ASKED_ONCE", 2)
        monkeypatch.setattr(equivalence_classes, "_MOST_FIRST_PODS", 2)
        plugin = KeptFilter()
        framework, snapshot = framework_of(plugin), snapshot_of("n0")
        counts = []
        for kind in ("a", "b", "c", "a", "a", "c", "c", "a"):
            way(framework, of_class("web", kind), snapshot)
            counts.append(len(asked(plugin)))

        assert counts == [1, 1, 1, 1, 1, 1, 0, 0]

    @pytest.mark.parametrize(
        "way", [evaluation.by_plugin, evaluation.by_class], ids=["by plugin", "by class"]
    )
    def test_state_of_the_only_pod_of_a_class_is_not_retained(self, way: Judge):
        class Written(str):
            """A plugin with a very long signature."""

            __slots__ = ("__weakref__",)

        written: list[weakref.ref[Written]] = []

        class Writes(KeptFilter):
            def signature(self, pod: PodInfo) -> Written:
                signature = Written(pod.labels["class"])
                written.append(weakref.ref(signature))
                return signature

        plugin = Writes()
        framework, snapshot = framework_of(plugin), snapshot_of("n0")
        way(framework, of_class("web", "only one"), snapshot)
        plugin.calls.clear()
        gc.collect()

        assert written
        assert not any(reference() for reference in written)

    def test_the_least_recently_used_signature_is_dropped_first(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(cached_verdicts, "_MOST_RESULTS", 2)
        plugin = KeptFilter()
        framework = framework_of(plugin)
        snapshot = snapshot_of("n0")
        counts = []
        for kind in ("a", "b", "c", "a", "b", "a", "c", "a", "b"):
            evaluation.by_plugin(framework, of_class("web", kind), snapshot)
            counts.append(len(asked(plugin)))

        assert counts == [1, 1, 1, 1, 1, 0, 1, 0, 1]

    def test_the_least_recently_used_class_is_dropped_first(
        self, monkeypatch: pytest.MonkeyPatch, by_class: Judge
    ):
        class Prepares(Kept, PreFilter): ...

        monkeypatch.setattr(cached_verdicts, "_MOST_RESULTS", 2)
        plugin = Prepares()
        framework = framework_of(plugin)
        counts = []
        for kind in ("a", "b", "a", "c", "a", "b"):
            by_class(framework, of_class("web", kind), snapshot_of("n0"))
            counts.append(len(plugin.called()))
            plugin.calls.clear()

        assert counts == [1, 1, 0, 1, 0, 1]

    @pytest.mark.parametrize(("nodes", "is_kept"), [(1, True), (3, False)])
    def test_a_large_cluster_keeps_fewer_classes_and_signatures(
        self, monkeypatch: pytest.MonkeyPatch, by_class: Judge, nodes: int, is_kept: bool
    ):
        class Prepares(Kept, PreFilter): ...

        monkeypatch.setattr(arrays, "_KEPT_BYTES", 2 * cached_verdicts._NODE_BYTES)
        monkeypatch.setattr(arrays, "_FEWEST_KEPT", 1)
        snapshot = snapshot_of(*(f"n{number}" for number in range(nodes)))

        plugin = KeptFilter()
        framework = framework_of(plugin)
        counts = []
        for kind in ("a", "a", "b", "b", "a"):
            evaluation.by_plugin(framework, of_class("web", kind), snapshot)
            counts.append(len(asked(plugin)))
        assert counts[-1] == (0 if is_kept else nodes)

        preparing = Prepares()
        framework = framework_of(preparing)
        for kind in ("a", "b", "a"):
            preparing.calls.clear()
            by_class(framework, of_class("web", kind), snapshot)
        assert bool(preparing.called()) != is_kept

    def test_a_table_is_rebuilt_before_it_holds_too_many_old_outcomes(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(cached_verdicts, "_PAST_OUTCOMES", 5)
        kept = CachedOutcomes(0)
        cache = cache_of(["n0", "n1", "n2"])
        serial = iter(range(1000))
        sizes = []
        for turn in range(20):
            cache.add_node(node("n1", labels={"turn": str(turn)}))
            kept.follow(cache.snapshot().changes, 3)
            kept.make_room(kept.misses, 3)
            unknown = kept.unknown(cache.snapshot().all_rows)
            statuses = [Status.unschedulable(f"reason {next(serial)}") for _ in unknown]
            places = np.arange(len(unknown))
            kept.note_outcomes(unknown, Outcomes.from_statuses(len(unknown), places, statuses))
            sizes.append(len(kept.table))
            outcomes = Outcomes(kept.values, tuple(kept.table))
            assert all(outcomes.of(row).code is Code.UNSCHEDULABLE for row in range(3))

        assert max(sizes) <= 3 + 5
        assert sizes.count(4) >= 3  # reset, with three current outcomes and PASS

    @pytest.mark.parametrize("changes", [1, 12])
    def test_messages_stay_current_when_a_table_is_rebuilt(
        self, monkeypatch: pytest.MonkeyPatch, judge: Judge, changes: int
    ):
        monkeypatch.setattr(cached_verdicts, "_PAST_OUTCOMES", 10)
        plugin = KeptFilter(answer=lambda *args: Status.unschedulable(f"no {args[2].labels['turn']}"))
        framework = framework_of(plugin)
        names = [f"n{number}" for number in range(20)]
        cache = cache_of(names)
        turns = dict.fromkeys(names, "")
        for turn in range(60):
            for number in range(changes if turn else 20):
                name = names[(turn * 7 + number) % 20]
                turns[name] = f"{turn}-{number}"
                cache.add_node(node(name, labels={"turn": turns[name]}))
            message = judge(framework, of_class("web"), cache.snapshot())[3]
            reasons = ", ".join(sorted(f"1 no {turn}" for turn in turns.values()))
            assert message == f"0/20 nodes are available: {reasons}."

    def test_a_table_with_an_outcome_for_every_node_is_not_rebuilt_each_time(self, judge: Judge):
        plugin = KeptFilter(answer=lambda _state, _pod, node: Status.unschedulable(f"no {node.name}"))
        cache = cache_of([f"n{number}" for number in range(5000)])
        framework = framework_of(plugin)
        for turn in range(3):
            judge(framework, of_class("web"), cache.snapshot())
            assert len(asked(plugin)) == (1 if turn else 5000)
            cache.assume(pod(f"p{turn}"), "n7")

    def test_outcomes_without_a_node_are_dropped(self):
        kept = CachedOutcomes(0)
        snapshot = snapshot_of("n0")
        statuses = [Status.unschedulable(str(number)) for number in range(3)]
        table = Outcomes.from_statuses(3, np.arange(3), statuses).table
        kept.follow(snapshot.changes, 1)
        kept.note_outcomes(snapshot.all_rows, Outcomes(np.array([2], dtype=np.uint16), table))

        assert len(kept.table) == 2
        assert Outcomes(kept.values, tuple(kept.table)).of(0).reasons == ("1",)


def test_the_state_of_pre_filter_is_readable_at_scoring_for_the_whole_class():
    class Remembers(Kept, PreFilter, PreScore, NodeScore):
        def pre_filter(self, state: Any, *_: Any) -> None:
            state.write("Remembers", 7)

        def pre_score(self, state: Any, *_: Any) -> None:
            assert state.read("Remembers", int) == 7

        def score_node(self, state: Any, *_: Any) -> int:
            return state.read("Remembers", int)  # type: ignore[no-any-return]

    framework, snapshot = framework_of(Remembers()), snapshot_of("n0", "n1")
    for name in ("web-0", "web-1"):
        state, diagnosis = AttemptState(), Diagnosis.blank(2)
        framework.filtering.run_pre_filter(state, of_class(name), snapshot, diagnosis)
        rows = framework.filtering.find_feasible(
            state, of_class(name), snapshot, diagnosis, rows=snapshot.all_rows, nominated={}
        )
        assert framework.scoring.run(state, of_class(name), snapshot, rows).total.tolist() == [7, 7]


def test_plugins_after_a_final_rejection_write_no_state_for_the_class():
    class Later(Kept, PreFilter, NodeFilter):
        def pre_filter(self, state: Any, *_: Any) -> None:
            state.write("Later", True)

    hopeless = Status.unschedulable("never", resolvable=False)
    first, snapshot = PreFilter("First", answer=None), snapshot_of("n0")
    framework = framework_of(first, Later())

    def left_by(name: str) -> bool:
        state, diagnosis = AttemptState(), Diagnosis.blank(1)
        framework.filtering.run_pre_filter(state, of_class(name), snapshot, diagnosis)
        return "Later" in state

    assert [left_by(name) for name in ("web-0", "web-1", "web-2")] == [True, True, True]
    first.answer = hopeless
    assert [left_by(name) for name in ("web-3", "web-4")] == [False, False]


def test_results_of_a_very_large_pod_are_not_cached(judge: Judge):
    plugin, cache = KeptFilter(), cache_of(["n0", "n1"])
    framework = framework_of(plugin)
    for number in range(3):
        judge(framework, of_class(f"p{number}", annotations={"long": "x" * 40_000}), cache.snapshot())
        assert asked(plugin) == ["n0", "n1"]


def test_plugins_of_a_class_are_called_with_the_group_of_its_pods():
    class Grouped(Kept, PreFilter, PreScore, NodeScore):
        def __init__(self) -> None:
            super().__init__(answer=1)
            self.groups: list[PodGroup | None] = []

        def pre_filter(self, state: CycleState, *_: Any) -> None:
            self.groups.append(state.group)

        def pre_score(self, state: CycleState, *_: Any) -> None:
            self.groups.append(state.group)

    plugin, snapshot = Grouped(), snapshot_of("n0")
    framework = framework_of(plugin)
    one, other = (PodGroup(GroupKey("PodGroup", "default", name), name) for name in ("one", "other"))
    for group in (one, one, one, other, other, None, None):
        state, diagnosis = AttemptState(), Diagnosis.blank(1)
        state.group = group
        framework.filtering.run_pre_filter(state, of_class("web"), snapshot, diagnosis)
        rows = framework.filtering.find_feasible(
            state, of_class("web"), snapshot, diagnosis, rows=snapshot.all_rows, nominated={}
        )
        framework.scoring.run(state, of_class("web"), snapshot, rows)

    # Results of the first pod of each class are not cached; the third pod of a class needs no evaluation.
    assert plugin.groups == [one] * 4 + [other] * 4 + [None] * 4


def test_a_prefilter_rejection_is_cached_with_the_state_of_the_plugins_before_it():
    class Writes(Kept, PreFilter):
        def pre_filter(self, state: CycleState, *_: Any) -> None:
            state.write(self.name, 1)

    class Before(Writes): ...

    class After(Writes): ...

    class Rejects(PreFilter):
        asked = 0

        def pre_filter(self, *_: Any) -> Status:
            self.asked += 1
            return Status.unschedulable("never", resolvable=False)

    class Filters(Kept, NodeFilter): ...

    before, rejects, after = Before("Before"), Rejects("Rejects"), After("After")
    framework = framework_of(before, rejects, after, Filters("Filters"))
    for times in (1, 2, 3):
        state, diagnosis = AttemptState(), Diagnosis.blank(1)
        status = framework.filtering.run_pre_filter(state, of_class("web"), snapshot_of("n0"), diagnosis)

        assert status.message == "never"
        assert rejects.asked == times
        assert ("Before" in state, "After" in state) == (True, False)


class TestNominatedPods:
    def decide(self, plugin: Any, cache: Cache, nominator: Nominator, name: str) -> list[str]:
        """Decide a pod of the class; return the feasible nodes."""
        snapshot, web, diagnosis = cache.snapshot(), of_class(name), Diagnosis.blank(4)
        state, self.diagnosis = AttemptState(), diagnosis
        self.framework = getattr(self, "framework", None) or framework_of(plugin)
        self.framework.filtering.run_pre_filter(state, web, snapshot, diagnosis)
        rows = self.framework.filtering.find_feasible(
            state,
            web,
            snapshot,
            diagnosis,
            rows=snapshot.all_rows,
            nominated=nominator.others(web, snapshot),
        )
        return [snapshot.name_of(row) for row in rows.tolist()]

    def test_only_changed_nodes_are_evaluated_again_with_nominated_pods(self):
        def fits(_state: Any, _pod: Any, node: Any) -> Status | None:
            return Status.unschedulable("full") if len(node.pods) > 1 else None

        cache, nominator = cache_of(["n0", "n1", "n2", "n3"]), Nominator()
        plugin = KeptFilter("A", fits)
        for number in range(3):
            nominator.add(pod(f"p{number}"), f"n{number}")
            nominator.add(pod(f"q{number}"), f"n{number}")
        for number in range(3):
            assert self.decide(plugin, cache, nominator, f"web-{number}") == ["n3"]
        plugin.calls.clear()

        assert self.decide(plugin, cache, nominator, "web-3") == ["n3"]
        assert asked(plugin) == []
        assert self.diagnosis.message() == "0/4 nodes are available: 3 full."

        nominator.delete(pod("p1").uid)
        assert self.decide(plugin, cache, nominator, "web-4") == ["n1", "n3"]
        assert asked(plugin) == ["n1"]

        cache.add_pod(pod("bound", node="n1"))
        assert self.decide(plugin, cache, nominator, "web-5") == ["n3"]
        assert asked(plugin) == ["n1", "n1"]

    def test_a_nominated_pod_is_evaluated_with_the_others_on_its_node(self):
        def fits(_state: Any, _pod: Any, node: Any) -> Status | None:
            return Status.unschedulable("full") if len(node.pods) > 1 else None

        cache, nominator = cache_of(["n0", "n1", "n2", "n3"]), Nominator()
        plugin = KeptFilter("A", fits)
        for name, where in (("web", "n0"), ("p", "n0"), ("q", "n1"), ("r", "n1")):
            nominator.add(of_class(name), where)
        for _ in range(3):
            assert self.decide(plugin, cache, nominator, "web") == ["n0", "n2", "n3"]
        nominator.add(of_class("s"), "n0")

        assert self.decide(plugin, cache, nominator, "web") == ["n2", "n3"]


def test_columns_are_copied_only_to_evaluate_less_than_half_of_the_nodes():
    class AtOnce(FilterPlugin, ScorePlugin):
        name = "AtOnce"
        api_version = 1

        def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
            return Outcomes.reject(self.score(state, pod, snapshot, rows) % 3 == 0, "divisible")

        def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s:
            evaluated.append(snapshot.n_nodes)
            return snapshot.allocatable["cpu"] // 1000

    evaluated: list[int] = []
    calls = PluginCalls("", NoInstruments(), time.perf_counter)
    snapshot = snapshot_of(*(node(f"n{number}", cpu=str(number)) for number in range(40)))
    for count in (40, 20, 19):
        rows = np.arange(1, 40, 2)[:count] if count < 40 else snapshot.all_rows
        outcomes = FilterAdapter(AtOnce(), calls).each(CycleState(), pod("web"), snapshot, rows)
        scores = ScoreAdapter(AtOnce(), calls).each(CycleState(), pod("web"), snapshot, rows)
        assert outcomes.passing.tolist() == [bool(row % 3) for row in rows.tolist()]
        assert scores.tolist() == rows.tolist()

    assert evaluated == [40, 40, 40, 40, 19, 19]


@pytest.mark.parametrize("weight", [1, 700, 40_000_000])
def test_cached_totals_have_room_for_every_weight_and_for_new_nodes(weight: int):
    plugin = KeptScore(
        answer=lambda _state, _pod, each: 100 - int(each.name[1:]) if each.name != "before" else 0
    )
    framework = framework_of(plugin, weights={plugin.name: weight})
    by_class, cache = Again(evaluation.by_class), cache_of(["n20", "n30", "n90"])
    for added in ("n40", "n10"):
        _, totals, _, _ = by_class(framework, of_class("web"), cache.snapshot())
        assert max(totals) == weight * (100 - 20)
        cache.add_node(node(added))
    rows, totals, _, _ = by_class(framework, of_class("web"), cache.snapshot())

    assert len(rows) == 5
    assert max(totals) == weight * (100 - 10)


@pytest.mark.parametrize("preferred", [None, np.array([True, True, True, False, True, False])])
def test_the_best_nodes_follow_changes_of_few_nodes_without_a_look_at_the_others(
    preferred: Bools | None,
) -> None:
    ranking = CachedScores(PluginCalls("", NoInstruments(), time.perf_counter), [])
    draw, total = Random(3), np.array([5, 7, 7, 3, 7, 1], dtype=np.int8)
    counted = np.ones(len(total), dtype=np.bool_) if preferred is None else preferred
    ranking._total, ranking._best = total, best_by_a_look_at_all(total, counted, preferred)
    kept = 0
    for _ in range(500):
        changed = {draw.randrange(len(total)) for _ in range(draw.randrange(1, 4))}
        before = best_by_a_look_at_all(total, counted, preferred)
        others = set(before[0].tolist()) - changed
        for row in changed:
            total[row] = draw.choice((-1, 3, 7, 7, 9))
        ranking._best = ranking._best_after(changed)
        expected = best_by_a_look_at_all(total, counted, preferred)
        if ranking._best is None:
            assert not others, "only if all of the best nodes have changed"
            ranking._best = expected
            continue
        kept += 1
        assert ranking._best[0].tolist() == expected[0].tolist()
        assert ranking._best[1:] == expected[1:]
    assert kept > 200


def best_by_a_look_at_all(
    total: NDArray[Any], counted: Bools, preferred: Bools | None
) -> tuple[Rows, int, Bools | None]:
    """Return the best of the counted rows, found by a look at all."""
    highest = total[counted].max()
    return np.flatnonzero((total == highest) & counted), int(highest), preferred
