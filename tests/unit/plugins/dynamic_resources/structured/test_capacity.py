"""Devices that are allocated in shares, and how much of them a request consumes."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.dynamic_resources.structured import DeviceFeatures
from plugins.dynamic_resources.structured.requests import UnfitCapacityError, consumption
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import CapacityRequirements, Device
from scheduler.testing.devices import allocation, device_class, exactly, resource_claim, resource_slice
from scheduler.testing.fakes import FakeFeatures
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


NEW = DeviceFeatures.of(FakeFeatures("1.37"))
WHOLE = DeviceFeatures.of(FakeFeatures("1.37", DRAFractionalCapacityRange=False))
TENTHS = {"default": "200m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}
LARGEST, BEYOND = "9223372036854775807", "9223372036854775808"
FROM_ZERO = {"default": "0", "validRange": {"min": "0", "step": "2"}}
UNFIT = 'capacity "memory": capacity request cannot be represented in the device\'s range arithmetic: '


def consumed_of(
    policy: dict[str, Any] | None, asked: str | None, features: DeviceFeatures, value: str = "1"
) -> str | None:
    """Return what a request consumes of a capacity, or the error."""
    capacity: dict[str, Any] = {"value": value, **({"requestPolicy": policy} if policy else {})}
    wanted = CapacityRequirements({"memory": asked} if asked else {})
    try:
        found = consumption(
            typed_object(device("gpu-0", capacity={"memory": capacity}), Device), wanted, features
        )
    except UnfitCapacityError as error:
        return str(error)
    return None if found is None else found["memory"].written


@pytest.mark.parametrize(
    ("asked", "consumed"),
    [
        pytest.param("100m", "200m", id="the least"),
        pytest.param("250m", "300m", id="up to the next step"),
        pytest.param("300m", "300m", id="on a step"),
        pytest.param("950m", "1", id="up to the most, which is whole"),
        pytest.param("1100m", None, id="more than the most"),
        pytest.param("250500u", UNFIT + "request 250500u is not a representable milli value", id="too fine"),
    ],
)
def test_ranges_with_fractions_are_computed_in_thousandths(asked: str, consumed: str | None):
    assert consumed_of(TENTHS, asked, NEW) == consumed


@pytest.mark.parametrize(
    ("step", "asked", "consumed"),
    [
        pytest.param("2Ki", "3000", "4Ki", id="binary"),
        pytest.param("1k", "1500", "2k", id="decimal"),
        pytest.param("1e3", "1500", "2e3", id="with an exponent"),
        pytest.param("500m", "1200m", "1500m", id="a fraction"),
        pytest.param("5e-1", "1200m", "1500e-3", id="a fraction with an exponent"),
    ],
)
def test_a_rounded_amount_has_the_notation_of_the_step(step: str, asked: str, consumed: str):
    policy = {"default": "0", "validRange": {"min": "0", "step": step}}

    assert consumed_of(policy, asked, NEW, "8Ki") == consumed


@pytest.mark.parametrize("features", [NEW, WHOLE])
def test_ranges_of_whole_numbers_round_equally_with_and_without_fractions(features: DeviceFeatures):
    policy = {"default": "1", "validRange": {"min": "1", "max": "9", "step": "4"}}

    assert [consumed_of(policy, asked, features, "9") for asked in ("1", "2", "5", "6", "9", "10")] == [
        "1",
        "5",
        "5",
        "9",
        "9",
        None,
    ]


@pytest.mark.parametrize(
    ("features", "policy", "asked", "value", "consumed"),
    [
        pytest.param(
            WHOLE, FROM_ZERO, BEYOND, BEYOND, UNFIT + f"request {BEYOND} exceeds MaxInt64", id="too large"
        ),
        pytest.param(
            WHOLE,
            FROM_ZERO,
            LARGEST,
            BEYOND,
            UNFIT + f"rounding request {LARGEST} up to the next step passes MaxInt64",
            id="too large after rounding",
        ),
        pytest.param(
            WHOLE,
            {"default": "1", "validRange": {"min": "1", "step": "2"}},
            "9223372036854775806",
            LARGEST,
            LARGEST,
            id="the largest",
        ),
        pytest.param(
            NEW,
            FROM_ZERO,
            LARGEST,
            BEYOND,
            UNFIT + f"request {LARGEST} is not a representable milli value",
            id="too large for thousandths",
        ),
        pytest.param(
            NEW,
            None,
            "-1",
            "1",
            'capacity "memory": capacity value is negative',
            id="negative",
        ),
    ],
)
def test_requests_that_no_device_can_represent_are_errors(
    features: DeviceFeatures, policy: Any, asked: str, value: str, consumed: str
):
    assert consumed_of(policy, asked, features, value) == consumed


def test_a_request_that_cannot_be_represented_fails_the_attempt():
    policy = {"default": "0", "validRange": {"min": "0", "step": "2"}}
    memory = {"value": BEYOND, "requestPolicy": policy}
    sharing = {**device("gpu-0", capacity={"memory": memory}), "allowMultipleAllocations": True}
    cluster = device_class(), resource_slice("here", [sharing]), claim("one", asking("r0", LARGEST))

    found = Search(*cluster, features=FakeFeatures("1.37")).devices(HERE)

    assert found == f"claim default/one: {UNFIT}request {LARGEST} is not a representable milli value"


def test_an_error_of_one_capacity_comes_before_a_lack_of_another():
    policy = {"validRange": {"min": "0", "step": "2"}}
    capacity = {"a": {"value": "1"}, "memory": {"value": BEYOND, "requestPolicy": policy}}
    wanted = CapacityRequirements({"a": "2", "memory": LARGEST})

    with pytest.raises(UnfitCapacityError):
        consumption(typed_object(device("gpu-0", capacity=capacity), Device), wanted, WHOLE)


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
