"""Attributes that requests compute for constraints (KEP-6080)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.devices import CLASS, DRIVER, device_class, exactly, first_available, resource_slice
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import Search, claim, device, selecting

HERE = node("here")
ON = FakeFeatures("1.37", DRADerivedAttributes=True)
HALF = "example.com/half"
PLACE = f'device.attributes["{DRIVER}"].place'


def derived(expression: str, name: str = HALF) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression}]


def given(
    devices: list[dict[str, Any]],
    *requests: dict[str, Any],
    constraint: str = "matchAttribute",
    names: tuple[str, ...] = (),
    attribute: str = HALF,
    features: FakeFeatures = ON,
) -> Any:
    constraints = [{constraint: attribute, "requests": list(names)}]
    search = Search(
        device_class(),
        claim("one", *requests, constraints=constraints),
        resource_slice("here", devices),
        features=features,
    )
    return search.devices(HERE)


def places(*numbers: Any) -> list[dict[str, Any]]:
    return [device(f"gpu-{place}", place=number) for place, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        pytest.param(f"{PLACE} / 2", [["gpu-0", "gpu-1"]], id="int"),
        pytest.param(f"{PLACE} > 0", [["gpu-1", "gpu-2"]], id="bool"),
        pytest.param(f"{PLACE} % 2 == 0 ? 'even' : 'odd'", [["gpu-0", "gpu-2"]], id="string"),
        pytest.param(f"semver({PLACE} == 1 ? '1.0.0' : '2.0.0')", [["gpu-0", "gpu-2"]], id="version"),
    ],
)
def test_devices_match_in_the_computed_attribute(expression: str, found: Any):
    request = exactly(count=2, derivedAttributes=derived(expression))

    assert given(places(0, 1, 2), request) == found


def test_devices_differ_in_the_computed_attribute():
    requests = [exactly(name, derivedAttributes=derived(f"{PLACE} / 2")) for name in ("a", "b")]

    assert given(places(0, 1, 2), *requests, constraint="distinctAttribute") == [["gpu-0", "gpu-2"]]


def test_a_computed_attribute_stands_before_one_of_the_device():
    name = f"{DRIVER}/place"
    request = exactly(count=2, derivedAttributes=derived("'all'", name))

    assert given(places(0, 1), exactly(count=2), attribute=name) == "none"
    assert given(places(0, 1), request, attribute=name) == [["gpu-0", "gpu-1"]]


def test_only_the_request_that_computes_an_attribute_has_it():
    computing = exactly("a", derivedAttributes=derived("1"))

    assert given(places(0, 1), computing, exactly("b")) == "none"
    assert given(places(0, 1), computing, exactly("b"), names=("a",)) == [["gpu-0", "gpu-1"]]


def test_alternatives_compute_their_own_attributes():
    request = first_available("r0", CLASS, CLASS)
    first, second = request["firstAvailable"]
    first |= {"count": 2, "derivedAttributes": derived(PLACE)}
    second |= {"count": 2, "derivedAttributes": derived("1")}

    assert given(places(0, 1), request) == [["gpu-0", "gpu-1"]]


def test_only_selected_devices_are_computed():
    request = exactly(
        selectors=selecting(f'"place" in device.attributes["{DRIVER}"]'), derivedAttributes=derived(PLACE)
    )

    assert given([device("bare"), *places(3)], request) == [["gpu-0"]]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param(PLACE, "no such key: place", id="an attribute that the device lacks"),
        pytest.param(
            "1.5", "CEL compile error: must evaluate to a primitive scalar", id="a type that no attribute has"
        ),
    ],
)
def test_an_attribute_that_cannot_be_computed_ends_the_attempt(expression: str, words: str):
    request = exactly(derivedAttributes=derived(expression))

    found = given([device("bare"), *places(0)], request)

    assert words in found
    assert found.startswith("claim default/one, request r0: derived attribute example.com/half")


def test_a_list_counts_with_the_gate_of_lists():
    both = FakeFeatures("1.37", DRADerivedAttributes=True, DRAListTypeAttributes=True)
    request = exactly(count=2, derivedAttributes=derived(f"[{PLACE}, 7]"))

    assert given(places(0, 1), request, features=both) == [["gpu-0", "gpu-1"]]
    assert given(places(0, 1), request) == "none"


@pytest.mark.parametrize("features", [FakeFeatures("1.37"), FakeFeatures("1.36")])
def test_nothing_is_computed_without_the_gate(features: FakeFeatures):
    request = exactly(count=2, derivedAttributes=derived("1"))

    assert given(places(0, 1), request, features=features) == "none"


def test_nodes_whose_devices_differ_in_what_is_computed_are_judged_apart():
    search = Search(
        device_class(),
        claim(
            "one",
            exactly(count=2, derivedAttributes=derived(f"{PLACE} / 2")),
            constraints=[{"matchAttribute": HALF}],
        ),
        resource_slice("a", places(0, 1)),
        resource_slice("b", places(1, 2)),
        features=ON,
    )

    assert [search.devices(node(name)) for name in ("a", "b")] == [[["gpu-0", "gpu-1"]], "none"]
