"""Devices that consume counters of their pool: partitions of one piece of hardware."""

from __future__ import annotations

from typing import Any

from scheduler.testing.devices import (
    DRIVER,
    allocation,
    device_class,
    exactly,
    resource_claim,
)
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, all_of, claim, part, selecting

HERE, THERE = node("here"), node("there")


def partition(name: str, memory: int, **more: Any):
    taken = {"counterSet": "card", "counters": {"memory": {"value": f"{memory}Gi"}}}
    return {"name": name, "consumesCounters": [taken], **more}


def card(*devices: Any, memory: int = 4, driver: str = DRIVER, node_name: str = "here", pool: str = "here"):
    """Return the slices of a pool that has one card with an amount of memory."""
    shared = [{"name": "card", "counters": {"memory": {"value": f"{memory}Gi"}}}]
    return (
        part(f"{pool}-{driver}-card", 2, [], node=node_name, pool=pool, driver=driver, sharedCounters=shared),
        part(f"{pool}-{driver}-devices", 2, devices, node=node_name, pool=pool, driver=driver),
    )


HALVES = partition("half-0", 2), partition("half-1", 2), partition("whole", 4)


def test_partitions_are_allocated_while_their_card_has_counters():
    assert Search(device_class(), claim("one", exactly(count=2)), *card(*HALVES)).devices(HERE) == [
        ["half-0", "half-1"]
    ]
    assert Search(device_class(), claim("one", exactly(count=3)), *card(*HALVES)).devices(HERE) == "none"


def test_consumed_counters_of_a_card_are_not_allocated_again():
    taken = resource_claim("taken", allocated=allocation("half-1", node="here"))
    search = Search(device_class(), taken, claim("one"), *card(*HALVES))

    assert search.devices(HERE) == [["half-0"]]

    search.add(resource_claim("other", allocated=allocation("half-0", node="here")))

    assert search.devices(HERE) == "none"


def test_a_failed_branch_releases_its_counters():
    whole = exactly("whole", selectors=selecting("device.attributes[device.driver].?whole.orValue(false)"))
    devices = partition("half", 2), partition("all", 4, attributes={"whole": {"bool": True}})
    search = Search(device_class(), claim("one", whole), *card(*devices))
    both = Search(device_class(), claim("one", exactly("any"), whole), *card(*devices, memory=6))

    assert search.devices(HERE) == [["all"]]
    assert both.devices(HERE) == [["half", "all"]]


def test_a_replaced_device_releases_its_counters():
    whole = exactly("whole", selectors=selecting("device.attributes[device.driver].?whole.orValue(false)"))
    devices = (
        partition("half", 2),
        {"name": "free"},
        partition("all", 4, attributes={"whole": {"bool": True}}),
    )

    search = Search(device_class(), claim("one", exactly("any"), whole), *card(*devices))

    assert search.devices(HERE) == [["free", "all"]]


def test_a_partition_that_is_too_large_consumes_no_counters():
    search = Search(device_class(), claim("one"), *card(partition("huge", 5), partition("half", 2)))

    assert search.devices(HERE) == [["half"]]


def test_devices_on_other_nodes_consume_counters_of_the_same_card():
    shared = [{"name": "card", "counters": {"memory": {"value": "4Gi"}}}]
    slices = (
        part("card", 3, [], pool="p", allNodes=True, sharedCounters=shared),
        part("here", 3, [partition("a", 3)], pool="p", node="here"),
        part("there", 3, [partition("b", 3)], pool="p", node="there"),
    )
    search = Search(device_class(), claim("one"), *slices)

    assert (search.devices(HERE), search.devices(THERE)) == ([["a"]], [["b"]])

    search.add(resource_claim("taken", allocated=allocation("b", pool="p")))

    assert search.devices(HERE) == "none"


def test_a_card_with_negative_counters_allocates_nothing():
    taken = resource_claim("taken", allocated=allocation("whole", "half-0", node="here"))
    free = {"name": "free", "consumesCounters": []}

    search = Search(device_class(), taken, claim("one"), *card(*HALVES, partition("tiny", 0), free))

    assert search.devices(HERE) == [["free"]]


def test_a_tainted_partition_that_was_evaluated_has_consumed_its_counters():
    taint = {"key": "sick", "effect": "NoSchedule"}
    devices = partition("sick", 3, taints=[taint]), partition("half", 2)

    assert Search(device_class(), claim("one"), *card(*devices)).devices(HERE) == "none"
    assert Search(device_class(), claim("one"), *card(*reversed(devices))).devices(HERE) == [["half"]]


def test_the_first_of_two_pools_of_one_name_has_the_counters():
    first = "a.example.com"
    mine = f'device.driver == "{DRIVER}"'
    slices = (*card(partition("a", 1), memory=2, driver=first), *card(partition("b", 4), memory=8))
    other = exactly("other", selectors=selecting(mine))

    assert Search(device_class(), claim("one", other), *slices).devices(HERE) == [["b"]]
    assert Search(device_class(), claim("one", exactly(), other), *slices).devices(HERE) == "none"


def test_two_drivers_with_pools_of_one_name_have_their_own_counters_since_1_37():
    cards = (
        *card(partition("a", 4), memory=4, driver="a.example.com"),
        *card(partition("b", 8), memory=8, driver="b.example.com"),
    )
    cluster = device_class(), *cards, claim("one", exactly(count=2))

    assert Search(*cluster, features=FakeFeatures("1.36")).devices(HERE) == "none"
    assert Search(*cluster, features=FakeFeatures("1.37")).devices(HERE) == [["a", "b"]]


def test_counters_of_another_node_do_not_make_a_pool_visible_since_1_37():
    counters, devices = card(*HALVES, node_name="there", pool="far")
    missing = part("far-rest", 2, [{"name": "gpu-0"}], node="here", pool="near")
    missing["spec"]["pool"]["resourceSliceCount"] = 1
    cluster = device_class(), counters, missing, claim("one", all_of())
    words = "is currently being updated"

    assert words in str(Search(*cluster, features=FakeFeatures("1.36")).devices(HERE))
    assert Search(*cluster, features=FakeFeatures("1.37")).devices(HERE) == [["gpu-0"]]
    assert words in str(Search(*cluster, features=FakeFeatures("1.37")).devices(THERE))
    both = Search(device_class(), counters, devices, claim("one"), features=FakeFeatures("1.37"))
    assert both.devices(THERE) == [["half-0"]]


def test_devices_use_counters_of_a_slice_for_other_nodes():
    counters, devices = card(*HALVES, node_name="there", pool="far")
    devices["spec"]["nodeName"] = "here"
    for version in ("1.36", "1.37"):
        cluster = device_class(), counters, devices, claim("one", exactly(count=3))
        assert Search(*cluster, features=FakeFeatures(version)).devices(HERE) == "none"
        two = device_class(), counters, devices, claim("one", exactly(count=2))
        assert Search(*two, features=FakeFeatures(version)).devices(HERE) == [["half-0", "half-1"]]
