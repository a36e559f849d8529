"""The exhaustive search for devices of claims on a node: all assignments in order, until one is valid.

From reading pools_incubating.go and allocator_incubating.go. Left out is what upstream keeps when it has looked at a device
and refused it, see the tests of counters: such clusters are not asked about.
"""

from __future__ import annotations

from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any

from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Json = dict[str, Any]
Device = tuple[tuple[str, str, str], Json]
"""Driver, pool and name, and what the driver says."""

SELECTS: dict[str, Callable[[str, Json], bool]] = {
    "true": lambda *_: True,
    'device.driver == "a.example.com"': lambda driver, _: driver == "a.example.com",
    "device.attributes[device.driver].?fast.orValue(false)": lambda _, device: (
        device.get("attributes", {}).get("fast", {}).get("bool", False)
    ),
    '"memory" in device.capacity[device.driver]': lambda _, device: "memory" in device.get("capacity", {}),
}
"""Selectors, and what each says of a device."""


class Pool:
    def __init__(
        self, name: tuple[str, str], slices: list[Json], others: list[Json], state: str = ""
    ) -> None:
        slices = sorted(slices, key=lambda each: each["metadata"]["name"])
        self.name = name
        self.state = state
        self.devices: list[Device] = [
            ((*name, device["name"]), device | {"slice": each["spec"]})
            for each in slices
            for device in each["spec"].get("devices", ())
        ]
        self.everything = self.devices + [
            ((*name, device["name"]), device) for each in others for device in each["spec"].get("devices", ())
        ]
        sets = [each for one in slices for each in one["spec"].get("sharedCounters", ())]
        self.counters = {each["name"]: each["counters"] for each in sets}
        if not state and (
            len(self.counters) < len(sets)
            or len(dict(self.devices)) < len(self.devices)
            or any(
                counter not in self.counters.get(taken["counterSet"], ())
                for _, device in self.everything
                for taken in device.get("consumesCounters", ())
                for counter in taken["counters"]
            )
        ):
            self.state = "invalid"
        if self.state:
            self.devices = []


def selects_node(selector: Json, node: Json) -> bool:
    """Judge selectors of In requirements on labels."""
    return any(
        all(node["labels"].get(each["key"]) in each["values"] for each in term["matchExpressions"])
        for term in selector["nodeSelectorTerms"]
    )


def is_for(said: Json, node: Json) -> bool:
    if said.get("nodeName"):
        return bool(said["nodeName"] == node["name"])
    if said.get("allNodes"):
        return True
    return "nodeSelector" in said and selects_node(said["nodeSelector"], node)


def is_relevant(spec: Json, node: Json) -> bool:
    if "sharedCounters" in spec or is_for(spec, node):
        return True
    return bool(spec.get("perDeviceNodeSelection")) and any(is_for(each, node) for each in spec["devices"])


def pools_of(slices: list[Json], node: Json) -> list[Pool]:
    by_name: dict[tuple[str, str], list[Json]] = {}
    for each in slices:
        by_name.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each)
    pools = []
    for name, every in by_name.items():
        relevant = [each for each in every if is_relevant(each["spec"], node)]
        if not relevant:
            continue
        newest = max(each["spec"]["pool"]["generation"] for each in relevant)
        mine = [each for each in relevant if each["spec"]["pool"]["generation"] == newest]
        current = [each for each in every if each["spec"]["pool"]["generation"] == newest]
        count = mine[0]["spec"]["pool"]["resourceSliceCount"]
        if len(mine) == count:
            pools.append(Pool(name, mine, []))
        elif any(each["spec"]["pool"]["generation"] > newest for each in every):
            continue
        elif len(current) < count:
            pools.append(Pool(name, [], [], "incomplete"))
        else:
            pools.append(Pool(name, mine, [each for each in current if each not in mine]))
    return sorted(
        pools,
        key=lambda pool: (any("bindingConditions" in device for _, device in pool.devices), pool.name),
    )


class World:
    """Slices, what is allocated, classes and the claims to allocate, as JSON; and a node's name and labels."""

    def __init__(
        self, slices: list[Json], held: list[Json], classes: dict[str, list[str]], claims: list[Json]
    ) -> None:
        self.slices = slices
        self.held = [result for each in held for result in each["status"]["allocation"]["devices"]["results"]]
        self.classes = classes
        self.claims = claims

    def outcome(self, node: Json) -> str | list[list[str]]:
        """Return the devices of each claim, or "none", "broken", or why not all devices can be given."""
        pools = pools_of(self.slices, node)
        choices = []
        for number, claim in enumerate(self.claims):
            for request in claim["spec"]["devices"]["requests"]:
                ways = []
                for wanted in request.get("firstAvailable") or [request["exactly"]]:
                    if wanted["allocationMode"] == "All" and any(pool.state for pool in pools):
                        return next(pool.state for pool in pools if pool.state)
                    ways.append(
                        [(number, request["name"], wanted, way) for way in self.ways(wanted, pools, node)]
                    )
                choices.append(list(chain.from_iterable(ways)))
        for solution in product(*choices):
            if self.breaks_no_rule(solution, pools):
                return [
                    [name for claim, _, _, way in solution if claim == number for (_, _, name), _ in way]
                    for number in range(len(self.claims))
                ]
        return "broken" if any(pool.state == "invalid" for pool in pools) else "none"

    def ways(self, wanted: Json, pools: list[Pool], node: Json) -> Iterator[tuple[Device, ...]]:
        """Yield the sets of devices that would do for a request, whatever else is given."""
        expressions = self.classes[wanted["deviceClassName"]] + [
            each["cel"]["expression"] for each in wanted.get("selectors", ())
        ]
        candidates = [
            (name, device)
            for pool in pools
            for name, device in pool.devices
            if all(SELECTS[each](name[0], device) for each in expressions)
            and (not device["slice"].get("perDeviceNodeSelection") or is_for(device, node))
            and self.amounts(wanted, device) is not None
        ]
        if wanted["allocationMode"] == "All":
            # Of shared devices those are all that have room before anything is given.
            found = [
                (name, device)
                for name, device in candidates
                if all(
                    amount + self.held_of(name, key)
                    <= parse_quantity(device["capacity"][key]["value"]).value()
                    for key, amount in (self.amounts(wanted, device) or {}).items()
                )
            ]
            yield from [tuple(found)] if found else []
        else:
            yield from combinations(candidates, wanted["count"])

    def held_of(self, name: tuple[str, str, str], capacity: str) -> int:
        return sum(
            parse_quantity(result.get("consumedCapacity", {}).get(capacity, 0)).value()
            for result in self.held
            if (result["driver"], result["pool"], result["device"]) == name
        )

    def amounts(self, wanted: Json, device: Json) -> dict[str, int] | None:
        """Return what a request consumes of capacities without policies; None if it cannot."""
        asked = wanted.get("capacity", {}).get("requests", {})
        has = {key: parse_quantity(each["value"]).value() for key, each in device.get("capacity", {}).items()}
        if not asked.keys() <= has.keys():
            return None
        amounts = {key: parse_quantity(asked[key]).value() if key in asked else has[key] for key in has}
        return amounts if all(amount <= has[key] for key, amount in amounts.items()) else None

    def breaks_no_rule(self, solution: Sequence[Any], pools: list[Pool]) -> bool:
        whole = {
            (each["driver"], each["pool"], each["device"]) for each in self.held if "shareID" not in each
        }
        shared = {(each["driver"], each["pool"], each["device"]) for each in self.held if "shareID" in each}
        given: dict[tuple[str, str, str], list[int]] = {}
        consumed: dict[tuple[Any, str], int] = {}
        for claim, _, wanted, way in solution:
            for name, device in way:
                free = bool(device.get("allowMultipleAllocations"))
                admin = wanted.get("adminAccess", False)
                if not self.tolerates(wanted, device):
                    return False
                if not admin and (name in whole or given.get(name)):
                    return False
                if admin and claim in given.get(name, ()):
                    return False
                if not free:
                    given.setdefault(name, []).append(claim)
                for key, amount in (self.amounts(wanted, device) or {}).items():
                    total = consumed.get((name, key), self.held_of(name, key)) + amount
                    if total > parse_quantity(device["capacity"][key]["value"]).value():
                        return False
                    if free:
                        consumed[name, key] = total
        chosen = [
            (name, bool(device.get("allowMultipleAllocations")))
            for *_, way in solution
            for name, device in way
        ]
        return self.counters_suffice(chosen, whole | shared, shared, pools) and self.constraints_hold(
            solution
        )

    def tolerates(self, wanted: Json, device: Json) -> bool:
        return all(
            any(each["key"] == taint["key"] for each in wanted.get("tolerations", ()))
            for taint in device.get("taints", ())
        )

    def counters_suffice(
        self,
        chosen: list[tuple[tuple[str, str, str], bool]],
        held: set[Any],
        shared: set[Any],
        pools: list[Pool],
    ) -> bool:
        for pool in pools:
            devices = dict(pool.everything)
            new = [name for name, free in chosen if name in devices and not (free and name in shared)]
            new = [
                name for place, name in enumerate(new) if not dict(chosen)[name] or name not in new[:place]
            ]
            if not any("consumesCounters" in devices[name] for name in new):
                continue
            for counters, members in pool.counters.items():
                for counter, there_is in members.items():
                    taken = sum(
                        int(each["counters"].get(counter, {}).get("value", 0))
                        for name in [*(name for name in devices if name in held), *new]
                        for each in devices[name].get("consumesCounters", ())
                        if each["counterSet"] == counters
                    )
                    if taken > int(there_is["value"]):
                        return False
        return True

    def constraints_hold(self, solution: Sequence[Any]) -> bool:
        for number, claim in enumerate(self.claims):
            for constraint in claim["spec"]["devices"].get("constraints", ()):
                values: list[tuple[str, Any]] = []
                for at, request, wanted, way in solution:
                    named = constraint.get("requests")
                    full = f"{request}/{wanted['name']}" if "name" in wanted else request
                    if at != number or (named and not {request, full} & set(named)):
                        continue
                    for _, device in way:
                        attribute = constraint.get("matchAttribute") or constraint["distinctAttribute"]
                        value = device.get("attributes", {}).get(attribute)
                        if value is None:
                            return False
                        values.append((request, value))
                if "matchAttribute" in constraint and any(value != values[0][1] for _, value in values):
                    return False
                if "distinctAttribute" in constraint and not differ(values):
                    return False
        return True


def differ(values: list[tuple[str, Any]]) -> bool:
    """As upstream, of each request only the last device is told from those after it."""
    last: dict[str, Any] = {}
    for request, value in values:
        if value in last.values():
            return False
        last[request] = value
    return True
