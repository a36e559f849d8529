"""Constraints between the devices of a claim."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from scheduler.testing.devices import DRIVER, device_class, exactly, resource_slice
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node
from tests.support.manifests import MANIFESTS
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


LISTS = {version: FakeFeatures(version, DRAListTypeAttributes=True) for version in ("1.36", "1.37")}


def several(*lists: Any) -> list[Any]:
    """Return devices whose attribute has several texts, or one."""
    return [
        {
            "name": f"gpu-{place}",
            "attributes": {"kind": {"strings": each} if isinstance(each, list) else {"string": each}},
        }
        for place, each in enumerate(lists)
    ]


def chosen(features: FakeFeatures, devices: Any, count: int, constraint: Any) -> Any:
    wanted = claim("one", *(exactly(f"r{n}") for n in range(count)), constraints=[constraint])
    return Search(device_class(), wanted, resource_slice("here", devices), features=features).devices(HERE)


@pytest.mark.parametrize("version", ["1.36", "1.37"])
@pytest.mark.parametrize(
    ("devices", "count", "found"),
    [
        pytest.param([["a", "b"], ["b", "c"]], 2, [["gpu-0", "gpu-1"]], id="one in common"),
        pytest.param([["a"], ["b"]], 2, "none", id="none in common"),
        pytest.param([["a", "b"], "b"], 2, [["gpu-0", "gpu-1"]], id="a list and one value"),
        pytest.param([["a", "b"], ["b", "c"], ["c", "a"]], 3, "none", id="only two have one in common"),
        pytest.param([["a", "b"], ["b", "c"], ["c", "b"]], 3, [["gpu-0", "gpu-1", "gpu-2"]], id="all three"),
    ],
)
def test_devices_match_if_their_lists_have_a_value_in_common(
    version: str, devices: Any, count: int, found: Any
):
    assert chosen(LISTS[version], several(*devices), count, match(KIND)) == found
    assert chosen(FakeFeatures("1.36"), several(*devices), count, match(KIND)) == "none"


def test_a_failed_branch_restores_what_devices_have_in_common_since_1_37():
    devices = several(["a", "b"], ["a"], ["b", "c"], ["b"])

    assert chosen(LISTS["1.37"], devices, 3, match(KIND)) == [["gpu-0", "gpu-2", "gpu-3"]]
    assert chosen(LISTS["1.36"], devices, 3, match(KIND)) == [["gpu-2", "gpu-0", "gpu-3"]]


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_lists_are_distinct_if_they_have_no_value_in_common(version: str):
    devices = several(["a", "b"], ["b", "c"], ["c", "d"])

    assert chosen(LISTS[version], devices, 2, distinct(KIND)) == [["gpu-0", "gpu-2"]]
    assert chosen(LISTS[version], devices[:2], 2, distinct(KIND)) == "none"


@pytest.mark.parametrize(
    ("version", "found"), [("1.36", [["gpu-0", "gpu-1", "gpu-2"]]), ("1.37", [["gpu-0", "gpu-1", "gpu-3"]])]
)
def test_all_devices_of_one_request_are_distinct_since_1_37(version: str, found: Any):
    devices = kinds("a", "b", "a", "c")
    wanted = claim("one", exactly("r0", 3), constraints=[distinct(KIND)])
    search = Search(device_class(), wanted, resource_slice("here", devices), features=FakeFeatures(version))

    assert search.devices(HERE) == found


@pytest.mark.parametrize(
    ("version", "gates", "words"),
    [
        ("1.36", {}, "unsupported attribute value"),
        ("1.36", {"DRAListTypeAttributes": True}, ""),
        ("1.37", {}, ""),
    ],
)
def test_expressions_read_lists(version: str, gates: dict[str, bool], words: str):
    expression = f'"b" in device.attributes["{DRIVER}"].kind'
    search = Search(
        device_class(),
        claim("one", exactly(selectors=selecting(expression))),
        resource_slice("here", several(["a"], ["a", "b"])),
        features=FakeFeatures(version, **gates),
    )

    found = search.devices(HERE)
    assert words in found if words else found == [["gpu-1"]]


def on_numa_nodes(driver: str, *nodes: int | list[int]) -> Any:
    """Return the slice of a driver whose devices have the standard attribute: one NUMA node, or a list of near ones."""
    devices = [
        {
            "name": f"{driver[:3]}-{place}",
            "attributes": {NUMA_NODE: {"ints": each} if isinstance(each, list) else {"int": each}},
        }
        for place, each in enumerate(nodes)
    ]
    return resource_slice("here", devices, driver=driver, pool=driver)


NUMA_NODE = "resource.kubernetes.io/numaNode"


@pytest.mark.parametrize(
    ("gpus", "nics", "given"),
    [
        pytest.param([0, 1], [1], [["gpu-1", "nic-0"]], id="one has the same"),
        pytest.param([0, 2], [1], "none", id="none has the same"),
        pytest.param([[0, 3], [1, 2]], [[2, 4]], [["gpu-1", "nic-0"]], id="lists with one in common"),
        pytest.param([[0, 3], [1, 2]], [3], [["gpu-0", "nic-0"]], id="a list and one number"),
    ],
)
def test_devices_of_two_drivers_may_have_to_be_on_one_numa_node(gpus: Any, nics: Any, given: Any):
    template = next(yaml.safe_load_all((MANIFESTS / "examples" / "numa" / "devices.yaml").read_text()))
    wanted = template["spec"]["spec"]["devices"]
    requests = [
        exactly(each["name"], device_class=each["exactly"]["deviceClassName"]) for each in wanted["requests"]
    ]
    drivers = ("gpu.example.com", "nic.example.com")
    search = Search(
        *(device_class(each, f'device.driver == "{each}"') for each in drivers),
        claim("one", *requests, constraints=wanted["constraints"]),
        on_numa_nodes(drivers[0], *gpus),
        on_numa_nodes(drivers[1], *nics),
        features=LISTS["1.37"],
    )

    assert search.devices(HERE) == given
