"""A trial runs an author's plugin in a whole profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import ConfigurationError, PluginLoadError
from scheduler.framework import FilterPlugin, HttpGet, Needs, PluginArgs, ScorePlugin, Status
from scheduler.testing import Fakes, FakeWeb, ProfileSimulation, node, pod

if TYPE_CHECKING:
    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import NodeInfo


class PreferArgs(PluginArgs):
    label: str = "disk"


class Prefer(ScorePlugin):
    name = "Prefer"
    api_version = 1
    Args = PreferArgs

    def __init__(self, *, args: PreferArgs) -> None:
        self._label = args.label

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 100 if self._label in node.labels else 0


class Asks(FilterPlugin):
    name = "Asks"
    api_version = 1
    needs = Needs(kinds=frozenset({"v1/configmaps"}))
    refresh_seconds = 1.0

    def __init__(self, *, web: HttpGet) -> None:
        self._web = web
        self._closed = b""

    async def refresh(self) -> None:
        self._closed = await self._web.http_get("http://doors")

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        closed = node.name.encode() in self._closed or node.name in node.snapshot.objects("v1/configmaps")
        return Status.unschedulable("closed") if closed else None


class Raises(FilterPlugin):
    name = "Raises"
    api_version = 1

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        raise ValueError("oh")


TWO = (node("a"), node("b", labels={"disk": "ssd"}))


def test_the_plugin_chooses_among_feasible_nodes():
    assert ProfileSimulation(*TWO, plugins=[Prefer]).schedule(pod("web")) == "b"


def test_ties_go_to_the_first_name():
    assert ProfileSimulation(node("b"), node("a")).schedule(pod("web")) == "a"


def test_a_placed_pod_uses_capacity():
    trial = ProfileSimulation(node("a", cpu="1"))

    assert [trial.schedule(pod(name, cpu="1")) for name in ("first", "second")] == ["a", None]


def test_explaining_changes_nothing():
    trial = ProfileSimulation(node("a", cpu="1"))

    results = [trial.explain(pod(name, cpu="1"))["result"] for name in ("first", "second")]

    assert results == ["schedulable", "schedulable"]


def test_given_pods_use_capacity():
    assert (
        ProfileSimulation(node("a", cpu="1"), pod("old", cpu="1", node="a")).schedule(pod("new", cpu="1"))
        is None
    )


def test_only_the_plugins_of_the_author_run():
    trial = ProfileSimulation(node("a", cpu="1"), plugins=[Prefer], only=True)

    verdict: dict[str, Any] = trial.explain(pod("web", cpu="9"))["nodes"]["a"]

    assert verdict == {"feasible": True, "scores": {"Prefer": 0}, "total": 0}


def test_arguments_and_weights_are_as_in_a_configuration():
    trial = ProfileSimulation(
        *TWO,
        plugins=[Prefer],
        only=True,
        args={"Prefer": {"label": "kubernetes.io/hostname"}},
        weights={"Prefer": 3},
    )

    assert trial.explain(pod("web"))["nodes"]["a"]["total"] == 300


def test_invalid_arguments_are_refused_as_in_a_configuration():
    with pytest.raises(ConfigurationError, match="lable"):
        ProfileSimulation(plugins=[Prefer], args={"Prefer": {"lable": "x"}})


def test_a_plugin_gets_background_data_and_other_kinds():
    fakes = Fakes()
    fakes.web = FakeWeb({"http://doors": b"a"})
    others = {"v1/configmaps": {"b": {"data": {}}}}
    trial = ProfileSimulation(node("a"), node("b"), node("c"), plugins=[Asks], fakes=fakes, others=others)

    trial.refresh()

    assert trial.schedule(pod("web")) == "c"
    assert fakes.web.asked == ["http://doors"]


def test_a_plugin_that_fails_is_named():
    with pytest.raises(RuntimeError, match='running "Raises" filter plugin: ValueError: oh'):
        ProfileSimulation(node("a"), plugins=[Raises]).schedule(pod("web"))


def test_a_gated_pod_is_reported_as_gated():
    assert ProfileSimulation(node("a")).explain(pod("web", gates=["example.com/wait"]))["result"] == "gated"


def test_an_incomplete_plugin_is_refused():
    half: Any = type("Half", (FilterPlugin,), {})

    with pytest.raises(PluginLoadError, match='write name = "Half" in the class'):
        ProfileSimulation(plugins=[half])
