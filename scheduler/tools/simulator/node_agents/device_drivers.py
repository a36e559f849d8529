"""Simulates drivers of devices: publishes the devices of nodes in ResourceSlices, and sets binding conditions of claims.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go, and for
    the conditions of devices plugins/dynamicresources/dynamicresources.go, isClaimBound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler.tools.simulator.apimachinery.objects import key_of
from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.controllers.resource_claims import CLAIMS
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object

SLICES: Final = "resourceslices.resource.k8s.io"

_MOST_IN_A_SLICE: Final = 64


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Timing and failures of device drivers.

    Attributes:
        seconds: time until the binding conditions of an allocated device are true.
        fails: pools whose devices get their first binding failure condition instead.
    """

    seconds: float = 1.0
    fails: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Pool:
    """The devices of one driver on one node.

    Attributes:
        devices: devices, as in ResourceSlices.
        is_withdrawn: whether the slices are deleted.
        generation: number of times it was published.
        slices: names of its slices.
    """

    devices: Sequence[Object] = ()
    is_withdrawn: bool = False
    generation: int = 0
    slices: list[str] = field(default_factory=list)


class DeviceDrivers(QueueController[Store]):
    """The drivers of devices on all nodes."""

    resources = ("nodes", CLAIMS)

    def __init__(self, store: Store, options: DeviceOptions) -> None:
        super().__init__(store)
        self.options = options
        self._pools: dict[tuple[str, str], _Pool] = {}  # (node, driver) -> pool
        self._busy: set[str] = set()  # keys of claims

    def publish(self, node: str, driver: str, devices: Sequence[Object]) -> None:
        """Publish the devices of a driver on a node, which replace those published before.

        Args:
            node: name of the node; it may be created later.
            driver: name of the driver.
            devices: devices, as in `spec.devices` of ResourceSlices.
        """
        pool = self._pools.setdefault((node, driver), _Pool())
        self._withdraw(pool)
        pool.devices, pool.is_withdrawn = devices, False
        self._write(node, driver, pool)

    def withdraw(self, node: str, driver: str = "") -> None:
        """Withdraw a node's devices of one driver, or of all.

        Raises:
            KeyError: nothing was published.
        """
        for pool in self._found(node, driver).values():
            self._withdraw(pool)
            pool.is_withdrawn = True

    def restore(self, node: str, driver: str = "") -> None:
        """Publish withdrawn devices again.

        Raises:
            KeyError: nothing was published.
        """
        for one, pool in self._found(node, driver).items():
            pool.is_withdrawn = False
            self._write(node, one, pool)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        namespace, name = key_of(obj)
        if resource == "nodes":
            self._observe_node(type_, name)
        elif type_ != "DELETED" and f"{namespace}/{name}" not in self._busy and _unsettled(obj):
            self._busy.add(f"{namespace}/{name}")
            self.later(self.options.seconds, self.look_again, f"{namespace}/{name}")

    def reconcile(self, key: str) -> None:
        """Set the binding conditions, or a failure condition, of a claim's devices."""
        self._busy.discard(key)
        namespace, _, name = key.partition("/")
        claim = self.store.find(CLAIMS, name, namespace)
        results = [] if claim is None else _unsettled(claim)
        if claim is None or not results:
            return
        devices = list(claim["status"].get("devices", ()))
        for result in results:
            fails = result["pool"] in self.options.fails
            types = result["bindingFailureConditions"][:1] if fails else result["bindingConditions"]
            conditions = [self._condition(type_) for type_ in types]
            place = {part: result[part] for part in ("driver", "pool", "device", "shareID") if part in result}
            devices.append(place | {"conditions": conditions})
        self.store.change(claim, {"status": {"devices": devices}}, "status")

    def _found(self, node: str, driver: str) -> dict[str, _Pool]:
        """Return the pools of a node, by driver."""
        found = {
            key[1]: pool for key, pool in self._pools.items() if key[0] == node and driver in {"", key[1]}
        }
        if not found:
            raise KeyError(f"node {node!r} has no devices" + (f" of {driver!r}" if driver else ""))
        return found

    def _observe_node(self, type_: str, name: str) -> None:
        for (node, driver), pool in self._pools.items():
            if node != name:
                continue
            if type_ == "DELETED":
                self._withdraw(pool)
            elif type_ == "ADDED":
                self._write(node, driver, pool)

    def _withdraw(self, pool: _Pool) -> None:
        for name in pool.slices:
            if self.store.find(SLICES, name) is not None:
                self.store.delete(SLICES, name)
        pool.slices.clear()

    def _write(self, node_name: str, driver: str, pool: _Pool) -> None:
        """Create a pool's slices, unless its node does not exist or the slices exist."""
        node = self.store.find("nodes", node_name)
        if node is None or pool.slices or pool.is_withdrawn or not pool.devices:
            return
        pool.generation += 1
        parts = [
            pool.devices[start : start + _MOST_IN_A_SLICE]
            for start in range(0, len(pool.devices), _MOST_IN_A_SLICE)
        ]
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node_name,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }
        for part in parts:
            spec = {
                "driver": driver,
                "nodeName": node_name,
                "pool": {
                    "name": node_name,
                    "generation": pool.generation,
                    "resourceSliceCount": len(parts),
                },
                "devices": list(part),
            }
            metadata = {"generateName": f"{node_name}-{driver}-", "ownerReferences": [owner]}
            made = self.store.create(SLICES, {"metadata": metadata, "spec": spec})
            pool.slices.append(key_of(made)[1])

    def _condition(self, type_: str) -> Object:
        return {
            "type": type_,
            "status": "True",
            "reason": "Settled",
            "message": "",
            "lastTransitionTime": self.store.timestamp(),
        }


def _unsettled(claim: Object) -> list[Object]:
    """Return the allocated devices with binding conditions that have no status yet."""
    status = claim["status"]
    reported = {(one["driver"], one["pool"], one["device"]) for one in status.get("devices", ())}
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    return [
        one
        for one in results
        if one.get("bindingConditions") and (one["driver"], one["pool"], one["device"]) not in reported
    ]
