"""One watch event from a file, and everything that can be wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import FieldError
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.cluster_file import ClusterFile, ClusterFileError
from scheduler.tools.whatif.watch_event import EventType, FileWatchEvent, load, parse
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}}
CUSTOM = {"apiVersion": "example.com/v1", "kind": "Quota", "metadata": {"name": "q", "namespace": "shop"}}
BAD_NODE = node_object("n2", cpu="plenty")

UNKNOWN_KIND = (
    "object: Quota of example.com/v1 is a kind that no plugin of the profiles reads and "
    "Kubernetes does not have; check kind and apiVersion"
)
NO_QUANTITY = "'plenty' is not a quantity: expected a number and a suffix, as in 100m, 1.5Gi or 2e3"


def versioned(version: int, **fields: Any) -> dict[str, Any]:
    """Return the pod web at a version."""
    found = pod_object("web", **fields)
    found["metadata"]["resourceVersion"] = str(version)
    return found


@pytest.fixture
def cluster() -> ClusterFile:
    """One node n1, one pending pod default/web and a Service shop/web."""
    items = [node_object("n1"), pod_object("web"), SERVICE]
    return cluster_file.parse(json.dumps(items).encode(), "cluster")


def faults(cluster: ClusterFile, event: Any) -> list[str]:
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    with pytest.raises(ClusterFileError) as raised:
        parse(data, "event", cluster)
    return [str(fault) for fault in raised.value.faults]


def parsed(cluster: ClusterFile, **event: Any) -> FileWatchEvent:
    return parse(json.dumps(event).encode(), "event", cluster, kinds={"example.com/v1/quotas"})


def test_a_node_and_its_previous_version_are_decoded(cluster: ClusterFile) -> None:
    event = parsed(
        cluster, type="MODIFIED", object=node_object("n1", cpu="8"), oldObject=node_object("n1", cpu="4")
    )

    assert (event.type, event.kind, event.key) == (EventType.MODIFIED, "v1/nodes", "n1")
    assert (event.old.allocatable["cpu"], event.obj.allocatable["cpu"]) == (4000, 8000)


def test_a_modification_has_a_new_version_or_none(cluster: ClusterFile) -> None:
    for old, new in [(versioned(7), versioned(8)), (pod_object("web"), pod_object("web", cpu="1"))]:
        assert parsed(cluster, type="MODIFIED", object=new, oldObject=old).type is EventType.MODIFIED


@pytest.mark.parametrize("old", [{}, {"oldObject": None}], ids=["absent", "null"])
def test_an_addition_has_no_previous_version(cluster: ClusterFile, old: dict[str, None]) -> None:
    event = parsed(cluster, type="ADDED", object=pod_object("new", cpu="1"), **old)

    assert event.old is None
    assert event.obj.key == event.key == "default/new"


def test_a_pod_without_server_defaults_is_completed_as_in_the_cluster(cluster: ClusterFile) -> None:
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": {"containers": []}}

    event = parsed(cluster, type="ADDED", object=bare)

    assert (event.key, event.obj.uid) == ("default/bare", "default/bare")


def test_other_kinds_are_decoded_unchanged(cluster: ClusterFile) -> None:
    event = parsed(cluster, type="DELETED", object=SERVICE)

    assert (event.kind, event.key, event.obj) == ("v1/services", "shop/web", SERVICE)


def test_kinds_that_a_plugin_reads_are_known(cluster: ClusterFile) -> None:
    assert parsed(cluster, type="ADDED", object=CUSTOM).kind == "example.com/v1/quotas"


def test_yaml_in_a_file_is_decoded(cluster: ClusterFile, tmp_path: Path) -> None:
    path = tmp_path / "event.yaml"
    path.write_text(
        "type: ADDED\nobject:\n  apiVersion: v1\n  kind: Node\n  metadata: {name: n9}\n"
        "  status: {allocatable: {cpu: 2}}\n"
    )

    assert load(str(path), cluster).obj.allocatable["cpu"] == 2000


def test_a_missing_file_is_reported(cluster: ClusterFile, tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError, match=r"none\.json: cannot be read: No such file"):
        load(str(tmp_path / "none.json"), cluster)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(b"", ["is empty"], id="nothing"),
        pytest.param(b"\xff\x00", ["not UTF-8: byte 0"], id="no text"),
        pytest.param(b"{}\n{}", ["must be one watch event, was 2 documents"], id="two events"),
        pytest.param([], ["must be a watch event, which has type and object, was a list"], id="a list"),
        pytest.param(7, ["must be a watch event, which has type and object, was 7"], id="a number"),
        pytest.param(
            {},
            [
                "type: must be one of ADDED, MODIFIED, DELETED, was absent",
                "object: must be an API object, was absent",
            ],
            id="an empty event",
        ),
        pytest.param(
            node_object("n1"),
            [
                "apiVersion: unknown field; a watch event has type, object, oldObject",
                "kind: unknown field; a watch event has type, object, oldObject",
                "metadata: unknown field; a watch event has type, object, oldObject",
                "spec: unknown field; a watch event has type, object, oldObject",
                "status: unknown field; a watch event has type, object, oldObject",
                "type: must be one of ADDED, MODIFIED, DELETED, was absent",
                "object: must be an API object, was absent",
            ],
            id="a bare object",
        ),
        pytest.param(
            {"type": "BOOKMARK", "object": node_object("n2")},
            ['type: must be one of ADDED, MODIFIED, DELETED, was "BOOKMARK"'],
            id="another type",
        ),
        pytest.param(
            {"type": ["ADDED"], "object": node_object("n2")},
            ["type: must be one of ADDED, MODIFIED, DELETED, was a list"],
            id="a type that is no text",
        ),
        pytest.param(
            {"type": "MODIFIED", "object": node_object("n1")},
            ["oldObject: must be the previous object: requeueing after MODIFIED depends on the change"],
            id="a change from nowhere",
        ),
        pytest.param(
            {"type": "DELETED", "object": node_object("n1"), "oldObject": node_object("n1")},
            ["oldObject: must be absent: DELETED has no previous object"],
            id="a deletion with an earlier version",
        ),
        pytest.param(
            {"type": "MODIFIED", "object": node_object("n1"), "oldObject": pod_object("web")},
            ["oldObject: must be Node n1 before the change, was Pod default/web"],
            id="two objects",
        ),
        pytest.param(
            {"type": "ADDED", "object": "n1"}, ['object: must be an API object, was "n1"'], id="no object"
        ),
        pytest.param(
            {"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": 7}}},
            ["object: apiVersion, metadata.name: must be a string that is not empty"],
            id="an object without identity",
        ),
        pytest.param(
            {"type": "ADDED", "object": CUSTOM},
            [UNKNOWN_KIND],
            id="an unknown kind",
        ),
        pytest.param(
            {"type": "ADDED", "object": node_object("n1")},
            ["object: Node n1 is already in the cluster, so it cannot be ADDED"],
            id="added twice",
        ),
        pytest.param(
            {"type": "DELETED", "object": pod_object("gone")},
            ["object: Pod default/gone is not in the cluster, so it cannot be DELETED"],
            id="deleted before it was there",
        ),
        pytest.param(
            {"type": "DELETED", "object": {**SERVICE, "metadata": {"name": "db", "namespace": "shop"}}},
            ["object: Service shop/db is not in the cluster, so it cannot be DELETED"],
            id="a Service that is not there",
        ),
        pytest.param(
            {"type": "DELETED", "object": pod_object("web", uid="other")},
            ["object.metadata.uid: must be uid-of-default-web as in the cluster, was other"],
            id="another pod of that name",
        ),
        pytest.param(
            {"type": "MODIFIED", "object": pod_object("web"), "oldObject": pod_object("web", uid="other")},
            ["oldObject.metadata.uid: must be uid-of-default-web as in the cluster, was other"],
            id="an earlier version of another pod of that name",
        ),
        pytest.param(
            {"type": "MODIFIED", "object": versioned(7, cpu="1"), "oldObject": versioned(7)},
            ["object.metadata.resourceVersion: must differ from oldObject's, was 7 too"],
            id="a change without a new version",
        ),
        pytest.param(
            {"type": "ADDED", "object": BAD_NODE},
            [f"object.status.allocatable.cpu: {NO_QUANTITY}"],
            id="a node that cannot be understood",
        ),
        pytest.param(
            {"type": "MODIFIED", "object": node_object("n1"), "oldObject": node_object("n1", cpu="plenty")},
            [f"oldObject.status.allocatable.cpu: {NO_QUANTITY}"],
            id="an earlier version that cannot be understood",
        ),
    ],
)
def test_an_invalid_event_is_reported(cluster: ClusterFile, event: Any, expected: list[str]) -> None:
    assert faults(cluster, event) == expected


def test_messages_name_the_file(cluster: ClusterFile) -> None:
    with pytest.raises(ClusterFileError, match=r"^event\.json: type: must be"):
        parse(b'{"object": 7}', "event.json", cluster)


def test_errors_are_field_errors(cluster: ClusterFile) -> None:
    with pytest.raises(ClusterFileError) as raised:
        parse(b"{", "event", cluster)

    assert all(isinstance(fault, FieldError) for fault in raised.value.faults)
