from __future__ import annotations

import pytest

from scheduler.objects.protobuf import CONTENT_TYPE, encode, wrap
from scheduler.simulator.api.requests import read_body
from scheduler.simulator.apimachinery.status import StatusError


def test_an_object_in_protobuf_is_decoded_as_in_json():
    service = {
        "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}]},
        "status": {},
    }
    body = wrap("v1", "Service", encode("v1", "Service", service))

    found = read_body(body, CONTENT_TYPE, "Service")

    assert found == {"kind": "Service", "apiVersion": "v1", **service, "status": {"loadBalancer": {}}}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param(b"{}", 400, "does not appear to be a protobuf message", id="no envelope"),
        pytest.param(b"k8s\x00\x0a\x7f", 400, "broken protobuf", id="cut off"),
        pytest.param(wrap("v1", "Node", b"\x09" + bytes(8)), 400, "wire type 1", id="an unused wire type"),
        pytest.param(wrap("v1", "Node", b"\x0a\x03\x0a\x01\xff"), 400, "utf-8", id="no text"),
        pytest.param(wrap("v1", "Gnome", b""), 415, "no type Gnome of v1 is known", id="another kind"),
        pytest.param(wrap("v1", "ConfigMap", b"\x7a\x00"), 415, "no field 15 of ConfigMap", id="another field"),
    ],
)  # fmt: skip
def test_invalid_protobuf_is_refused(body: bytes, code: int, message: str):
    with pytest.raises(StatusError) as caught:
        read_body(body, CONTENT_TYPE, "Node")

    assert caught.value.code == code
    assert message in caught.value.message
