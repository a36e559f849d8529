"""The search for devices against an exhaustive search, and cached results against fresh ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.testing.devices import device_class, resource_claim
from tests.reference.dynamic_resources import SELECTS, World
from tests.support.builders import node
from tests.support.snapshots import cache_of
from tests.unit.plugins.dynamic_resources.structured.node_search import Search

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from scheduler.engine.state.cache import Cache

Json = dict[str, Any]

NODES = [node("here", labels={"zone": "a"}), node("there", labels={"zone": "b"})]
DRIVERS = ("a.example.com", "b.example.com")
ATTRIBUTE = "example.com/kind"
EXPRESSIONS = sorted(SELECTS)

often = st.sampled_from([True, True, True, False])
sometimes = st.sampled_from([False, False, False, True])
rarely = st.sampled_from([False] * 11 + [True])


@st.composite
def places(draw: DrawFn) -> Json:
    """Which nodes something is for."""
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [draw(st.sampled_from("ab"))]}]}
    said: list[Json] = [
        {"nodeName": draw(st.sampled_from(["here", "there"]))},
        {"allNodes": True},
        {"allNodes": True},
        {"nodeSelector": {"nodeSelectorTerms": [zone]}},
    ]
    return draw(st.sampled_from(said))


@st.composite
def devices(draw: DrawFn, name: str, *, has_counters: bool, each_has_a_place: bool) -> Json:
    found: Json = {"name": name, "attributes": {}}
    if draw(often):
        found["attributes"][ATTRIBUTE] = draw(st.sampled_from([{"string": "x"}, {"string": "y"}, {"int": 1}]))
    if draw(sometimes):
        found["attributes"]["fast"] = {"bool": draw(st.booleans())}
    if draw(sometimes):
        found["capacity"] = {"memory": {"value": draw(st.sampled_from(["2", "4"]))}}
    if has_counters:
        if draw(often):
            value = str(draw(st.integers(1, 3)))
            found["consumesCounters"] = [{"counterSet": "card", "counters": {"slots": {"value": value}}}]
        return found | (draw(places()) if each_has_a_place else {})
    if draw(sometimes):
        found["allowMultipleAllocations"] = True
    if draw(sometimes):
        found["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    if draw(sometimes):
        found["bindingConditions"] = ["Ready"]
    return found | (draw(places()) if each_has_a_place else {})


@st.composite
def pools(draw: DrawFn, driver: str, name: str) -> list[Json]:
    """The slices of a pool, of one generation or, while it changes, of two."""
    has_counters, count = draw(sometimes), draw(st.integers(1, 2))
    slices: list[Json] = []
    for number in range(count):
        each_has_a_place = draw(sometimes)
        members = [
            draw(
                devices(
                    f"d{0 if draw(rarely) else number}-{place}",
                    has_counters=has_counters,
                    each_has_a_place=each_has_a_place,
                )
            )
            for place in range(draw(st.integers(1, 3)))
        ]
        place = {"perDeviceNodeSelection": True} if each_has_a_place else draw(places())
        slices.append({"devices": members, **place})
    if has_counters:
        value = str(draw(st.integers(1, 4)))
        slices.append(
            {"sharedCounters": [{"name": "card", "counters": {"slots": {"value": value}}}], "allNodes": True}
        )
    if draw(rarely) and len(slices) > 1:
        slices.pop()
    return [
        {
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{driver}-{number}"},
            "spec": {
                "driver": driver,
                "pool": {
                    "name": name,
                    "generation": 2 if draw(rarely) else 1,
                    "resourceSliceCount": count + has_counters,
                },
                **spec,
            },
        }
        for number, spec in enumerate(slices)
    ]


@st.composite
def wishes(draw: DrawFn, *, may_want_all: bool) -> Json:
    wanted: Json = {
        "deviceClassName": draw(st.sampled_from(["any", "any", "a"])),
        "allocationMode": "ExactCount",
        "count": draw(st.sampled_from([1, 1, 2])),
    }
    if may_want_all and draw(sometimes):
        wanted["allocationMode"] = "All"
    if draw(rarely):
        wanted["selectors"] = [{"cel": {"expression": draw(st.sampled_from(EXPRESSIONS))}}]
    if draw(sometimes):
        wanted["tolerations"] = [{"key": "sick", "operator": "Exists"}]
    if draw(rarely):
        wanted["capacity"] = {"requests": {"memory": draw(st.sampled_from(["1", "3"]))}}
    return wanted


@st.composite
def claims(draw: DrawFn, name: str, *, may_be_constrained: bool) -> Json:
    constrained = may_be_constrained and draw(st.booleans())
    requests: list[Json] = []
    for number in range(draw(st.integers(1, 2))):
        if draw(sometimes):
            alternatives = [
                {"name": f"s{place}", **draw(wishes(may_want_all=not constrained))} for place in range(2)
            ]
            requests.append({"name": f"r{number}", "firstAvailable": alternatives})
        else:
            wanted = draw(wishes(may_want_all=not constrained))
            if draw(sometimes):
                wanted["adminAccess"] = True
            requests.append({"name": f"r{number}", "exactly": wanted})
    found = resource_claim(name, *requests)
    if constrained:
        kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
        names = draw(st.sampled_from([[], ["r0"], ["r0", "r1/s0"]]))
        found["spec"]["devices"]["constraints"] = [
            {kind: ATTRIBUTE, **({"requests": names} if names else {})}
        ]
    return found


@st.composite
def holders(draw: DrawFn, slices: list[Json]) -> list[Json]:
    """Claims that hold some of the devices."""
    held = []
    for each in slices:
        spec = each["spec"]
        for device in spec.get("devices", ()):
            if not draw(sometimes):
                continue
            result = {
                "request": "r0",
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if device.get("allowMultipleAllocations"):
                result["shareID"] = "share"
                if "capacity" in device:
                    result["consumedCapacity"] = {"memory": "1"}
            held.append(resource_claim(f"held-{len(held)}", allocated={"devices": {"results": [result]}}))
    return held


CLASSES = [device_class("any"), device_class("a", 'device.driver == "a.example.com"')]


@st.composite
def worlds(draw: DrawFn) -> tuple[list[Json], list[Json], list[Json]]:
    """Slices, claims that hold devices, and claims that want some."""
    slices = [each for driver in DRIVERS for each in draw(pools(driver, draw(st.sampled_from("pq"))))]
    has_counters = any("sharedCounters" in each["spec"] for each in slices)
    wanting = [
        draw(claims(name, may_be_constrained=not has_counters))
        for name in ("one", "two")[: draw(st.integers(1, 2))]
    ]
    if has_counters and len({each["spec"]["pool"]["name"] for each in slices}) == 1:
        # Upstream takes counters of pools of one name for the same.
        slices = [each for each in slices if each["spec"]["driver"] == slices[0]["spec"]["driver"]]
    return slices, draw(holders(slices)), wanting


@given(worlds())
def test_claims_are_given_the_first_devices_that_break_no_rule(
    world: tuple[list[Json], list[Json], list[Json]],
):
    slices, held, wanting = world
    reference = World(slices, held, {"any": [], "a": ['device.driver == "a.example.com"']}, wanting)
    search = Search(*CLASSES, *slices, *held, *wanting)
    words = {
        "none": "none",
        "broken": "invalid resource pools were encountered",
    }

    for each in NODES:
        expected = reference.outcome({"name": each.name, "labels": each.labels})
        found = search.devices(each)
        if expected in ("incomplete", "invalid"):
            assert "asks for all devices, but resource pool" in found
            assert found.endswith("being updated" if expected == "incomplete" else "invalid")
        else:
            assert found == (words[expected] if isinstance(expected, str) else expected)


def change_nodes(data: st.DataObject, cache: Cache) -> None:
    """Let nodes come, go, and be in another zone."""
    for name in data.draw(st.lists(st.sampled_from(["here", "there", "n1", "n2", "n3"]), max_size=3)):
        cache.add_node(node(name, labels={"zone": data.draw(st.sampled_from("ab"))}))
    names = cache.snapshot().names
    if len(names) > 2 and data.draw(sometimes):
        cache.remove_node(data.draw(st.sampled_from(names)))


@given(st.data())
def test_results_cached_between_pods_match_a_fresh_search(data: st.DataObject):
    kept = Search(*CLASSES)
    cache = cache_of(NODES)
    shown: dict[str, Json] = {}
    holding: dict[str, Json] = {}
    for _ in range(data.draw(st.integers(2, 6))):
        slices, held, wanting = data.draw(worlds())
        for each in slices:
            shown[each["metadata"]["name"]] = each
            kept.add(each)
        for name in data.draw(st.lists(st.sampled_from(sorted(shown)), max_size=2)) if shown else ():
            if shown.pop(name, None) is not None:
                del kept.slices[name]
        for name in set(holding) - {each["metadata"]["name"] for each in held}:
            kept.allocated.set(holding.pop(name)["metadata"]["uid"], None)
        for each in held:
            holding[each["metadata"]["name"]] = each
            kept.add(each)
        kept.claims[:] = []
        for each in wanting:
            kept.add(each)

        change_nodes(data, cache)
        snapshot = cache.snapshot()
        anew = Search(*CLASSES, *shown.values(), *holding.values(), *wanting)

        assert kept.judge(snapshot) == anew.judge(snapshot)
        for each in snapshot.nodes:
            assert kept.devices(each) == anew.devices(each)
