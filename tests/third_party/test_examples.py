"""The plugins under manifests/examples/plugins work as described and keep the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.runtime.registry import Registry
from scheduler.testing import CHECKS, Fakes, FakeWeb, ProfileSimulation, node, pod, subject
from scheduler.testing.contract import check_pods_of_one_signature_get_one_verdict
from tests.support.commands import run_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.framework import Plugin

FOLDER = Path(__file__).parents[2] / "manifests" / "examples" / "plugins"
PLUGINS = {file.stem: Registry({}).find(file.name, FOLDER) for file in sorted(FOLDER.glob("*.py"))}
FREE_LICENCE = PLUGINS["free_licence"]
CHEAPEST_NODE = PLUGINS["cheapest_node"]
HEALTHY_HARDWARE = PLUGINS["healthy_hardware"]
GPU_PACKING = PLUGINS["gpu_packing"]


def scores(trial: ProfileSimulation, wanted: Any, plugin: type[Plugin]) -> dict[str, int]:
    nodes = trial.explain(wanted)["nodes"]
    return {name: verdict["scores"][plugin.name] for name, verdict in nodes.items()}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=list(PLUGINS))
def test_an_example_keeps_the_contract(plugin: type[Plugin], check: Callable[[Any], None]):
    each = subject(plugin)
    for kind in plugin.needs.kinds:
        each.table.watch_kind(kind)
    check(each)


def test_an_example_with_an_incomplete_signature_breaks_the_contract():
    forgetful = type("Forgetful", (PLUGINS["keep_off_spot"],), {"signature": lambda _self, _pod: ""})

    with pytest.raises(
        AssertionError, match=r'"example.com/tier":"gold".* have the same signature and different results'
    ):
        check_pods_of_one_signature_get_one_verdict(subject(forgetful))


# Free licences.

NEEDY = {"example.com/licence": "yes"}
SERVER = "https://licences.example.com/seats"


def licensed(name: str, seats: str) -> Any:
    return node(name, annotations={"example.com/licences": seats})


def test_a_node_takes_as_many_pods_as_it_has_licences():
    trial = ProfileSimulation(licensed("two-seats", "2"), node("none"), plugins=[FREE_LICENCE])

    placed = [trial.schedule(pod(name, labels=NEEDY)) for name in ("one", "two", "three")]

    assert placed == ["two-seats", "two-seats", None]


def test_a_pod_that_needs_no_licence_goes_anywhere():
    trial = ProfileSimulation(node("none"), plugins=[FREE_LICENCE])

    assert trial.schedule(pod("web")) == "none"


def test_a_malformed_number_of_licences_rejects_the_node_with_a_reason():
    trial = ProfileSimulation(licensed("odd", "many"), plugins=[FREE_LICENCE])

    verdict = trial.explain(pod("web", labels=NEEDY))["nodes"]["odd"]

    assert verdict["reasons"] == ["node(s) had a malformed example.com/licences"]


def test_a_node_without_a_free_licence_names_the_pods_that_use_them():
    trial = ProfileSimulation(licensed("one-seat", "1"), plugins=[FREE_LICENCE])
    trial.schedule(pod("holder", labels=NEEDY))

    assert trial.explain(pod("web", labels=NEEDY))["nodes"]["one-seat"]["details"] == [
        "of 1 licences 0 are taken outside, the others by default/holder",
        "what would help: one of them given back",
    ]


def test_seats_in_use_on_the_licence_server_are_taken():
    fakes = Fakes()
    fakes.web = FakeWeb({SERVER: json.dumps({"one-seat": 1}).encode()})
    trial = ProfileSimulation(
        licensed("one-seat", "1"),
        plugins=[FREE_LICENCE],
        args={"FreeLicence": {"server": SERVER}},
        fakes=fakes,
    )
    needy = pod("web", labels=NEEDY)
    before = trial.explain(needy)["result"]

    trial.refresh()
    during = trial.explain(needy)["message"]
    fakes.web.pages[SERVER] = b"{}"
    trial.refresh()

    assert before == "schedulable"
    assert "1 node(s) had no free licence" in during
    assert trial.schedule(needy) == "one-seat"


# Cheapest node.


def priced(name: str, kind: str = "", price: str = "") -> Any:
    labels = {"node.kubernetes.io/instance-type": kind} if kind else {}
    return node(name, labels={**labels, **({"example.com/price": price} if price else {})})


PRICES = {
    "v1/configmaps": {"kube-system/node-prices": {"data": {"large": "2.0", "small": "0.5", "odd": "cheap"}}}
}


def test_the_cheapest_node_has_the_best_score_and_the_most_expensive_the_worst():
    nodes = [
        priced("a", "large"),
        priced("b", "small"),
        priced("c", price="1.25"),
        priced("d", "large", "0.5"),
    ]
    trial = ProfileSimulation(*nodes, plugins=[CHEAPEST_NODE], only=True, others=PRICES)

    assert scores(trial, pod("web"), CHEAPEST_NODE) == {"a": 0, "b": 100, "c": 50, "d": 100}


@pytest.mark.parametrize("price", ["-1", "nan", "inf", "free"])
def test_an_invalid_price_counts_as_the_highest(price: str):
    trial = ProfileSimulation(
        priced("a", price=price), priced("b", "small"), plugins=[CHEAPEST_NODE], only=True, others=PRICES
    )

    assert scores(trial, pod("web"), CHEAPEST_NODE) == {"a": 0, "b": 100}


def test_without_any_price_all_nodes_are_equal():
    trial = ProfileSimulation(priced("a", "large"), priced("b"), plugins=[CHEAPEST_NODE], only=True)

    assert scores(trial, pod("web"), CHEAPEST_NODE) == {"a": 0, "b": 0}


# Degraded hardware.


def troubled(name: str, *conditions: str) -> Any:
    found = [{"type": "Ready", "status": "True"}, *({"type": each, "status": "True"} for each in conditions)]
    return node(name, conditions=found)


def test_a_ready_node_with_degraded_hardware_is_rejected():
    marked = node("marked", annotations={"example.com/degraded": "fan 3"})
    trial = ProfileSimulation(troubled("gpu", "GpuXidError"), marked, plugins=[HEALTHY_HARDWARE])

    explanation = trial.explain(pod("web"))

    assert explanation["result"] == "unschedulable"
    assert "2 node(s) had degraded hardware" in explanation["message"]


def test_a_node_with_minor_problems_is_the_second_choice():
    trial = ProfileSimulation(
        troubled("a", "CorrectableMemoryErrors"), troubled("b"), plugins=[HEALTHY_HARDWARE], only=True
    )

    assert scores(trial, pod("web"), HEALTHY_HARDWARE) == {"a": 50, "b": 100}


def test_a_condition_that_is_false_is_no_problem():
    healthy = node("a", conditions=[{"type": "GpuXidError", "status": "False"}])
    trial = ProfileSimulation(healthy, plugins=[HEALTHY_HARDWARE])

    assert trial.schedule(pod("web")) == "a"


# GPUs in whole nodes.

GPU = "nvidia.com/gpu"


def with_gpus(name: str, count: int) -> Any:
    return node(name, cpu="64", allocatable={GPU: str(count)})


def test_pods_with_gpus_fill_one_node_before_the_next():
    trial = ProfileSimulation(
        with_gpus("a", 4), with_gpus("b", 4), plugins=[GPU_PACKING], weights={"GpuPacking": 10}
    )

    small = [trial.schedule(pod(f"small-{number}", requests={GPU: 1})) for number in range(4)]

    assert len(set(small)) == 1
    assert trial.schedule(pod("whole", requests={GPU: 4})) not in small


def test_a_pod_without_gpus_stays_off_gpu_nodes():
    trial = ProfileSimulation(with_gpus("a", 4), node("b"), plugins=[GPU_PACKING], only=True)

    assert scores(trial, pod("web"), GPU_PACKING) == {"a": 0, "b": 100}


# Spot nodes.


@pytest.mark.parametrize(("tier", "where"), [("gold", "own"), ("bronze", "a-spot")])
def test_only_gold_pods_stay_off_spot_nodes(tier: str, where: str):
    trial = ProfileSimulation(
        node("a-spot", labels={"example.com/spot": "yes"}), node("own"), plugins=[PLUGINS["keep_off_spot"]]
    )

    assert trial.schedule(pod("web", labels={"example.com/tier": tier})) == where


def test_the_profile_of_all_examples_can_be_run():
    done = run_command("check", FOLDER / "scheduler.yaml")

    assert done.returncode == 0, done.stderr
