"""Compatibility groups: only devices that have one in common consume the same counters together.

Source:
    KEP-5963, DRA Device Compatibility Groups; the devices are those of its examples.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.devices import allocation, device_class, exactly, resource_claim
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, claim, part, selecting

HERE = node("here")
ON = FakeFeatures("1.37", DRADeviceCompatibilityGroups=True)
OFF = FakeFeatures("1.37")


def device(name: str, *groups: str, counter_set: str = "card", **more: Any) -> dict[str, Any]:
    taken: dict[str, Any] = {"counterSet": counter_set, "counters": {"units": {"value": "25"}}}
    if groups:
        taken["compatibilityGroups"] = list(groups)
    return {"name": name, "consumesCounters": [taken], "attributes": {"type": {"string": name}}, **more}


FOO, BAR, BAZ, PLAIN = (
    device("foo", "foo", "all"),
    device("bar", "bar", "all"),
    device("baz", "baz"),
    device("plain"),
)


def search(
    *objects: Any, devices: tuple[Any, ...] = (FOO, BAR, BAZ, PLAIN), features: FakeFeatures = ON
) -> Search:
    shared = [{"name": name, "counters": {"units": {"value": "100"}}} for name in ("card", "other")]
    slices = (
        part("counters", 2, [], node="here", pool="here", sharedCounters=shared),
        part("devices", 2, devices, node="here", pool="here"),
    )
    return Search(device_class(), *slices, *objects, features=features)


def asking(name: str, *types: str) -> dict[str, Any]:
    """Return a claim for one device of each type."""
    wanted = [
        exactly(f"r{place}", selectors=selecting(f"device.attributes[device.driver].type == '{each}'"))
        for place, each in enumerate(types)
    ]
    return claim(name, *wanted)


def holding(name: str, **groups: Any) -> dict[str, Any]:
    """Return a claim that holds a device, with the groups of its counter set as they were written."""
    written = {"compatibilityGroups": groups} if groups else {}
    return resource_claim(f"of-{name}", allocated=allocation(name, node="here", **written))


@pytest.mark.parametrize(
    ("held", "wanted", "fits"),
    [
        (holding("foo", card=["foo", "all"]), "bar", True),
        (holding("foo", card=["foo", "all"]), "baz", False),
        (holding("foo", card=["foo", "all"]), "plain", False),
        (holding("plain"), "foo", False),
        (holding("plain"), "baz", False),
        (holding("gone", card=["baz"]), "foo", False),
        (holding("foo", card=["baz"]), "bar", False),
    ],
    ids=[
        "a common group",
        "no common group",
        "only the other has groups",
        "only this one has groups",
        "only this one has a group",
        "the other is not published any more",
        "the groups of the other have changed since",
    ],
)
def test_a_device_needs_a_group_in_common_with_allocated_devices(held: Any, wanted: str, fits: bool):
    assert search(held, asking("one", wanted)).devices(HERE) == ([[wanted]] if fits else "none")


def test_devices_without_groups_are_compatible():
    plain = device("another")
    it = search(holding("plain"), asking("one", "another"), devices=(PLAIN, plain))

    assert it.devices(HERE) == [["another"]]


def test_groups_of_an_allocation_count_if_no_published_device_has_groups_any_more():
    it = search(holding("foo", card=["foo"]), asking("one", "plain"), devices=(device("foo"), PLAIN))

    assert it.devices(HERE) == "none"


def test_all_devices_together_need_one_group_in_common():
    three = device("ab", "a", "b"), device("bc", "b", "c"), device("ca", "c", "a")

    assert search(asking("one", "ab", "bc"), devices=three).devices(HERE) == [["ab", "bc"]]
    assert search(asking("one", "ab", "bc", "ca"), devices=three).devices(HERE) == "none"


def test_claims_of_one_pod_need_a_group_in_common():
    assert search(asking("one", "foo"), asking("two", "bar")).devices(HERE) == [["foo"], ["bar"]]
    assert search(asking("one", "foo"), asking("two", "baz")).devices(HERE) == "none"


def test_devices_of_different_counter_sets_are_not_compared():
    elsewhere = device("baz", "baz", counter_set="other")

    assert search(asking("one", "foo", "baz"), devices=(FOO, elsewhere)).devices(HERE) == [["foo", "baz"]]


def test_a_search_tries_other_devices_instead_of_incompatible_ones():
    it = search(
        claim("one", exactly(count=2)), devices=(device("a", "x"), device("b", "y"), device("c", "y"))
    )

    assert it.devices(HERE) == [["b", "c"]]


def test_the_groups_of_a_device_are_written_with_its_allocation():
    (found,) = search(asking("one", "foo")).results(HERE)
    (plain,) = search(asking("one", "plain")).results(HERE)

    assert found["devices"]["results"][0]["compatibilityGroups"] == {"card": ["foo", "all"]}
    assert "compatibilityGroups" not in plain["devices"]["results"][0]


def test_a_released_device_does_not_matter_any_more():
    it = search(holding("foo", card=["foo", "all"]), asking("one", "baz"))
    allocator = it.allocator()
    assert allocator.allocate(HERE, it.claims) is None

    it.allocated.set("uid-of-default-of-foo", None)

    assert allocator.allocate(HERE, it.claims) is not None
    assert it.allocated.groups == {}


@pytest.mark.parametrize(
    ("held", "wanted", "fits"),
    [
        ((), "foo", False),
        ((), "plain", True),
        ((holding("foo", card=["foo", "all"]),), "plain", False),
    ],
    ids=["with groups", "without groups", "beside a device with groups"],
)
def test_without_the_gate_devices_with_groups_are_not_allocated(held: Any, wanted: str, fits: bool):
    it = search(*held, asking("one", wanted), features=OFF)

    assert it.devices(HERE) == ([[wanted]] if fits else "none")


def test_versions_before_1_37_do_not_know_groups():
    it = search(holding("foo", card=["foo", "all"]), asking("one", "baz"), features=FakeFeatures("1.36"))

    assert it.devices(HERE) == [["baz"]]
    assert "compatibilityGroups" not in it.results(HERE)[0]["devices"]["results"][0]
