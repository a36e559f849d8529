"""Counting rejects searches that cannot succeed, and no others; it does not change the result of a search."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dynamic_resources.structured import search as searching_module
from scheduler.testing.devices import (
    DRIVER,
    allocation,
    device_class,
    exactly,
    resource_claim,
    resource_slice,
)
from scheduler.testing.fakes import FakeTimeSlice
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import (
    Search,
    all_of,
    claim,
    device,
    long_search,
    part,
    selecting,
)

HERE = node("here")
NEVER = 10**9
COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"slots": {"value": "5"}, "ports": {"value": "3"}}}]}


def takes(slots: int, ports: int) -> dict[str, Any]:
    counters = {"slots": {"value": str(slots)}, "ports": {"value": str(ports)}}
    return {"consumesCounters": [{"counterSet": "s", "counters": counters}]}


@st.composite
def devices(draw: st.DrawFn, *, count: int, counters: bool) -> list[dict[str, Any]]:
    found = []
    for number in range(count):
        attributes = {
            name: draw(st.integers(0, 2)) for name in ("a", "b") if draw(st.sampled_from([True, True, False]))
        }
        each = device(f"gpu-{number}", capacity={"memory": "4"}, **attributes)
        kind = draw(st.sampled_from(["plain"] * 6 + ["tainted", "shared", "unknown"]))
        if kind == "tainted":
            each["taints"] = [{"key": "k", "effect": "NoSchedule"}]
        if kind == "shared":
            each["allowMultipleAllocations"] = True
        if kind == "unknown":
            each["attributes"]["a"] = {"strings": ["x"]}
        if counters and draw(st.booleans()):
            each |= takes(draw(st.integers(0, 3)), draw(st.integers(0, 2)))
        found.append(each)
    return found


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict[str, Any]:
    def more() -> dict[str, Any]:
        options: dict[str, Any] = {}
        chosen = draw(
            st.sampled_from(["", "", "", "selector", "failing", "admin", "tolerations", "capacity"])
        )
        if chosen == "selector":
            attribute = f'device.attributes["{DRIVER}"]'
            options["selectors"] = selecting(f'"b" in {attribute} && {attribute}.b > 0')
        if chosen == "failing":
            options["selectors"] = selecting(f'device.attributes["{DRIVER}"].b > 0')
        if chosen == "admin":
            options["adminAccess"] = True
        if chosen == "tolerations":
            options["tolerations"] = [{"key": "k", "operator": "Exists"}]
        if chosen == "capacity":
            options["capacity"] = {"requests": {"memory": "2"}}
        return options

    kind = draw(st.sampled_from(["exactly"] * 6 + ["all", "first"]))
    if kind == "all":
        return all_of(name, **more())
    if kind == "exactly":
        return exactly(name, draw(st.sampled_from([1, 1, 2, 3])), **more())
    alternatives = []
    for number in range(2):
        options = {key: value for key, value in more().items() if key != "adminAccess"}
        alternatives.append(
            {
                "name": f"s{number}",
                "deviceClassName": "gpu",
                "allocationMode": "ExactCount",
                "count": draw(st.integers(1, 3)),
                **options,
            }
        )
    return {"name": name, "firstAvailable": alternatives}


@st.composite
def worlds(draw: st.DrawFn) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = [device_class()]
    has_counters = draw(st.booleans())
    for pool in range(draw(st.integers(1, 2))):
        some = draw(devices(count=draw(st.integers(1, 5)), counters=has_counters))
        parts = 2 if has_counters else 1
        name = f"p{pool if draw(st.sampled_from([True, True, False])) else 0}"
        driver = DRIVER if name == f"p{pool}" else "other.example.com"
        objects.append(part(f"d{pool}", parts, some, node="here", pool=name, driver=driver))
        if has_counters:
            objects.append(part(f"c{pool}", parts, [], node="here", pool=name, driver=driver, **COUNTERS))
        if draw(st.booleans()):
            objects.append(
                resource_claim(
                    f"t{pool}", allocated=allocation("gpu-0", node="here", pool=name, driver=driver)
                )
            )
    for number in range(draw(st.integers(1, 2))):
        names = [f"r{place}" for place in range(draw(st.integers(1, 3)))]
        constraints = [
            {
                draw(
                    st.sampled_from(["matchAttribute", "distinctAttribute"])
                ): f"{DRIVER}/{draw(st.sampled_from('ab'))}"
            }
            | draw(
                st.sampled_from([{}, {"requests": names[:1]}, {"requests": names}, {"requests": ["r0/s1"]}])
            )
            for _ in range(draw(st.sampled_from([0, 1, 1, 2])))
        ]
        objects.append(
            claim(f"c{number}", *(draw(requests(name)) for name in names), constraints=constraints)
        )
    return objects


def found_after(steps: int, objects: list[dict[str, Any]]) -> str | list[list[str]]:
    """Return the result of a search that is checked for hopelessness after a number of steps."""
    before = searching_module.HOPELESS_AFTER
    searching_module.HOPELESS_AFTER = steps
    try:
        return Search(*objects).devices(HERE)
    finally:
        searching_module.HOPELESS_AFTER = before


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(1, 12))
def test_counting_first_does_not_change_the_result_of_a_search(objects: list[dict[str, Any]], steps: int):
    assert found_after(steps, objects) == found_after(NEVER, objects)


def test_a_shareable_device_is_not_counted_once():
    shared = device("gpu-0", capacity={"memory": "4"}) | {"allowMultipleAllocations": True}
    half = {"capacity": {"requests": {"memory": "2"}}}
    objects = [
        device_class(),
        claim("one", exactly("a", **half), exactly("b", **half)),
        resource_slice("here", [shared]),
    ]

    assert found_after(1, objects) == [["gpu-0", "gpu-0"]]


ALIKE, UNLIKE = (
    [{"name": f"gpu-{n}"} for n in range(40)],
    [device(f"gpu-{n}", uuid=f"u{n}") for n in range(28)],
)
TWO_VALUES = [device(f"gpu-{n}", half=n % 2) for n in range(20)]


@pytest.mark.parametrize(
    ("some", "wanted"),
    [
        pytest.param(
            UNLIKE,
            claim(
                "one",
                *(exactly(f"r{n}", 2) for n in range(10)),
                constraints=[{"matchAttribute": f"{DRIVER}/uuid"}],
            ),
            id="devices of one value, where each has another",
        ),
        pytest.param(ALIKE[:20], claim("one", exactly(count=21)), id="one device more than there is"),
        pytest.param(
            ALIKE[:12], claim("one", *(exactly(f"r{n}") for n in range(13))), id="more requests than devices"
        ),
        pytest.param(
            TWO_VALUES,
            claim(
                "one",
                exactly("any", 5),
                exactly("a"),
                exactly("b"),
                exactly("c"),
                constraints=[{"distinctAttribute": f"{DRIVER}/half", "requests": ["a", "b", "c"]}],
            ),
            id="three values of two",
        ),
    ],
)
def test_an_impossible_claim_is_rejected_by_counting(some: Any, wanted: Any):
    assert_is_refused_by_counting(Search(device_class(), wanted, resource_slice("here", some)))


def test_partitions_that_need_too_many_counters_are_rejected_by_counting():
    partitions = [{"name": f"gpu-{n:02}", **takes(1, 0)} for n in range(24)]
    search = Search(
        device_class(),
        claim("one", exactly("any", 3), exactly("more", 3)),
        part("d", 2, partitions, node="here"),
        part("c", 2, [], node="here", **COUNTERS),
    )

    assert_is_refused_by_counting(search)


def assert_is_refused_by_counting(search: Search) -> None:
    limit = FakeTimeSlice()
    limit.each_reading = 1.0
    allocator = search.allocator(limit=limit, seconds=1000.0)  # so that another search ends as well

    assert allocator.allocate(HERE, search.claims) is None
    assert search.steps <= searching_module.HOPELESS_AFTER


def test_other_claims_are_searched_to_the_end():
    some, wanted = long_search()
    search = Search(device_class(), wanted, resource_slice("here", some))

    assert search.devices(HERE) == "none"
    assert search.steps > 10 * searching_module.HOPELESS_AFTER
