"""What the devices of a claim take of their node."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.dynamic_resources.structured import DeviceFeatures, UsedDevice, node_use_of
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import Device
from scheduler.testing.fakes import FakeFeatures

ON = {"DRANodeAllocatableResources": True}
OF_136, OF_137 = (DeviceFeatures.of(FakeFeatures(version, **ON)) for version in ("1.36", "1.37"))
CPU = "cpu"


def mapped(amount: str = "", *, key: str = "", consumed: dict[str, str] | None = None) -> UsedDevice:
    mapping = {
        **({"capacityKey": key} if key else {}),
        **({"allocationMultiplier": amount} if amount else {}),
    }
    return used({"name": "d", "nodeAllocatableResourceMappings": {CPU: mapping}}, consumed)


def used(device: dict[str, Any], consumed: dict[str, str] | None = None) -> UsedDevice:
    return UsedDevice(device["name"], typed_object(device, Device), consumed or {})


def split(consumed: dict[str, str] | None = None, **use: dict[str, str]) -> UsedDevice:
    return used({"name": "d", "nodeAllocatableResources": {CPU: use}}, consumed)


@pytest.mark.parametrize(
    ("devices", "taken"),
    [
        pytest.param([mapped("2")], (("cpu", "2"),), id="a number"),
        pytest.param([mapped("2"), mapped("1500m")], (("cpu", "3500m"),), id="the sum of two devices"),
        pytest.param(
            [mapped("500m", key="slots", consumed={"slots": "3"})], (("cpu", "1500m"),), id="a share"
        ),
        pytest.param([mapped(key="slots", consumed={"slots": "3"})], (("cpu", "3"),), id="a share as it is"),
        pytest.param([mapped("2", key="slots", consumed={"other": "3"})], (), id="a share of something else"),
        pytest.param(
            [mapped("2"), used({"name": "other"})], (("cpu", "2"),), id="a device that takes nothing"
        ),
        pytest.param(
            [mapped("0"), mapped("1Gi")], (("cpu", "1Gi"),), id="the notation of the first that is not zero"
        ),
    ],
)
def test_devices_take_the_sum_of_their_mappings(
    devices: list[UsedDevice], taken: tuple[tuple[str, str], ...]
):
    use = node_use_of(devices, OF_136)

    assert use is not None
    assert (use.mapping, use.problem) == (taken, "")


def test_a_share_needs_an_amount_that_is_consumed():
    for device, features, field in (
        (mapped("1", key="slots"), OF_136, "NodeAllocatableResourceMappings"),
        (
            split(mapping={"capacityKey": "slots", "capacityMultiplier": "1"}),
            OF_137,
            "NodeAllocatableResources",
        ),
    ):
        use = node_use_of([device], features)

        assert use is not None
        assert use.problem == (
            f"device d: ConsumedCapacity is nil, but Capacity key 'slots' is set in {field} for resource cpu"
        )


@pytest.mark.parametrize(
    ("device", "mapping", "overhead"),
    [
        pytest.param(split(mapping={"deviceMultiplier": "2"}), (("cpu", "2"),), (), id="a number"),
        pytest.param(
            split({"slots": "3"}, mapping={"capacityKey": "slots", "capacityMultiplier": "500m"}),
            (("cpu", "1500m"),),
            (),
            id="a share",
        ),
        pytest.param(split(overhead={"perPod": "1"}), (), (("cpu", "1", None),), id="an overhead of the pod"),
        pytest.param(
            split(overhead={"perContainer": "1"}),
            (),
            (("cpu", None, "1"),),
            id="an overhead of each container",
        ),
    ],
)
def test_since_1_37_devices_have_overheads_too(
    device: UsedDevice,
    mapping: tuple[tuple[str, str], ...],
    overhead: tuple[tuple[str, str | None, str | None], ...],
):
    use = node_use_of([device], OF_137)

    assert use is not None
    assert (use.mapping, use.overhead) == (mapping, overhead)


def test_overheads_of_several_devices_add_up():
    use = node_use_of([split(overhead={"perPod": "1", "perContainer": "2"}) for _ in range(3)], OF_137)

    assert use is not None
    assert use.overhead == (("cpu", "3", "6"),)


def test_other_devices_take_nothing():
    assert node_use_of([used({"name": "d"})], OF_136) is None
    assert node_use_of([mapped("2")], OF_137) is None
    assert node_use_of([mapped("2")], DeviceFeatures.of(FakeFeatures("1.36"))) is None
