"""A trial runs an author's plugin in a whole profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from scheduler.errors import ConfigurationError, PluginLoadError
from scheduler.framework import (
    FilterPlugin,
    HttpGet,
    Needs,
    PermitPlugin,
    PluginArgs,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    Wait,
    WaitingPods,
)
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


class Holds(PermitPlugin):
    name = "Holds"
    api_version = 1

    def __init__(self, *, waiting: WaitingPods) -> None:
        self._waiting = waiting

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        if "refused" in pod.labels:
            return Status.unschedulable("not today")
        for other in self._waiting.waiting():
            self._waiting.allow(other.uid, self.name)
        return Wait(timeout_seconds=5.0) if "held" in pod.labels else None


class Keeps(ReservePlugin):
    name = "Keeps"
    api_version = 1
    kept: ClassVar[list[str]] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self.kept.append(pod.name)
        return Status.unschedulable("it is taken") if "refused" in pod.labels else None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.kept.remove(pod.name)


class Binds(PreBindPlugin, PostBindPlugin):
    name = "Binds"
    api_version = 1
    bound: ClassVar[list[str]] = []

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.unschedulable("no volume") if "refused" in pod.labels else None

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.bound.append(pod.name)


def test_a_pod_that_permit_rejects_has_no_node_and_uses_no_capacity():
    trial = ProfileSimulation(node("a", cpu="1"), plugins=[Holds])

    assert trial.schedule(pod("no", cpu="1", labels={"refused": ""})) is None
    assert (trial.status.message, trial.status.plugin) == ("not today", "Holds")
    assert trial.schedule(pod("yes", cpu="1")) == "a"


def test_a_pod_that_permit_holds_uses_capacity_until_it_is_allowed_or_rejected():
    trial, held = ProfileSimulation(node("a", cpu="1"), plugins=[Holds]), {"held": ""}
    first, second = pod("first", cpu="1", labels=held), pod("second", cpu="1", labels=held)

    assert trial.schedule(first) is None
    assert trial.held == {"default/first": {"Holds"}}
    assert trial.schedule(second) is None
    assert "Insufficient cpu" in trial.status.message
    trial.reject(first)
    assert trial.held == {}
    assert trial.schedule(second) is None
    assert trial.allow(second) == "a"
    assert trial.held == {}


def test_a_pod_that_the_plugin_allows_is_not_held_any_more():
    trial = ProfileSimulation(node("a"), plugins=[Holds])

    assert trial.schedule(pod("first", labels={"held": ""})) is None
    assert trial.schedule(pod("second")) == "a"
    assert trial.held == {}


def test_a_reservation_that_fails_is_undone():
    Keeps.kept.clear()
    trial = ProfileSimulation(node("a", cpu="1"), plugins=[Keeps])

    assert trial.schedule(pod("no", cpu="1", labels={"refused": ""})) is None
    assert trial.schedule(pod("yes", cpu="1")) == "a"
    assert Keeps.kept == ["yes"]


def test_binding_runs_the_last_points_and_a_failure_gives_the_node_back():
    Binds.bound.clear()
    trial, no, yes = (
        ProfileSimulation(node("a", cpu="1"), plugins=[Binds]),
        pod("no", cpu="1", labels={"refused": ""}),
        pod("yes", cpu="1"),
    )

    assert trial.schedule(no) == "a"
    assert trial.bind(no).message == "no volume"
    assert trial.schedule(yes) == "a"
    assert trial.bind(yes).is_success
    assert Binds.bound == ["yes"]
