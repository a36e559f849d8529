"""A heartbeat changes no field that decisions use; every other update does."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.objects.decode import decode_node
from tests.support.builders import node_object

if TYPE_CHECKING:
    from scheduler.objects.node import NodeObject


def before() -> dict[str, Any]:
    each = node_object("n", labels={"zone": "a"}, annotations={"a": "b"}, images=[{"names": ["a:1"]}])
    each["metadata"] |= {"resourceVersion": "7", "managedFields": [{"time": "08:00"}]}
    each["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    each["status"]["nodeInfo"] = {"kubeletVersion": "v1.35.0"}
    return each


def decoded(each: dict[str, Any]) -> NodeObject:
    return decode_node(msgspec.json.encode(each))


def changed(path: str, value: Any) -> NodeObject:
    """Return the node with another value at a path."""
    each = deepcopy(before())
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    at: Any = each
    for key in parents:
        at = at[key]
    at[last] = value
    return decoded(each)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata/resourceVersion", "8"),
        ("metadata/managedFields", []),
        ("status/conditions/0/lastHeartbeatTime", "2026-01-01T00:05:00Z"),
    ],
)
def test_the_time_and_managed_fields_of_a_heartbeat_are_no_change(path: str, value: Any):
    assert changed(path, value).is_heartbeat_of(decoded(before()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata/uid", "another"),
        ("metadata/labels/zone", "b"),
        ("metadata/annotations/a", "c"),
        ("metadata/deletionTimestamp", "2026-01-01T00:00:00Z"),
        ("metadata/finalizers", ["x"]),
        ("spec/taints", [{"key": "k", "effect": "NoSchedule"}]),
        ("spec/unschedulable", True),
        ("spec/podCIDR", "10.0.0.0/24"),
        ("spec/providerID", "x"),
        ("status/allocatable/cpu", "8"),
        ("status/capacity/cpu", "8"),
        ("status/images", []),
        ("status/declaredFeatures", ["A"]),
        ("status/nodeInfo/kubeletVersion", "v1.36.0"),
        ("status/addresses", [{"type": "InternalIP", "address": "10.0.0.1"}]),
        ("status/volumesInUse", ["v"]),
        ("status/conditions", []),
        ("status/conditions/0/type", "DiskPressure"),
        ("status/conditions/0/status", "False"),
        ("status/conditions/0/reason", "KubeletNotReady"),
        ("status/conditions/0/message", "other"),
        ("status/conditions/0/lastTransitionTime", "2026-01-01T00:05:00Z"),
    ],
)
def test_any_other_difference_is_a_change(path: str, value: Any):
    assert not changed(path, value).is_heartbeat_of(decoded(before()))
    assert not decoded(before()).is_heartbeat_of(changed(path, value))


def test_a_node_without_conditions_is_compared_by_the_rest():
    bare = before()
    del bare["status"]["conditions"]

    assert decoded(bare).is_heartbeat_of(decoded(bare))
    assert not changed("metadata/labels/zone", "b").is_heartbeat_of(decoded(bare))
