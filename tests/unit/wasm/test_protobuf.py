"""Objects as protobuf, held against what Go's own marshaller wrote."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.wasm.protobuf import encode, node_list

VECTORS: list[dict[str, Any]] = msgspec.json.decode(
    gzip.decompress((Path(__file__).parent / "protobuf-vectors.json.gz").read_bytes())
)
"""Every field of every message that a Pod or a Node holds is in one of these, and absent in another."""


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_an_object_is_written_byte_for_byte_as_go_does(vector: dict[str, Any]) -> None:
    assert encode(vector["kind"], vector["object"]).hex() == vector["protobuf_hex"]


@pytest.mark.parametrize("kind", ["Pod", "Node"])
def test_null_is_as_good_as_absent(kind: str) -> None:
    assert encode(kind, {"metadata": None, "spec": {"taints": None}}) == encode(kind, {"spec": {}})


def test_fields_that_are_not_known_yet_are_left_out() -> None:
    assert encode("Node", {"spec": {"fromTheFuture": 1}}) == encode("Node", {})


def test_a_time_of_go_s_zero_is_empty() -> None:
    zero = {"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}

    assert encode("Pod", zero) == encode("Pod", {})


def test_quantities_are_written_in_their_canonical_form() -> None:
    def capacity(cpu: str) -> bytes:
        return encode("Node", {"status": {"capacity": {"cpu": cpu}}})

    assert capacity("0.5") == capacity("500m")


@pytest.mark.parametrize(
    ("obj", "told"),
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
def test_a_field_of_another_type_is_refused_with_its_path(obj: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        encode("Pod", obj)

    assert told in str(refusal.value)


def test_an_unknown_message_is_refused() -> None:
    with pytest.raises(LookupError, match="Service is no message that a Pod or a Node holds"):
        encode("Service", {})


def test_a_list_holds_its_nodes_after_an_empty_head() -> None:
    one = encode("Node", {"metadata": {"name": "n"}})

    assert node_list([one, one]).hex() == "0a060a0012001a00" + 2 * (f"12{len(one):02x}" + one.hex())
