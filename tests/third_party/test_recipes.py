"""The recipes of docs/recipes.md work as described and keep the contract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.runtime.registry import Registry
from scheduler.testing import CHECKS, ProfileSimulation, node, pod, subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework import Plugin

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests" / "examples" / "recipes"
PLUGINS = {file.stem: Registry({}).find(file.name, FOLDER) for file in sorted(FOLDER.glob("*.py"))}
CRITICAL = {"example.com/latency": "critical"}
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=list(PLUGINS))
def test_a_recipe_keeps_the_contract(plugin: type[Plugin], check: Callable[[Any], None]):
    each = subject(plugin)
    for kind in plugin.needs.kinds:
        each.table.watch_kind(kind)
    check(each)


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.name)
def test_the_page_shows_every_recipe(file: Path):
    if file.suffix in {".py", ".yaml"}:
        assert f"manifests/examples/recipes/{file.name}" in (ROOT / "docs" / "recipes.md").read_text()


def test_a_node_with_the_annotation_of_a_team_takes_only_pods_of_the_team():
    trial = ProfileSimulation(
        node("fenced", annotations={"example.com/team": "red"}), plugins=[PLUGINS["team_fence"]]
    )

    assert trial.schedule(pod("stranger")) is None
    assert trial.schedule(pod("blue", labels={"example.com/team": "blue"})) is None
    assert trial.schedule(pod("red", labels={"example.com/team": "red"})) == "fenced"


def test_a_critical_pod_does_not_go_beside_a_noisy_one():
    trial = ProfileSimulation(node("a"), plugins=[PLUGINS["quiet_neighbours"]])
    trial.schedule(pod("batch", labels={"example.com/noisy": "true"}))

    assert trial.schedule(pod("critical", labels=CRITICAL)) is None
    assert trial.schedule(pod("other")) == "a"


def test_a_zone_that_the_config_map_names_is_closed():
    closed = {"v1/configmaps": {"kube-system/closed-zones": {"data": {"b": "repair"}}}}
    trial = ProfileSimulation(
        node("in-a", labels={ZONE: "a"}),
        node("in-b", labels={ZONE: "b"}),
        plugins=[PLUGINS["closed_zones"]],
        others=closed,
    )

    nodes = trial.explain(pod("web"))["nodes"]

    assert (nodes["in-a"]["feasible"], nodes["in-b"]["feasible"]) == (True, False)
    assert nodes["in-b"]["reasons"] == ["node(s) were in a closed zone"]


def test_without_the_config_map_every_zone_is_open():
    trial = ProfileSimulation(node("in-b", labels={ZONE: "b"}), plugins=[PLUGINS["closed_zones"]])

    assert trial.schedule(pod("web")) == "in-b"


def test_pods_of_a_service_are_spread_over_nodes():
    services = {"v1/services": {"default/shop": {"spec": {"selector": {"app": "shop"}}}}}
    trial = ProfileSimulation(
        node("a"), node("b"), node("c"), plugins=[PLUGINS["spread_services"]], only=True, others=services
    )

    placed = {trial.schedule(pod(f"shop-{number}", labels={"app": "shop"})) for number in range(3)}

    assert placed == {"a", "b", "c"}


def test_a_pod_without_a_service_is_not_scored():
    trial = ProfileSimulation(node("a"), node("b"), plugins=[PLUGINS["spread_services"]], only=True)

    assert "SpreadServices" not in trial.explain(pod("web"))["nodes"]["a"].get("scores", {})
