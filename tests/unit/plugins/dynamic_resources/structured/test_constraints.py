"""Constraints between the devices of a claim."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.devices import DRIVER, device_class, exactly, resource_slice
from tests.support.builders import node
from tests.unit.plugins.dynamic_resources.structured.node_search import (
    Search,
    all_of,
    claim,
    device,
    selecting,
)

HERE = node("here")


def searching(devices: Any, *requests: Any, constraints: Any) -> Search:
    return Search(
        device_class(), claim("one", *requests, constraints=constraints), resource_slice("here", devices)
    )


def match(attribute: str, *requests: str):
    return {"matchAttribute": attribute, "requests": list(requests)}


def distinct(attribute: str, *requests: str):
    return {"distinctAttribute": attribute, "requests": list(requests)}


def kinds(*values: Any):
    return [device(f"gpu-{number}", kind=value) for number, value in enumerate(values)]


KIND = f"{DRIVER}/kind"


@pytest.mark.parametrize(
    ("devices", "given"),
    [
        pytest.param(kinds("a", "b", "a"), [["gpu-0", "gpu-2"]], id="texts"),
        pytest.param(kinds(1, 2, 2), [["gpu-1", "gpu-2"]], id="numbers"),
        pytest.param(kinds(False, True, False), [["gpu-0", "gpu-2"]], id="truths"),
        pytest.param(kinds(1, True, "1"), "none", id="values of different types"),
        pytest.param([*kinds("a"), device("gpu-1")], "none", id="an attribute that one lacks"),
        pytest.param(
            [{"name": f"gpu-{place}", "attributes": {"kind": {"version": "1.0.0"}}} for place in (0, 1)],
            [["gpu-0", "gpu-1"]],
            id="versions",
        ),
        pytest.param(
            [{"name": f"gpu-{place}", "attributes": {"kind": {"ints": [1]}}} for place in (0, 1)],
            "none",
            id="values of a type that is not known",
        ),
    ],
)
def test_devices_that_must_match_have_one_value(devices: Any, given: Any):
    assert searching(devices, exactly(count=2), constraints=[match(KIND)]).devices(HERE) == given


@pytest.mark.parametrize(
    ("devices", "given"),
    [
        pytest.param(kinds("a", "a", "b"), [["gpu-0", "gpu-2"]], id="texts"),
        pytest.param(kinds(1, True), [["gpu-0", "gpu-1"]], id="values of different types"),
        pytest.param(kinds("a", "a"), "none", id="only one value"),
        pytest.param([*kinds("a"), device("gpu-1")], "none", id="an attribute that one lacks"),
    ],
)
def test_devices_that_must_differ_have_different_values(devices: Any, given: Any):
    requests = exactly("r0"), exactly("r1")

    found = searching(devices, *requests, constraints=[distinct(KIND)]).devices(HERE)

    assert found == given


def test_only_the_last_device_of_a_request_is_compared_with_the_next_request():
    devices = kinds("a", "b", "a")

    assert searching(devices, exactly(count=3), constraints=[distinct(KIND)]).devices(HERE) == [
        ["gpu-0", "gpu-1", "gpu-2"]
    ]


def test_a_constraint_concerns_the_requests_that_it_names():
    devices = kinds("a", "b", "b")
    requests = exactly("any"), exactly("r0"), exactly("r1")

    assert searching(devices, *requests, constraints=[match(KIND, "r0", "r1")]).devices(HERE) == [
        ["gpu-0", "gpu-1", "gpu-2"]
    ]


@pytest.mark.parametrize("name", ["some", "some/one"])
def test_a_constraint_may_name_a_request_or_one_of_its_alternatives(name: str):
    alternatives = [
        {"name": each, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
        for each in ("one", "two")
    ]
    some = {"name": "some", "firstAvailable": alternatives}
    search = searching(kinds("a", "b"), some, constraints=[match(KIND, name)])

    assert search.devices(HERE) == ("none" if name == "some" else [["gpu-0", "gpu-1"]])
    if name == "some/one":
        assert search.results(HERE)[0]["devices"]["results"][0]["request"] == "some/two"


@pytest.mark.parametrize(
    ("attribute", "given"),
    [
        pytest.param("example.com/kind", [["gpu-0", "gpu-2"]], id="of another domain"),
        pytest.param("other.com/kind", "none", id="of a domain that is not there"),
        pytest.param("kind", "none", id="without a domain"),
    ],
)
def test_an_attribute_is_found_by_its_full_name(attribute: Any, given: Any):
    devices = [
        {"name": f"gpu-{place}", "attributes": {"example.com/kind": {"string": kind}}}
        for place, kind in enumerate("aba")
    ]

    assert searching(devices, exactly(count=2), constraints=[match(attribute)]).devices(HERE) == given


def test_constraints_hold_together():
    devices = [
        device("gpu-0", kind="a", root=0),
        device("gpu-1", kind="a", root=0),
        device("gpu-2", kind="b", root=1),
        device("gpu-3", kind="a", root=1),
    ]
    constraints = [match(KIND), distinct(f"{DRIVER}/root")]
    requests = exactly("r0"), exactly("r1")

    assert searching(devices, *requests, constraints=constraints).devices(HERE) == [["gpu-0", "gpu-3"]]


def test_a_device_rejected_by_one_constraint_is_not_counted_by_another():
    devices = [
        device("gpu-0", kind="a", root=0),
        device("gpu-1", kind="b", root=1),
        device("gpu-2", kind="a", root=1),
    ]
    constraints = [distinct(f"{DRIVER}/root"), match(KIND)]

    assert searching(devices, exactly("r0"), exactly("r1"), constraints=constraints).devices(HERE) == [
        ["gpu-0", "gpu-2"]
    ]


def test_an_attribute_of_the_driver_is_not_found_in_another_domain():
    assert searching(kinds("a"), exactly(), constraints=[match("other.com/kind")]).devices(HERE) == "none"


def test_constraints_of_one_claim_do_not_affect_another():
    search = searching(kinds("a", "a", "b"), exactly(count=2), constraints=[match(KIND)])
    search.add(claim("two"))

    assert search.devices(HERE) == [["gpu-0", "gpu-1"], ["gpu-2"]]


def test_all_devices_against_a_constraint_fail_the_attempt():
    search = searching(kinds("a", "b"), all_of(), constraints=[match(KIND)])

    assert search.devices(HERE) == (
        f"claim default/one, request r0: cannot add device {DRIVER}/here/gpu-1 "
        "because a claim constraint would not be satisfied"
    )


def test_a_constraint_of_an_unknown_kind_fails_the_attempt():
    search = searching(kinds("a"), exactly(selectors=selecting("true")), constraints=[match(KIND), {}])

    assert search.devices(HERE) == (
        "claim default/one, constraint #1: empty constraint (unsupported constraint type?)"
    )
