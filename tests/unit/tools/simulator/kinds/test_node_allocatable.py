"""What a kube-apiserver accepts of devices that take CPU of their node, and of attributes that requests compute."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from scheduler.testing.devices import (
    device_class,
    exactly,
    first_available,
    resource_claim,
    resource_slice,
    unsaved,
)
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore, pod

SLICES, CLAIMS = "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io"
MAPPINGS, USES = "nodeAllocatableResourceMappings", "nodeAllocatableResources"


def a_store(version: str = "1.37") -> AStore:
    gates = {"DRANodeAllocatableResources": True}
    if version == "1.37":
        gates["DRADerivedAttributes"] = True
    return AStore(version=version, **gates)


def causes(error: StatusError) -> list[tuple[str, str]]:
    return [(each["field"], each["message"]) for each in error.body()["details"]["causes"]]


def slice_with(**fields: Any) -> dict[str, Any]:
    device = {"name": "d", "capacity": {"slots": {"value": "8"}}, **fields}
    return unsaved(resource_slice("a", [device]))


def refused(store: AStore, kind: str, obj: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(StatusError) as caught:
        store.create(kind, obj)
    return causes(caught.value)


def test_a_device_that_takes_cpu_is_stored_and_has_a_multiplier():
    mapped = a_store("1.36").create(SLICES, slice_with(**{MAPPINGS: {"cpu": {"capacityKey": "slots"}}}))
    split = slice_with(**{USES: {"cpu": {"mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "1"}}}})

    found = a_store().create(SLICES, split)

    assert mapped["spec"]["devices"][0][MAPPINGS] == {
        "cpu": {"capacityKey": "slots", "allocationMultiplier": "1"}
    }
    assert found["spec"]["devices"][0][USES] == split["spec"]["devices"][0][USES]


@pytest.mark.parametrize(
    ("field", "use", "path", "message"),
    [
        (MAPPINGS, {"example.com/gpu": {}}, "[example.com/gpu]",
         'Invalid value: "example.com/gpu": must be a node allocatable resource name'),
        (MAPPINGS, {"cpu": {"allocationMultiplier": "0"}}, "[cpu].allocationMultiplier",
         'Invalid value: "0": must be positive'),
        (MAPPINGS, {"cpu": {"capacityKey": ""}}, "[cpu].capacityKey",
         'Invalid value: "": capacityKey must not be an empty string'),
        (MAPPINGS, {"cpu": {"capacityKey": "x"}}, "[cpu].capacityKey", 'Not found: "x"'),
        (USES, {"ephemeral-storage": {"overhead": {"perPod": "1"}}}, "[ephemeral-storage]",
         'Invalid value: "ephemeral-storage": must be cpu, memory or hugepages-<size>'),
        (USES, {"cpu": {}}, "[cpu]", "Required value: at least one of `mapping` or `overhead` is required"),
        (USES, {"cpu": {"mapping": {}}}, "[cpu].mapping",
         'Invalid value: "": exactly one of `deviceMultiplier` or `capacityKey` is required'),
        (USES, {"cpu": {"mapping": {"capacityKey": "slots"}}}, "[cpu].mapping",
         'Invalid value: "": `capacityKey` and `capacityMultiplier` must be set together'),
        (USES, {"cpu": {"mapping": {"deviceMultiplier": "-1"}}}, "[cpu].mapping.deviceMultiplier",
         'Invalid value: "-1": must be positive'),
        (USES, {"cpu": {"mapping": {"capacityKey": "x", "capacityMultiplier": "1"}}}, "[cpu].mapping.capacityKey",
         'Not found: "x"'),
        (USES, {"cpu": {"overhead": {}}}, "[cpu].overhead",
         "Required value: at least one of `perPod` or `perContainer` is required"),
        (USES, {"cpu": {"overhead": {"perPod": "-1"}}}, "[cpu].overhead.perPod",
         'Invalid value: "-1": must be non-negative'),
    ],
)  # fmt: skip
def test_what_a_device_takes_is_checked(field: str, use: dict[str, Any], path: str, message: str):
    store = a_store("1.36" if field == MAPPINGS else "1.37")

    found = refused(store, SLICES, slice_with(**{field: use}))

    assert found == [(f"spec.devices[0].{field}{path}", message)]


TAKEN = {"resourceClaimName": "one", "containers": ["c"], "resources": {"cpu": "2"}}
MAPPED = {"resourceClaimName": "one", "mapping": [{"name": "cpu", "quantity": "2"}]}


def a_pod(store: AStore) -> dict[str, Any]:
    return store.create("pods", pod("web", resourceClaims=[{"name": "x", "resourceClaimName": "one"}]))


def stated(store: AStore, status: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(store.find("pods", "default/web") or a_pod(store))
    changed["status"]["nodeAllocatableResourceClaimStatuses"] = [status]
    return store.update("pods", changed, subresource="status")


@pytest.mark.parametrize("status", [TAKEN, MAPPED])
def test_the_status_of_a_pod_says_what_its_claims_take(status: dict[str, Any]):
    assert stated(a_store(), status)["status"]["nodeAllocatableResourceClaimStatuses"] == [status]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"resourceClaimName": "two"}, ".resourceClaimName",
         'Invalid value: "two": no mapping found in pod reference'),
        ({"containers": []}, ".containers", "Required value: must not be empty"),
        ({"resources": {}}, ".resources", "Required value: must not be empty"),
        ({"resources": {"example.com/gpu": "1"}}, ".resources[example.com/gpu]",
         'Invalid value: "example.com/gpu": must be a node allocatable resource name'),
        ({"resources": {"cpu": "-1"}}, ".resources[cpu]", 'Invalid value: "-1": must be non-negative'),
        ({"mapping": [{"name": "cpu", "quantity": "-1"}]}, ".mapping[0].quantity",
         'Invalid value: "-1": must be non-negative'),
    ],
)  # fmt: skip
def test_what_the_claims_of_a_pod_take_is_checked(changes: dict[str, Any], field: str, message: str):
    with pytest.raises(StatusError) as caught:
        stated(a_store(), {**TAKEN, **changes})

    assert causes(caught.value) == [(f"status.nodeAllocatableResourceClaimStatuses[0]{field}", message)]


def test_a_pod_whose_claims_take_cpu_is_not_resized():
    store = a_store()
    changed = copy.deepcopy(stated(store, TAKEN))
    changed["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}

    with pytest.raises(StatusError) as caught:
        store.update("pods", changed, subresource="resize")

    assert causes(caught.value) == [
        ("spec", "Forbidden: pods with node allocatable resource claims cannot be resized")
    ]


HALF = {"name": "example.com/half", "expression": "1"}
MATCH = {"matchAttribute": "example.com/half"}


def claim(
    *attributes: dict[str, str], constraint: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    found = unsaved(resource_claim("one", exactly(derivedAttributes=list(attributes)), **more))
    found["spec"]["devices"]["constraints"] = [constraint or MATCH]
    return found


def test_attributes_that_requests_compute_are_stored():
    store = a_store()
    store.create("deviceclasses.resource.k8s.io", unsaved(device_class()))

    found = store.create(CLAIMS, claim(HALF))

    assert found["spec"]["devices"]["requests"][0]["exactly"]["derivedAttributes"] == [HALF]


WHERE = "spec.devices.requests[0].exactly.derivedAttributes"


@pytest.mark.parametrize(
    ("attributes", "constraint", "field", "message"),
    [
        ([HALF] * 2, MATCH, "[1]", 'Duplicate value: "example.com/half"'),
        ([HALF], {"matchAttribute": "example.com/other"}, "[0].name",
         'Invalid value: "example.com/half": must be used by a constraint that applies to the request'),
        ([{**HALF, "expression": ""}], MATCH, "[0].expression", "Required value"),
        ([{**HALF, "expression": "1" * 10241}], MATCH, "[0].expression",
         "Too long: may not be more than 10240 bytes"),
        ([{**HALF, "name": ""}], MATCH, "[0].name", "Required value"),
        ([HALF] * 33, MATCH, "", "Too many: 33: must have at most 32 items"),
    ],
)  # fmt: skip
def test_attributes_that_requests_compute_are_checked(
    attributes: list[dict[str, str]], constraint: dict[str, str], field: str, message: str
):
    assert (WHERE + field, message) in refused(a_store(), CLAIMS, claim(*attributes, constraint=constraint))


def test_a_constraint_may_apply_to_one_alternative_only():
    request = first_available("r0", "gpu", "gpu")
    request["firstAvailable"][1]["derivedAttributes"] = [HALF]
    found = unsaved(resource_claim("one", request))
    found["spec"]["devices"]["constraints"] = [{**MATCH, "requests": ["r0/s1"]}]

    assert a_store().create(CLAIMS, found)

    found["spec"]["devices"]["constraints"] = [{**MATCH, "requests": ["r0/s0"]}]
    assert refused(a_store(), CLAIMS, found)[0][0] == (
        "spec.devices.requests[0].firstAvailable[1].derivedAttributes[0].name"
    )
