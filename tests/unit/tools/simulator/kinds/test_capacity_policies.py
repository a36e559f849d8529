"""Validation of the amounts of a shared capacity, and of the operations of a driver that nodes skip.

Source:
    kube-apiserver v1.36, pkg/apis/resource/validation/validation.go, validateRequestPolicy and
    validateRequestPolicyRange. KEP-5945 for skipNodeOperations.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.unit.tools.simulator.a_store import AStore

SLICES = "resourceslices.resource.k8s.io"
PATH = "spec.devices[0].capacity[memory].requestPolicy"


def causes(policy: Any, version: str = "1.36", value: str = "10", **gates: bool) -> list[str]:
    """Return the errors of a policy for a capacity, without the path of the policy."""
    capacity = {"memory": {"value": value, "requestPolicy": policy}}
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": capacity}
    return errors({"devices": [device]}, version, **gates)


def errors(spec: dict[str, Any], version: str, **gates: bool) -> list[str]:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    whole = {"driver": "d.example.com", "pool": pool, "nodeName": "n1", **spec}
    try:
        AStore(version=version, **gates).create(SLICES, {"metadata": {"name": "s"}, "spec": whole})
    except StatusError as error:
        found = error.body()["details"]["causes"]
        return [f"{each['field'].removeprefix(PATH)}: {each['message']}" for each in found]
    return []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"default": "2", "validValues": ["1", "2"]}, []),
        ({"default": "2", "validRange": {"min": "1", "max": "8", "step": "1"}}, []),
        ({"default": "1"}, []),
        ({"validValues": ["1"]}, [".default: Required value: required when validValues is defined"]),
        ({"validRange": {"min": "1"}}, [".default: Required value: required when validRange is defined"]),
        (
            {"default": "1", "validRange": {"max": "2"}},
            [".validRange.min: Required value: required when validRange is defined"],
        ),
        (
            {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}},
            [
                (
                    ': Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at '
                    "the same time"
                )
            ],
        ),
        (
            {"default": "3", "validValues": ["2", "1", "11"]},
            [
                '.validValues[1]: Invalid value: "1": values must be sorted in ascending order',
                '.validValues[2]: Invalid value: "11": option is larger than capacity value: 10',
                '.validValues: Invalid value: "3": default value is not valid according to the requestPolicy',
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "2", "max": "12"}},
            [
                '.validRange.min: Invalid value: "1": default is less than min: 2',
                '.validRange.max: Invalid value: "12": max is larger than capacity value: 10',
            ],
        ),
        (
            {"default": "9", "validRange": {"min": "1", "max": "8", "step": "2"}},
            [
                '.validRange.max: Invalid value: "9": default is more than max: 8',
                '.validRange.step: Invalid value: "8": value is not a multiple of a given step (2) from (1)',
            ],
        ),
        (
            {"default": "2", "validRange": {"min": "2", "step": "9"}},
            ['.validRange.step: Invalid value: "9": one step 11 is larger than capacity value: 10'],
        ),
    ],
)
def test_the_amounts_of_a_shared_capacity_are_validated(policy: dict[str, Any], expected: list[str]):
    assert causes(policy) == expected


HALVES = {"default": "1500m", "validRange": {"min": "500m", "max": "2500m", "step": "500m"}}
THIRDS = {"default": "1", "validRange": {"min": "500m", "step": "300m"}}


@pytest.mark.parametrize(
    ("version", "gates", "policy", "is_valid"),
    [
        # In whole numbers, rounded up: (2 - 1) and (3 - 1) are multiples of 1; (1 - 1) of 1.
        ("1.36", {}, HALVES, True),
        ("1.36", {}, THIRDS, True),
        ("1.37", {"DRAFractionalCapacityRange": False}, THIRDS, True),
        # In thousandths: 1000 and 2000 are multiples of 500; 500 is none of 300.
        ("1.37", {}, HALVES, True),
        ("1.37", {}, THIRDS, False),
    ],
)
def test_ranges_are_computed_in_thousandths_with_the_gate(
    version: str, gates: dict[str, bool], policy: dict[str, Any], is_valid: bool
):
    problem = (
        '.validRange.step: Invalid value: "1": value is not a multiple of a given step (300m) from (500m)'
    )

    assert causes(policy, version, **gates) == ([] if is_valid else [problem])


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (["*"], []),
        (["NodePrepareResources", "NodeUnprepareResources"], []),
        (["NodeUnprepareResources"], []),
        (
            ["Sleep"],
            [
                (
                    '[0]: Unsupported value: "Sleep": supported values: "*", "NodePrepareResources", '
                    '"NodeUnprepareResources"'
                )
            ],
        ),
        (["*", "*"], ['[1]: Duplicate value: "*"']),
        (
            ["NodePrepareResources"],
            [
                (
                    ': Invalid value: ["NodePrepareResources"]: must contain "NodeUnprepareResources" or "*" if it '
                    'contains "NodePrepareResources"'
                )
            ],
        ),
    ],
)
def test_the_skipped_operations_of_nodes_are_validated(operations: list[str], expected: list[str]):
    found = errors({"skipNodeOperations": operations}, "1.37", DRAOptionalNodeOperations=True)

    assert [each.removeprefix("spec.skipNodeOperations") for each in found] == expected
