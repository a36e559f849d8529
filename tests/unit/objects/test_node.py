"""Images of nodes, and heartbeats: they change no field that decisions use, and are recognized without decoding."""

from __future__ import annotations

import json
import tracemalloc
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from scheduler.errors import ObjectError
from scheduler.framework.events import node_changes
from scheduler.kube.client.store import Store
from scheduler.kube.client.wire import decode_identity
from scheduler.objects import node as node_module
from scheduler.objects.decode import decode_node
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.node import NodeObject, normalized_image_name
from scheduler.objects.v1 import Node
from tests.support.builders import node, node_object


def test_every_name_of_an_image_has_its_size_and_the_first_counts():
    each = node(
        "n",
        images=[
            {"names": ["a:1", "a@sha256:0"], "sizeBytes": 10},
            {"names": ["b:1", "a:1"], "sizeBytes": 20},
            {"names": ["c:1"]},
        ],
    )

    assert each.images == {"a:1": 10, "a@sha256:0": 10, "b:1": 20, "c:1": 0}


@pytest.mark.parametrize(
    "status",
    [
        b"{}",
        b'{"status": null}',
        b'{"status": {"images": null}}',
        b'{"status": {"images": [{"names": null}]}}',
    ],
)
def test_a_node_may_have_no_images(status: bytes):
    assert NodeObject(Node(), status).images == {}


def test_the_images_of_a_node_are_decoded_with_it(monkeypatch: pytest.MonkeyPatch):
    each = node("n", images=[{"names": ["a:1"], "sizeBytes": 10}])
    monkeypatch.setattr(node_module, "_node_images", None)
    assert each.images == {"a:1": 10}


def test_nodes_share_the_texts_that_they_have_in_common():
    images = [{"names": [f"registry.example.com/app-{i}:1"], "sizeBytes": 10**9 + i} for i in range(50)]
    decode_node(_written("n0", images))
    tracemalloc.start()
    nodes = [decode_node(_written(f"n{i}", images[i % 2 :])) for i in range(1, 21)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [each.raw for each in nodes] == [_written(f"n{i}", images[i % 2 :]) for i in range(1, 21)]
    assert all(len(each.images) == 50 - i % 2 for i, each in enumerate(nodes, 1))
    assert taken < sum(len(each.raw) for each in nodes)  # as text and decoded


def test_a_node_with_very_many_parts_is_kept_as_a_whole_from_some_part_on():
    raw = b'{"metadata":{"name":"n"},"status":{"images":[%b]}}' % b",".join([b"{}"] * 100_000)
    tracemalloc.start()
    each = decode_node(raw)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert each.raw == raw
    assert taken < 2 * len(raw)


def _written(name: str, images: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode(node_object(name, images=images))


def test_a_node_with_an_invalid_list_of_images_has_its_other_fields():
    each = node("n", cpu="3", images=[{"names": "a:1"}])
    assert each.allocatable["cpu"] == 3000
    with pytest.raises(ObjectError, match=r"Node n: status\.images: .*names"):
        _ = each.images


def test_an_invalid_list_of_images_is_an_error_naming_the_node():
    with pytest.raises(ObjectError, match=r"Node n: status\.images: .*names"):
        _ = NodeObject(Node(ObjectMeta("n")), b'{"status": {"images": [{"names": "a:1"}]}}').images


@pytest.mark.parametrize(
    ("name", "normalized"),
    [
        ("a", "a:latest"),
        ("a:1", "a:1"),
        ("r.io:5000/a", "r.io:5000/a:latest"),
        ("r.io:5000/a:1", "r.io:5000/a:1"),
        ("a@sha256:0", "a@sha256:0"),
        ("", ":latest"),
    ],
)
def test_the_default_tag_is_added(name: str, normalized: str):
    assert normalized_image_name(name) == normalized


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


def written(version: str = "7", at: str = "2026-01-01T00:00:00Z", **changes: Any) -> bytes:
    """A node as Go writes it: metadata first, status last, no spaces."""
    made = node_object("n1", labels={"lastHeartbeatTime": "2026", "resourceVersion": "5"})
    metadata = {
        "name": "n1",
        "uid": "u1",
        "resourceVersion": version,
        "labels": made["metadata"]["labels"],
        "annotations": {"time": "1", "odd": '"lastHeartbeatTime":"2026-01-01T00:00:00Z","spec":{,"status":{'},
        "managedFields": [{"manager": "kubelet", "time": at, "fieldsV1": {"f:status": {"f:conditions": {}}}}],
    }
    spec: dict[str, Any] = {"podCIDR": "10.0.0.0/24"}
    condition = {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": at,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {**made["status"], "conditions": [condition, {**condition, "type": "DiskPressure"}]}
    found = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}
    for path, value in changes.items():
        *parents, name = path.split("__")
        part: Any = found
        for parent in parents:
            part = part[int(parent) if parent.isdigit() else parent]
        if value is None:
            del part[name]
        else:
            part[name] = value
    return json.dumps(found, separators=(",", ":")).encode()


LATER = {"version": "8", "at": "2026-01-01T00:00:10Z"}


def test_a_heartbeat_returns_the_node_with_another_version() -> None:
    before = decode_node(written())
    assert before.allocatable

    after = before.heartbeat(written(**LATER), "8")

    assert after is not None
    assert after.node == decode_node(written(**LATER)).node
    assert after.raw == written(**LATER)
    assert after.allocatable == before.allocatable
    assert after.is_heartbeat_of(before)
    assert node_changes(before, after) == []


def test_a_heartbeat_without_managed_fields_is_recognized() -> None:
    before = decode_node(written(metadata__managedFields=None))

    assert before.heartbeat(written(**LATER, metadata__managedFields=None), "8") is not None


@pytest.mark.parametrize(
    "change",
    [
        {"metadata__labels__zone": "b"},
        {"metadata__labels__lastHeartbeatTime": "2027"},
        {"metadata__labels__resourceVersion": "9"},
        {"metadata__annotations__time": "2"},
        {"metadata__annotations__odd": '"lastHeartbeatTime":"2026-01-01T00:00:10Z","spec":{,"status":{'},
        {"metadata__deletionTimestamp": "2026-01-01T00:00:10Z"},
        {"spec__unschedulable": True},
        {"spec__podCIDR": "10.0.1.0/24"},
        {"status__conditions__0__status": "False"},
        {"status__conditions__0__lastTransitionTime": "2026-01-01T00:00:10Z"},
        {"status__conditions__1__lastHeartbeatTime": "no time, as long too"},
        {"status__conditions__1__lastHeartbeatTime": None},
        {"status__allocatable__cpu": "5"},
        {"status__images": [{"names": ["a"], "sizeBytes": 1}]},
        {"status": None},
        {"spec": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_other_change_is_no_heartbeat(change: dict[str, Any]) -> None:
    before = decode_node(written())

    assert before.heartbeat(written(**LATER, **change), "8") is None


def test_another_json_format_than_that_of_go_is_decoded_fully() -> None:
    before = decode_node(json.dumps(json.loads(written())).encode())

    assert before.heartbeat(json.dumps(json.loads(written(**LATER))).encode(), "8") is None


def test_the_store_does_not_decode_a_heartbeat() -> None:
    decoded: list[bytes] = []
    reported: list[tuple[str, bool]] = []

    def decode(raw: bytes) -> NodeObject:
        decoded.append(raw)
        return decode_node(raw)

    class Handler:
        def on_add(self, obj: NodeObject) -> None: ...
        def on_update(self, old: NodeObject, new: NodeObject) -> None:
            reported.append((new.node.metadata.resource_version, new.is_heartbeat_of(old)))

        def on_delete(self, old: NodeObject) -> None: ...
        def on_undecodable(self, identity: Any, error: Any) -> None: ...

    store = Store("Node", decode, Handler(), next_version=NodeObject.heartbeat)
    for raw in (written(), written(**LATER), written("9", spec__unschedulable=True)):
        store.put(decode_identity(raw), raw)

    assert [raw == written() for raw in decoded] == [True, False]
    assert reported == [("8", True), ("9", False)]
    assert store.objects["n1"].unschedulable
