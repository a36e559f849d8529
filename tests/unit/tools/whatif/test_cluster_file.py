"""Valid cluster files, and the errors of invalid ones."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration.yaml_text import read, read_all, write
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.cluster_file import ClusterFileError, load, parse
from scheduler.tools.whatif.documents import plural
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

NODE = node_object("n1", cpu="4")
POD = pod_object("web", namespace="shop", cpu="1")
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}}


def _list(*items: Any, kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": list(items)}


def _json(*documents: Any) -> bytes:
    return "\n".join(json.dumps(document, indent=2) for document in documents).encode()


def _yaml(*documents: Any) -> bytes:
    # JSON's strings and numbers are YAML; the block around them makes it no JSON.
    return "\n---\n".join(f"# a document\n{json.dumps(document)}" for document in documents).encode()


def _without(obj: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {field: value for field, value in obj.items() if field not in fields}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_json(_list(NODE, POD, SERVICE)), id="a List in JSON"),
        pytest.param(_yaml(_list(NODE, POD, SERVICE)), id="a List in YAML"),
        pytest.param(_yaml(NODE, POD, SERVICE), id="one YAML document per object"),
        pytest.param(_json(NODE, POD, SERVICE), id="one JSON text after another"),
        pytest.param(_json([NODE, POD, SERVICE]), id="a bare list in JSON"),
        pytest.param(_yaml([NODE], [POD, SERVICE]), id="bare lists in YAML"),
        pytest.param(_json(_list(_list(NODE), [POD, SERVICE])), id="lists within lists"),
        pytest.param(
            _json(
                _list(_without(NODE, "apiVersion", "kind"), kind="NodeList"),
                _list(_without(POD, "apiVersion", "kind"), kind="PodList"),
                SERVICE,
            ),
            id="lists that name the kind once",
        ),
        pytest.param(b"\xef\xbb\xbf" + _json(_list(NODE, POD, SERVICE)), id="with a byte order mark"),
        pytest.param(_json(_list(NODE, POD, SERVICE)).decode().encode("utf-16"), id="UTF-16"),
    ],
)
def test_objects_are_found_in_every_form_of_kubectl_and_files(data: bytes) -> None:
    found = parse(data, "cluster")

    assert [each.name for each in found.nodes] == ["n1"]
    assert found.nodes[0].allocatable["cpu"] == 4000
    assert [each.key for each in found.pods] == ["shop/web"]
    assert found.pods[0].object["spec"] == POD["spec"]
    assert {kind: list(objects) for kind, objects in found.others.items()} == {"v1/services": ["shop/web"]}


def test_yaml_in_block_style_is_read() -> None:
    found = parse(
        b"apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels: {zone: a}\n"
        b"status:\n  allocatable: {cpu: 4, memory: 16Gi}\n",
        "cluster",
    )

    assert found.nodes[0].allocatable == {"cpu": 4000, "memory": 16 * 2**30}
    assert found.nodes[0].labels == {"zone": "a"}


def test_an_empty_list_is_an_empty_cluster() -> None:
    assert parse(_json(_list()), "cluster") == cluster_file.ClusterFile()


# Pods as people write them.


def test_a_pod_without_namespace_is_in_the_default_one() -> None:
    written = {**POD, "metadata": {"name": "web", "uid": "1"}}

    found = parse(_json(written), "cluster").pods[0]

    assert found.key == "default/web"
    assert found.uid == "1"
    assert found.object["metadata"]["namespace"] == "default"


def test_a_pod_without_server_defaults_gets_them() -> None:
    written = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "hostNetwork": True,
            "containers": [
                {
                    "name": "c",
                    "image": "a",
                    "resources": {"limits": {"cpu": "2"}},
                    "ports": [{"containerPort": 80}],
                }
            ],
        },
    }

    found = parse(_json(written), "cluster").pods[0]

    assert found.scheduler_name == "default-scheduler"
    assert found.resources.requests["cpu"] == 2000
    assert [(port.protocol, port.port) for port in found.host_ports] == [("TCP", 80)]


def test_containers_may_have_no_resources() -> None:
    written = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": "a"}], "resources": {"limits": {"cpu": "2"}}},
    }

    assert parse(_json(written), "cluster").pods[0].resources.requests["cpu"] == 2000


def test_a_pod_with_server_defaults_stays_as_it_is() -> None:
    written = json.loads(json.dumps(POD))
    written["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}

    assert "cpu" not in parse(_json(written), "cluster").pods[0].resources.requests


def test_pods_without_uid_are_identified_by_namespace_and_name() -> None:
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}}
        for namespace in ("a", "b")
    ]

    assert len({pod.uid for pod in parse(_json(pods), "cluster").pods}) == 2


# Broken files.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "c: is empty", id="empty"),
        pytest.param(b"# nothing\n---\n", "c: is empty", id="comments only"),
        pytest.param(b"\xff\x00\xff", "c: not UTF-8: byte 0", id="no text"),
        pytest.param(
            b'{\n  "kind": "List",\n  "items": [}\n',
            "c: line 3, column 13: not JSON: Expecting value",
            id="JSON that breaks off",
        ),
        pytest.param(
            b"a: [1\nb: 2", "c: line 2, column 2: not YAML: did not find expected ',' or ']'", id="no YAML"
        ),
        pytest.param(
            b"apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {}\nspec: {}",
            "c: spec: given twice, on lines 4 and 5",
            id="a key given twice",
        ),
        pytest.param(b"hello", 'c: must be an API object, was "hello"', id="text"),
        pytest.param(b"[5]", "c: [0]: must be an API object, was 5", id="a list of numbers"),
        pytest.param(b'{"items": [{"kind": NaN}]}', "c: not JSON", id="a number that is none"),
        pytest.param(b'[{"kind": "\\ud800"}]', "c: not JSON", id="half a character"),
        pytest.param(b"[" * 100_000, "c: nested too deeply", id="endless lists in JSON"),
        pytest.param(
            b"a: " + b"{a: " * 90 + b"}" * 90, "c: nested deeper than 64 levels", id="endless maps in YAML"
        ),
        pytest.param(
            b'{"kind": "List", "items": {"a": 1}}',
            "c: items: must be a list, was a mapping",
            id="items no list",
        ),
        pytest.param(
            _json([_without(NODE, "kind")]),
            "c: [0] (n1): kind: must be a string that is not empty",
            id="no kind",
        ),
        pytest.param(
            _json(_list({"kind": "Pod", "metadata": {"name": 5}})),
            "c: items[0] (Pod): apiVersion, metadata.name: must be a string that is not empty",
            id="neither version nor name",
        ),
        pytest.param(
            _json(_list({**POD, "metadata": "web"})),
            'c: items[0]: metadata: must be a mapping, was "web"',
            id="metadata no mapping",
        ),
        pytest.param(
            _json(_list(NODE, {**POD, "spec": {**POD["spec"], "priority": "high"}})),
            "c: items[1] (Pod shop/web): spec.priority: expected `int`, got `str`",
            id="a field of the wrong type",
        ),
        pytest.param(
            _json(_list(node_object("n2", cpu="four"))),
            "c: items[0] (Node n2): status.allocatable.cpu: 'four' is not a quantity",
            id="a bad quantity",
        ),
        pytest.param(
            _json(_list(POD, NODE, POD)),
            "c: items[2] (Pod shop/web): Pod shop/web is defined already in items[0]",
            id="the same pod twice",
        ),
        pytest.param(
            _json(_list(POD, {**POD, "metadata": {**POD["metadata"], "name": "copy"}})),
            "c: items[1] (Pod shop/copy): metadata.uid uid-of-shop-web is already in items[0]",
            id="one uid for two pods",
        ),
        pytest.param(
            _json({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": {}}}),
            "c: Pod default/a: spec.containers: expected `array`, got `object`",
            id="a pod by hand, of the wrong shape",
        ),
        pytest.param(
            _json(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "a"},
                    "spec": {"containers": [{"name": "c", "livenessProbe": 5}]},
                }
            ),
            "c: Pod default/a: spec: does not have the shape of a pod's spec",
            id="a pod by hand, wrong where scheduling does not look",
        ),
    ],
)
def test_an_error_in_a_file_is_reported_with_place_and_field(data: bytes, message: str) -> None:
    with pytest.raises(ClusterFileError) as error:
        parse(data, "c")

    assert str(error.value).startswith(message)
    assert len(error.value.faults) == 1


def test_all_errors_in_a_file_are_reported_at_once() -> None:
    with pytest.raises(ClusterFileError) as error:
        parse(_yaml(_list(node_object("n1", cpu="x"), 5), node_object("n2", cpu="y"), {"a": 1}), "c")

    assert [fault.path for fault in error.value.faults] == [
        "document 1, items[1]",
        "document 1, items[0] (Node n1)",
        "document 2 (Node n2)",
        "document 3",
    ]


def test_the_first_of_very_many_errors_are_listed_and_the_rest_counted() -> None:
    with pytest.raises(ClusterFileError) as error:
        parse(_json([5] * 200), "c")

    lines = str(error.value).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "c: and 150 more errors"
    assert len(error.value.faults) == 200


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError, match=r"gone\.json: cannot be read: No such file or directory"):
        load(str(tmp_path / "gone.json"))


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(_json(NODE))))

    assert [each.name for each in load("-").nodes] == ["n1"]


_MUTANTS = _json(_list(NODE, POD, SERVICE)).decode()


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ClusterFileError):
        parse(data, "c")


@given(
    place=st.integers(0, len(_MUTANTS)),
    length=st.integers(0, 12),
    put=st.sampled_from(
        ["", "{", "]", '"', "null", "5", "[]", "{}", '"\\ud800"', ",", ": ", "NaN", "1e999", "\n---\n"]
    ),
)
def test_any_changed_valid_file_is_read_or_refused(place: int, length: int, put: str) -> None:
    with contextlib.suppress(ClusterFileError):
        parse((_MUTANTS[:place] + put + _MUTANTS[place + length :]).encode(), "c")


# Names.


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Widget", "widgets"),
        ("NetworkPolicy", "networkpolicies"),
        ("StorageClass", "storageclasses"),
        ("Endpoints", "endpoints"),
    ],
)
def test_unknown_kinds_get_the_likely_plural(kind: str, expected: str) -> None:
    assert plural(kind) == expected


def test_other_kinds_are_stored_under_the_name_that_plugins_use() -> None:
    objects = [
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}},
        {"apiVersion": "example.com/v1", "kind": "Policy", "metadata": {"name": "p", "namespace": "x"}},
    ]

    others = parse(_json(_list(*objects)), "cluster").others

    assert {kind: list(found) for kind, found in others.items()} == {
        "storage.k8s.io/v1/csinodes": ["n1"],
        "v1/persistentvolumeclaims": ["default/data"],
        "example.com/v1/policies": ["x/p"],
    }


# The quick reader of YAML says what the careful one says.

_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.sampled_from(
        ["", "a", "yes", "010", "1e3", "2024-01-01", "n: o", "- x", "#", "ü", "null", "~", "0x1F"]
    ),
)
_documents = st.recursive(
    _plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(_documents)
def test_both_readers_of_yaml_give_the_same_values(value: Any) -> None:
    text = write({"value": value})

    assert [document.value for document in read_all(text)] == [read(text).value] == [{"value": value}]
