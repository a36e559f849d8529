"""The allocated devices, updated change by change, compared with a scan of all claims after each change."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from plugins.dynamic_resources.devices import Devices
from plugins.dynamic_resources.structured import DeviceID
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.objects.dynamic_resources import AllocationResult, ResourceClaim
from scheduler.snapshot import ClusterTable
from scheduler.testing.devices import DRIVER, allocation, resource_claim, watch_devices
from tests.support.builders import pod

WEB = pod("web")

CLAIMS = "resource.k8s.io/v1/resourceclaims"
NAMES = ["a", "b", "c"]
DEVICES = ["gpu-0", "gpu-1"]

names, devices = st.sampled_from(NAMES), st.sampled_from([*DEVICES, None])
steps = st.one_of(
    st.tuples(st.just("show"), names, devices, st.integers(0, 1)),
    st.tuples(st.just("assume"), names, devices, st.integers(0, 1)),
    st.tuples(st.just("restore"), names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("begin"), names, st.sampled_from(DEVICES), st.integers(0, 1)),
    st.tuples(st.just("end"), names, st.integers(0, 1)),
    st.tuples(st.just("look")),
    st.tuples(st.just("many")),
)


def claim(name: str, device: str | None, number: int) -> dict[str, Any]:
    given = None if device is None else allocation(device, node="n")
    return resource_claim(name, allocated=given, uid=f"{name}-{number}")


class Story:
    """A random history of claims, and the expected devices."""

    def __init__(self) -> None:
        table = ClusterTable()
        watch_devices(table)
        self.store, self.kept = table.watch_kind(CLAIMS), Devices.of(TableObjects(table))
        self.in_flight: dict[str, str] = {}  # uid -> device

    def show(self, name: str, device: str | None, number: int) -> None:
        self.store[f"default/{name}"] = claim(name, device, number)

    def assume(self, name: str, device: str | None, number: int) -> None:
        self.store.assume(f"default/{name}", claim(name, device, number))

    def restore(self, name: str) -> None:
        self.store.restore(f"default/{name}")

    def delete(self, name: str) -> None:
        self.store.pop(f"default/{name}", None)

    def begin(self, name: str, device: str, number: int) -> None:
        """Allocate a device to a claim without one."""
        if not self._held_by(f"{name}-{number}"):
            self.in_flight[f"{name}-{number}"] = device
            given = msgspec.convert(allocation(device, node="n"), AllocationResult)
            self.kept.begin(f"{name}-{number}", given, WEB)

    def end(self, name: str, number: int) -> None:
        self.in_flight.pop(f"{name}-{number}", None)
        self.kept.end(msgspec.convert(claim(name, None, number), ResourceClaim), WEB)

    def many(self) -> None:
        """Make more changes than the log holds."""
        for _ in range(5000):
            self.store["default/z"] = resource_claim("z")

    def look(self) -> None:
        """Compare: the API server's state of a claim counts; without one, the allocation in flight."""
        taken = {device for uid, device in self.in_flight.items() if not self._held_by(uid)}
        taken |= {device for each in self.store.values() for device in _devices(each)}
        kept = self.kept.allocated
        assert {each for each in DEVICES if kept.is_allocated(DeviceID(DRIVER, "n", each))} == taken

    def _held_by(self, uid: str) -> list[str]:
        return [
            device
            for each in self.store.values()
            if each["metadata"]["uid"] == uid
            for device in _devices(each)
        ]


@given(st.lists(steps, max_size=30))
def test_the_allocated_state_equals_that_of_all_claims(steps: list[tuple[Any, ...]]):
    story = Story()
    for what, *about in steps:
        getattr(story, what)(*about)
    story.look()


def _devices(obj: Any) -> list[str]:
    held = obj["status"].get("allocation")
    return [each["device"] for each in held["devices"]["results"]] if held else []
