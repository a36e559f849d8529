"""Request bodies, also recorded ones of a kube-scheduler and a kube-controller-manager 1.36.

`stock_bodies.jsonl` has one request for each kind of body of a session with claims, devices and jobs.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.objects.protobuf import CONTENT_TYPE, encode, wrap
from scheduler.tools.simulator.api.requests import delete_options, read_body, request_info
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.structure import WriteOptions, read_object
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.registry.deletion import DeleteOptions


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


LINES = Path(__file__).with_name("stock_bodies.jsonl").read_text().splitlines()
REQUESTS = [json.loads(line) for line in LINES]
KINDS = builtin_kinds()


def cases(*, deletes: bool) -> list[Any]:
    found = []
    for request in REQUESTS:
        if (request["method"] == "DELETE") == deletes:
            info = request_info(request["method"], request["path"], {}, KINDS)
            part = f"_{info.subresource}" if info.subresource else ""
            found.append(pytest.param(request, id=f"{request['method'].lower()}_{info.resource}{part}"))
    return found


@pytest.mark.parametrize("request_", cases(deletes=False))
def test_an_object_that_controllers_write_is_decoded_completely(request_: dict[str, str]):
    info = request_info(request_["method"], request_["path"], {}, KINDS)
    found = read_body(base64.b64decode(request_["body"]), CONTENT_TYPE, "")
    if info.subresource == "binding":
        assert found["target"]["kind"] == "Node"
        return
    assert info.kind is not None
    obj = read_object(info.kind, found, WriteOptions(field_validation="Strict"))
    metadata = obj["metadata"]
    assert info.name in {"", metadata.get("name")}
    assert metadata.get("name") or metadata.get("generateName")


@pytest.mark.parametrize("request_", cases(deletes=True))
def test_delete_options_of_controllers_are_decoded(request_: dict[str, str]):
    assert delete_options(base64.b64decode(request_["body"]), CONTENT_TYPE, {}) == DeleteOptions()


def test_there_are_recorded_bodies():
    assert len(REQUESTS) > 30
