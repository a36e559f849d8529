"""The requests of claims, and the devices that they get."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.devices import (
    DRIVER,
    allocation,
    device_class,
    exactly,
    first_available,
    resource_claim,
    resource_slice,
)
from tests.support.builders import node
from tests.support.snapshots import snapshot_of
from tests.unit.plugins.dynamic_resources.structured.node_search import (
    Search,
    all_of,
    claim,
    device,
    selecting,
)

HERE = node("here")
NO_SCHEDULE = {"key": "sick", "value": "very", "effect": "NoSchedule"}


def alternative(name: str, count: int = 1, **more: Any):
    return {
        "name": name,
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        **more,
    }


def first_of(name: str, *alternatives: Any):
    return {"name": name, "firstAvailable": list(alternatives)}


def searching(*claims: Any, devices: Any = 3, **more: Any) -> Search:
    return Search(device_class(), *claims, resource_slice("here", devices, **more))


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        pytest.param([exactly()], [["gpu-0"]], id="one"),
        pytest.param([exactly(count=3)], [["gpu-0", "gpu-1", "gpu-2"]], id="as many as there are"),
        pytest.param([exactly(count=4)], "none", id="more than there are"),
        pytest.param([exactly("a"), exactly("b", 2)], [["gpu-0", "gpu-1", "gpu-2"]], id="by two requests"),
        pytest.param([exactly("a", 2), exactly("b", 2)], "none", id="by two requests, too many"),
        pytest.param([all_of()], [["gpu-0", "gpu-1", "gpu-2"]], id="all"),
        pytest.param([exactly("a"), all_of("b")], "none", id="all, after one is allocated"),
        pytest.param(
            [all_of(selectors=selecting('device.driver == "other"'))], "none", id="all, where there is none"
        ),
    ],
)
def test_a_claim_gets_the_requested_number_of_devices(requests: Any, devices: Any):
    assert searching(claim("one", *requests)).devices(HERE) == devices


def test_claims_are_allocated_in_order_and_never_share_a_device():
    assert searching(claim("one"), claim("two", exactly(count=2))).devices(HERE) == [
        ["gpu-0"],
        ["gpu-1", "gpu-2"],
    ]


def test_an_earlier_request_yields_to_a_later_more_specific_one():
    devices = [device("a", fast=True), device("b", fast=False)]
    slow = selecting(f'!device.attributes["{DRIVER}"].fast')
    fast = selecting(f'device.attributes["{DRIVER}"].fast')
    search = searching(
        claim("one", exactly("any"), exactly("other", selectors=fast)), claim("two"), devices=devices
    )

    assert search.devices(HERE) == "none"

    search = searching(claim("one", exactly("any"), exactly("fast", selectors=fast)), devices=devices)

    assert search.devices(HERE) == [["b", "a"]]
    assert searching(claim("one", exactly(selectors=slow)), devices=devices).devices(HERE) == [["b"]]


def test_an_allocated_device_is_not_allocated_again():
    taken = resource_claim("taken", allocated=allocation("gpu-0", "gpu-2", node="here"))
    search = searching(taken, claim("one"))

    assert search.devices(HERE) == [["gpu-1"]]

    search.add(resource_claim("other", allocated=allocation("gpu-1", node="here")))

    assert search.devices(HERE) == "none"

    search.allocated.set("uid-of-default-taken", None)

    assert search.devices(HERE) == [["gpu-0"]]


def test_admin_access_gets_allocated_devices_and_allocates_none():
    taken = resource_claim("taken", allocated=allocation("gpu-0", "gpu-1", "gpu-2", node="here"))
    looking = resource_claim("looking", allocated=allocation("gpu-0", node="here", adminAccess=True))
    admin = exactly("look", 2, adminAccess=True)

    assert searching(taken, claim("one", admin)).devices(HERE) == [["gpu-0", "gpu-1"]]
    assert searching(looking, claim("one")).devices(HERE) == [["gpu-0"]]


def test_admin_access_gets_a_device_once_per_claim():
    admin = exactly("a", 2, adminAccess=True), exactly("b", 2, adminAccess=True)

    assert searching(claim("one", *admin)).devices(HERE) == "none"
    assert searching(claim("one", admin[0]), claim("two", admin[1])).devices(HERE) == [
        ["gpu-0", "gpu-1"],
        ["gpu-0", "gpu-1"],
    ]


def test_the_first_available_alternative_is_allocated():
    wanted = first_of("r0", alternative("many", 4), alternative("some", 2), alternative("one", 1))
    search = searching(claim("one", wanted))

    assert search.devices(HERE) == [["gpu-0", "gpu-1"]]
    assert [each["request"] for each in search.results(HERE)[0]["devices"]["results"]] == ["r0/some"] * 2


def test_an_alternative_is_dropped_if_nothing_is_left_for_the_next_request():
    wanted = first_of("r0", alternative("all", 3), alternative("one", 1))

    assert searching(claim("one", wanted, exactly("r1"))).devices(HERE) == [["gpu-0", "gpu-1"]]


def test_an_earlier_request_yields_to_the_only_alternative():
    devices = [device("a", fast=True), device("b", fast=False)]
    fast = alternative("fast", selectors=selecting(f'device.attributes["{DRIVER}"].fast'))
    search = searching(claim("one", exactly("any"), first_of("r1", fast)), devices=devices)

    assert search.devices(HERE) == [["b", "a"]]


def test_each_alternative_has_its_own_class():
    search = Search(
        device_class("fast", 'device.driver == "none"'),
        device_class("slow"),
        claim("one", first_available("r0", "fast", "slow")),
        resource_slice("here"),
    )

    assert search.devices(HERE) == [["gpu-0"]]


@pytest.mark.parametrize(
    ("effect", "tolerations", "given"),
    [
        pytest.param("NoSchedule", [], False, id="untolerated"),
        pytest.param("NoExecute", [], False, id="untolerated, to be evicted"),
        pytest.param("None", [], True, id="only reported"),
        pytest.param("Unheard", [], True, id="of an effect that is not known"),
        pytest.param("NoSchedule", [{"operator": "Exists"}], True, id="all tolerated"),
        pytest.param("NoSchedule", [{"key": "sick", "value": "very"}], True, id="tolerated by value"),
        pytest.param("NoSchedule", [{"key": "sick", "value": "less"}], False, id="another value tolerated"),
        pytest.param(
            "NoSchedule", [{"key": "slow", "operator": "Exists"}], False, id="another key tolerated"
        ),
        pytest.param(
            "NoSchedule",
            [{"operator": "Exists", "effect": "NoExecute"}],
            False,
            id="another effect tolerated",
        ),
        pytest.param("NoSchedule", [{"key": "sick", "operator": "Like"}], False, id="an unknown operator"),
    ],
)
def test_a_tainted_device_is_allocated_to_a_claim_that_tolerates_it(
    effect: str, tolerations: Any, given: Any
):
    taint = {"key": "sick", "value": "very", "effect": effect}
    search = searching(
        claim("one", exactly(tolerations=tolerations)), devices=[{"name": "gpu-0", "taints": [taint]}]
    )

    assert search.devices(HERE) == ([["gpu-0"]] if given else "none")


def test_selectors_of_the_class_and_of_the_request_both_apply():
    devices = [device("a", fast=True, big=False), device("b", fast=True, big=True)]
    fast, big = (f'device.attributes["{DRIVER}"].{name}' for name in ("fast", "big"))
    search = Search(
        device_class("gpu", fast),
        claim("one", exactly(selectors=selecting(big))),
        resource_slice("here", devices),
    )

    assert search.devices(HERE) == [["b"]]


CLAIM = "claim default/one"
MISSING = f'device.attributes["{DRIVER}"].fast'
FAILS = "CEL runtime error: no such key: fast"


@pytest.mark.parametrize(
    ("classes", "request_", "words"),
    [
        pytest.param(
            [device_class("gpu", MISSING)], exactly(), f"class gpu: selector #0: {FAILS}", id="of the class"
        ),
        pytest.param(
            [device_class()],
            exactly(selectors=[*selecting("true"), *selecting(MISSING)]),
            f"{CLAIM}: selector #1: {FAILS}",
            id="of the request",
        ),
        pytest.param(
            [device_class()],
            all_of(selectors=selecting(MISSING)),
            f"{CLAIM}: selector #0: {FAILS}",
            id="of a request for all",
        ),
    ],
)
def test_a_selector_that_fails_for_a_device_fails_the_attempt(classes: Any, request_: Any, words: str):
    search = Search(*classes, claim("one", request_), resource_slice("here"))

    assert search.devices(HERE) == words
    assert search.judge(snapshot_of(HERE)) == {"here": words}


def test_a_selector_is_not_evaluated_for_devices_beyond_the_needed_ones():
    fine, faulty = device("a", fast=True), device("b")
    wanted = exactly(selectors=selecting(MISSING))

    assert searching(claim("one", wanted), devices=[fine, faulty]).devices(HERE) == [["a"]]
    assert searching(claim("one", wanted), devices=[faulty, fine]).devices(HERE).endswith(FAILS)


def test_a_selector_is_not_evaluated_for_allocated_devices():
    taken = resource_claim("taken", allocated=allocation("b", node="here"))
    wanted = exactly(selectors=selecting(MISSING))
    devices = [device("b"), device("a", fast=True)]

    assert searching(taken, claim("one", wanted), devices=devices).devices(HERE) == [["a"]]


def test_a_selector_that_does_not_compile_fails_the_attempt():
    words = searching(claim("one", exactly(selectors=selecting("nothing")))).devices(HERE)

    assert words.startswith(
        f"{CLAIM}: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:1: "
    )
    assert "undeclared reference to 'nothing'" in words


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        pytest.param(
            exactly(device_class="none"),
            'could not retrieve device class none: deviceclass.resource.k8s.io "none" not found',
            id="no such class",
        ),
        pytest.param(
            exactly(device_class=""), "missing device class name (unsupported request type?)", id="no class"
        ),
        pytest.param({"name": "r0"}, "missing device class name (unsupported request type?)", id="nothing"),
        pytest.param(
            exactly(allocationMode="Some"), "unsupported count mode Some", id="a mode that is not known"
        ),
        pytest.param(
            exactly(selectors=[*selecting("true"), {}]),
            "selector #1: CEL expression empty (unsupported selector type?)",
            id="a selector that is not known",
        ),
    ],
)
def test_a_request_of_an_unknown_kind_fails_the_attempt(request_: Any, problem: str):
    search = searching(claim("one", request_))

    assert search.devices(HERE) == f"{CLAIM}, request r0: {problem}"
    assert search.judge(snapshot_of(HERE)) == {"here": f"{CLAIM}, request r0: {problem}"}


def test_an_alternative_is_named_in_errors_by_its_last_name():
    wanted = first_of("r0", alternative("one"), alternative("two", deviceClassName="none"))

    assert (
        searching(claim("one", wanted)).devices(HERE).startswith(f"{CLAIM}, request two: could not retrieve")
    )


def test_a_claim_has_at_most_32_devices():
    many = 'device.driver.startsWith("gpu")'

    assert len(searching(claim("one", exactly(count=32)), devices=40).devices(HERE)[0]) == 32
    assert searching(claim("one", exactly(count=20), exactly("r1", 13)), devices=40).devices(HERE) == (
        f"{CLAIM}: number of requested devices 33 exceeds the claim limit of 32"
    )
    assert searching(claim("one", all_of(selectors=selecting(many))), devices=33).devices(HERE) == (
        f"{CLAIM}: number of requested devices 33 exceeds the claim limit of 32"
    )


def test_alternatives_with_too_many_devices_are_skipped():
    wanted = (
        exactly("a", 20),
        first_of("b", alternative("many", 20), alternative("few", 10)),
        first_of("c", alternative("some", 3), alternative("fewer", 1)),
    )
    search = searching(claim("one", *wanted), devices=60)

    assert len(search.devices(HERE)[0]) == 31
    assert [each["request"] for each in search.results(HERE)[0]["devices"]["results"][20:]] == [
        *["b/few"] * 10,
        "c/fewer",
    ]


def test_alternatives_that_all_have_too_many_devices_fail_the_attempt():
    wanted = (
        first_of("a", alternative("some", 20), alternative("one", 1, selectors=selecting("false"))),
        first_of("b", alternative("many", 20), alternative("more", 31, selectors=selecting("true"))),
    )

    assert searching(claim("one", *wanted), devices=60).devices(HERE) == "none"
    assert searching(
        claim("one", exactly("a", 2), wanted[1] | {"firstAvailable": [alternative("x", 31)]})
    ).devices(HERE) == (f"{CLAIM}: number of requested devices 33 exceeds the claim limit of 32")


def test_a_deep_search_needs_no_deep_stack():
    claims = [claim(f"c{number}", exactly(count=32)) for number in range(40)]
    search = searching(*claims, devices=1280)

    assert [len(each) for each in search.devices(HERE)] == [32] * 40


def test_an_empty_list_of_claims_fits_everywhere():
    search = Search()

    assert search.devices(HERE) == []
    assert search.judge(snapshot_of(HERE)) == {"here": ""}
