"""Protobuf requests of a stock kube-scheduler and kube-controller-manager 1.36 are decoded.

`stock_bodies.jsonl` has one request for each kind of body of a session with claims, devices and jobs.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.objects.protobuf import CONTENT_TYPE
from scheduler.simulator.api.requests import delete_options, read_body, request_info
from scheduler.simulator.apimachinery.structure import WriteOptions, read_object
from scheduler.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.simulator.registry.deletion import DeleteOptions

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
