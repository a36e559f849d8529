"""Objects as protobuf, compared with the output of Go's own marshaller."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.objects.protobuf import MAGIC, decode, encode, encode_list, unwrap, wrap

VECTORS: list[dict[str, Any]] = msgspec.json.decode(
    gzip.decompress((Path(__file__).parent / "protobuf-vectors.json.gz").read_bytes())
)
"""Three objects of every kind: one with nothing, one with half of all fields, one with every field that types have."""

EACH = pytest.mark.parametrize(
    "vector", VECTORS, ids=[f"{place} {one['apiVersion']} {one['kind']}" for place, one in enumerate(VECTORS)]
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@EACH
def test_an_object_is_encoded_byte_for_byte_as_in_go(vector: dict[str, Any]) -> None:
    assert encode(vector["apiVersion"], vector["kind"], vector["object"]).hex() == vector["protobuf_hex"]


@EACH
def test_an_object_is_decoded_as_in_go(vector: dict[str, Any]) -> None:
    read = decode(vector["apiVersion"], vector["kind"], bytes.fromhex(vector["protobuf_hex"]))

    assert read == without_nulls(vector["object"])


@pytest.mark.parametrize(
    "zero",
    [
        pytest.param({"nodeName": "", "hostPID": False, "nodeSelector": {}}, id="a value"),
        pytest.param({"tolerations": []}, id="a list"),
    ],
)
def test_zero_equals_a_missing_field_except_behind_a_pointer(zero: dict[str, Any]) -> None:
    written = encode("v1", "PodSpec", {**zero, "priority": 0})

    assert written == encode("v1", "PodSpec", {"priority": 0})
    assert decode("v1", "PodSpec", written)["priority"] == 0


@pytest.mark.parametrize("kind", ["Pod", "Node"])
def test_null_equals_a_missing_field(kind: str) -> None:
    assert encode("v1", kind, {"metadata": None, "spec": {"taints": None}}) == encode(
        "v1", kind, {"spec": {}}
    )


def test_unknown_fields_are_left_out() -> None:
    assert encode("v1", "Node", {"spec": {"fromTheFuture": 1}}) == encode("v1", "Node", {})


def test_the_zero_time_of_go_is_empty() -> None:
    zero = {"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}

    assert encode("v1", "Pod", zero) == encode("v1", "Pod", {})


def test_quantities_are_written_in_their_canonical_form() -> None:
    def capacity(cpu: str) -> bytes:
        return encode("v1", "Node", {"status": {"capacity": {"cpu": cpu}}})

    assert capacity("0.5") == capacity("500m")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(
            {"metadata": {"name": 7}}, "metadata.name: text is expected, was 7", id="number for text"
        ),
        pytest.param(
            {"spec": {"containers": [{"ports": [{"hostPort": "x"}]}]}},
            "spec.containers.ports.hostPort: an integer is expected, was 'x'",
            id="text for number",
        ),
        pytest.param({"spec": []}, "spec: a mapping is expected, was []", id="list for mapping"),
        pytest.param(
            {"spec": {"hostPID": 1}}, "spec.hostPID: true or false is expected", id="number for bool"
        ),
        pytest.param({"spec": {"volumes": {}}}, "spec.volumes: a list is expected", id="mapping for list"),
        pytest.param(
            {"spec": {"overhead": {"cpu": "much"}}},
            "spec.overhead: 'much' is not a quantity",
            id="no quantity",
        ),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_path(obj: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        encode("v1", "Pod", obj)

    assert expected in str(refusal.value)


def test_an_unknown_message_is_refused() -> None:
    with pytest.raises(LookupError, match="no type Gnome of v1"):
        encode("v1", "Gnome", {})


def test_a_list_holds_its_nodes_after_an_empty_head() -> None:
    one = encode("v1", "Node", {"metadata": {"name": "n"}})

    assert encode_list([one, one]).hex() == "0a060a0012001a00" + 2 * (f"12{len(one):02x}" + one.hex())


def test_a_list_may_have_a_version() -> None:
    items = [{"metadata": {"name": "n"}}, {}]
    written = encode_list([encode("v1", "Node", item) for item in items], {"resourceVersion": "7"})

    assert written == encode("v1", "NodeList", {"metadata": {"resourceVersion": "7"}, "items": items})


def test_an_envelope_names_its_content() -> None:
    body = wrap("apps/v1", "Deployment", b"content")

    assert body == MAGIC + b"\x0a\x15\x0a\x07apps/v1\x12\x0aDeployment\x12\x07content\x1a\x00\x22\x00"
    assert unwrap(body) == ("apps/v1", "Deployment", b"content")


def test_a_pod_group_is_encoded_with_its_field_numbers() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "Pod", "priority": 0}

    written = encode("scheduling.k8s.io/v1alpha2", "PodGroupSpec", spec)

    assert written == b"\x12\x04" + b"\x12\x02\x08\x02" + b"\x2a\x03Pod" + b"\x32\x00" + b"\x38\x00"
    assert decode("scheduling.k8s.io/v1alpha2", "PodGroupSpec", written) == spec


def test_an_event_of_a_watch_holds_an_object_in_its_envelope() -> None:
    event = {"type": "ADDED", "object": wrap("v1", "Node", encode("v1", "Node", {}))}

    assert decode("v1", "WatchEvent", encode("v1", "WatchEvent", event)) == event


def test_maps_are_written_in_the_order_of_their_keys() -> None:
    def labelled(*keys: str) -> bytes:
        return encode("v1", "Node", {"metadata": {"labels": dict.fromkeys(keys, "x")}})

    assert labelled("b", "a") == labelled("a", "b")
