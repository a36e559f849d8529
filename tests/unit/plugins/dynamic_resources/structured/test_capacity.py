"""Devices that are allocated in shares, and how much of them a request consumes."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.dynamic_resources.structured.requests import consumption
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import CapacityRequirements, Device
from scheduler.testing.devices import allocation, device_class, exactly, resource_claim, resource_slice
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, all_of, claim, device

HERE = node("here")
RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "6Gi", "step": "2Gi"}}
NO_STEP = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "6Gi"}}
VALUES = {"default": "1Gi", "validValues": ["1Gi", "4Gi"]}


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        pytest.param(None, None, "8Gi", id="all of it by default"),
        pytest.param(None, "3Gi", "3Gi", id="the requested amount"),
        pytest.param(None, "8Gi", "8Gi", id="as much as there is"),
        pytest.param(None, "9Gi", None, id="more than there is"),
        pytest.param(NO_STEP, None, "1Gi", id="the default"),
        pytest.param(NO_STEP, "100Mi", "1Gi", id="the least"),
        pytest.param(NO_STEP, "1500Mi", "1500Mi", id="within the range"),
        pytest.param(NO_STEP, "6Gi", "6Gi", id="the most"),
        pytest.param(NO_STEP, "7Gi", None, id="more than the most"),
        pytest.param(RANGE, "1Gi", "1Gi", id="on the first step"),
        pytest.param(RANGE, "1025Mi", "3Gi", id="up to the next step"),
        pytest.param(RANGE, "5Gi", "5Gi", id="on the last step"),
        pytest.param(RANGE, "5500Mi", None, id="beyond the last step"),
        pytest.param({"validRange": {"min": "1", "step": "3"}}, "2", "4", id="steps of few"),
        pytest.param({"validRange": {"min": "0", "step": "5"}}, "1200m", "5", id="steps from nothing"),
        pytest.param(VALUES, "1Gi", "1Gi", id="a valid value"),
        pytest.param(VALUES, "2Gi", "4Gi", id="up to the next valid value"),
        pytest.param(VALUES, "5Gi", None, id="beyond all valid values"),
        pytest.param({"default": "2Gi", "validValues": ["1Gi"]}, None, "2Gi", id="a default is always valid"),
        pytest.param({"default": "1Gi"}, "3Gi", "3Gi", id="a policy of a default only"),
        pytest.param({"default": "9Gi"}, None, None, id="a default that is more than there is"),
    ],
)
def test_the_capacity_that_a_request_consumes(
    policy: dict[str, Any] | None, asked: str | None, consumed: str | None
):
    capacity: dict[str, Any] = {"value": "8Gi", **({"requestPolicy": policy} if policy else {})}
    wanted = CapacityRequirements({"memory": asked} if asked else {})

    found = consumption(typed_object(device("gpu-0", capacity={"memory": capacity}), Device), wanted)

    assert (None if found is None else found["memory"].written) == consumed


def test_a_capacity_that_a_device_lacks_is_not_allocated():
    assert consumption(Device(), CapacityRequirements({"memory": "1"})) is None
    assert consumption(Device(), None) == {}


def shared(name: str = "gpu-0", memory: str = "8Gi", **more: Any):
    return {**device(name, capacity={"memory": memory}), "allowMultipleAllocations": True, **more}


def asking(name: str, memory: str, count: int = 1, **more: Any):
    return exactly(name, count, capacity={"requests": {"memory": memory}}, **more)


def share(name: str, memory: str):
    return resource_claim(
        name,
        allocated=allocation("gpu-0", node="here", shareID=name, consumedCapacity={"memory": memory}),
    )


def test_a_device_is_shared_while_it_has_capacity():
    cluster = device_class(), resource_slice("here", [shared()])
    search = Search(*cluster, claim("one", asking("r0", "3Gi"), asking("r1", "3Gi")))

    assert search.devices(HERE) == [["gpu-0", "gpu-0"]]
    assert Search(*cluster, claim("one", asking("r0", "3Gi"), asking("r1", "6Gi"))).devices(HERE) == "none"
    assert search.results(HERE)[0]["devices"]["results"] == [
        {
            "request": f"r{place}",
            "driver": "gpu.example.com",
            "pool": "here",
            "device": "gpu-0",
            "shareID": f"share-{place}",
            "consumedCapacity": {"memory": "3Gi"},
        }
        for place in (0, 1)
    ]


def test_allocated_shares_are_not_allocated_again():
    cluster = device_class(), resource_slice("here", [shared()])
    search = Search(*cluster, share("a", "3Gi"), share("b", "3Gi"), claim("one", asking("r0", "3Gi")))

    assert search.devices(HERE) == "none"

    search.allocated.set("uid-of-default-a", None)

    assert search.devices(HERE) == [["gpu-0"]]


def test_one_request_gets_a_device_once():
    search = Search(device_class(), resource_slice("here", [shared()]), claim("one", asking("r0", "1Gi", 2)))

    assert search.devices(HERE) == "none"


def test_without_shares_capacity_only_selects_devices():
    small, large = device("small", capacity={"memory": "1Gi"}), device("large", capacity={"memory": "4Gi"})
    search = Search(device_class(), resource_slice("here", [small, large]), claim("one", asking("r0", "2Gi")))

    assert search.devices(HERE) == [["large"]]
    assert "consumedCapacity" not in search.results(HERE)[0]["devices"]["results"][0]


def test_a_share_is_released_if_its_branch_fails():
    wanted = claim("one", asking("r0", "5Gi"), asking("r1", "8Gi"))
    search = Search(device_class(), resource_slice("here", [shared(), shared("gpu-1", "9Gi")]), wanted)

    assert search.devices(HERE) == [["gpu-0", "gpu-1"]]

    reverse = claim("one", asking("r0", "5Gi"), asking("r1", "9Gi"), asking("r2", "3Gi"))
    search = Search(device_class(), resource_slice("here", [shared("gpu-1", "9Gi"), shared()]), reverse)

    assert search.devices(HERE) == [["gpu-0", "gpu-1", "gpu-0"]]


def test_all_devices_are_those_with_the_capacity():
    search = Search(
        device_class(),
        resource_slice("here", [shared(), shared("gpu-1", "1Gi"), shared("gpu-2")]),
        share("a", "3Gi"),
        claim("one", all_of(capacity={"requests": {"memory": "6Gi"}})),
    )

    assert search.devices(HERE) == [["gpu-2"]]


def test_a_shareable_device_without_capacities_is_allocated_any_number_of_times():
    everybody = {"name": "gpu-0", "allowMultipleAllocations": True}
    search = Search(
        device_class(), resource_slice("here", [everybody]), claim("one", exactly(), exactly("r1"))
    )

    assert search.devices(HERE) == [["gpu-0", "gpu-0"]]


def test_shares_of_a_partition_consume_counters_of_its_card_once():
    card = [{"name": "card", "counters": {"memory": {"value": "8Gi"}}}]
    taken = [{"counterSet": "card", "counters": {"memory": {"value": "8Gi"}}}]
    slices = (
        resource_slice("here", [shared(consumesCounters=taken)]),
        resource_slice("here", [], name="card", sharedCounters=card),
    )
    for each in slices:
        each["spec"]["pool"]["resourceSliceCount"] = 2
    search = Search(device_class(), *slices, claim("one", asking("r0", "3Gi"), asking("r1", "3Gi")))

    assert search.devices(HERE) == [["gpu-0", "gpu-0"]]

    search.add(share("a", "2Gi"))

    assert search.devices(HERE) == [["gpu-0", "gpu-0"]]
