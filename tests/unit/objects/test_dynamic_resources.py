"""Devices and claims, from JSON and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.errors import ObjectError
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)

RESULT = {
    "request": "r0/s1",
    "driver": "gpu.example.com",
    "pool": "p",
    "device": "gpu-0",
    "adminAccess": True,
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
    "bindingConditions": ["Ready"],
    "bindingFailureConditions": ["Broken"],
    "shareID": "share",
    "consumedCapacity": {"memory": "1Gi"},
}
ALLOCATION = {
    "devices": {
        "results": [RESULT],
        "config": [
            {
                "source": "FromClaim",
                "requests": ["r0"],
                "opaque": {"driver": "gpu.example.com", "parameters": {"any": [1, {"thing": None}]}},
            }
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    },
    "allocationTimestamp": "2026-03-01T08:00:00Z",
}


def slice_with(**device: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "spec": {"devices": [{"name": "gpu-0", **device}]}}


def test_an_allocation_is_written_as_it_was_decoded():
    read = typed_object(ALLOCATION, AllocationResult)

    assert msgspec.json.decode(msgspec.json.encode(read)) == ALLOCATION


def test_unset_fields_are_not_written():
    assert msgspec.to_builtins(AllocationResult()) == {}


def test_an_attribute_has_one_of_four_values_including_false():
    attributes = {
        "i": {"int": 0},
        "b": {"bool": False},
        "s": {"string": ""},
        "v": {"version": "1.0.0"},
        "l": {},
    }

    device = typed_object(slice_with(attributes=attributes), ResourceSlice).spec.devices[0]

    assert msgspec.to_builtins(device)["attributes"] == attributes


def test_nulls_are_unset_fields():
    found = slice_with(
        nodeName=None, taints=None, attributes={"a": {"int": None}}, capacity={"m": {"value": None}}
    )

    device = typed_object(found, ResourceSlice).spec.devices[0]

    assert device.node_name == ""
    assert device.attributes["a"].int_value is None
    assert device.capacity["m"].value == 0


@pytest.mark.parametrize(
    ("obj", "kind"),
    [
        pytest.param(slice_with(capacity={"m": {"value": "much"}}), ResourceSlice, id="a capacity"),
        pytest.param(
            slice_with(capacity={"m": {"value": "1", "requestPolicy": {"default": "much"}}}),
            ResourceSlice,
            id="a default",
        ),
        pytest.param(
            slice_with(capacity={"m": {"value": "1", "requestPolicy": {"validValues": ["1", "much"]}}}),
            ResourceSlice,
            id="a valid value",
        ),
        pytest.param(
            slice_with(capacity={"m": {"value": "1", "requestPolicy": {"validRange": {"step": "much"}}}}),
            ResourceSlice,
            id="a step",
        ),
        pytest.param(
            slice_with(consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": "much"}}}]),
            ResourceSlice,
            id="a counter",
        ),
        pytest.param(
            {
                "metadata": {"name": "c", "namespace": "n"},
                "spec": {
                    "devices": {
                        "requests": [{"name": "r", "exactly": {"capacity": {"requests": {"m": "much"}}}}]
                    }
                },
            },
            ResourceClaim,
            id="a request",
        ),
        pytest.param(
            {
                "metadata": {"name": "c", "namespace": "n"},
                "status": {"allocation": {"devices": {"results": [{"consumedCapacity": {"m": "much"}}]}}},
            },
            ResourceClaim,
            id="consumed capacity",
        ),
    ],
)
def test_an_invalid_quantity_is_found_when_the_object_is_decoded(
    obj: dict[str, Any], kind: type[ResourceSlice | ResourceClaim]
):
    with pytest.raises(ObjectError, match="'much' is not a quantity"):
        typed_object(obj, kind)


def test_a_claim_is_named_with_its_namespace():
    assert typed_object({"metadata": {"name": "c", "namespace": "n"}}, ResourceClaim).key == "n/c"


def test_a_class_has_an_extended_resource_only_if_it_names_one():
    assert typed_object({"metadata": {"name": "c"}}, DeviceClass).spec.extended_resource_name is None
