"""An allocator for a few devices."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.dynamic_resources.structured import (
    AllocatedDevices,
    AllocationError,
    Allocator,
    DeviceFeatures,
    InvalidPoolsError,
    Inventory,
)
from plugins.dynamic_resources.structured.constraints import DeviceRefusal
from plugins.work_in_steps import UNLIMITED, PluginWork
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import DeviceClass, ResourceClaim
from scheduler.snapshot import ObjectStore, object_key
from scheduler.testing.devices import DRIVER, exactly, resource_claim, resource_slice
from scheduler.testing.fakes import FakeFeatures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.framework import TimeSlice
    from scheduler.objects.node import NodeObject
    from scheduler.snapshot import Snapshot

Json = dict[str, Any]


class Search:
    """Devices, classes and claims; allocated claims hold their devices, the others are requested.

    Args:
        features: what is on; the default version by default.

    Attributes:
        steps: how many steps searches have made so far.
    """

    def __init__(self, *objects: Mapping[str, Any], features: FakeFeatures | None = None) -> None:
        self.slices = ObjectStore()
        self.rules = ObjectStore()
        on = DeviceFeatures.of(features or FakeFeatures())
        self.inventory = Inventory(self.slices, self.rules, on)
        self.allocated = AllocatedDevices()
        self.classes: dict[str, DeviceClass] = {}
        self.claims: list[ResourceClaim] = []
        self._allocators: list[Allocator] = []
        for each in objects:
            self.add(each)

    def add(self, obj: Mapping[str, Any]) -> None:
        """Add an object, or a new version of one."""
        key = object_key(obj)
        if obj["kind"] == "ResourceSlice":
            self.slices[key] = obj
        elif obj["kind"] == "DeviceTaintRule":
            self.rules[key] = obj
        elif obj["kind"] == "DeviceClass":
            self.classes[key] = typed_object(obj, DeviceClass)
        else:
            claim = typed_object(obj, ResourceClaim)
            self.allocated.set(claim.metadata.uid, claim.status.allocation)
            if claim.status.allocation is None:
                self.claims.append(claim)

    @property
    def steps(self) -> int:
        return sum(each.steps for each in self._allocators)

    def allocator(
        self, *, work: PluginWork | None = None, limit: TimeSlice = UNLIMITED, seconds: float = 0.0
    ) -> Allocator:
        """Return an allocator."""
        shares = count()
        made = Allocator(
            self.inventory,
            self.allocated,
            self.classes.get,
            work=work,
            limit=limit,
            seconds=seconds,
            new_share_id=lambda: f"share-{next(shares)}",
        )
        self._allocators.append(made)
        return made

    def results(self, node: NodeObject) -> list[Json] | None:
        """Return the allocations of the claims on a node, as JSON."""
        found = self.allocator().allocate(node, self.claims)
        return None if found is None else msgspec.json.decode(msgspec.json.encode(found))

    def devices(self, node: NodeObject) -> str | list[list[str]]:
        """Return the names of the devices of each claim, or why there are none."""
        try:
            found = self.allocator().allocate(node, self.claims)
        except (AllocationError, InvalidPoolsError) as error:
            return str(error)
        if found is None:
            return "none"
        return [[result.device for result in each.devices.results] for each in found]

    def judge(self, snapshot: Snapshot) -> dict[str, str]:
        """Return the result of each node; "" is yes."""
        index, table = self.allocator().judge(snapshot, snapshot.all_rows, self.claims)
        said = [table[place] for place in index]
        return {
            name: verdict.words if isinstance(verdict, DeviceRefusal) else ""
            for name, verdict in zip(snapshot.names, said, strict=True)
        }


def claim(name: str, *requests: Json, constraints: Sequence[Json] = (), config: Sequence[Json] = ()) -> Json:
    """Return a claim without an allocation."""
    found = resource_claim(name, *requests)
    found["spec"]["devices"] |= {"constraints": list(constraints), "config": list(config)}
    return found


def part(name: str, count_: int, devices: Sequence[Json], *, generation: int = 1, **more: Any) -> Json:
    """Return one of several slices of a pool."""
    found = resource_slice(more.pop("node", ""), devices, name=name, **more)
    found["spec"]["pool"] |= {"resourceSliceCount": count_, "generation": generation}
    return found


def device(name: str, *, capacity: Mapping[str, Any] | None = None, **attributes: Any) -> Json:
    """Return a device with attributes of any type, and amounts of capacities."""
    kinds = {bool: "bool", int: "int", str: "string"}
    found: Json = {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()},
    }
    if capacity is not None:
        found["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value} for key, value in capacity.items()
        }
    return found


def all_of(name: str = "r0", **more: Any) -> Json:
    """Return a request for all devices."""
    request = exactly(name, **more)
    request["exactly"]["allocationMode"] = "All"
    return request


def selecting(expression: str) -> list[Json]:
    """Return selectors of a request."""
    return [{"cel": {"expression": expression}}]


def long_search(name: str = "one") -> tuple[list[Json], Json]:
    """Return devices, and a claim to four of them that cannot be satisfied, which takes thousands of steps to find out.

    Each of the claim's conditions alone can be satisfied.
    """
    devices = [device(f"gpu-{n:02}", row=n // 4, column=n % 4) for n in range(16)]
    same = [{"matchAttribute": f"{DRIVER}/{name}", "requests": ["pair"]} for name in ("row", "column")]
    return devices, claim(name, exactly("any", 3), exactly("pair", 2), constraints=same)
