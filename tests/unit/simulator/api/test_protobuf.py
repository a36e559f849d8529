from __future__ import annotations

from typing import Any

import pytest

from scheduler.simulator.api.protobuf import decode_protobuf
from scheduler.simulator.apimachinery.status import StatusError


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return (
        b"k8s\x00"
        + field(1, field(1, api_version) + field(2, kind))
        + field(2, raw)
        + field(3, "")
        + field(4, "")
    )


def test_a_namespace_is_decoded():
    metadata = field(1, "shop") + field(8, b"") + field(11, field(1, "team") + field(2, "a")) + field(7, 0)

    decoded = decode_protobuf(
        envelope("v1", "Namespace", field(1, metadata) + field(2, b"") + field(3, field(1, "")))
    )

    assert decoded == {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": "shop", "labels": {"team": "a"}, "generation": 0},
    }


def test_lists_numbers_and_ports_are_decoded():
    port = field(3, 80) + field(4, field(1, 1) + field(3, "http"))
    other = field(3, 81) + field(4, field(1, 0) + field(2, 8081))

    decoded = decode_protobuf(
        envelope("v1", "Service", field(2, field(1, port) + field(1, other) + field(13, 1)))
    )

    assert decoded["spec"] == {
        "ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}],
        "publishNotReadyAddresses": True,
    }


def test_negative_numbers_keep_their_sign():
    decoded = decode_protobuf(envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -5)))

    assert decoded["value"] == -5


def test_bytes_become_base64():
    decoded = decode_protobuf(envelope("v1", "Secret", field(2, field(1, "key") + field(2, b"\x00\xff"))))

    assert decoded["data"] == {"key": "AP8="}


def test_a_review_with_all_that_is_known_of_its_subject_is_decoded():
    extra = field(1, "scopes") + field(2, field(1, "a") + field(1, "b"))
    spec = (
        field(2, field(1, "/metrics") + field(2, "get"))
        + field(3, "ann")
        + field(4, "crew")
        + field(5, extra)
    )

    decoded = decode_protobuf(envelope("authorization.k8s.io/v1", "SubjectAccessReview", field(2, spec)))

    assert decoded["spec"] == {
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        "user": "ann",
        "groups": ["crew"],
        "extra": {"scopes": ["a", "b"]},
    }


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param(b"{}", 400, "does not appear to be a protobuf message", id="no envelope"),
        pytest.param(b"k8s\x00\x0a\x7f", 400, "broken protobuf", id="cut off"),
        pytest.param(envelope("v1", "Namespace", b"\x09" + b"\0" * 8), 400, "wire type 1", id="a wire type nobody uses"),
        pytest.param(envelope("v1", "Node", b""), 415, "messages of kind Node", id="another kind"),
        pytest.param(envelope("v1", "ConfigMap", field(99, "x")), 415, "field 99 of ConfigMap", id="another field"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(body: Any, code: int, message: str):
    with pytest.raises(StatusError) as caught:
        decode_protobuf(body)

    assert caught.value.code == code
    assert message in caught.value.message
