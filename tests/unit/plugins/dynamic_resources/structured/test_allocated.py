"""The allocated devices."""

from __future__ import annotations

from typing import Any

from plugins.dynamic_resources.structured import AllocatedDevices, DeviceID
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import AllocationResult
from scheduler.testing.devices import DRIVER, allocation

GPU = DeviceID(DRIVER, "here", "gpu-0")
GIB = 1024**3 * 10**9


def result(*devices: str, **more: Any) -> AllocationResult:
    return typed_object(allocation(*devices, node="here", **more), AllocationResult)


def share(memory: str) -> AllocationResult:
    return result("gpu-0", shareID="a", consumedCapacity={"memory": memory})


def test_a_device_is_allocated_until_its_last_claim_releases_it():
    allocated = AllocatedDevices()
    allocated.set("one", result("gpu-0", "gpu-1"))
    allocated.set("two", result("gpu-0"))

    allocated.set("one", result("gpu-1"))
    assert allocated.is_allocated(GPU)

    allocated.set("two", None)
    assert not allocated.is_allocated(GPU)
    assert list(allocated.whole) == [GPU._replace(device="gpu-1")]


def test_admin_access_allocates_nothing():
    allocated = AllocatedDevices()
    allocated.set("one", result("gpu-0", adminAccess=True))

    assert not allocated.is_allocated(GPU)
    assert not allocated.changes


def test_shares_of_a_device_add_up():
    allocated = AllocatedDevices()
    allocated.set("one", share("2Gi"))
    allocated.set("two", share("512Mi"))

    assert allocated.is_allocated(GPU)
    assert GPU not in allocated.whole
    assert allocated.consumed == {GPU: {"memory": 5 * GIB // 2}}

    allocated.set("two", share("1Gi"))
    allocated.set("one", None)
    assert allocated.consumed == {GPU: {"memory": GIB}}

    allocated.set("two", None)
    assert not allocated.is_allocated(GPU)
    assert not allocated.consumed


def test_changed_pools_are_listed_since_a_given_change():
    allocated = AllocatedDevices()
    allocated.set("one", result("gpu-0"))
    before = allocated.changes
    assert allocated.changed_since(before) == frozenset()

    allocated.set("two", typed_object(allocation("gpu-0", node="there"), AllocationResult))
    assert {each.pool for each in allocated.changed_since(before) or ()} == {"there"}

    for _ in range(3000):
        allocated.set("one", None)
        allocated.set("one", result("gpu-0"))
    assert allocated.changed_since(before) is None
