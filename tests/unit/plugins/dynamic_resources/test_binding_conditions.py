"""When the devices of a claim are ready, when they have failed, and the deadline."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from plugins.dynamic_resources.pod_claims import (
    DeviceBindingError,
    deadline_of,
    drivers_with_conditions,
    is_ready,
    waits_for_conditions,
)
from scheduler.objects.dynamic_resources import ResourceClaim
from scheduler.testing.devices import DRIVER, allocation, resource_claim

WANTED = {"bindingConditions": ["Ready", "Attached"], "bindingFailureConditions": ["Broken"]}


def said(*conditions: str, device: str = "gpu-0") -> dict[str, Any]:
    """The conditions of a device by its driver: `Ready`, `!Ready` for one that is not met."""
    reported = [
        {"type": each.lstrip("!"), "status": "False" if each[0] == "!" else "True", "reason": "Why", "message": 'so "it" is'}
        for each in conditions
    ]  # fmt: skip
    return {"driver": DRIVER, "pool": "n", "device": device, "conditions": reported}


def claim(*statuses: dict[str, Any], **allocated: Any) -> ResourceClaim:
    given = allocation("gpu-0", node="n", **{**WANTED, **allocated})
    return msgspec.convert(resource_claim("one", allocated=given, devices=statuses), ResourceClaim)


@pytest.mark.parametrize(
    ("each", "ready"),
    [
        pytest.param(msgspec.convert(resource_claim("one"), ResourceClaim), False, id="not allocated"),
        pytest.param(claim(bindingConditions=[]), True, id="nothing to wait for"),
        pytest.param(claim(), False, id="no conditions yet"),
        pytest.param(
            claim(said("Ready", "Attached", device="gpu-1")), False, id="conditions of another device"
        ),
        pytest.param(claim(said("Ready")), False, id="one of two"),
        pytest.param(claim(said("Ready", "!Attached")), False, id="one not met"),
        pytest.param(claim(said("Ready", "Attached")), True, id="both"),
        pytest.param(claim(said("Ready", "Attached", "!Broken")), True, id="not broken"),
    ],
)
def test_all_conditions_must_be_true(each: ResourceClaim, ready: bool):
    assert is_ready(each) is ready


def test_a_failed_device_has_its_reason():
    with pytest.raises(DeviceBindingError) as raised:
        is_ready(claim(said("Ready", "Attached", "Broken")))

    assert str(raised.value) == 'device binding failed: claim=one, reason=Why, message="so \\"it\\" is"'


def test_the_timeout_starts_at_the_allocation_of_devices_with_conditions():
    timestamp = "2026-03-01T08:00:00Z"

    assert deadline_of(claim(timestamp=timestamp), 60.0) == datetime(2026, 3, 1, 8, 1, tzinfo=UTC)
    assert deadline_of(claim(timestamp=timestamp, bindingConditions=[]), 60.0) is None
    assert deadline_of(claim(), 60.0) is None


def test_the_devices_that_a_pod_waits_for():
    assert waits_for_conditions(claim())
    assert list(drivers_with_conditions(claim())) == [DRIVER]
    assert not waits_for_conditions(claim(bindingConditions=[]))
    assert not waits_for_conditions(msgspec.convert(resource_claim("one"), ResourceClaim))
