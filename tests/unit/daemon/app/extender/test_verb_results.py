"""The responses of an extender: codes, messages, scores and victims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.node_resources.fit import NodeResourcesFit
from scheduler.daemon.app.extender.verb_results import (
    UNKNOWN_NODE,
    VerbResults,
    best_total,
    scaled,
    weight_of,
)
from scheduler.engine.state.nominator import Nominator
from scheduler.errors import SchedulerError
from scheduler.extensions.extender_wire import FilterAnswer, MetaVictims
from scheduler.framework import PreFilterResult, Status
from tests.support.builders import node, pod
from tests.support.scripted_plugins import NodeFilter, NodeScore, PreFilter, framework_of
from tests.support.snapshots import cache_of
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.state.cache import Cache
    from scheduler.objects.pod import PodInfo

WEB = pod("web", cpu="1", scheduler_name="default-scheduler")


def verdicts_on(cache: Cache, *frameworks: Framework, nominator: Nominator | None = None) -> VerbResults:
    return VerbResults(cache, nominator or Nominator(), best_total(frameworks), lambda _: None)


def fit() -> Framework:
    return framework_of(made(NodeResourcesFit))


def full_node(name: str, *pods: PodInfo) -> Cache:
    return cache_of([node(name, cpu="1")], pods)


def test_rejected_nodes_are_grouped_by_whether_preemption_may_help() -> None:
    small, taken, free = node("small", cpu="500m"), node("taken", cpu="1"), node("free", cpu="1")
    cache = cache_of([small, taken, free], [pod("other", cpu="1", node="taken")])
    answer = verdicts_on(cache).filter(fit(), WEB, ["free", "taken", "small"])
    assert answer.node_names == ("free",)
    assert answer.failed == {"taken": "Insufficient cpu"}
    assert answer.unresolvable == {"small": "Insufficient cpu"}


def test_several_reasons_are_returned_together() -> None:
    answer = verdicts_on(cache_of([node("a", cpu="500m", pods=0)])).filter(fit(), WEB, ["a"])
    assert answer.unresolvable == {"a": "Too many pods, Insufficient cpu"}


def test_only_the_requested_nodes_are_evaluated() -> None:
    plugin = NodeFilter()
    answer = verdicts_on(cache_of(["a", "b", "c"])).filter(framework_of(plugin), WEB, ["c", "a"])
    assert answer == FilterAnswer(("a", "c"))
    assert [info.name for _, (_, _, info) in plugin.calls] == ["a", "c"]


def test_unknown_nodes_are_refused_with_a_reason_and_counted() -> None:
    reported: list[int] = []
    verdicts = VerbResults(cache_of(["a"]), Nominator(), 0, reported.append)
    answer = verdicts.filter(framework_of(NodeFilter()), WEB, ["a", "new", "newer"])
    assert answer == FilterAnswer(("a",), {}, {"new": UNKNOWN_NODE, "newer": UNKNOWN_NODE})
    assert reported == [2]


def test_a_request_without_nodes_calls_no_plugin() -> None:
    plugin = PreFilter(answer=AssertionError("asked"))
    verdicts = verdicts_on(cache_of([]))
    assert verdicts.filter(framework_of(plugin), WEB, []) == FilterAnswer()
    assert verdicts.prioritize(framework_of(plugin), WEB, ["gone"]) == [("gone", 0)]


def test_a_rejection_of_the_pod_rejects_every_node() -> None:
    plugin = PreFilter(answer=Status.unschedulable("no licence", resolvable=False))
    answer = verdicts_on(cache_of(["a", "b"])).filter(framework_of(plugin), WEB, ["a", "b"])
    assert answer == FilterAnswer((), {}, {"a": "no licence", "b": "no licence"})


def test_nodes_outside_the_pre_filter_result_are_rejected() -> None:
    plugin = PreFilter("Pinned", PreFilterResult(frozenset({"b"})))
    answer = verdicts_on(cache_of(["a", "b"])).filter(framework_of(plugin), WEB, ["a", "b"])
    assert answer.node_names == ("b",)
    assert answer.unresolvable == {"a": "node(s) didn't satisfy plugin(s) [Pinned]"}


BROKEN: dict[str, Any] = {
    "Filter raises": NodeFilter("Broken", ValueError("out of licences")),
    "Filter says ERROR": NodeFilter("Broken", Status.failed("out of licences")),
    "PreFilter raises": PreFilter("Broken", ValueError("out of licences")),
}


@pytest.mark.parametrize("plugin", BROKEN.values(), ids=BROKEN)
def test_a_plugin_that_fails_is_named(plugin: Any) -> None:
    with pytest.raises(SchedulerError, match=r"profile custom-scheduler: .*Broken.*out of licences"):
        verdicts_on(cache_of(["a"])).filter(framework_of(plugin), WEB, ["a"])


def test_the_pod_itself_is_not_counted() -> None:
    cache = full_node("a")
    cache.assume(WEB, "a")
    assert verdicts_on(cache).filter(fit(), WEB, ["a"]).node_names == ("a",)
    assert cache.pod(WEB.uid) is not None


def test_a_pod_with_a_requested_binding_counts_for_others() -> None:
    cache = full_node("a")
    cache.assume(pod("first", cpu="1"), "a")
    assert verdicts_on(cache).filter(fit(), WEB, ["a"]).failed == {"a": "Insufficient cpu"}


@pytest.mark.parametrize(("priority", "passes"), [(5, False), (0, False), (-1, True)])
def test_capacity_nominated_for_pods_of_equal_or_higher_priority_is_kept(priority: int, passes: bool) -> None:
    nominator = Nominator()
    nominator.add(pod("urgent", cpu="1", priority=priority), "a")
    verdicts = verdicts_on(full_node("a"), nominator=nominator)
    assert bool(verdicts.filter(fit(), WEB, ["a"]).node_names) == passes


def test_scores_are_weighted_totals_on_the_scale_of_extenders() -> None:
    first = NodeScore("First", lambda _s, _p, info: {"a": 100, "b": 50, "c": 0}[info.name])
    second = NodeScore("Second", lambda _s, _p, info: {"a": 100, "b": 0, "c": 0}[info.name])
    profile = framework_of(first, second, weights={"First": 3, "Second": 1})
    verdicts = verdicts_on(cache_of(["a", "b", "c"]), profile)
    # b: 150 of 400, which is 3.75
    assert verdicts.prioritize(profile, WEB, ["c", "a", "b"]) == [("c", 0), ("a", 10), ("b", 4)]


def test_all_profiles_have_the_range_of_the_one_with_the_highest_weight() -> None:
    light = framework_of(NodeScore("Light", 100), weights={"Light": 1})
    heavy = framework_of(NodeScore("Heavy", 100), weights={"Heavy": 4})
    assert weight_of([light, heavy]) == 4
    verdicts = verdicts_on(cache_of(["a"]), light, heavy)
    assert verdicts.prioritize(heavy, WEB, ["a"]) == [("a", 10)]
    assert verdicts.prioritize(light, WEB, ["a"]) == [("a", 3)]


def test_without_scoring_plugins_all_nodes_are_equal() -> None:
    profile = framework_of(NodeFilter())
    assert weight_of([profile]) == 0
    assert verdicts_on(cache_of(["a", "b"]), profile).prioritize(profile, WEB, ["a", "b"]) == [
        ("a", 0),
        ("b", 0),
    ]


def test_a_scorer_that_fails_is_named() -> None:
    profile = framework_of(NodeScore("Broken", ValueError("no data")), weights={"Broken": 1})
    with pytest.raises(SchedulerError, match=r"Broken.*no data"):
        verdicts_on(cache_of(["a"]), profile).prioritize(profile, WEB, ["a"])


def test_a_pod_that_pre_filter_now_rejects_gets_equal_scores() -> None:
    plugins = PreFilter(answer=Status.unschedulable("gone")), NodeScore("Any", AssertionError("asked"))
    profile = framework_of(*plugins, weights={"Any": 1})
    assert verdicts_on(cache_of(["a"]), profile).prioritize(profile, WEB, ["a"]) == [("a", 0)]


@given(weights=st.integers(1, 10**6), data=st.data())
def test_scaling_is_the_nearest_tenth_with_halves_up(weights: int, data: st.DataObject) -> None:
    best = 100 * weights
    total = data.draw(st.integers(0, best))
    exact = total * 10 / best
    found = int(scaled(np.array([total]), best)[0])
    assert 0 <= found <= 10
    assert abs(found - exact) <= 0.5 + 1e-9
    assert int(scaled(np.array([5 * weights]), best)[0]) == 1


def test_scaling_does_not_overflow() -> None:
    best = (2**63 - 1) // 100 * 100
    assert scaled(np.array([best, best - 1, 0]), best).tolist() == [10, 10, 0]


def victims(*pods: PodInfo, violations: int = 0) -> MetaVictims:
    return MetaVictims(tuple(each.uid for each in pods), violations)


def test_nodes_stay_if_the_pod_fits_without_the_victims() -> None:
    old, small, large = (
        pod("old", cpu="1", node="a"),
        pod("small", cpu="100m", node="b"),
        pod("large", cpu="900m", node="b"),
    )
    cache = cache_of([node("a", cpu="1"), node("b", cpu="1")], [old, small, large])
    asked = {"a": victims(old, violations=1), "b": victims(large)}
    assert verdicts_on(cache).preempt(fit(), WEB, asked) == {"a": victims(old, violations=1)}
    both = {"b": victims(large, small)}
    assert verdicts_on(cache).preempt(fit(), WEB, both) == both


def test_pre_filter_is_called_on_the_cluster_without_the_victims() -> None:
    def judge(_state: Any, _pod: PodInfo, snapshot: Any) -> Status | None:
        holders = sum(1 for row in range(snapshot.n_nodes) for _ in snapshot.pods_on(row))
        return Status.unschedulable("the one licence is taken") if holders else None

    holder = pod("holder", node="a")
    verdicts, profile = (
        verdicts_on(cache_of(["a", "b"], [holder])),
        framework_of(PreFilter(answer=None, pre_filter=judge)),
    )
    assert verdicts.filter(profile, WEB, ["a", "b"]).node_names == ()
    assert verdicts.preempt(profile, WEB, {"a": victims(holder), "b": MetaVictims(("other",), 0)}) == {
        "a": victims(holder)
    }


def test_nodes_that_are_unknown_or_have_no_victims_are_left_out_of_preemption() -> None:
    asked = {"gone": MetaVictims(("u",), 0), "a": MetaVictims((), 0)}
    assert verdicts_on(cache_of(["a"])).preempt(framework_of(NodeFilter()), WEB, asked) == {}


def test_victims_that_are_already_gone_stay_named() -> None:
    asked = {"a": MetaVictims(("gone",), 0)}
    assert verdicts_on(cache_of(["a"])).preempt(framework_of(NodeFilter()), WEB, asked) == asked


def test_the_final_check_gives_the_reason() -> None:
    verdicts = verdicts_on(full_node("a", pod("other", cpu="1", node="a")))
    assert verdicts.last_look(fit(), WEB, "a")[0] == "Insufficient cpu"
    assert verdicts.last_look(fit(), WEB, "gone")[0] == UNKNOWN_NODE
    assert verdicts.last_look(fit(), pod("tiny"), "a")[0] == ""
