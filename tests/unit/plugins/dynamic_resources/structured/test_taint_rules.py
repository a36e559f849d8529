"""DeviceTaintRules taint devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.testing.devices import DRIVER, device_class, exactly, resource_slice, taint_rule
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, claim

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = node("here")
ON = FakeFeatures("1.37")
ALL_GIVEN = [["gpu-0", "gpu-1"]]


def searching(*rules: object, features: FakeFeatures = ON, tolerations: object = ()) -> Search:
    wanted = claim("one", exactly("r0", 2, tolerations=list(tolerations)))  # type: ignore[call-overload]
    return Search(device_class(), resource_slice("here", 2), wanted, *rules, features=features)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        pytest.param({}, True, id="all devices"),
        pytest.param({"driver": DRIVER}, True, id="a driver"),
        pytest.param({"driver": "other.example.com"}, False, id="another driver"),
        pytest.param({"pool": "here"}, True, id="a pool"),
        pytest.param({"pool": "there"}, False, id="another pool"),
        pytest.param({"device": "gpu-1"}, True, id="a device"),
        pytest.param({"device": "gpu-7"}, False, id="another device"),
        pytest.param({"driver": DRIVER, "pool": "here", "device": "gpu-0"}, True, id="all three"),
        pytest.param({"driver": DRIVER, "pool": "there", "device": "gpu-0"}, False, id="one is wrong"),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(selector: Mapping[str, str], is_selected: bool):
    assert searching(taint_rule("broken", selector)).devices(HERE) == ("none" if is_selected else ALL_GIVEN)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
def test_only_taints_with_an_effect_exclude_devices(effect: str):
    found = searching(taint_rule("broken", {}, effect=effect)).devices(HERE)

    assert found == (ALL_GIVEN if effect == "None" else "none")


def test_a_tolerated_rule_excludes_no_device():
    search = searching(taint_rule("broken", {}), tolerations=[{"key": "broken", "operator": "Exists"}])

    assert search.devices(HERE) == ALL_GIVEN


def test_each_rule_and_the_driver_add_taints():
    tainted = {"name": "gpu-0", "taints": [{"key": "own", "effect": "NoSchedule"}]}
    rules = taint_rule("a", {}, "a"), taint_rule("b", {"device": "gpu-0"}, "b")
    search = Search(resource_slice("here", [tainted, {"name": "gpu-1"}]), *rules, features=ON)
    search.inventory.refresh()
    (pool,) = search.inventory.view_of(HERE)

    assert [[taint.key for taint in each.device.taints] for each in pool.devices] == [
        ["own", "a", "b"],
        ["a"],
    ]


@pytest.mark.parametrize(
    ("version", "gates", "found"),
    [
        pytest.param("1.35", {}, ALL_GIVEN, id="off by default in 1.35"),
        pytest.param("1.35", {"DRADeviceTaints": True, "DRADeviceTaintRules": True}, "none", id="on in 1.35"),
        pytest.param("1.36", {}, ALL_GIVEN, id="off by default in 1.36"),
        pytest.param("1.36", {"DRADeviceTaintRules": True}, "none", id="on in 1.36"),
        pytest.param("1.37", {}, "none", id="on by default in 1.37"),
        pytest.param("1.37", {"DRADeviceTaintRules": False}, ALL_GIVEN, id="off in 1.37"),
        pytest.param(
            "1.37",
            {"DRADeviceTaintRules": False, "DRADeviceTaints": False},
            ALL_GIVEN,
            id="no taints in 1.37",
        ),
    ],
)
def test_the_version_and_the_gates_decide_whether_rules_count(
    version: str, gates: dict[str, bool], found: object
):
    search = searching(taint_rule("broken", {}), features=FakeFeatures(version, **gates))

    assert search.devices(HERE) == found


@pytest.mark.parametrize(("version", "found"), [("1.36", "none"), ("1.37", ALL_GIVEN)])
def test_a_rule_without_a_selector_selects_all_devices_until_1_36(version: str, found: object):
    search = searching(taint_rule("broken", None), features=FakeFeatures(version, DRADeviceTaintRules=True))

    assert search.devices(HERE) == found


def test_changed_and_deleted_rules_have_an_effect_at_once():
    search = searching()
    assert search.devices(HERE) == ALL_GIVEN

    search.add(taint_rule("broken", {"pool": "here"}))
    assert search.devices(HERE) == "none"

    search.add(taint_rule("broken", {"pool": "there"}))
    assert search.devices(HERE) == ALL_GIVEN

    search.add(taint_rule("broken", {"pool": "here"}))
    assert search.devices(HERE) == "none"

    del search.rules["broken"]
    assert search.devices(HERE) == ALL_GIVEN


def test_a_changed_rule_affects_only_the_pools_that_it_selects():
    search = Search(resource_slice("here"), resource_slice("there"), features=ON)
    search.inventory.refresh()
    search.inventory.view_of(HERE)
    before = search.inventory.view_of(node("there"))

    search.add(taint_rule("broken", {"pool": "here"}))
    search.inventory.refresh()

    assert search.inventory.view_of(node("there")) == before
    assert search.inventory.dropped == 1


def test_an_invalid_rule_is_left_out():
    broken = taint_rule("broken", {})
    broken["spec"]["taint"] = "NoSchedule"

    assert searching(broken).devices(HERE) == ALL_GIVEN
